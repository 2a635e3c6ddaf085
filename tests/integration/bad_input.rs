//! Records, roots, clocks, stores and links that are not as they should be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use lancekeep::lance::dataset::Dataset;
use lancekeep::lifecycle::FindingKind;
use lancekeep::{
    Catalog, Clock, CreateMode, DroppedTable, Error, ErrorKind, Purge, TableIdent, TableState,
};

use crate::common::{ids, local, rows, table_ids, write_with_plain_lance};
use crate::support::{Actor, Fault, Kind, SharedMemory, StoreClock, When};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CENTURY: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// Long enough for a debug build to commit in half of it, short enough to wait for.
const LEASE: Duration = Duration::from_secs(1);

/// A catalog's clock that is moved by hand.
#[derive(Debug)]
struct ByHand(StoreClock);

impl Clock for ByHand {
    fn now(&self) -> DateTime<Utc> {
        self.0.now()
    }
}

/// A catalog that tells the time from `ours`.
async fn with_clock(actor: &Actor, ours: &StoreClock, retention: Option<Duration>) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .clock(Arc::new(ByHand(ours.clone())))
        .retention(retention)
        .build()
        .await
        .unwrap()
}

async fn with_lease(actor: &Actor) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .leases(LEASE, LEASE)
        .build()
        .await
        .unwrap()
}

