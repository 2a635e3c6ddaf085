//! Tables, rows and roots that the tests share.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use lancekeep::arrow::array::{AsArray, Int32Array, RecordBatch};
use lancekeep::arrow::datatypes::Int32Type;
use lancekeep::lance::dataset::{Dataset, WriteMode, WriteParams};
use lancekeep::{Catalog, Clock};

use crate::support::{Actor, StoreClock};

/// A batch with one column `id`.
pub(crate) fn rows(ids: impl IntoIterator<Item = i32>) -> RecordBatch {
    let ids = Arc::new(Int32Array::from_iter_values(ids)) as _;
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

/// All ids of a table, sorted.
pub(crate) async fn ids(dataset: &Dataset) -> Vec<i32> {
    let batches: Vec<RecordBatch> = dataset
        .scan()
        .try_into_stream()
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let mut ids: Vec<i32> = batches
        .iter()
        .flat_map(|b| b.column(0).as_primitive::<Int32Type>().values().to_vec())
        .collect();
    ids.sort_unstable();
    ids
}

/// The ids of a live table, read through the catalog.
pub(crate) async fn table_ids(catalog: &Catalog, name: &str) -> Vec<i32> {
    ids(&catalog.open_table(name).await.unwrap()).await
}

/// Writes a table as an application without a catalog does.
pub(crate) async fn write_with_plain_lance(uri: &str, ids: impl IntoIterator<Item = i32>) {
    let batch = rows(ids);
    let schema = batch.schema();
    let reader = lancekeep::arrow::array::RecordBatchIterator::new([Ok(batch)], schema);
    let params = WriteParams {
        mode: WriteMode::Create,
        ..Default::default()
    };
    Dataset::write(reader, uri, Some(params)).await.unwrap();
}

/// A catalog on the shared memory store, through this actor's requests. Short leases, so that recovery can be waited
/// for.
pub(crate) async fn catalog_of(actor: &Actor) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .leases(LEASE, LEASE)
        .build()
        .await
        .unwrap()
}

/// Lease of [`catalog_of`].
pub(crate) const LEASE: Duration = Duration::from_millis(400);

/// A temporary local root and a catalog on it.
pub(crate) async fn local() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::connect(dir.path().to_str().unwrap())
        .await
        .unwrap();
    (dir, catalog)
}

/// The store's own clock as a catalog's.
#[derive(Debug)]
pub(crate) struct StoreTime(pub(crate) StoreClock);

impl Clock for StoreTime {
    fn now(&self) -> DateTime<Utc> {
        self.0.now()
    }
}
