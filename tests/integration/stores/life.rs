//! What the store itself has a part in: its clock, what a stopped process left there, many objects, pages, and names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::{StreamExt, stream};
use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, Clock, Error, Purge, SystemClock, TableState};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::{Place, Store, on_each_store};
use crate::common::{rows, table_ids};
use crate::reconcile::{claim, creating_tombstone};
use crate::support::PAGE;
use crate::support::servers::{Protocol, Server};

/// The clock of a machine that is days ahead.
#[derive(Debug)]
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> DateTime<Utc> {
        SystemClock.now() + Duration::from_secs(30 * 24 * 60 * 60)
    }
}

/// Times on HTTP stores are whole seconds, and so may be told a second too early or too late.
const COARSE: Duration = Duration::from_millis(1100);

/// A drop is kept by the store's clock: a machine whose own is ahead does not shorten it, and what is due is purged.
async fn retention_by_the_stores_clock(place: &Place) {
    const SHORT: Duration = Duration::from_millis(800);
    let catalog = place.catalog().await;
    for name in ["kept", "due"] {
        catalog.create_table(name, rows(0..3)).await.unwrap();
    }
    let kept = catalog.drop_table("kept").await.unwrap();
    let due = catalog.drop_table("due").retention(SHORT).await.unwrap();

    let ahead = place.builder().clock(Arc::new(Ahead));
    let ahead = ahead.build().await.unwrap();
    let report = ahead.purge_dropped(Purge::expired()).await.unwrap();
    for (ident, error) in &report.failures {
        let told = matches!(error, Error::Conflict { .. });
        assert!(told, "{ident}: {error:?}");
    }
    assert!(
        report
            .failures
            .iter()
            .any(|(ident, _)| ident.name() == "kept")
    );
    let dropped = catalog.list_dropped_tables().await.unwrap();
    let found = dropped.iter().find(|d| d.ident.name() == "kept").unwrap();
    assert_ne!(
        found.drop_id, kept.drop_id,
        "the purge was decided, so the drop is another"
    );
    assert_eq!(found.deleted_at, kept.deleted_at);
    assert_eq!(found.expires_at, kept.expires_at);
    catalog.undrop_table("kept").await.unwrap();
    assert_eq!(table_ids(&catalog, "kept").await, [0, 1, 2]);

    tokio::time::sleep(SHORT + COARSE).await;
    let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
    let purged: Vec<&str> = report.tables.iter().map(|t| t.ident.name()).collect();
    assert_eq!(purged, ["due"], "{due:?}: {report:?}");
    assert_eq!(
        place.entries().await.into_iter().collect::<Vec<_>>(),
        ["kept.lance"]
    );
}

/// To be waited for, and long enough for a busy machine to mend things in half of it.
const LEASE: Duration = Duration::from_secs(4);

async fn reconciled(catalog: &Catalog) -> BTreeMap<String, (FindingKind, bool)> {
    let report = catalog.reconcile(false).await.unwrap();
    let findings = report.findings.into_iter();
    findings
        .map(|f| (f.ident.name().to_string(), (f.kind, f.mended)))
        .collect()
}

/// What stopped processes left is left to them for a lease of the store's clock, and then finished.
async fn leftovers(place: &Place) {
    let catalog = place.builder().leases(LEASE, LEASE).build().await.unwrap();
    for (name, action) in [("r", "restore"), ("p", "purge")] {
        catalog.create_table(name, rows(0..3)).await.unwrap();
        let drop_id = catalog.drop_table(name).await.unwrap().drop_id;
        let claim = claim(drop_id, action, 0, LEASE);
        let object = format!("{name}.deleted.{drop_id}.claim");
        place.plant(&object, claim.to_string()).await;
    }
    place.plant("t.deleted", creating_tombstone(LEASE)).await;
    assert!(matches!(
        catalog.table_status("r").await.unwrap(),
        TableState::Restoring(_)
    ));
    assert!(matches!(
        catalog.table_status("p").await.unwrap(),
        TableState::Purging(_)
    ));
    assert_eq!(
        catalog.table_status("t").await.unwrap(),
        TableState::Creating
    );
    let undropped = catalog.undrop_table("p").await;
    assert!(
        matches!(undropped, Err(Error::PurgeInProgress { .. })),
        "{undropped:?}"
    );
    let purged = catalog.purge_table("r").await;
    assert!(
        matches!(purged, Err(Error::RestoreInProgress { .. })),
        "{purged:?}"
    );
    let unfinished = |mended| {
        BTreeMap::from([
            ("p".to_string(), (FindingKind::UnfinishedPurge, mended)),
            ("r".to_string(), (FindingKind::UnfinishedRestore, mended)),
            ("t".to_string(), (FindingKind::UnfinishedCreate, mended)),
        ])
    };
    assert_eq!(reconciled(&catalog).await, unfinished(false));

    // The lease, by a clock of whole seconds.
    tokio::time::sleep(LEASE + 2 * COARSE).await;
    assert_eq!(reconciled(&catalog).await, unfinished(true));
    assert_eq!(reconciled(&catalog).await, BTreeMap::new());
    assert_eq!(table_ids(&catalog, "r").await, [0, 1, 2]);
    for name in ["p", "t"] {
        let status = catalog.table_status(name).await.unwrap();
        assert_eq!(status, TableState::Absent, "{name}");
    }
    let left: Vec<String> = place.entries().await.into_iter().collect();
    assert_eq!(left, ["r.lance"]);
}

/// More objects than go into one page or one bulk delete.
const MANY: usize = PAGE + 100;

