//! The rows that a create is given, from wherever the caller has them.

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use lance::deps::datafusion::execution::SendableRecordBatchStream;

/// The rows of a new table.
///
/// Made from a record batch, a non-empty vector of them, a boxed `RecordBatchReader` or a stream of batches; from any
/// other reader with [`TableData::reader`], and for a table without rows with [`TableData::empty`].
pub struct TableData(pub(super) Source);

pub(super) enum Source {
    Batches(Vec<RecordBatch>),
    Reader(Box<dyn RecordBatchReader + Send>),
    Stream(SendableRecordBatchStream),
}

impl TableData {
    /// Rows from a reader.
    pub fn reader(reader: impl RecordBatchReader + Send + 'static) -> Self {
        Self(Source::Reader(Box::new(reader)))
    }

    /// No rows, only a schema.
    pub fn empty(schema: SchemaRef) -> Self {
        Self::from(RecordBatch::new_empty(schema))
    }
}

impl std::fmt::Debug for TableData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Source::Batches(_) => "TableData(batches)",
            Source::Reader(_) => "TableData(reader)",
            Source::Stream(_) => "TableData(stream)",
        })
    }
}

impl From<RecordBatch> for TableData {
    fn from(batch: RecordBatch) -> Self {
        Self(Source::Batches(vec![batch]))
    }
}

impl From<Vec<RecordBatch>> for TableData {
    fn from(batches: Vec<RecordBatch>) -> Self {
        Self(Source::Batches(batches))
    }
}

impl From<Box<dyn RecordBatchReader + Send>> for TableData {
    fn from(reader: Box<dyn RecordBatchReader + Send>) -> Self {
        Self(Source::Reader(reader))
    }
}

impl From<SendableRecordBatchStream> for TableData {
    fn from(stream: SendableRecordBatchStream) -> Self {
        Self(Source::Stream(stream))
    }
}