/// The names in a directory, sorted.
fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Every file below a directory with its content; links are not followed.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() {
                files.insert(entry.path(), std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

/// The store failed, and that is what the error says.
fn assert_storage<T>(what: &str, result: Result<T, Error>) {
    match result {
        Ok(_) => panic!("{what} succeeded"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Storage, "{what}: {e:?}"),
    }
}

async fn status(catalog: &Catalog, name: &str) -> TableState {
    catalog.table_status(name).await.unwrap()
}

async fn is_absent(catalog: &Catalog, name: &str) -> bool {
    status(catalog, name).await == TableState::Absent
}

/// The only drop that is listed.
async fn only_drop(catalog: &Catalog) -> DroppedTable {
    let mut dropped = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    dropped.remove(0)
}

/// Hidden from everybody, listed as a drop, and not in the way of another one.
async fn assert_hidden(catalog: &Catalog, name: &str) -> DroppedTable {
    assert!(catalog.table_names().await.unwrap().is_empty());
    assert!(catalog.list_tables().await.unwrap().tables.is_empty());
    let listed = only_drop(catalog).await;
    assert_eq!(listed.ident, TableIdent::from(name));
    let error = catalog.open_table(name).await.unwrap_err();
    assert!(
        matches!(&error, Error::TableDropped { dropped } if dropped.drop_id == listed.drop_id),
        "{error:?}"
    );
    assert!(matches!(
        catalog.drop_table(name).await,
        Err(Error::TableNotFound { .. })
    ));
    listed
}

/// Nothing that chooses by time purges it.
async fn assert_kept(catalog: &Catalog, which: &[Purge]) {
    for purge in which {
        let report = catalog.purge_dropped(*purge).await.unwrap();
        assert!(report.tables.is_empty(), "{purge:?}: {report:?}");
        assert!(report.failures.is_empty(), "{purge:?}: {report:?}");
    }
}

#[tokio::test]
async fn unreadable_tombstones_hide_and_are_kept_until_named() {
    let half = br#"{"format":1,"deleted_at_ms":5"#.to_vec();
    let newer = br#"{"format":2,"deleted_at_ms":5,"ttl_ms":0}"#.to_vec();
    let never = br#"{"format":1,"deleted_at_ms":9223372036854775807,"ttl_ms":0}"#.to_vec();
    for (what, content) in [
        ("empty", Vec::new()),
        ("not JSON", b"dropped".to_vec()),
        ("cut off", half),
        ("format 2", newer),
        ("out of range", never),
        ("as long as a creating one", vec![b'x'; 1024]),
    ] {
        println!("{what}");
        let (dir, catalog) = local().await;
        let plant = || std::fs::write(dir.path().join("t.deleted"), &content).unwrap();
        catalog.create_table("t", rows(0..3)).await.unwrap();
        plant();

        let listed = assert_hidden(&catalog, "t").await;
        assert!(listed.parse_error.is_some());
        assert_eq!(listed.expires_at, None);
        assert!(matches!(
            status(&catalog, "t").await,
            TableState::Dropped(d) if d.parse_error.is_some() && d.drop_id == listed.drop_id
        ));
        let later = Purge::dropped_before(Utc::now() + DAY);
        assert_kept(&catalog, &[Purge::expired(), Purge::all(), later]).await;
        let report = catalog.reconcile(false).await.unwrap();
        let left_alone: Vec<_> = report.of(FindingKind::UnreadableTombstone).collect();
        assert_eq!(left_alone.len(), 1, "{report:?}");
        assert!(!left_alone[0].mended);
        assert_eq!(
            std::fs::read(dir.path().join("t.deleted")).unwrap(),
            content
        );

        catalog.undrop_table("t").await.unwrap();
        assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);
        assert_eq!(entries(dir.path()), ["t.lance"]);

        // Creating over it would have to rewrite a record that nobody understands.
        plant();
        let refused = catalog.create_table("t", rows(7..9)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::CorruptMetadata);
        assert_eq!(
            std::fs::read(dir.path().join("t.deleted")).unwrap(),
            content
        );
        assert!(catalog.purge_table("t").await.unwrap().objects > 0);
        assert!(entries(dir.path()).is_empty());
        assert!(is_absent(&catalog, "t").await);
    }
}

/// The marker of lance#7539.
#[tokio::test]
async fn a_draft_upstream_marker_is_a_drop_that_never_expires() {
    let (dir, catalog) = local().await;
    let plant = || std::fs::write(dir.path().join("t.deleted"), r#"{"deleted_at_ms":1}"#).unwrap();
    catalog.create_table("t", rows(0..3)).await.unwrap();
    plant();
    let listed = assert_hidden(&catalog, "t").await;
    assert_eq!(listed.parse_error, None);
    assert_eq!(listed.deleted_at.timestamp_millis(), 1);
    assert_eq!(listed.expires_at, None);
    assert_eq!(only_drop(&catalog).await.drop_id, listed.drop_id);
    let older = Purge::dropped_before(listed.deleted_at);
    assert_kept(&catalog, &[Purge::expired(), older]).await;

    let restored = catalog.undrop_table("t").await.unwrap();
    assert_eq!(restored.drop_id, listed.drop_id);
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);

    plant();
    let report = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert_eq!(report.tables.len(), 1, "{report:?}");
    assert!(entries(dir.path()).is_empty());
}

#[tokio::test]
async fn a_tombstone_without_a_table_is_cleared_by_whoever_asks() {
    let (dir, catalog) = local().await;
    let record = r#"{"format":1,"drop_id":"6f2f0d1c-7a5b-4f0e-9a39-0d7a1f7f2b11","id":["ghost"],
        "location":"ghost.lance","deleted_at_ms":5,"ttl_ms":null,"version":3,"reason":null}"#;
    let plant = |content: &str| std::fs::write(dir.path().join("ghost.deleted"), content).unwrap();
    plant(record);
    let listed = assert_hidden(&catalog, "ghost").await;
    assert_eq!(listed.version, Some(3));
    assert_eq!(
        status(&catalog, "ghost").await,
        TableState::Dropped(listed.clone())
    );
    let report = catalog.reconcile(false).await.unwrap();
    let left_alone: Vec<_> = report.of(FindingKind::MissingLocation).collect();
    assert_eq!(left_alone.len(), 1, "{report:?}");
    assert!(!left_alone[0].mended);
    assert_eq!(entries(dir.path()), ["ghost.deleted"]);

    // There is nothing to restore, and the record goes.
    assert!(matches!(
        catalog.undrop_table("ghost").await,
        Err(Error::TableNotFound { .. })
    ));
    assert!(entries(dir.path()).is_empty());
    assert!(is_absent(&catalog, "ghost").await);

    plant(record);
    let purged = catalog.purge_table("ghost").await.unwrap();
    assert_eq!((purged.objects, purged.bytes), (0, 0));
    assert!(entries(dir.path()).is_empty());

    plant(record);
    let report = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert_eq!((report.tables.len(), report.objects()), (1, 0));
    assert!(entries(dir.path()).is_empty());

    plant(record);
    catalog.create_table("ghost", rows(0..2)).await.unwrap();
    assert_eq!(table_ids(&catalog, "ghost").await, [0, 1]);
    assert_eq!(entries(dir.path()), ["ghost.lance"]);
    catalog.drop_table("ghost").await.unwrap();
    catalog.purge_table("ghost").await.unwrap();

    // The upstream marker does not say whether there ever was a version.
    plant(r#"{"deleted_at_ms":5}"#);
    let undropped = catalog.undrop_table("ghost").await;
    assert!(
        matches!(&undropped, Ok(_) | Err(Error::TableNotFound { .. })),
        "{undropped:?}"
    );
    assert!(entries(dir.path()).is_empty());
    assert!(is_absent(&catalog, "ghost").await);
}

#[tokio::test]
async fn an_unreadable_claim_stops_everybody_and_is_named() {
    let newer = r#"{"format":2,"drop_id":"6f2f0d1c-7a5b-4f0e-9a39-0d7a1f7f2b11","action":"restore",
        "owner":"6f2f0d1c-7a5b-4f0e-9a39-0d7a1f7f2b12","generation":0,"lease_ms":1}"#;
    for content in ["", "mine", newer] {
        let (dir, catalog) = local().await;
        catalog.create_table("t", rows(0..3)).await.unwrap();
        let dropped = catalog.drop_table("t").await.unwrap();
        let name = format!("t.deleted.{}.claim", dropped.drop_id);
        let claim = dir.path().join(&name);
        std::fs::write(&claim, content).unwrap();

        for (what, error) in [
            ("undrop", catalog.undrop_table("t").await.err()),
            ("purge", catalog.purge_table("t").await.err()),
            (
                "create",
                catalog.create_table("t", rows(5..6)).await.map(drop).err(),
            ),
        ] {
            let error = error.unwrap_or_else(|| panic!("{what} succeeded"));
            assert!(!error.is_retryable(), "{what}");
            assert!(
                matches!(&error, Error::CorruptMetadata { path, .. } if path.ends_with(&name)),
                "{what}: {error:?}"
            );
            assert!(error.to_string().contains(&name), "{what}: {error}");
        }
        assert_eq!(
            assert_hidden(&catalog, "t").await.drop_id,
            dropped.drop_id,
            "it stays dropped"
        );
        assert_eq!(std::fs::read_to_string(&claim).unwrap(), content);

        // It stops nothing but its own table.
        catalog.create_table("other", rows(0..1)).await.unwrap();
        catalog.drop_table("other").await.unwrap();
        let report = catalog.purge_dropped(Purge::all()).await.unwrap();
        assert_eq!(report.tables.len(), 1, "{report:?}");
        assert_eq!(report.tables[0].ident, TableIdent::from("other"));
        assert_eq!(report.failures.len(), 1, "{report:?}");
        assert_eq!(report.failures[0].0, TableIdent::from("t"));
        assert_eq!(report.failures[0].1.kind(), ErrorKind::CorruptMetadata);

        std::fs::remove_file(&claim).unwrap();
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);
    }
}

