//! The life of a table, end to end, on local disk and on a memory store.

use std::sync::Arc;

use futures::TryStreamExt;
use lance_namespace::LanceNamespace;
use lance_namespace::models::{DescribeTableRequest, ListTablesRequest};
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lancekeep::catalog::DEFAULT_RETENTION;
use lancekeep::{Catalog, CreateMode, Error, Purge, TableState};

use crate::common::{catalog_of, ids, local, rows, table_ids, write_with_plain_lance};
use crate::support::SharedMemory;

/// What lancedb#3604 describes: drop hides, data survives, it is listed as purgeable, revive, drop and purge reclaims.
async fn whole_life(catalog: &Catalog) {
    catalog.create_table("t", rows(0..10)).await.unwrap();
    assert!(matches!(
        catalog.create_table("t", rows(0..1)).await,
        Err(Error::TableAlreadyExists { .. })
    ));
    assert_eq!(catalog.table_names().await.unwrap(), ["t"]);
    assert!(catalog.table_exists("t").await.unwrap());

    let dropped = catalog.drop_table("t").reason("a test").await.unwrap();
    assert_eq!(dropped.version, Some(1));
    assert_eq!(
        dropped.expires_at,
        Some(dropped.deleted_at + DEFAULT_RETENTION)
    );
    assert!(dropped.hidden_from_stock_clients);
    assert!(catalog.table_names().await.unwrap().is_empty());
    assert!(!catalog.table_exists("t").await.unwrap());
    let error = catalog.open_table("t").await.unwrap_err();
    assert!(matches!(&error, Error::TableDropped { dropped: d } if d.drop_id == dropped.drop_id));
    assert!(matches!(
        catalog.drop_table("t").await,
        Err(Error::TableNotFound { .. })
    ));
    assert_eq!(catalog.drop_table("t").if_exists().await.unwrap(), None);
    let listed = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].drop_id, dropped.drop_id);
    assert_eq!(listed[0].reason.as_deref(), Some("a test"));

    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(catalog, "t").await, (0..10).collect::<Vec<_>>());
    assert!(matches!(
        catalog.undrop_table("t").await,
        Err(Error::TableNotDropped { .. })
    ));
    assert!(matches!(
        catalog.purge_table("t").await,
        Err(Error::TableNotDropped { .. })
    ));

    catalog.drop_table("t").await.unwrap();
    let revived = catalog.create_table("t", rows(100..103)).await.unwrap();
    assert_eq!(ids(&revived).await, [100, 101, 102]);
    assert_eq!(table_ids(catalog, "t").await, [100, 101, 102]);
    // The history before the drop is kept.
    let before = catalog.open_table("t").version(1).await.unwrap();
    assert_eq!(ids(&before).await.len(), 10);

    catalog.drop_table("t").await.unwrap();
    let would = catalog.purge_dropped(Purge::all().dry_run()).await.unwrap();
    assert!(would.objects() > 0 && would.bytes() > 0);
    assert!(
        catalog
            .purge_dropped(Purge::expired())
            .await
            .unwrap()
            .tables
            .is_empty()
    );
    let did = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert!(did.failures.is_empty());
    assert_eq!(
        (did.objects(), did.bytes()),
        (would.objects(), would.bytes())
    );
    assert_eq!(catalog.table_status("t").await.unwrap(), TableState::Absent);
    assert!(catalog.list_dropped_tables().await.unwrap().is_empty());
    assert!(matches!(
        catalog.undrop_table("t").await,
        Err(Error::TableNotFound { .. })
    ));

    let fresh = catalog.create_table("t", rows(7..8)).await.unwrap();
    assert_eq!(fresh.version().version, 1);
    assert_eq!(table_ids(catalog, "t").await, [7]);
    assert!(catalog.reconcile(true).await.unwrap().is_clean());
}

#[tokio::test]
async fn whole_life_on_local_disk() {
    let (dir, catalog) = local().await;
    whole_life(&catalog).await;
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["t.lance"], "no record is left behind");
}

#[tokio::test]
async fn whole_life_in_memory() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    whole_life(&catalog_of(&actor).await).await;
    for path in memory.dump().await {
        assert!(path.starts_with("root/t.lance/"), "left behind: {path}");
    }
}

#[tokio::test]
async fn create_modes_on_a_live_table() {
    let (_dir, catalog) = local().await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let same = catalog
        .create_table("t", rows(9..10))
        .mode(CreateMode::ExistOk)
        .await
        .unwrap();
    assert_eq!(ids(&same).await, [0, 1, 2]);
    let over = catalog
        .create_table("t", rows(9..10))
        .mode(CreateMode::Overwrite)
        .await
        .unwrap();
    assert_eq!(ids(&over).await, [9]);
    assert_eq!(over.version().version, 2);
}

