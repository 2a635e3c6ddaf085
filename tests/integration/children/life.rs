//! The life of a child table.

use std::time::Duration;

use futures::TryStreamExt;
use lancekeep::lifecycle::DropOutcome;
use lancekeep::{Catalog, CreateMode, Error, ErrorKind, Purge, TableState};

use super::{Place, assert_kind, make, numbers, read, tables};
use crate::common::{ids, rows};

const T: [&str; 3] = ["a", "b", "t"];

async fn whole_life(place: &Place) {
    let catalog = place.catalog().await;
    let other = place.catalog().await;
    make(&catalog, &[&["a"], &["a", "b"]]).await;
    assert_eq!(catalog.table_status(T).await.unwrap(), TableState::Absent);
    assert!(!catalog.table_exists(T).await.unwrap());
    let error = assert_kind(catalog.open_table(T).await, ErrorKind::TableNotFound);
    assert!(matches!(error, Error::TableNotFound { ident, .. } if ident.parts() == T));

    let created = catalog.create_table(T, rows(0..3)).await.unwrap();
    assert_eq!(created.version().version, 1);
    assert_eq!(ids(&created).await, [0, 1, 2]);
    let live = TableState::Live { version: 1 };
    for catalog in [&catalog, &other] {
        assert_eq!(catalog.table_status(T).await.unwrap(), live);
        assert!(catalog.table_exists(T).await.unwrap());
        assert_eq!(read(catalog, T).await, [0, 1, 2]);
        assert_eq!(tables(catalog, &["a", "b"]).await, ["t"]);
        assert!(tables(catalog, &["a"]).await.is_empty());
        assert!(tables(catalog, &[]).await.is_empty());
        assert!(catalog.table_names().await.unwrap().is_empty());
    }
    let again = other.create_table(T, rows(9..10)).await;
    let error = assert_kind(again, ErrorKind::TableAlreadyExists);
    assert!(matches!(error, Error::TableAlreadyExists { ident } if ident.parts() == T));

    // A root table and a child table of the same name are two tables.
    catalog.create_table("t", rows(50..52)).await.unwrap();
    assert_eq!(catalog.table_names().await.unwrap(), ["t"]);
    catalog.drop_table("t").await.unwrap();
    assert_eq!(read(&catalog, T).await, [0, 1, 2]);
    catalog.undrop_table("t").await.unwrap();

    let first = created.uri().to_string();
    let dropped = catalog.drop_table(T).reason("a test").await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deleted);
    assert_eq!(dropped.ident.parts(), T);
    place.assert_tidy(&["t"]).await;
    for catalog in [&catalog, &other] {
        assert_eq!(catalog.table_status(T).await.unwrap(), TableState::Absent);
        assert_kind(catalog.open_table(T).await, ErrorKind::TableNotFound);
        assert_kind(catalog.drop_table(T).await, ErrorKind::TableNotFound);
        assert_eq!(catalog.drop_table(T).if_exists().await.unwrap(), None);
        assert!(tables(catalog, &["a", "b"]).await.is_empty());
        assert!(catalog.list_dropped_tables().await.unwrap().is_empty());
    }
    assert_eq!(read(&catalog, "t").await, [50, 51]);
    let report = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert!(report.tables.is_empty() && report.failures.is_empty());

    // Another generation is at another place, with nothing of the first.
    let second = other.create_table(T, rows(7..9)).await.unwrap();
    assert_eq!(second.version().version, 1);
    assert_ne!(second.uri(), first);
    for catalog in [&catalog, &other] {
        assert_eq!(read(catalog, T).await, [7, 8]);
    }
    assert!(catalog.reconcile(true).await.unwrap().is_clean());
}

on_both!(whole_life: a_whole_life_on_local_disk, a_whole_life_in_memory);
on_servers!(whole_life: a_whole_life_on_s3, a_whole_life_on_azure);