#[tokio::test]
async fn what_cannot_be_a_root_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "content").unwrap();
    let file = file.to_str().unwrap();
    let file_url = format!("file://{file}");
    let slash = format!("{file}/");
    for uri in ["", "   ", "/", file, &file_url, &slash] {
        let refused = Catalog::connect(uri).await;
        assert!(
            matches!(&refused, Err(Error::InvalidInput { .. })),
            "{uri:?}: {refused:?}"
        );
    }
    for uri in ["foo://x", "foo://x/y"] {
        let refused = Catalog::connect(uri).await;
        assert!(
            matches!(
                &refused,
                Err(Error::InvalidInput { .. } | Error::Unsupported { .. })
            ),
            "{uri:?}: {refused:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "content");
    assert_eq!(entries(dir.path()), ["file"]);
}

#[tokio::test]
async fn a_root_below_a_file_is_a_storage_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "content").unwrap();
    let root = file.join("sub");
    let catalog = match Catalog::connect(root.to_str().unwrap()).await {
        Ok(catalog) => catalog,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e:?}");
            return;
        }
    };
    assert_storage("create", catalog.create_table("t", rows(0..1)).await);
    assert_storage("names", catalog.table_names().await);
    assert_storage("status", catalog.table_status("t").await);
    assert_storage("open", catalog.open_table("t").await);
    assert_storage("drop", catalog.drop_table("t").await);
    assert_storage("undrop", catalog.undrop_table("t").await);
    assert_storage("purge", catalog.purge_table("t").await);
    assert_storage("dropped", catalog.list_dropped_tables().await);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "content");
}

/// A live table `a` and a dropped table `b`, made by somebody with all rights.
async fn a_and_b(memory: &SharedMemory) -> DroppedTable {
    let catalog = with_lease(&memory.actor()).await;
    catalog.create_table("a", rows(0..3)).await.unwrap();
    catalog.create_table("b", rows(5..7)).await.unwrap();
    catalog.drop_table("b").await.unwrap()
}

async fn assert_a_and_b(catalog: &Catalog, dropped: &DroppedTable) {
    assert_eq!(table_ids(catalog, "a").await, [0, 1, 2]);
    assert_eq!(catalog.table_names().await.unwrap(), ["a"]);
    assert_eq!(only_drop(catalog).await.drop_id, dropped.drop_id);
    assert!(matches!(
        status(catalog, "b").await,
        TableState::Dropped(d) if d.drop_id == dropped.drop_id
    ));
    assert!(is_absent(catalog, "c").await);
}