/// lancedb#3604's other scenario: a table written with no catalog at all lists, opens, drops softly, can be restored.
/// And stock namespace clients see each step.
#[tokio::test]
async fn a_directory_of_plain_lance_tables_is_a_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    for name in ["a", "b", "c"] {
        write_with_plain_lance(&format!("{root}/{name}.lance"), 0..4).await;
    }
    std::fs::write(dir.path().join("b.lance/.lance-reserved"), b"reserved").unwrap();
    std::fs::write(dir.path().join("c.lance/.lance-deregistered"), b"reserved").unwrap();
    let stock = DirectoryNamespaceBuilder::new(root)
        .manifest_enabled(false)
        .build()
        .await
        .unwrap();
    let stock_names = async || {
        let request = ListTablesRequest {
            id: Some(vec![]),
            ..Default::default()
        };
        stock.list_tables(request).await.unwrap().tables
    };
    let stock_opens = async |name: &str| {
        let request = DescribeTableRequest {
            id: Some(vec![name.to_string()]),
            ..Default::default()
        };
        stock.describe_table(request).await.is_ok()
    };

    let catalog = Catalog::connect(root).await.unwrap();
    assert_eq!(table_ids(&catalog, "a").await.len(), 4);
    assert_eq!(table_ids(&catalog, "b").await.len(), 4);
    assert!(matches!(
        catalog.open_table("c").await,
        Err(Error::TableDeregistered { .. })
    ));
    assert_eq!(
        catalog.table_status("c").await.unwrap(),
        TableState::Deregistered
    );
    let openable = catalog.list_tables().include_declared(false).await.unwrap();
    assert_eq!(openable.tables, ["a", "b"]);

    catalog.drop_table("a").await.unwrap();
    assert_eq!(stock_names().await, ["b"]);
    assert!(!stock_opens("a").await);
    assert!(dir.path().join("a.lance/_versions").exists());
    catalog.undrop_table("a").await.unwrap();
    assert_eq!(stock_names().await, ["a", "b"]);
    assert!(stock_opens("a").await);
    assert_eq!(table_ids(&catalog, "a").await.len(), 4);

    // A deregistration by a stock client is undone by undrop, or ended by purge.
    catalog.undrop_table("c").await.unwrap();
    assert_eq!(table_ids(&catalog, "c").await.len(), 4);
    assert_eq!(stock_names().await, ["a", "b", "c"]);
    std::fs::write(dir.path().join("c.lance/.lance-deregistered"), b"reserved").unwrap();
    assert!(catalog.purge_table("c").await.unwrap().bytes > 0);
    assert!(!dir.path().join("c.lance").exists());
    assert!(catalog.reconcile(false).await.unwrap().is_clean());
}

#[tokio::test]
async fn tags_versions_and_streams() {
    let (_dir, catalog) = local().await;
    let v1 = catalog.create_table("t", rows(0..3)).await.unwrap();
    v1.tags().create("first", 1u64).await.unwrap();
    catalog
        .create_table("t", rows(3..4))
        .mode(CreateMode::Overwrite)
        .await
        .unwrap();
    let tagged = catalog.open_table("t").tag("first").await.unwrap();
    assert_eq!(ids(&tagged).await, [0, 1, 2]);
    for missing in [
        catalog.open_table("t").version(9).await,
        catalog.open_table("t").tag("none").await,
    ] {
        assert!(
            matches!(missing, Err(Error::VersionNotFound { .. })),
            "{missing:?}"
        );
    }
    let streamed: Vec<String> = catalog.list_tables().stream().try_collect().await.unwrap();
    assert_eq!(streamed, ["t"]);
}

#[tokio::test]
async fn a_revive_whose_data_fails_leaves_the_drop_as_it_was() {
    let memory = SharedMemory::new();
    let catalog = catalog_of(&memory.actor()).await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let dropped = catalog.drop_table("t").await.unwrap();
    let schema = rows(0..1).schema();
    let failing = lancekeep::TableData::reader(lancekeep::arrow::array::RecordBatchIterator::new(
        [Err(lancekeep::arrow::error::ArrowError::ComputeError(
            "source failed".to_string(),
        ))],
        Arc::clone(&schema),
    ));
    let error = catalog.create_table("t", failing).await.unwrap_err();
    assert!(error.to_string().contains("source failed"), "{error}");
    let listed = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(listed[0].drop_id, dropped.drop_id);
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);
}
