//! Tables in a namespace: ours against the base alone, which is the stock directory namespace with a manifest.
//!
//! Both have looked at the namespace before, so that opening the manifest for the first time is in neither's figure.

use std::sync::Arc;

use futures::TryStreamExt;
use lance::dataset::builder::DatasetBuilder;
use lancekeep::arrow::array::{
    ArrayRef, AsArray, RecordBatch, RecordBatchIterator, StringArray, UInt32Array,
};
use lancekeep::arrow::compute::take;
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{
    CreateTableRequest, DropTableRequest, ListTablesRequest, NamespaceExistsRequest,
    TableExistsRequest,
};
use lancekeep::{Catalog, NamespaceIdent};

use crate::contestants::{MANIFEST, OURS, catalog, directory, ipc, parts, through};
use crate::measure::{Contestant, Group, Place, Root, compare, timed};
use crate::roots::rows;
use crate::sizes::Sizes;
use crate::support::SharedMemory;

pub(crate) const CREATE: &str = "create a child table";
pub(crate) const OPEN: &str = "open a child table";
pub(crate) const LIST: &str = "list child tables";
pub(crate) const EXISTS: &str = "whether a child table exists";
pub(crate) const DROP: &str = "drop a child table";

const SPACE: &str = "space";
const TABLE: &str = "table";
const NEW: &str = "new";

/// A memory store whose namespace manifest has so many tables, of which one is real.
async fn with_entries(entries: usize) -> SharedMemory {
    let memory = SharedMemory::new();
    let session = memory.actor().session;
    let builder = Catalog::builder("memory://root").session(session.clone());
    let catalog = builder.build().await.unwrap();
    catalog.create_namespace(SPACE).await.unwrap();
    catalog.create_table([SPACE, TABLE], rows(3)).await.unwrap();
    if entries == 1 {
        return memory;
    }
    let builder = DatasetBuilder::from_uri("memory://root/__manifest").with_session(session);
    let mut manifest = builder.load().await.unwrap();
    let scanned = manifest.scan().try_into_stream().await.unwrap();
    let batches: Vec<RecordBatch> = scanned.try_collect().await.unwrap();
    let real = format!("{SPACE}${TABLE}");
    let (batch, row) = batches
        .iter()
        .find_map(|batch| {
            let ids = batch
                .column_by_name("object_id")
                .unwrap()
                .as_string::<i32>();
            let row = ids.iter().position(|id| id == Some(real.as_str()))?;
            Some((batch, row as u32))
        })
        .unwrap();
    let copies = UInt32Array::from(vec![row; entries - 1]);
    let schema = batch.schema();
    let columns = batch.columns().iter().zip(schema.fields());
    let columns: Vec<ArrayRef> = columns
        .map(|(column, field)| match field.name().as_str() {
            "object_id" => {
                let ids = (1..entries).map(|n| format!("{SPACE}$copy-{n:06}"));
                Arc::new(StringArray::from_iter_values(ids)) as ArrayRef
            }
            // Nobody shares the real one's directory, so that a drop deletes it.
            "location" => {
                let locations = (1..entries).map(|n| format!("copy-{n:06}"));
                Arc::new(StringArray::from_iter_values(locations)) as ArrayRef
            }
            _ => take(column, &copies, None).unwrap(),
        })
        .collect();
    let more = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let reader = RecordBatchIterator::new([Ok(more)], schema);
    manifest.append(reader, None).await.unwrap();
    memory
}

async fn ours(root: &Root) -> Catalog {
    let catalog = catalog(root).await;
    assert!(catalog.namespace_exists(SPACE).await.unwrap());
    catalog
}

async fn base(root: &Root) -> Arc<dyn LanceNamespace> {
    let namespace = directory(root, true).await;
    let request = NamespaceExistsRequest {
        id: Some(parts(&[SPACE])),
        ..Default::default()
    };
    namespace.namespace_exists(request).await.unwrap();
    Arc::new(namespace)
}

fn creates() -> Vec<Contestant> {
    vec![
        Contestant::new(OURS, |root| async move {
            let catalog = ours(&root).await;
            timed(async move { drop(catalog.create_table([SPACE, NEW], rows(3)).await.unwrap()) })
        }),
        Contestant::new(MANIFEST, |root| async move {
            let namespace = base(&root).await;
            let request = CreateTableRequest {
                id: Some(parts(&[SPACE, NEW])),
                ..Default::default()
            };
            let data = ipc(&rows(3));
            timed(async move { drop(namespace.create_table(request, data.into()).await.unwrap()) })
        }),
    ]
}

fn opens() -> Vec<Contestant> {
    vec![
        Contestant::new(OURS, |root| async move {
            let catalog = ours(&root).await;
            timed(async move { drop(catalog.open_table([SPACE, TABLE]).await.unwrap()) })
        }),
        Contestant::new(MANIFEST, |root| async move {
            let namespace = base(&root).await;
            timed(async move { through(namespace, &root, &[SPACE, TABLE]).await })
        }),
    ]
}

fn lists(entries: usize) -> Vec<Contestant> {
    vec![
        Contestant::new(OURS, move |root| async move {
            let catalog = ours(&root).await;
            timed(async move {
                let listing = catalog.list_tables().namespace(NamespaceIdent::from(SPACE));
                assert_eq!(listing.await.unwrap().tables.len(), entries);
            })
        }),
        Contestant::new(MANIFEST, move |root| async move {
            let namespace = base(&root).await;
            let request = ListTablesRequest {
                id: Some(parts(&[SPACE])),
                ..Default::default()
            };
            timed(async move {
                let listed = namespace.list_tables(request).await.unwrap();
                assert_eq!(listed.tables.len(), entries);
            })
        }),
    ]
}

fn asks() -> Vec<Contestant> {
    vec![
        Contestant::new(OURS, |root| async move {
            let catalog = ours(&root).await;
            timed(async move { assert!(catalog.table_exists([SPACE, TABLE]).await.unwrap()) })
        }),
        Contestant::new(MANIFEST, |root| async move {
            let namespace = base(&root).await;
            let request = TableExistsRequest {
                id: Some(parts(&[SPACE, TABLE])),
                ..Default::default()
            };
            timed(async move { namespace.table_exists(request).await.unwrap() })
        }),
    ]
}

/// Both delete the table at once.
fn drops() -> Vec<Contestant> {
    vec![
        Contestant::new(OURS, |root| async move {
            let catalog = ours(&root).await;
            timed(async move { drop(catalog.drop_table([SPACE, TABLE]).await.unwrap()) })
        }),
        Contestant::new(MANIFEST, |root| async move {
            let namespace = base(&root).await;
            let request = DropTableRequest {
                id: Some(parts(&[SPACE, TABLE])),
                ..Default::default()
            };
            timed(async move { drop(namespace.drop_table(request).await.unwrap()) })
        }),
    ]
}

pub(crate) async fn all(sizes: &Sizes) -> Vec<Group> {
    let mut groups = Vec::new();
    for entries in sizes.entries.iter().copied() {
        let place = Place::Slow(with_entries(entries).await);
        let all = [
            (CREATE, creates()),
            (OPEN, opens()),
            (LIST, lists(entries)),
            (EXISTS, asks()),
            (DROP, drops()),
        ];
        for (workload, contestants) in all {
            let title = (workload, entries, "tables in the namespace");
            groups.push(compare(title, &place, sizes.repetitions, contestants).await);
        }
    }
    groups
}