#[tokio::test]
async fn a_store_that_refuses_everything_is_never_an_empty_one() {
    let memory = SharedMemory::new();
    let dropped = a_and_b(&memory).await;
    let before = memory.dump().await;
    let actor = memory.actor();
    let c = with_lease(&actor).await;
    actor
        .faults
        .fail_matching(|_| true, Fault::PermissionDenied);
    // Lance tries a refused listing again after a while.
    tokio::time::pause();

    for name in ["a", "b", "c"] {
        assert_storage("create", c.create_table(name, rows(0..1)).await);
        for mode in [CreateMode::ExistOk, CreateMode::Overwrite] {
            let create = c.create_table(name, rows(0..1)).mode(mode);
            assert_storage("create", create.await);
        }
        assert_storage("declare", c.declare_table(name).await);
        assert_storage("open", c.open_table(name).await);
        assert_storage("open version", c.open_table(name).version(1).await);
        assert_storage("open tag", c.open_table(name).tag("x").await);
        assert_storage("status", c.table_status(name).await);
        assert_storage("exists", c.table_exists(name).await);
        assert_storage("drop", c.drop_table(name).await);
        assert_storage("drop if exists", c.drop_table(name).if_exists().await);
        assert_storage("undrop", c.undrop_table(name).await);
        assert_storage("purge", c.purge_table(name).await);
        assert_storage("dry purge", c.purge_table(name).dry_run().await);
    }
    assert_storage("names", c.table_names().await);
    assert_storage("list", c.list_tables().await);
    let openable = c.list_tables().include_declared(false);
    assert_storage("list openable", openable.await);
    assert_storage("list dropped", c.list_dropped_tables().await);
    assert_storage("drop all", c.drop_all_tables().await);
    for purge in [Purge::expired(), Purge::all(), Purge::all().dry_run()] {
        assert_storage("purge dropped", c.purge_dropped(purge).await);
    }
    assert_storage("reconcile", c.reconcile(false).await);

    tokio::time::resume();
    actor.faults.clear();
    assert_eq!(memory.dump().await, before);
    assert_a_and_b(&c, &dropped).await;
}

#[tokio::test]
async fn a_store_that_refuses_writes_can_be_read_and_stays_as_it_is() {
    let memory = SharedMemory::new();
    let dropped = a_and_b(&memory).await;
    let before = memory.dump().await;
    let actor = memory.actor();
    let c = with_lease(&actor).await;
    actor
        .faults
        .fail_matching(|request| request.kind.is_write(), Fault::PermissionDenied);

    assert_a_and_b(&c, &dropped).await;
    let there = c.create_table("a", rows(9..10)).mode(CreateMode::ExistOk);
    assert_eq!(ids(&there.await.unwrap()).await, [0, 1, 2]);
    assert!(matches!(
        c.create_table("a", rows(9..10)).await,
        Err(Error::TableAlreadyExists { .. })
    ));
    assert!(matches!(
        c.open_table("b").await,
        Err(Error::TableDropped { .. })
    ));
    assert!(c.purge_table("b").dry_run().await.unwrap().objects > 0);
    assert!(c.reconcile(false).await.unwrap().is_clean());

    let over = c.create_table("a", rows(9..10)).mode(CreateMode::Overwrite);
    assert_storage("overwrite", over.await);
    assert_storage("create", c.create_table("c", rows(9..10)).await);
    assert_storage("revive", c.create_table("b", rows(9..10)).await);
    assert_storage("declare", c.declare_table("c").await);
    assert_storage("drop", c.drop_table("a").await);
    assert_storage("drop if exists", c.drop_table("a").if_exists().await);
    assert_storage("drop all", c.drop_all_tables().await);
    assert_storage("undrop", c.undrop_table("b").await);
    assert_storage("purge", c.purge_table("b").await);
    let report = c.purge_dropped(Purge::all()).await.unwrap();
    assert!(report.tables.is_empty(), "{report:?}");
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert_eq!(report.failures[0].1.kind(), ErrorKind::Storage);

    assert_eq!(memory.dump().await, before);
    assert_a_and_b(&c, &dropped).await;
    actor.faults.clear();
    // Nobody has to wait for anything that the failures left.
    c.undrop_table("b").await.unwrap();
    assert_eq!(table_ids(&c, "b").await, [5, 6]);
    c.drop_table("a").await.unwrap();
    c.purge_table("a").await.unwrap();
    assert!(is_absent(&c, "a").await);
}

