//! `__manifest` at one version, remembered from look to look.
//!
//! A version of a Lance table never changes, so its rows are read once, by whichever look comes first; each later look
//! asks the store only which version is the latest: with a LIST, since the version after this one may be cleaned up while
//! later ones are there. What the catalog's own commit made of a version is known
//! without reading it, when no other commit came in between.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt;
use lance::dataset::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance_namespace_impls::dir::manifest_feature_flags::ensure_readable;

use super::deletion::{self, Deletion};
use super::manifest::{NAME, Row, slot};
use crate::error::{Error, Result, Subject, from_base};
use crate::ident::TableIdent;
use crate::store::{RootStore, is_not_found};
use crate::versions::fence::same_tag;

/// Rows that are remembered, at about 150 bytes each. A larger manifest is scanned with a filter at each look.
const KEPT: usize = 100_000;

/// Batches that the rows are kept in; each row that is added comes in one of its own.
const BATCHES: usize = 64;

const COLUMNS: [&str; 4] = ["object_id", "object_type", "location", "metadata"];

/// A row as it is recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) id: &'a str,
    pub(super) kind: &'a str,
    pub(super) location: Option<&'a str>,
    pub(super) metadata: Option<&'a str>,
}

impl Raw<'_> {
    pub(super) fn is_table(self) -> bool {
        self.kind == "table"
    }
}

/// What a commit of the catalog's own does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    Added(Raw<'a>),
    Removed(&'a str),
}

/// The namespace manifest at one version.
#[derive(Debug)]
pub(crate) struct Snapshot {
    dataset: Dataset,
    /// All rows, unless they are too many to keep.
    rows: Option<Vec<RecordBatch>>,
}

/// The version that this process has seen last.
#[derive(Debug, Default)]
pub(crate) struct View {
    seen: Mutex<Option<Arc<Snapshot>>>,
}

fn failed(store: &RootStore, e: lance_core::Error) -> Error {
    let ident = TableIdent::from(NAME);
    from_base(e, "read", Subject::Table(&ident), &store.redactor)
}

pub(super) fn is_gone(e: &lance_core::Error) -> bool {
    use lance_core::Error as L;
    matches!(e, L::NotFound { .. } | L::DatasetNotFound { .. }) || is_not_found(e)
}

fn version_of(dataset: &Dataset) -> u64 {
    dataset.manifest().version
}

/// Whether both are one version, and one object: a manifest that was removed by hand may have grown again.
fn is_same(one: &Dataset, other: &Dataset) -> bool {
    let (one, other) = (one.manifest_location(), other.manifest_location());
    one.version == other.version && same_tag(one.e_tag.as_deref(), other.e_tag.as_deref())
}

/// As the manifest itself tells it, without a request.
fn count_of(dataset: &Dataset) -> Option<usize> {
    let fragments = dataset.manifest().fragments.iter();
    fragments.map(|fragment| fragment.num_rows()).sum()
}

async fn scan(
    store: &RootStore,
    dataset: &Dataset,
    filter: Option<&str>,
) -> Result<Vec<RecordBatch>> {
    let mut scanner = dataset.scan();
    scanner.project(&COLUMNS).map_err(|e| failed(store, e))?;
    if let Some(filter) = filter {
        scanner.filter(filter).map_err(|e| failed(store, e))?;
    }
    let batches = scanner.try_into_stream().await;
    let batches = batches.map_err(|e| failed(store, e))?;
    batches.try_collect().await.map_err(|e| failed(store, e))
}

/// The rows of a batch, in order.
fn raws(batch: &RecordBatch) -> Result<impl Iterator<Item = Raw<'_>>> {
    let column = |name: &str| {
        let column = batch.column_by_name(name);
        column
            .and_then(|c| c.as_string_opt::<i32>())
            .ok_or_else(|| Error::CorruptMetadata {
                path: NAME.to_string(),
                message: format!("no text column {name}"),
            })
    };
    let [ids, kinds, locations, metadata] = COLUMNS.map(column);
    let (ids, kinds, locations, metadata) = (ids?, kinds?, locations?, metadata?);
    let text = |column: &'_ StringArray, row: usize| column.is_valid(row);
    Ok((0..batch.num_rows()).map(move |row| Raw {
        id: ids.value(row),
        kind: kinds.value(row),
        location: text(locations, row).then(|| locations.value(row)),
        metadata: text(metadata, row).then(|| metadata.value(row)),
    }))
}

fn schema() -> SchemaRef {
    let fields = COLUMNS.map(|name| Field::new(name, DataType::Utf8, true));
    Arc::new(Schema::new(fields.to_vec()))
}

fn batch_of(raw: Raw<'_>) -> Result<RecordBatch> {
    let values = [Some(raw.id), Some(raw.kind), raw.location, raw.metadata];
    let columns = values.map(|value| -> ArrayRef { Arc::new(StringArray::from(vec![value])) });
    RecordBatch::try_new(schema(), columns.to_vec()).map_err(corrupt)
}

fn corrupt(e: arrow::error::ArrowError) -> Error {
    Error::CorruptMetadata {
        path: NAME.to_string(),
        message: e.to_string(),
    }
}

impl Snapshot {
    pub(super) fn version(&self) -> u64 {
        version_of(&self.dataset)
    }