async fn plant_all(place: &Place, names: impl Iterator<Item = String>) {
    let (objects, base) = place.objects().await;
    stream::iter(names)
        .map(|name| Path::parse(format!("{base}/{name}")).unwrap())
        .for_each_concurrent(8, async |path| {
            let content = PutPayload::from_static(b"0123456789");
            objects.put(&path, content).await.unwrap();
        })
        .await;
}

/// A purge deletes every object of a large table, tells how many, and none of its neighbours'.
async fn a_purge_of_many_objects(place: &Place) {
    purge_many(place).await;
}

async fn purge_many(place: &Place) -> Catalog {
    let catalog = place.catalog().await;
    for name in ["t", "t2"] {
        catalog.create_table(name, rows(0..3)).await.unwrap();
    }
    plant_all(place, (0..MANY).map(|i| format!("t.lance/data/{i}.lance"))).await;
    let neighbours = ["t.lance2/a", "t.lanc", "t.lance-/b"].map(ToString::to_string);
    plant_all(place, neighbours.iter().cloned()).await;
    let before = place.names().await;
    let own = |name: &&String| name.starts_with("t.lance/");
    let count = before.iter().filter(own).count();
    assert!(count > MANY);
    catalog.drop_table("t").await.unwrap();
    let purged = catalog.purge_table("t").await.unwrap();
    // And Lance's marker, which the drop wrote.
    assert_eq!(purged.objects, count as u64 + 1);
    assert!(purged.bytes > 10 * MANY as u64);
    let others: Vec<String> = before.into_iter().filter(|n| !own(&n)).collect();
    assert_eq!(place.names().await, others);
    assert_eq!(table_ids(&catalog, "t2").await, [0, 1, 2]);
    catalog
}

/// Names that the rules allow and that a store, a URL or the catalog's own records could take for something else.
async fn all_kinds_of_names(place: &Place) {
    let long = "l".repeat(120);
    let names = [
        "a",
        "A",
        "0",
        "_",
        "a-b",
        "a.b",
        "a_b",
        ".a",
        "a..b",
        "x.lance",
        "x.deleted",
        "--",
        &long,
    ];
    let catalog = place.catalog().await;
    for (i, name) in (0..).zip(names) {
        catalog.create_table(name, rows([i])).await.unwrap();
    }
    let mut sorted = names.map(ToString::to_string).to_vec();
    sorted.sort();
    let listed = async || {
        let mut listed = catalog.table_names().await.unwrap();
        listed.sort();
        listed
    };
    assert_eq!(listed().await, sorted);
    for name in names {
        catalog.drop_table(name).await.unwrap();
    }
    assert_eq!(listed().await, Vec::<String>::new());
    assert_eq!(
        catalog.list_dropped_tables().await.unwrap().len(),
        names.len()
    );
    for (i, name) in (0..).zip(names) {
        if i % 2 == 0 {
            catalog.undrop_table(name).await.unwrap();
            assert_eq!(table_ids(&catalog, name).await, [i], "{name}");
        } else {
            catalog.purge_table(name).await.unwrap();
        }
    }
    let left = names.iter().step_by(2).map(|name| format!("{name}.lance"));
    assert_eq!(place.entries().await, left.collect());
    assert!(catalog.reconcile(true).await.unwrap().is_clean());
}

on_each_store!(
    retention_by_the_stores_clock,
    leftovers,
    a_purge_of_many_objects,
    all_kinds_of_names,
);

fn count(requests: &[String], kind: &str) -> usize {
    requests.iter().filter(|r| *r == kind).count()
}

/// What the server was asked: a page costs the same whatever the root holds, a purge a request for a thousand objects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_on_s3() {
    let place = Place::new(Store::S3);
    let server = Server::shared(Protocol::S3);
    purge_many(&place).await;
    let names: Vec<String> = (0..300).map(|i| format!("d{i:03}")).collect();
    let reserved = names
        .iter()
        .map(|name| format!("{name}.lance/.lance-reserved"));
    plant_all(&place, reserved).await;
    let catalog = place.catalog().await;
    server.requests(&place.uri);

    let page = catalog.list_tables().limit(100).await.unwrap();
    let requests = server.requests(&place.uri);
    println!("a page of 100 of 301: {requests:?}");
    assert_eq!(page.tables, names[..100]);
    assert!(requests.len() <= 4, "{requests:?}");
    let rest = catalog.list_tables().page_token(page.page_token.unwrap());
    let rest = rest.await.unwrap().tables;
    assert_eq!(rest.len(), 201);
    assert_eq!(rest[..200], names[100..]);

    // Their tombstones are listed beside them.
    let dropped: Vec<&String> = names.iter().step_by(10).collect();
    for name in &dropped {
        catalog.drop_table(name.as_str()).await.unwrap();
    }
    server.requests(&place.uri);
    let page = catalog.list_tables().limit(100).await.unwrap();
    let requests = server.requests(&place.uri);
    println!("a page of 100 of 271, 30 dropped: {requests:?}");
    let left = names.iter().filter(|name| !dropped.contains(name));
    assert_eq!(page.tables, left.take(100).cloned().collect::<Vec<_>>());
    assert_eq!(requests.len(), 1, "{requests:?}");

    let many = (0..MANY).map(|i| format!("t2.lance/data/{i}.lance"));
    plant_all(&place, many).await;
    catalog.drop_table("t2").await.unwrap();
    server.requests(&place.uri);
    catalog.purge_table("t2").await.unwrap();
    let requests = server.requests(&place.uri);
    println!("a purge of {MANY} objects: {requests:?}");
    // Two pages and two bulk deletes, a look at the tombstone before each of these, and 8 more.
    assert_eq!(
        count(&requests, "DELETE"),
        2 + 2,
        "two in bulk, two records"
    );
    assert!(requests.len() <= 2 + 2 + 2 + 8, "{requests:?}");
}