/// Does it, again while the lease of a failed create lasts.
async fn after_the_lease<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let deadline = Instant::now() + 5 * LEASE;
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(e) if e.is_retryable() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// A create of which the `n`-th request fails; `None` when it has no such request, else whether it failed.
async fn create_failing_at(n: usize, when: When, fault: Fault) -> Option<bool> {
    let what = format!("request {n} failing {when:?} with {fault:?}");
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = &with_lease(&actor).await;
    actor.faults.reset();
    actor.faults.fail_at(n, when, fault);
    let created = catalog.create_table("t", rows(0..3)).await;
    if actor.faults.pending() > 0 {
        created.unwrap_or_else(|e| panic!("{what}: {e}"));
        return None;
    }
    let failed = created.is_err();
    match created {
        Ok(table) => {
            assert_eq!(ids(&table).await, [0, 1, 2], "{what}");
            assert_eq!(table_ids(catalog, "t").await, [0, 1, 2], "{what}");
            assert_eq!(catalog.table_names().await.unwrap(), ["t"], "{what}");
            let again = catalog.create_table("t", rows(10..13)).await;
            assert!(
                matches!(again, Err(Error::TableAlreadyExists { .. })),
                "{what}: {again:?}"
            );
        }
        Err(e) => {
            assert!(
                matches!(e.kind(), ErrorKind::Storage | ErrorKind::Lance),
                "{what}: {e:?}"
            );
            let found = status(catalog, "t").await;
            assert!(
                matches!(
                    found,
                    TableState::Absent | TableState::Creating | TableState::Incomplete
                ),
                "{what}: {found:?}"
            );
            let opened = catalog.open_table("t").await;
            assert!(
                matches!(opened, Err(Error::TableNotFound { .. })),
                "{what}: {opened:?}"
            );
            let openable = catalog.list_tables().include_declared(false).await.unwrap();
            assert!(openable.tables.is_empty(), "{what}");
            assert!(
                catalog.list_dropped_tables().await.unwrap().is_empty(),
                "{what}"
            );
            let create = async || catalog.create_table("t", rows(10..13)).await;
            let table = after_the_lease(create).await;
            assert_eq!(ids(&table).await, [10, 11, 12], "{what}");
        }
    }
    // The name is not in anybody's way any more.
    let rows = table_ids(catalog, "t").await;
    after_the_lease(async || catalog.drop_table("t").await).await;
    assert!(
        matches!(status(catalog, "t").await, TableState::Dropped(_)),
        "{what}"
    );
    after_the_lease(async || catalog.undrop_table("t").await).await;
    assert_eq!(table_ids(catalog, "t").await, rows, "{what}");
    Some(failed)
}

async fn create_failing_anywhere(when: When, fault: Fault, at_least: usize) {
    let mut failures = 0;
    for n in 0.. {
        assert!(n < 100, "a create has no end");
        match create_failing_at(n, when, fault).await {
            None => break,
            Some(failed) => failures += usize::from(failed),
        }
    }
    assert!(failures >= at_least, "only {failures} creates failed");
}

/// As on a full disk: refused, and nothing was written. The data, the creating tombstone and the manifest are needed.
#[tokio::test]
async fn creates_that_are_refused_at_any_request() {
    create_failing_anywhere(When::Before, Fault::PermissionDenied, 3).await;
}

/// Something was written, but whoever wrote it does not know.
#[tokio::test]
async fn creates_whose_answers_are_lost_at_any_request() {
    create_failing_anywhere(When::After, Fault::PermissionDenied, 1).await;
}

/// The failure may be none yet, so some wait for the lease.
#[tokio::test]
async fn creates_that_fail_for_a_while_at_any_request() {
    create_failing_anywhere(When::Before, Fault::Unavailable503, 3).await;
}

#[tokio::test]
async fn a_retention_of_none_and_one_for_a_single_drop() {
    let memory = SharedMemory::with_clock(StoreClock::default());
    let clock = memory.clock().unwrap();
    let catalog = with_clock(&memory.actor(), &clock, Some(HOUR)).await;
    for name in ["kept", "short", "default"] {
        catalog.create_table(name, rows(0..3)).await.unwrap();
    }
    let kept = catalog.drop_table("kept").retention(None::<Duration>);
    assert_eq!(kept.await.unwrap().expires_at, None);
    let five = Duration::from_secs(5);
    let short = catalog.drop_table("short").retention(five).await.unwrap();
    assert_eq!(short.expires_at, Some(short.deleted_at + five));
    let default = catalog.drop_table("default").await.unwrap();
    assert_eq!(default.expires_at, Some(default.deleted_at + HOUR));
    for listed in catalog.list_dropped_tables().await.unwrap() {
        let expected = match listed.ident.name() {
            "kept" => None,
            "short" => Some(listed.deleted_at + five),
            _ => Some(listed.deleted_at + HOUR),
        };
        assert_eq!(listed.expires_at, expected, "{listed:?}");
    }

    // Both clocks are one here, so each drop goes when its own time is over.
    for (pass, gone) in [
        (Duration::from_secs(2), None),
        (Duration::from_secs(8), Some("short")),
        (HOUR, Some("default")),
        (CENTURY, None),
    ] {
        clock.advance(pass);
        let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
        assert!(report.failures.is_empty(), "{report:?}");
        let purged: Vec<_> = report.tables.iter().map(|t| t.ident.name()).collect();
        assert_eq!(purged, Vec::from_iter(gone), "after {pass:?}");
    }
    assert_eq!(only_drop(&catalog).await.ident, TableIdent::from("kept"));

    // The same as the catalog's default.
    let catalog = with_clock(&memory.actor(), &clock, None).await;
    catalog.undrop_table("kept").await.unwrap();
    assert_eq!(
        catalog.drop_table("kept").await.unwrap().expires_at,
        None,
        "by default"
    );
    clock.advance(CENTURY);
    assert_kept(&catalog, &[Purge::expired()]).await;
    assert!(catalog.purge_table("kept").await.unwrap().objects > 0);
    assert!(is_absent(&catalog, "kept").await);
}