    /// The rows that a predicate keeps. The filter says the same or less in SQL, for a manifest that has to be scanned.
    pub(super) async fn select(
        &self,
        store: &RootStore,
        filter: Option<&str>,
        keep: impl Fn(Raw<'_>) -> bool,
    ) -> Result<Vec<Row>> {
        let scanned;
        let batches = match &self.rows {
            Some(rows) => rows,
            None => {
                scanned = scan(store, &self.dataset, filter).await?;
                &scanned
            }
        };
        let mut kept = Vec::new();
        for batch in batches {
            kept.extend(raws(batch)?.filter(|raw| keep(*raw)).map(Row::from));
        }
        Ok(kept)
    }

    async fn load(store: &RootStore, dataset: Dataset) -> Result<Self> {
        ensure_readable(dataset.metadata()).map_err(|e| failed(store, e))?;
        let few = count_of(&dataset).is_some_and(|count| count <= KEPT);
        let rows = match few {
            true => Some(scan(store, &dataset, None).await?),
            false => None,
        };
        Ok(Self { dataset, rows })
    }

    pub(super) async fn delete(
        &self,
        store: &RootStore,
        predicate: &str,
    ) -> lance_core::Result<Deletion> {
        deletion::delete(&self.dataset, &store.commit_handler, predicate).await
    }

    /// The rows after a change; `None` where this one cannot tell.
    fn changed(&self, change: Change<'_>) -> Result<Option<Vec<RecordBatch>>> {
        let Some(mut rows) = self.rows.clone() else {
            return Ok(None);
        };
        match change {
            Change::Added(raw) => {
                rows.push(batch_of(raw)?);
                if rows.len() > BATCHES {
                    rows = vec![concat_batches(&schema(), &rows).map_err(corrupt)?];
                }
            }
            Change::Removed(id) => {
                for batch in &mut rows {
                    let keep: Vec<bool> = raws(batch)?.map(|raw| raw.id != id).collect();
                    if keep.contains(&false) {
                        *batch = filter_record_batch(batch, &keep.into()).map_err(corrupt)?;
                    }
                }
            }
        }
        Ok(Some(rows))
    }
}

impl View {
    fn seen(&self) -> Option<Arc<Snapshot>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    fn remember(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let snapshot = Arc::new(snapshot);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // An earlier one by a slow look only costs the next look a read.
        *seen = Some(Arc::clone(&snapshot));
        drop(seen);
        snapshot
    }

    /// See [`Manifest::now`](super::manifest::Manifest::now).
    pub(super) async fn now(&self, store: &RootStore) -> Result<Option<Arc<Snapshot>>> {
        let Some(seen) = self.seen() else {
            return self.open(store).await;
        };
        match self.latest(store, &seen, None).await? {
            Some(now) => Ok(Some(now)),
            // Removed by hand, or only what was just listed is gone already.
            None => self.open(store).await,
        }
    }

    /// The manifest after a commit of this process that followed `seen`: 1 LIST, and the reads only if the commit was not
    /// the one after it.
    pub(super) async fn after(
        &self,
        store: &RootStore,
        seen: &Snapshot,
        change: Change<'_>,
    ) -> Result<Arc<Snapshot>> {
        let after = self.latest(store, seen, Some(change)).await?;
        after.ok_or_else(|| Error::CorruptMetadata {
            path: NAME.to_string(),
            message: "it is gone right after it was written".to_string(),
        })
    }

    async fn latest(
        &self,
        store: &RootStore,
        seen: &Snapshot,
        change: Option<Change<'_>>,
    ) -> Result<Option<Arc<Snapshot>>> {
        let mut dataset = seen.dataset.clone();
        match dataset.checkout_latest().await {
            Err(e) if is_gone(&e) => return Ok(None),
            latest => latest.map_err(|e| failed(store, e))?,
        }
        if let Some(change) = change {
            let (before, after) = (count_of(&seen.dataset), count_of(&dataset));
            let expected = match change {
                Change::Added(_) => before.map(|n| n + 1),
                Change::Removed(_) => before.and_then(|n| n.checked_sub(1)),
            };
            let next = version_of(&dataset) == version_of(&seen.dataset) + 1;
            // It followed `seen`, so it is the latest where that is the next one; the count is a second witness.
            if next && after.is_some() && after == expected {
                let rows = seen.changed(change)?;
                return Ok(Some(self.remember(Snapshot { dataset, rows })));
            }
        }
        if let Some(seen) = self.seen()
            && is_same(&seen.dataset, &dataset)
        {
            return Ok(Some(seen));
        }
        let snapshot = Snapshot::load(store, dataset).await?;
        Ok(Some(self.remember(snapshot)))
    }

    async fn open(&self, store: &RootStore) -> Result<Option<Arc<Snapshot>>> {
        let slot = slot(store)?;
        let opened = DatasetBuilder::from_uri(&slot.uri)
            .with_store_params(store.params.clone())
            .with_session(store.session.clone())
            .load()
            .await;
        let dataset = match opened {
            Ok(dataset) => dataset,
            // Whether there is none is looked at only then: almost always there is one.
            Err(e) => match store.latest_manifest(&slot.table).await? {
                None => return Ok(None),
                Some(_) => return Err(failed(store, e)),
            },
        };
        let snapshot = Snapshot::load(store, dataset).await?;
        Ok(Some(self.remember(snapshot)))
    }
}