async fn modes(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    // Each mode creates what is not there.
    for (name, mode) in [
        ("create", CreateMode::Create),
        ("exist_ok", CreateMode::ExistOk),
        ("overwrite", CreateMode::Overwrite),
    ] {
        let created = catalog.create_table(["a", name], rows(0..3)).mode(mode);
        let created = created.await.unwrap();
        assert_eq!(created.version().version, 1);
        assert_eq!(read(&catalog, ["a", name]).await, [0, 1, 2]);
    }
    let location = catalog.open_table(["a", "create"]).await.unwrap();
    let location = location.uri().to_string();

    let create = || catalog.create_table(["a", "create"], rows(9..10));
    assert_kind(create().await, ErrorKind::TableAlreadyExists);
    let same = create().mode(CreateMode::ExistOk).await.unwrap();
    assert_eq!(ids(&same).await, [0, 1, 2]);
    assert_eq!(same.version().version, 1);
    assert_eq!(same.uri(), location);
    let over = create().mode(CreateMode::Overwrite).await.unwrap();
    assert_eq!(ids(&over).await, [9]);
    assert_eq!(over.version().version, 2);
    assert_eq!(over.uri(), location);
    let live = TableState::Live { version: 2 };
    let status = catalog.table_status(["a", "create"]).await.unwrap();
    assert_eq!(status, live);

    // The history is there, by version and by tag.
    over.tags().create("first", 1u64).await.unwrap();
    let old = catalog
        .open_table(["a", "create"])
        .version(1)
        .await
        .unwrap();
    assert_eq!(ids(&old).await, [0, 1, 2]);
    let old = catalog.open_table(["a", "create"]).tag("first").await;
    assert_eq!(ids(&old.unwrap()).await, [0, 1, 2]);
    let open = || catalog.open_table(["a", "create"]);
    assert_kind(open().version(9).await, ErrorKind::VersionNotFound);
    assert_kind(open().tag("none").await, ErrorKind::VersionNotFound);
    let missing = catalog.open_table(["a", "none"]).version(1).await;
    assert_kind(missing, ErrorKind::TableNotFound);

    let listed: Vec<String> = catalog
        .list_tables()
        .namespace(["a"])
        .stream()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(listed, ["create", "exist_ok", "overwrite"]);
    place.assert_tidy(&[]).await;
}

on_both!(modes: create_modes_on_local_disk, create_modes_in_memory);
on_servers!(modes: create_modes_on_s3, create_modes_on_azure);

/// What a child table cannot do yet is refused, and nothing is changed.
async fn not_yet(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    let before = place.manifest().await;
    let entries = place.entries().await;
    for ident in [["a", "t"], ["a", "none"], ["none", "t"]] {
        let drop = || catalog.drop_table(ident);
        let a_day = Duration::from_secs(86_400);
        assert_kind(drop().retention(a_day).await, ErrorKind::Unsupported);
        assert_kind(drop().retention(None).await, ErrorKind::Unsupported);
        let if_exists = drop().retention(a_day).if_exists().await;
        assert_kind(if_exists, ErrorKind::Unsupported);
        assert_kind(catalog.undrop_table(ident).await, ErrorKind::Unsupported);
        let purge = || catalog.purge_table(ident);
        assert_kind(purge().await, ErrorKind::Unsupported);
        assert_kind(purge().dry_run().await, ErrorKind::Unsupported);
    }
    assert_eq!(place.manifest().await, before);
    assert_eq!(place.entries().await, entries);
    assert_eq!(read(&catalog, ["a", "t"]).await, [0, 1, 2]);
    // Without a retention of its own, the catalog's default does not keep it from being dropped.
    let dropped = catalog.drop_table(["a", "t"]).await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deleted);
}

on_both!(not_yet: what_is_not_yet_is_refused_on_local_disk, what_is_not_yet_is_refused_in_memory);
on_servers!(not_yet: what_is_not_yet_is_refused_on_s3, what_is_not_yet_is_refused_on_azure);

/// Root tables keep their outcome, and the calls for all root tables leave child tables alone.
async fn root_calls(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    for name in ["r1", "r2"] {
        catalog.create_table(name, rows(0..1)).await.unwrap();
    }
    let dropped = catalog.drop_table("r1").await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Kept);
    let all = catalog.drop_all_tables().await.unwrap();
    assert_eq!(all.len(), 1);
    let listed = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|d| d.outcome == DropOutcome::Kept));
    let purged = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert_eq!((purged.tables.len(), purged.failures.len()), (2, 0));
    assert_eq!(read(&catalog, ["a", "t"]).await, numbers(0..3));
    place.assert_tidy(&[]).await;
    assert!(catalog.reconcile(false).await.unwrap().is_clean());
    assert_eq!(read(&catalog, ["a", "t"]).await, numbers(0..3));
}

on_both!(root_calls: calls_for_all_root_tables_on_local_disk, calls_for_all_root_tables_in_memory);
on_servers!(root_calls: calls_for_all_root_tables_on_s3, calls_for_all_root_tables_on_azure);