async fn zero_retention(catalog: &Catalog) {
    for name in ["now", "later"] {
        catalog.create_table(name, rows(0..3)).await.unwrap();
    }
    let dropped = catalog.drop_table("now").retention(Duration::ZERO).await;
    let dropped = dropped.unwrap();
    assert_eq!(dropped.expires_at, Some(dropped.deleted_at));
    catalog.drop_table("later").retention(HOUR).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
    assert_eq!(report.tables.len(), 1, "{report:?}");
    assert_eq!(report.tables[0].drop_id, dropped.drop_id);
    assert!(is_absent(catalog, "now").await);
    assert_eq!(only_drop(catalog).await.ident, TableIdent::from("later"));
}

#[tokio::test]
async fn a_retention_of_zero_is_over_at_once() {
    let (_dir, catalog) = local().await;
    zero_retention(&catalog).await;
    zero_retention(&with_lease(&SharedMemory::new().actor()).await).await;
}

/// By our clock it is over; the store says that it is not.
async fn assert_held_by_the_store(catalog: &Catalog, memory: &SharedMemory) {
    let dropped = only_drop(catalog).await;
    let would = catalog.purge_dropped(Purge::expired().dry_run()).await;
    assert_eq!(would.unwrap().tables.len(), 1, "due by our clock");
    let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
    assert!(report.tables.is_empty(), "{report:?}");
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert_eq!(report.failures[0].1.kind(), ErrorKind::Conflict);
    // The same drop, under another id, so that the decision against it is void.
    let held = only_drop(catalog).await;
    assert_ne!(held.drop_id, dropped.drop_id);
    let mut again = held.clone();
    again.drop_id = dropped.drop_id;
    assert_eq!(again, dropped);
    assert_eq!(
        status(catalog, "t").await,
        TableState::Dropped(held),
        "no decision is left"
    );
    let objects = memory.dump().await;
    assert!(!objects.iter().any(|o| o.contains(".claim")), "{objects:?}");
}

#[tokio::test]
async fn a_clock_that_is_ahead_shortens_no_hold() {
    let memory = SharedMemory::with_clock(StoreClock::default());
    let ours = StoreClock::default();
    let catalog = with_clock(&memory.actor(), &ours, Some(7 * DAY)).await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    ours.advance(30 * DAY);
    assert_held_by_the_store(&catalog, &memory).await;
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);

    catalog.drop_table("t").await.unwrap();
    ours.advance(30 * DAY);
    memory.clock().unwrap().advance(6 * DAY);
    assert_held_by_the_store(&catalog, &memory).await;
    memory.clock().unwrap().advance(2 * DAY);
    let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
    assert_eq!(report.tables.len(), 1, "{report:?}");
    assert!(is_absent(&catalog, "t").await);
}

/// A purge that could not ask the store whether the retention is over must not be finished unasked by the next one.
#[tokio::test]
async fn an_expiry_that_could_not_be_checked_purges_nothing() {
    let memory = SharedMemory::with_clock(StoreClock::default());
    let ours = StoreClock::default();
    let actor = memory.actor();
    let catalog = with_clock(&actor, &ours, Some(7 * DAY)).await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    let data: Vec<String> = memory.dump().await;
    ours.advance(30 * DAY);
    actor.faults.fail_matching(
        |request| request.kind == Kind::Head && request.path.ends_with(".claim"),
        Fault::PermissionDenied,
    );
    let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
    assert!(report.tables.is_empty(), "{report:?}");
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert_eq!(report.failures[0].1.kind(), ErrorKind::Storage);

    actor.faults.clear();
    let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
    assert!(report.tables.is_empty(), "{report:?}");
    let left = memory.dump().await;
    assert!(data.iter().all(|o| left.contains(o)), "{left:?}");
}

#[tokio::test]
async fn a_clock_that_goes_backwards_only_delays() {
    let memory = SharedMemory::with_clock(StoreClock::default());
    let ours = StoreClock::default();
    let start = ours.now();
    let catalog = with_clock(&memory.actor(), &ours, Some(HOUR)).await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let dropped = catalog.drop_table("t").retention(Duration::ZERO).await;
    let deleted_at = dropped.unwrap().deleted_at;
    assert_eq!(deleted_at.timestamp_millis(), start.timestamp_millis());

    // Dropped in the future: not expired, and before no time that has been.
    ours.set(start - DAY);
    let listed = only_drop(&catalog).await;
    assert_eq!(listed.deleted_at, deleted_at);
    let until_now = Purge::dropped_before(ours.now());
    assert_kept(&catalog, &[Purge::expired(), until_now]).await;
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);

    // Dropped by a clock that was slow, and then put right.
    catalog.drop_table("t").await.unwrap();
    ours.set(start);
    assert_held_by_the_store(&catalog, &memory).await;
    memory.clock().unwrap().advance(2 * HOUR);
    let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
    assert_eq!(report.tables.len(), 1, "{report:?}");
    assert!(is_absent(&catalog, "t").await);
}

