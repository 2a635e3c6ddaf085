//! The life of a table, end to end, on each store.

use std::sync::Arc;

use futures::TryStreamExt;
use lance_namespace::LanceNamespace;
use lance_namespace::models::{DescribeTableRequest, ListTablesRequest};
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lancekeep::catalog::DEFAULT_RETENTION;
use lancekeep::{CreateMode, Error, Purge, TableState};

use crate::common::{ids, rows, table_ids, write_plainly};
use crate::stores::{Place, on_each_store};

/// What lancedb#3604 describes: drop hides, data survives, it is listed as purgeable, revive, drop and purge reclaims.
async fn whole_life(place: &Place) {
    let catalog = &place.catalog().await;
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
    let left: Vec<String> = place.entries().await.into_iter().collect();
    assert_eq!(left, ["t.lance"], "no record is left behind");
}

async fn create_modes_on_a_live_table(place: &Place) {
    let catalog = place.catalog().await;
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
async fn a_directory_of_plain_lance_tables_is_a_catalog(place: &Place) {
    for name in ["a", "b", "c"] {
        let params = place.write_params();
        write_plainly(&place.uri_of(&format!("{name}.lance")), 0..4, params).await;
    }
    place.plant("b.lance/.lance-reserved", "reserved").await;
    let deregistered = "c.lance/.lance-deregistered";
    place.plant(deregistered, "reserved").await;
    let stock = DirectoryNamespaceBuilder::new(&place.uri)
        .storage_options(place.options.clone())
        .session(place.session())
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

    let catalog = place.catalog().await;
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
    let kept = place.names().await;
    assert!(
        kept.iter()
            .any(|name| name.starts_with("a.lance/_versions/"))
    );
    catalog.undrop_table("a").await.unwrap();
    assert_eq!(stock_names().await, ["a", "b"]);
    assert!(stock_opens("a").await);
    assert_eq!(table_ids(&catalog, "a").await.len(), 4);

    // A deregistration by a stock client is undone by undrop, or ended by purge.
    catalog.undrop_table("c").await.unwrap();
    assert_eq!(table_ids(&catalog, "c").await.len(), 4);
    assert_eq!(stock_names().await, ["a", "b", "c"]);
    place.plant(deregistered, "reserved").await;
    assert!(catalog.purge_table("c").await.unwrap().bytes > 0);
    let kept = place.names().await;
    assert!(!kept.iter().any(|name| name.starts_with("c.lance/")));
    assert!(catalog.reconcile(false).await.unwrap().is_clean());
}

async fn tags_versions_and_streams(place: &Place) {
    let catalog = place.catalog().await;
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

async fn a_revive_whose_data_fails_leaves_the_drop_as_it_was(place: &Place) {
    let catalog = place.catalog().await;
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

on_each_store!(
    whole_life,
    create_modes_on_a_live_table,
    a_directory_of_plain_lance_tables_is_a_catalog,
    tags_versions_and_streams,
    a_revive_whose_data_fails_leaves_the_drop_as_it_was,
);
