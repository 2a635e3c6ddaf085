//! Case 10: a declared child table is materialised by the next create, whatever failed before.

use lancekeep::lifecycle::DropOutcome;
use lancekeep::{Catalog, CreateMode, ErrorKind, TableState};

use super::{Place, assert_kind, make, patiently, read, tables};
use crate::common::{catalog_of, ids, rows};
use crate::support::{Fault, Kind, Request, SharedMemory};

const T: [&str; 2] = ["a", "t"];

async fn openable(catalog: &Catalog) -> Vec<String> {
    let listing = catalog.list_tables().namespace(["a"]);
    listing.include_declared(false).await.unwrap().tables
}

async fn assert_declared(catalog: &Catalog) {
    let status = catalog.table_status(T).await.unwrap();
    assert_eq!(status, TableState::Declared);
    assert!(!catalog.table_exists(T).await.unwrap());
    let error = assert_kind(catalog.open_table(T).await, ErrorKind::TableNotFound);
    assert!(error.to_string().contains("declared"), "{error}");
    assert_eq!(tables(catalog, &["a"]).await, ["live", "t"]);
    assert_eq!(openable(catalog).await, ["live"]);
}

async fn declare_and_create(place: &Place) {
    let catalog = place.catalog().await;
    let other = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    catalog
        .create_table(["a", "live"], rows(0..1))
        .await
        .unwrap();
    for mode in [
        CreateMode::Create,
        CreateMode::ExistOk,
        CreateMode::Overwrite,
    ] {
        let uri = catalog.declare_table(T).await.unwrap();
        assert_declared(&catalog).await;
        assert_declared(&other).await;
        let again = other.declare_table(T).await;
        assert_kind(again, ErrorKind::TableAlreadyExists);

        let created = other.create_table(T, rows(0..3)).mode(mode).await.unwrap();
        assert_eq!(created.uri().trim_end_matches('/'), uri, "{mode:?}");
        assert_eq!(created.version().version, 1);
        for catalog in [&catalog, &other] {
            assert_eq!(read(catalog, T).await, [0, 1, 2]);
            assert_eq!(openable(catalog).await, ["live", "t"]);
        }
        let declared = catalog.declare_table(T).await;
        assert_kind(declared, ErrorKind::TableAlreadyExists);
        let dropped = catalog.drop_table(T).await.unwrap();
        assert_eq!(dropped.outcome, DropOutcome::Deleted);
        place.assert_tidy(&[]).await;
    }

    // A declaration alone can be dropped too.
    catalog.declare_table(T).await.unwrap();
    let dropped = other.drop_table(T).await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deleted);
    assert_eq!(catalog.table_status(T).await.unwrap(), TableState::Absent);
    place.assert_tidy(&[]).await;
}

on_both!(declare_and_create:
    lance_6608_a_declared_child_is_materialised_on_local_disk,
    lance_6608_a_declared_child_is_materialised_in_memory);
on_servers!(declare_and_create:
    lance_6608_a_declared_child_is_materialised_on_s3,
    lance_6608_a_declared_child_is_materialised_on_azure);

/// Lance's own writer fills it: the URI is where it belongs.
async fn filled_by_plain_lance(place: &Place) {
    let Place::Disk(_) = place else {
        panic!("plain Lance reaches a place on disk only");
    };
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    let uri = catalog.declare_table(T).await.unwrap();
    crate::common::write_with_plain_lance(&uri, 4..6).await;
    assert_eq!(read(&catalog, T).await, [4, 5]);
    let created = catalog.create_table(T, rows(0..1)).await;
    assert_kind(created, ErrorKind::TableAlreadyExists);
}

#[tokio::test]
async fn lance_6608_plain_lance_fills_a_declared_child() {
    filled_by_plain_lance(&Place::on_disk()).await;
}

fn is_data(request: &Request) -> bool {
    request.path.contains("_a$t/data/") && request.kind.is_write()
}

fn is_commit(request: &Request) -> bool {
    request.path.contains("_a$t/_versions/") && request.kind.is_write()
}

fn is_registration(request: &Request) -> bool {
    request.path.contains("__manifest/_versions/") && request.kind == Kind::PutCreate
}

/// The first write fails at each of its stages, for good; the next create does it, also by another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_3288_a_failed_first_write_leaves_it_declared() {
    let memory = SharedMemory::new();
    let catalog = catalog_of(&memory.actor()).await;
    make(&catalog, &[&["a"]]).await;
    catalog
        .create_table(["a", "live"], rows(0..1))
        .await
        .unwrap();
    let uri = catalog.declare_table(T).await.unwrap();

    type Stage = (&'static str, fn(&Request) -> bool);
    let stages: [Stage; 2] = [("data", is_data), ("commit", is_commit)];
    for (stage, fails) in stages {
        for same_process in [true, false] {
            let memory = memory.fork().await;
            let actor = memory.actor();
            let writer = catalog_of(&actor).await;
            actor.faults.fail_matching(fails, Fault::PermissionDenied);
            let failed = writer.create_table(T, rows(0..3)).await;
            let error = assert_kind(failed, ErrorKind::Storage);
            assert!(!error.is_retryable(), "{stage}: {error}");
            assert_declared(&catalog_of(&memory.actor()).await).await;

            actor.faults.clear();
            let next = match same_process {
                true => writer,
                false => catalog_of(&memory.actor()).await,
            };
            // What the failed one left may have to be waited for.
            let created = patiently(|| next.create_table(T, rows(5..7))).await;
            let created = created.unwrap_or_else(|e| panic!("{stage}, {same_process}: {e}"));
            assert_eq!(created.uri().trim_end_matches('/'), uri);
            assert_eq!(ids(&created).await, [5, 6]);
            assert_eq!(created.version().version, 1);
            let reader = catalog_of(&memory.actor()).await;
            assert_eq!(read(&reader, T).await, [5, 6]);
            assert_eq!(tables(&reader, &["a"]).await, ["live", "t"]);
        }
    }
}

/// The registration of a table that was not declared fails: nothing is there, and the next create works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_cannot_be_registered_leaves_nothing() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    make(&catalog, &[&["a"]]).await;
    let place = Place::Memory(memory.clone());
    for (stage, fails) in [
        ("data", is_data as fn(&Request) -> bool),
        ("commit", is_commit),
        ("registration", is_registration),
    ] {
        actor.faults.fail_matching(fails, Fault::PermissionDenied);
        let failed = catalog.create_table(T, rows(0..3)).await;
        let error = failed.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Storage | ErrorKind::Lance),
            "{stage}: {error:?}"
        );
        actor.faults.clear();
        let status = catalog.table_status(T).await.unwrap();
        assert_eq!(status, TableState::Absent, "{stage}");
        println!("{stage}: {:?}", place.entries().await);
        // After a registration in doubt the table may be registered yet: its directory has to stay.
        if stage != "registration" {
            place.assert_tidy(&[]).await;
        }
    }
    catalog.create_table(T, rows(5..7)).await.unwrap();
    assert_eq!(read(&catalog, T).await, [5, 6]);
}