/// A table needs its namespace, and an id is a table or a namespace.
async fn one_id_one_thing(place: &Place) {
    let catalog = place.catalog().await;
    for ident in [&["a", "t"][..], &["a", "b", "t"]] {
        let ident: Vec<String> = ident.iter().map(ToString::to_string).collect();
        let made = catalog.create_table(ident.clone(), rows(0..1)).await;
        assert_kind(made, ErrorKind::NamespaceNotFound);
        let made = catalog.declare_table(ident.clone()).await;
        assert_kind(made, ErrorKind::NamespaceNotFound);
        let dropped = catalog.drop_table(ident).await;
        assert_kind(dropped, ErrorKind::TableNotFound);
    }
    assert!(place.entries().await.is_empty());

    make(&catalog, &[&["a"], &["a", "b"]]).await;
    catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    let made = catalog.create_namespace(["a", "t"]).await;
    assert_kind(made, ErrorKind::NamespaceAlreadyExists);
    let made = catalog.create_table(["a", "b"], rows(0..1)).await;
    assert_kind(made, ErrorKind::TableAlreadyExists);
    let made = catalog.declare_table(["a", "b"]).await;
    assert_kind(made, ErrorKind::TableAlreadyExists);
    // A namespace is no table, and a table no namespace.
    assert_kind(
        catalog.open_table(["a", "b"]).await,
        ErrorKind::TableNotFound,
    );
    assert_kind(
        catalog.drop_table(["a", "b"]).await,
        ErrorKind::TableNotFound,
    );
    let status = catalog.table_status(["a", "b"]).await.unwrap();
    assert_eq!(status, TableState::Absent);
    let dropped = catalog.drop_namespace(["a", "t"]).await;
    assert_kind(dropped, ErrorKind::NamespaceNotFound);
    assert!(!catalog.namespace_exists(["a", "t"]).await.unwrap());
    let made = catalog.create_table(["a", "t", "u"], rows(0..1)).await;
    assert_kind(made, ErrorKind::NamespaceNotFound);
    let made = catalog.create_namespace(["a", "t", "u"]).await;
    assert_kind(made, ErrorKind::NamespaceNotFound);
    let rows = place.assert_tidy(&[]).await;
    assert_eq!(rows.len(), 3);
    assert_eq!(read(&catalog, ["a", "t"]).await, [0, 1, 2]);
}

on_both!(one_id_one_thing: one_id_is_one_thing_on_local_disk, one_id_is_one_thing_in_memory);
on_servers!(one_id_one_thing: one_id_is_one_thing_on_s3, one_id_is_one_thing_on_azure);

/// Case 22: however the root is spelled, and whatever its name holds, its children are the same.
#[tokio::test]
async fn delta_rs_62_children_of_a_root_however_it_is_spelled() {
    for name in ["with space", "100%", "a%20b", "a#b?c", "ä'q\"$"] {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join(name);
        let plain = dir.to_str().unwrap().to_string();
        let spellings = [format!("{plain}/"), lance_url(&dir)];
        let mut catalogs = Vec::new();
        for uri in &spellings {
            catalogs.push(Catalog::connect(uri).await.unwrap());
        }
        let (a, b) = (&catalogs[0], &catalogs[1]);
        make(a, &[&["a"]]).await;
        let t = ["a", "t"];
        for (maker, reader) in [(a, b), (b, a)] {
            maker.create_table(t, rows(0..3)).await.unwrap();
            maker.declare_table(["a", "d"]).await.unwrap();
            assert_eq!(read(reader, t).await, [0, 1, 2], "{name:?}");
            let status = reader.table_status(["a", "d"]).await.unwrap();
            assert_eq!(status, TableState::Declared, "{name:?}");
            let strict = reader.list_tables().namespace("a");
            let strict = strict.include_declared(false).await.unwrap();
            assert_eq!(strict.tables, ["t"], "{name:?}");
            reader.create_table(["a", "d"], rows(0..1)).await.unwrap();
            let over = reader.create_table(t, rows(5..6));
            over.mode(CreateMode::Overwrite).await.unwrap();
            assert_eq!(read(maker, t).await, [5], "{name:?}");
            // By URI in each spelling of the root.
            let location = maker.deregister_table(t).await.unwrap();
            for root in &spellings {
                let there = format!("{}/{location}", root.trim_end_matches('/'));
                reader.register_table(t, &there).await.unwrap();
                assert_eq!(read(maker, t).await, [5], "{there}");
                assert_eq!(reader.deregister_table(t).await.unwrap(), location);
            }
            maker.register_table(t, location).await.unwrap();
            reader.drop_table(t).await.unwrap();
            reader.drop_table(["a", "d"]).await.unwrap();
        }
        b.drop_namespace("a").await.unwrap();
        let left: Vec<_> = std::fs::read_dir(&dir).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let outside: Vec<_> = std::fs::read_dir(outer.path()).unwrap().collect();
        assert_eq!(outside.len(), 1, "{outside:?}");
    }
}

fn lance_url(dir: &std::path::Path) -> String {
    url::Url::from_directory_path(dir)
        .unwrap()
        .as_str()
        .trim_end_matches('/')
        .to_string()
}