#[tokio::test]
async fn a_purge_of_a_shallow_clone_leaves_its_source() {
    let (dir, catalog) = local().await;
    let root = dir.path().to_str().unwrap();
    catalog.create_table("source", rows(0..5)).await.unwrap();
    let uri = format!("{root}/source.lance");
    let mut source = Dataset::open(&uri).await.unwrap();
    let target = format!("{root}/clone.lance");
    source.shallow_clone(&target, 1u64, None).await.unwrap();
    assert_eq!(table_ids(&catalog, "clone").await, [0, 1, 2, 3, 4]);
    let before = tree(&dir.path().join("source.lance"));

    catalog.drop_table("clone").await.unwrap();
    let would = catalog.purge_table("clone").dry_run().await.unwrap();
    let purged = catalog.purge_table("clone").await.unwrap();
    assert_eq!(purged, would);
    assert!(purged.objects > 0);
    assert_eq!(purged.left.len(), 1, "{:?}", purged.left);
    assert!(
        purged.left[0]
            .trim_end_matches('/')
            .ends_with("source.lance"),
        "{:?}",
        purged.left
    );
    assert_eq!(entries(dir.path()), ["source.lance"]);
    assert_eq!(tree(&dir.path().join("source.lance")), before);
    assert_eq!(table_ids(&catalog, "source").await, [0, 1, 2, 3, 4]);

    // A table with no other base leaves nothing.
    catalog.drop_table("source").await.unwrap();
    let purged = catalog.purge_table("source").await.unwrap();
    assert!(purged.left.is_empty(), "{:?}", purged.left);
    assert!(entries(dir.path()).is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn a_purge_does_not_follow_links_out_of_the_table() {
    use std::os::unix::fs::symlink;

    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("below")).unwrap();
    for name in ["file", "below/file"] {
        std::fs::write(outside.path().join(name), "precious").unwrap();
    }
    let before = tree(outside.path());
    assert_eq!(before.len(), 2);

    let (dir, catalog) = local().await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let table = dir.path().join("t.lance");
    symlink(outside.path(), table.join("linked")).unwrap();
    symlink(outside.path().join("below"), table.join("data/linked")).unwrap();
    symlink(outside.path().join("file"), table.join("data/file")).unwrap();
    symlink(outside.path().join("nowhere"), table.join("broken")).unwrap();
    catalog.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    assert!(entries(dir.path()).is_empty());
    assert_eq!(tree(outside.path()), before);
}

#[cfg(unix)]
#[tokio::test]
async fn a_purge_of_a_linked_table_removes_the_link() {
    let outside = tempfile::tempdir().unwrap();
    let real = outside.path().join("real.lance");
    write_with_plain_lance(real.to_str().unwrap(), 0..4).await;
    let before = tree(&real);
    assert!(!before.is_empty());

    let (dir, catalog) = local().await;
    let link = dir.path().join("t.lance");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2, 3]);
    catalog.drop_table("t").await.unwrap();
    assert_hidden(&catalog, "t").await;
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(tree(&real), before, "a drop taken back leaves no trace");

    catalog.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    assert!(link.symlink_metadata().is_err());
    assert!(entries(dir.path()).is_empty());
    let after = tree(&real);
    for (path, content) in &before {
        assert_eq!(after.get(path), Some(content), "{}", path.display());
    }
    let table = Dataset::open(real.to_str().unwrap()).await.unwrap();
    assert_eq!(ids(&table).await, [0, 1, 2, 3]);
}

/// A child of the root that nobody can read as a table does not hide the others, not even from a purge taken over.
#[cfg(unix)]
#[tokio::test]
async fn odd_children_of_a_local_root_hide_nobody() {
    let (dir, catalog) = local().await;
    for name in ["a", "b"] {
        catalog.create_table(name, rows(0..3)).await.unwrap();
    }
    std::os::unix::fs::symlink("loop.lance", dir.path().join("loop.lance")).unwrap();
    std::fs::create_dir(dir.path().join("x\ny.lance")).unwrap();
    assert_eq!(catalog.table_names().await.unwrap(), ["a", "b"]);
    let page = catalog.list_tables().limit(1).await.unwrap();
    assert_eq!(
        (page.tables.as_slice(), page.page_token.is_some()),
        (["a".to_string()].as_slice(), true)
    );
    let told = catalog.reconcile(false).await.unwrap();
    let odd: Vec<_> = told
        .of(FindingKind::Unexamined)
        .map(|f| f.ident.name())
        .collect();
    assert_eq!(odd, ["x\ny"]);

    // A purge whose owner stopped after the rename: to find what it left the root is read again.
    let dropped = catalog.drop_table("a").await.unwrap();
    let claim = |generation: u32| {
        format!(
            r#"{{"format":1,"drop_id":"{}","action":"purge","owner":"{}","generation":{generation},"lease_ms":1}}"#,
            dropped.drop_id,
            lancekeep::uuid::Uuid::new_v4(),
        )
    };
    let stem = dir.path().join(format!("a.deleted.{}", dropped.drop_id));
    let beside = |rest: &str| PathBuf::from(format!("{}{rest}", stem.display()));
    std::fs::write(beside(".claim"), claim(0)).unwrap();
    std::fs::rename(dir.path().join("a.lance"), beside(".purge.01234567")).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(catalog.purge_table("a").await.unwrap().objects > 0);
    assert_eq!(entries(dir.path()), ["b.lance", "loop.lance", "x\ny.lance"]);
}

/// A claim that tells of another generation than its name, or of a version that cannot be, is answered, not followed.
#[tokio::test]
async fn a_claim_is_checked_against_its_name() {
    let (dir, catalog) = local().await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let dropped = catalog.drop_table("t").await.unwrap();
    let claim = dir
        .path()
        .join(format!("t.deleted.{}.claim", dropped.drop_id));
    for (drop_id, generation) in [
        (dropped.drop_id, u32::MAX),
        (lancekeep::uuid::Uuid::new_v4(), 0),
    ] {
        let content = format!(
            r#"{{"format":1,"drop_id":"{drop_id}","action":"purge","owner":"{drop_id}","generation":{generation},"lease_ms":1}}"#
        );
        std::fs::write(&claim, content).unwrap();
        let error = catalog.undrop_table("t").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptMetadata, "{error}");
    }
    // A revive of a version past the last one, by an owner that is gone: it did not commit.
    let id = dropped.drop_id;
    let content = format!(
        r#"{{"format":1,"drop_id":"{id}","action":"restore","owner":"{id}","lease_ms":1,
            "revive":{{"base_version":18446744073709551615,"transaction":"{id}"}}}}"#
    );
    std::fs::write(&claim, content).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);
}

/// A root that turns into a file after it was connected is a failure, not a catalog without tables.
#[tokio::test]
async fn a_root_that_turned_into_a_file_is_no_empty_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let catalog = Catalog::connect(root.to_str().unwrap()).await.unwrap();
    catalog.create_table("t", rows(0..3)).await.unwrap();
    std::fs::rename(&root, dir.path().join("away")).unwrap();
    std::fs::write(&root, b"a file").unwrap();
    for (what, error) in [
        ("names", catalog.table_names().await.err()),
        ("page", catalog.list_tables().limit(3).await.err()),
        ("dropped", catalog.list_dropped_tables().await.err()),
        ("status", catalog.table_status("t").await.err()),
        ("open", catalog.open_table("t").await.map(drop).err()),
        ("drop", catalog.drop_table("t").if_exists().await.err()),
        ("undrop", catalog.undrop_table("t").await.err()),
    ] {
        let error = error.unwrap_or_else(|| panic!("{what} sees an empty catalog"));
        assert_eq!(error.kind(), ErrorKind::Storage, "{what}: {error}");
    }
}

/// One object has one drop id under every path that leads to it: a claim made under one is seen under the other.
#[cfg(unix)]
#[tokio::test]
async fn a_derived_drop_id_does_not_depend_on_where_the_root_is_mounted() {
    let (dir, catalog) = local().await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    std::fs::write(dir.path().join("t.deleted"), br#"{"deleted_at_ms":5}"#).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    let other = Catalog::connect(link.to_str().unwrap()).await.unwrap();
    let (ours, theirs) = (only_drop(&catalog).await, only_drop(&other).await);
    assert_eq!(ours.drop_id, theirs.drop_id);
}

/// A directory where a record belongs is told as such, at once.
#[tokio::test]
async fn a_directory_in_the_place_of_a_tombstone_is_named() {
    let (dir, catalog) = local().await;
    catalog.create_table("live", rows(0..3)).await.unwrap();
    for name in ["t", "live"] {
        std::fs::create_dir(dir.path().join(format!("{name}.deleted"))).unwrap();
    }
    let started = Instant::now();
    for error in [
        catalog.create_table("t", rows(0..1)).await.map(drop).err(),
        catalog.drop_table("live").await.map(drop).err(),
    ] {
        let error = error.unwrap();
        assert!(!error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains(".deleted"), "{error}");
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}
