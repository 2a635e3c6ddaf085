//! What reconcile finds, mends and leaves alone; and processes that stop on local disk, where a purge is a rename.
//!
//! States are planted as objects, in memory and on disk alike, or left by a process that stopped. A lease is over when
//! its newest record is a whole lease older than one written now: so it is passed by moving the store's clock, or on
//! disk by dating the records back.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use lancekeep::catalog::CatalogBuilder;
use lancekeep::lance_io::object_store::WrappingObjectStore;
use lancekeep::lifecycle::{FindingKind, ReconcileReport};
use lancekeep::{
    Catalog, Clock, CreateMode, DroppedTable, Error, ErrorKind, Purge, TableIdent, TableState,
};
use object_store::list::PaginatedListStore;
use object_store::path::Path as Location;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::common::{ids, rows, table_ids};
use crate::support::{Actor, FaultStore, Faults, SharedMemory, StoreClock, When};

/// Longer than any run takes: it ends when a test says so.
const LEASE: Duration = Duration::from_secs(20);
/// A lease of a dead owner that is waited for.
const SHORT: Duration = Duration::from_millis(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const OLD: Range<i32> = 0..3;
const NEW: Range<i32> = 100..102;
/// What others create.
const OTHER: Range<i32> = 200..201;

const MARKER: &str = "t.lance/.lance-deregistered";

fn all(ids: Range<i32>) -> Vec<i32> {
    ids.collect()
}

#[derive(Debug)]
struct StoreTime(StoreClock);

impl Clock for StoreTime {
    fn now(&self) -> DateTime<Utc> {
        self.0.now()
    }
}

/// Names below a root with what tells a write of them, and their content. Directories end in a slash.
type Contents = BTreeMap<String, (String, Vec<u8>)>;

fn tree(root: &Path) -> Contents {
    let written = |path: &Path| format!("{:?}", path.metadata().unwrap().modified().unwrap());
    // A directory's own time tells of names that came and went in it.
    let mut found = Contents::from([(String::new(), (written(root), Vec::new()))]);
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            if path.is_dir() {
                found.insert(format!("{name}/"), (written(&path), Vec::new()));
                pending.push(path);
            } else {
                let content = std::fs::read(&path).unwrap();
                found.insert(name.to_string(), (written(&path), content));
            }
        }
    }
    found
}

/// Files below a directory, and their bytes.
fn measure(dir: &Path) -> (u64, u64) {
    let mut measured = (0, 0);
    for (name, (_, content)) in tree(dir) {
        if !name.is_empty() && !name.ends_with('/') {
            measured.0 += 1;
            measured.1 += u64::try_from(content.len()).unwrap();
        }
    }
    measured
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn assert_same(before: &Contents, after: &Contents, what: &str) {
    let changed: Vec<&String> = before
        .keys()
        .chain(after.keys())
        .filter(|name| before.get(*name) != after.get(*name))
        .collect();
    assert!(changed.is_empty(), "{what} changed {changed:?}");
}

/// Without directories: on disk even a refused create-if-absent stages a file in one.
fn files(mut contents: Contents) -> Contents {
    contents.retain(|name, _| !name.is_empty() && !name.ends_with('/'));
    contents
}

/// The table `n`, which is nobody's business.
fn neighbour(contents: &Contents) -> Contents {
    let mut contents = contents.clone();
    contents.retain(|name, _| name.starts_with("n.lance/"));
    assert!(!contents.is_empty());
    contents
}

/// A root on local disk.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn builder(&self) -> CatalogBuilder {
        Catalog::builder(self.path().to_str().unwrap()).leases(LEASE, LEASE)
    }

    /// The catalog of a process that knows nothing yet.
    async fn catalog(&self) -> Catalog {
        self.builder().build().await.unwrap()
    }

    fn copy(&self) -> Self {
        let copy = Self::new();
        copy_tree(self.path(), copy.path());
        copy
    }

    /// Makes all records look as old as if they had been written more than a lease ago.
    fn age(&self) {
        let then = SystemTime::now() - LEASE - Duration::from_secs(2);
        for name in self.entries() {
            let path = self.join(&name);
            if name.contains(".deleted") && path.is_file() {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                file.set_modified(then).unwrap();
            }
        }
    }

    fn entries(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn plant(&self, name: &str, content: &[u8]) {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

async fn catalog_on(memory: &SharedMemory, actor: &Actor) -> Catalog {
    let clock = memory.clock().unwrap();
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .clock(Arc::new(StoreTime(clock)))
        .leases(LEASE, LEASE)
        .build()
        .await
        .unwrap()
}

fn clocked_memory() -> SharedMemory {
    // Not a whole second: the store's clock must not look coarse.
    let now = DateTime::from_timestamp_millis(1_750_000_000_123).unwrap();
    SharedMemory::with_clock(StoreClock::new(now))
}

enum World {
    Memory(SharedMemory),
    Disk(Root),
}

impl World {
    fn both() -> [Self; 2] {
        [Self::Memory(clocked_memory()), Self::Disk(Root::new())]
    }

    /// The catalog of a process that knows nothing yet.
    async fn catalog(&self) -> Catalog {
        match self {
            Self::Memory(memory) => catalog_on(memory, &memory.actor()).await,
            Self::Disk(root) => root.catalog().await,
        }
    }

    /// Everything below the root.
    async fn contents(&self) -> Contents {
        let memory = match self {
            Self::Memory(memory) => memory.raw(),
            Self::Disk(root) => return tree(root.path()),
        };
        let metas: Vec<ObjectMeta> = memory.list(None).try_collect().await.unwrap();
        let mut found = Contents::new();
        for meta in metas {
            let content = memory.get(&meta.location).await.unwrap();
            let content = content.bytes().await.unwrap().to_vec();
            let name = meta.location.to_string();
            let name = name.strip_prefix("root/").unwrap().to_string();
            found.insert(name, (meta.e_tag.unwrap_or_default(), content));
        }
        found
    }

    async fn plant(&self, name: &str, content: impl Into<Vec<u8>>) {
        let content: Vec<u8> = content.into();
        match self {
            Self::Memory(memory) => {
                let path = Location::from(format!("root/{name}"));
                let payload = PutPayload::from(content);
                memory.base().put(&path, payload).await.unwrap();
            }
            Self::Disk(root) => root.plant(name, &content),
        }
    }

    async fn plant_claim(&self, claim: &Value) {
        self.plant(&claim_name(claim), claim.to_string()).await;
    }

    async fn read(&self, name: &str) -> Option<Vec<u8>> {
        let (_, content) = self.contents().await.remove(name)?;
        Some(content)
    }

    async fn remove(&self, name: &str) {
        match self {
            Self::Memory(memory) => {
                let path = Location::from(format!("root/{name}"));
                memory.base().delete(&path).await.unwrap();
            }
            Self::Disk(root) => std::fs::remove_file(root.join(name)).unwrap(),
        }
    }

    /// Takes the whole directory of `t` away.
    async fn remove_table(&self) {
        match self {
            Self::Memory(_) => {
                for name in self.contents().await.into_keys() {
                    if name.starts_with("t.lance/") {
                        self.remove(&name).await;
                    }
                }
            }
            Self::Disk(root) => std::fs::remove_dir_all(root.join("t.lance")).unwrap(),
        }
    }

    /// Every lease that runs now is over.
    fn pass_the_lease(&self) {
        match self {
            Self::Memory(memory) => {
                let clock = memory.clock().unwrap();
                clock.advance(LEASE + Duration::from_secs(1));
            }
            Self::Disk(root) => root.age(),
        }
    }

    async fn status(&self) -> TableState {
        self.catalog().await.table_status("t").await.unwrap()
    }

    async fn rows(&self) -> Vec<i32> {
        table_ids(&self.catalog().await, "t").await
    }

    /// Tombstones, claims and purge directories.
    async fn records(&self) -> Vec<String> {
        let mut names: Vec<String> = self.contents().await.into_keys().collect();
        names.retain(|name| name.contains(".deleted"));
        names
    }

    async fn live(&self) -> Catalog {
        let catalog = self.catalog().await;
        catalog.create_table("n", rows(OTHER)).await.unwrap();
        catalog.create_table("t", rows(OLD)).await.unwrap();
        catalog
    }

    async fn dropped(&self) -> Uuid {
        let catalog = self.live().await;
        catalog.drop_table("t").await.unwrap().drop_id
    }

    async fn dry_run(&self) -> ReconcileReport {
        match self {
            Self::Memory(memory) => {
                let actor = memory.actor();
                let catalog = catalog_on(memory, &actor).await;
                let report = Box::pin(catalog.reconcile(true)).await.unwrap();
                assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());
                report
            }
            Self::Disk(root) => {
                let catalog = root.catalog().await;
                Box::pin(catalog.reconcile(true)).await.unwrap()
            }
        }
    }

    async fn run(&self) -> ReconcileReport {
        let catalog = self.catalog().await;
        Box::pin(catalog.reconcile(false)).await.unwrap()
    }

    /// A dry run tells these and changes nothing, a run tells them with whether it mended them, and a second run finds
    /// only what is to be left alone.
    async fn reconciles(&self, run: &[(FindingKind, bool)]) {
        let dry: Vec<FindingKind> = run.iter().map(|(kind, _)| *kind).collect();
        self.reconciles_from(&dry, run).await;
    }

    /// The same, where mending brings to light what the dry run could not see.
    async fn reconciles_from(&self, dry: &[FindingKind], run: &[(FindingKind, bool)]) {
        let before = self.contents().await;
        let report = self.dry_run().await;
        assert!(report.dry_run);
        let expected: Vec<(FindingKind, bool)> = dry.iter().map(|kind| (*kind, false)).collect();
        assert_eq!(told(&report), expected, "a dry run");
        assert_same(&before, &self.contents().await, "a dry run");

        let report = self.run().await;
        assert!(!report.dry_run);
        assert_eq!(told(&report), run, "a run");
        let after = self.contents().await;
        if run.iter().all(|(_, mended)| !mended) {
            assert_same(&before, &after, "a run with nothing to mend");
        }
        assert_same(&neighbour(&before), &neighbour(&after), "a run");

        let left: Vec<(FindingKind, bool)> =
            run.iter().copied().filter(|(_, mended)| !mended).collect();
        let report = self.run().await;
        assert_eq!(told(&report), left, "a second run");
        assert_eq!(report.is_clean(), left.is_empty());
        assert_same(&after, &self.contents().await, "a second run");
    }

    /// A run, not only a dry one, tells it and does nothing about it.
    async fn left_to_its_owner(&self, kind: FindingKind) {
        let before = self.contents().await;
        let report = self.run().await;
        assert_eq!(told(&report), [(kind, false)], "while the lease lasts");
        assert_same(&before, &self.contents().await, "while the lease lasts");
    }

    async fn is_clean(&self) {
        self.reconciles(&[]).await;
    }
}

/// What was found of `t`; only what could not be looked at comes with an error.
fn told(report: &ReconcileReport) -> Vec<(FindingKind, bool)> {
    for finding in &report.findings {
        assert_eq!(finding.ident, TableIdent::from("t"), "{finding:?}");
        let unexamined = finding.kind == FindingKind::Unexamined;
        assert_eq!(finding.error.is_some(), unexamined, "{finding:?}");
    }
    let findings = report.findings.iter();
    findings.map(|f| (f.kind, f.mended)).collect()
}

async fn only_drop(catalog: &Catalog) -> DroppedTable {
    let mut dropped = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    dropped.remove(0)
}

/// A claim of an owner that is nobody any more.
pub(crate) fn claim(drop_id: Uuid, action: &str, generation: u32, lease: Duration) -> Value {
    json!({
        "format": 1,
        "drop_id": drop_id.to_string(),
        "action": action,
        "owner": Uuid::new_v4().to_string(),
        "generation": generation,
        "lease_ms": u64::try_from(lease.as_millis()).unwrap(),
        "creating": false,
        "if_expired": false,
    })
}

fn claim_name(claim: &Value) -> String {
    let drop_id = claim["drop_id"].as_str().unwrap();
    match claim["generation"].as_u64().unwrap() {
        0 => format!("t.deleted.{drop_id}.claim"),
        n => format!("t.deleted.{drop_id}.claim.{n}"),
    }
}

/// What a process writes before it creates `t`, in the length by which listings know it.
pub(crate) fn creating_tombstone(lease: Duration) -> Vec<u8> {
    let record = json!({
        "format": 1,
        "drop_id": Uuid::new_v4().to_string(),
        "id": ["t"],
        "location": "t.lance",
        "deleted_at_ms": 1_750_000_000_000_i64,
        "creating": {
            "owner": Uuid::new_v4().to_string(),
            "lease_ms": u64::try_from(lease.as_millis()).unwrap(),
        },
    });
    let mut content = record.to_string().into_bytes();
    content.resize(1024, b' ');
    content
}

#[tokio::test]
async fn an_unfinished_restore_is_finished_after_its_lease() {
    for world in World::both() {
        let drop_id = world.dropped().await;
        world
            .plant_claim(&claim(drop_id, "restore", 0, LEASE))
            .await;
        assert!(matches!(world.status().await, TableState::Restoring(_)));
        world
            .left_to_its_owner(FindingKind::UnfinishedRestore)
            .await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedRestore, true)])
            .await;
        assert_eq!(world.rows().await, all(OLD));
        assert!(world.records().await.is_empty());
        assert_eq!(world.read(MARKER).await, None);
    }
}

#[tokio::test]
async fn an_unfinished_revive_that_has_not_committed_is_a_drop_again() {
    for world in World::both() {
        let drop_id = world.dropped().await;
        let mut revive = claim(drop_id, "restore", 0, LEASE);
        revive["revive"] = json!({
            "base_version": 1,
            "transaction": Uuid::new_v4().to_string(),
        });
        world.plant_claim(&revive).await;
        world
            .left_to_its_owner(FindingKind::UnfinishedRestore)
            .await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedRestore, true)])
            .await;

        // The old rows come back only to who asks for them.
        let catalog = world.catalog().await;
        let again = only_drop(&catalog).await;
        assert_ne!(again.drop_id, drop_id);
        assert_eq!(world.status().await, TableState::Dropped(again.clone()));
        assert!(matches!(
            catalog.open_table("t").await,
            Err(Error::TableDropped { .. })
        ));
        let marker = world.read(MARKER).await.unwrap();
        assert_eq!(marker, again.drop_id.to_string().into_bytes());
        assert_eq!(world.records().await, ["t.deleted"]);
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(world.rows().await, all(OLD));
    }
}

#[tokio::test]
async fn an_unfinished_revive_that_has_committed_is_live() {
    for world in World::both() {
        let catalog = world.live().await;
        let over = catalog.create_table("t", rows(NEW));
        let table = over.mode(CreateMode::Overwrite).await.unwrap();
        let transaction = table.read_transaction().await.unwrap().unwrap().uuid;
        let drop_id = catalog.drop_table("t").await.unwrap().drop_id;
        let mut revive = claim(drop_id, "restore", 0, LEASE);
        revive["revive"] = json!({ "base_version": 1, "transaction": transaction });
        world.plant_claim(&revive).await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedRestore, true)])
            .await;
        assert_eq!(world.rows().await, all(NEW));
        assert!(world.records().await.is_empty());
    }
}

#[tokio::test]
async fn an_unfinished_purge_is_finished_after_its_lease() {
    for world in World::both() {
        let drop_id = world.dropped().await;
        world.plant_claim(&claim(drop_id, "purge", 0, LEASE)).await;
        assert!(matches!(world.status().await, TableState::Purging(_)));
        world.left_to_its_owner(FindingKind::UnfinishedPurge).await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedPurge, true)])
            .await;
        assert_eq!(world.status().await, TableState::Absent);
        let left = world.contents().await;
        assert!(
            left.keys()
                .all(|n| n.is_empty() || n.starts_with("n.lance/")),
            "{:?}",
            left.keys()
        );
    }
}

/// Neither a missing location, since it is being purged, nor a leftover, since that is what the purge renamed.
#[tokio::test]
async fn a_purge_that_has_emptied_the_table_is_one_finding() {
    for world in World::both() {
        let drop_id = world.dropped().await;
        world.plant_claim(&claim(drop_id, "purge", 0, LEASE)).await;
        match &world {
            World::Memory(_) => world.remove_table().await,
            World::Disk(root) => rename_away(root, drop_id),
        }
        world.left_to_its_owner(FindingKind::UnfinishedPurge).await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedPurge, true)])
            .await;
        assert_eq!(world.status().await, TableState::Absent);
        assert!(world.records().await.is_empty());
    }
}

/// The owner, or who took over from it, may have renewed the lease.
#[tokio::test]
async fn a_lease_counts_from_its_newest_generation() {
    for (action, kind, error) in [
        (
            "restore",
            FindingKind::UnfinishedRestore,
            ErrorKind::RestoreInProgress,
        ),
        (
            "purge",
            FindingKind::UnfinishedPurge,
            ErrorKind::PurgeInProgress,
        ),
    ] {
        for world in World::both() {
            let drop_id = world.dropped().await;
            world.plant_claim(&claim(drop_id, action, 0, LEASE)).await;
            world.pass_the_lease();
            let newest = claim(drop_id, action, 1, LEASE);
            world.plant_claim(&newest).await;
            world.left_to_its_owner(kind).await;
            let before = files(world.contents().await);
            let catalog = world.catalog().await;
            for refused in [
                catalog.undrop_table("t").await.map(drop),
                catalog.purge_table("t").await.map(drop),
            ] {
                let refused = refused.unwrap_err();
                assert_eq!(refused.kind(), error, "{refused:?}");
                let owner = match &refused {
                    Error::RestoreInProgress { owner, .. }
                    | Error::PurgeInProgress { owner, .. } => owner.to_string(),
                    other => panic!("{other:?}"),
                };
                assert_eq!(json!(owner), newest["owner"]);
            }
            let after = files(world.contents().await);
            assert_same(&before, &after, "who was refused");

            world.pass_the_lease();
            world.reconciles(&[(kind, true)]).await;
            assert!(world.records().await.is_empty());
            if kind == FindingKind::UnfinishedRestore {
                assert_eq!(world.rows().await, all(OLD));
            } else {
                assert_eq!(world.status().await, TableState::Absent);
            }
        }
    }
}

#[tokio::test]
async fn an_unfinished_create_with_a_version_is_live() {
    for world in World::both() {
        world.live().await;
        world.plant("t.deleted", creating_tombstone(LEASE)).await;
        assert_eq!(world.status().await, TableState::Live { version: 1 });
        world.left_to_its_owner(FindingKind::UnfinishedCreate).await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedCreate, true)])
            .await;
        assert_eq!(world.status().await, TableState::Live { version: 1 });
        assert_eq!(world.rows().await, all(OLD));
        assert!(world.records().await.is_empty());
    }
}

#[tokio::test]
async fn an_unfinished_create_without_a_version_is_given_up() {
    for world in World::both() {
        let catalog = world.catalog().await;
        catalog.create_table("n", rows(OTHER)).await.unwrap();
        world.plant("t.deleted", creating_tombstone(LEASE)).await;
        assert_eq!(world.status().await, TableState::Creating);
        world.left_to_its_owner(FindingKind::UnfinishedCreate).await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedCreate, true)])
            .await;
        assert_eq!(world.status().await, TableState::Absent);
        assert!(world.records().await.is_empty());

        // What it wrote stays for who creates over it.
        world.plant("t.lance/data/x.lance", "rows").await;
        world.plant("t.deleted", creating_tombstone(LEASE)).await;
        world.pass_the_lease();
        world
            .reconciles_from(
                &[FindingKind::UnfinishedCreate],
                &[
                    (FindingKind::UnfinishedCreate, true),
                    (FindingKind::IncompleteTable, false),
                ],
            )
            .await;
        assert_eq!(world.status().await, TableState::Incomplete);
        assert!(world.records().await.is_empty());
        catalog.create_table("t", rows(NEW)).await.unwrap();
        assert_eq!(world.rows().await, all(NEW));
        world.is_clean().await;
    }
}

#[tokio::test]
async fn claims_of_drops_that_are_over_are_removed() {
    let two = [(FindingKind::StaleClaim, true); 2];
    let three = [(FindingKind::StaleClaim, true); 3];
    for world in World::both() {
        let plant = async |clock: bool| {
            let over = Uuid::new_v4();
            // Young and with a long lease: there is nothing left to decide.
            world.plant_claim(&claim(over, "purge", 0, HOUR)).await;
            world.plant_claim(&claim(over, "purge", 1, HOUR)).await;
            if clock {
                let name = format!("t.deleted.{over}.clock.0a1b2c3d");
                world.plant(&name, "{}").await;
            }
        };
        // Beside a live table.
        let catalog = world.live().await;
        plant(true).await;
        assert_eq!(world.records().await.len(), 3);
        world.reconciles(&three).await;
        assert!(world.records().await.is_empty());
        assert_eq!(world.rows().await, all(OLD));

        // Beside the tombstone of another drop.
        let dropped = catalog.drop_table("t").await.unwrap();
        plant(true).await;
        world.reconciles(&three).await;
        assert_eq!(world.records().await, ["t.deleted"]);
        assert_eq!(only_drop(&catalog).await.drop_id, dropped.drop_id);
        // What read the store's clock for the drop that stands is not stale before that is over.
        let clock = format!("t.deleted.{}.clock.0a1b2c3d", dropped.drop_id);
        world.plant(&clock, "{}").await;
        world.is_clean().await;
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(world.records().await, [clock]);
        world.reconciles(&[(FindingKind::StaleClaim, true)]).await;
        assert_eq!(world.rows().await, all(OLD));

        // Beside nothing.
        world.remove_table().await;
        plant(false).await;
        world.reconciles(&two).await;
        assert!(world.records().await.is_empty());
        assert_eq!(world.status().await, TableState::Absent);
    }
}

/// On disk a record is written beside its name and linked there; no listing of the store shows what is left between.
#[tokio::test]
async fn half_written_records_are_removed_when_nobody_writes_them_any_more() {
    let root = Root::new();
    let catalog = root.catalog().await;
    catalog.create_table("t", rows(OLD)).await.unwrap();
    let dropped = catalog.drop_table("t").await.unwrap();
    let halves = [
        "absent.deleted#1".to_string(),
        format!("t.deleted.{}.claim#12", dropped.drop_id),
        "t.deleted#1".to_string(),
    ];
    for half in &halves {
        root.plant(half, b"{");
    }
    let nobodys = ["notes#1", "t.deleted#x", "x.deleted.y#1"];
    for file in nobodys {
        root.plant(file, b"mine");
    }
    let told = |report: ReconcileReport| -> Vec<(FindingKind, bool)> {
        let findings = report.findings.iter();
        findings.map(|f| (f.kind, f.mended)).collect()
    };
    for dry_run in [true, false] {
        let report = catalog.reconcile(dry_run).await.unwrap();
        assert_eq!(told(report), [(FindingKind::UnfinishedWrite, false); 3]);
    }
    root.age();
    let report = catalog.reconcile(true).await.unwrap();
    assert_eq!(told(report), [(FindingKind::UnfinishedWrite, false); 3]);
    let report = catalog.reconcile(false).await.unwrap();
    assert_eq!(told(report), [(FindingKind::UnfinishedWrite, true); 3]);
    assert!(catalog.reconcile(true).await.unwrap().is_clean());
    let mut left = vec!["t.deleted", "t.lance"];
    left.extend(nobodys);
    left.sort_unstable();
    assert_eq!(root.entries(), left);
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, all(OLD));
}

#[tokio::test]
async fn purge_directories_of_drops_that_are_over_are_removed() {
    let world = World::Disk(Root::new());
    let plant = async |unique: &str| {
        let dir = format!("t.deleted.{}.purge.{unique}", Uuid::new_v4());
        world.plant(&format!("{dir}/data/x.lance"), "rows").await;
        world
            .plant(&format!("{dir}/_versions/1.manifest"), "v1")
            .await;
    };
    let two = [(FindingKind::PurgeLeftover, true); 2];
    let one = [(FindingKind::PurgeLeftover, true)];
    let catalog = world.live().await;
    // Looks like one, and is not.
    let keep = "t.deleted.not-a-drop.purge.0a1b2c3d/data/x.lance";
    world.plant(keep, "rows").await;
    let kept = world.records().await;

    plant("0a1b2c3d").await;
    plant("4e5f6a7b").await;
    world.reconciles(&two).await;
    assert_eq!(world.records().await, kept);
    assert_eq!(world.rows().await, all(OLD));

    // Beside the tombstone of another drop.
    let dropped = catalog.drop_table("t").await.unwrap();
    plant("0a1b2c3d").await;
    world.reconciles(&one).await;
    assert_eq!(only_drop(&catalog).await.drop_id, dropped.drop_id);
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(world.rows().await, all(OLD));

    // Beside nothing.
    world.remove_table().await;
    plant("0a1b2c3d").await;
    world.reconciles(&one).await;
    assert_eq!(world.records().await, kept);
    assert_eq!(world.status().await, TableState::Absent);
    assert!(world.read(keep).await.is_some());
}

#[tokio::test]
async fn a_marker_that_disagrees_is_put_right() {
    let mismatch = [(FindingKind::MarkerMismatch, true)];
    for world in World::both() {
        // Of an old drop, on a live table.
        let catalog = world.live().await;
        let old = Uuid::new_v4().to_string();
        world.plant(MARKER, old.clone()).await;
        assert!(world.status().await.is_live());
        world.reconciles(&mismatch).await;
        assert_eq!(world.read(MARKER).await, None);
        assert_eq!(world.rows().await, all(OLD));

        // None beside a tombstone, one of another drop, and one of a stock client.
        let dropped = catalog.drop_table("t").await.unwrap();
        let right = dropped.drop_id.to_string().into_bytes();
        assert_eq!(world.read(MARKER).await.as_ref(), Some(&right));
        for wrong in [None, Some(old.as_str()), Some("")] {
            match wrong {
                None => world.remove(MARKER).await,
                Some(content) => world.plant(MARKER, content).await,
            }
            world.reconciles(&mismatch).await;
            assert_eq!(world.read(MARKER).await.as_ref(), Some(&right), "{wrong:?}");
            assert_eq!(only_drop(&catalog).await.drop_id, dropped.drop_id);
        }
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(world.rows().await, all(OLD));
        world.is_clean().await;
    }
}

#[tokio::test]
async fn an_unreadable_tombstone_is_left_alone() {
    for world in World::both() {
        let catalog = world.live().await;
        world.plant("t.deleted", "dropped").await;
        let listed = only_drop(&catalog).await;
        // Stock clients can be told all the same.
        world
            .reconciles(&[
                (FindingKind::UnreadableTombstone, false),
                (FindingKind::MarkerMismatch, true),
            ])
            .await;
        assert_eq!(world.read("t.deleted").await.unwrap(), b"dropped");
        let marker = world.read(MARKER).await.unwrap();
        assert_eq!(marker, listed.drop_id.to_string().into_bytes());
        world
            .reconciles(&[(FindingKind::UnreadableTombstone, false)])
            .await;
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(world.rows().await, all(OLD));
        world.is_clean().await;
    }
}

#[tokio::test]
async fn a_missing_location_is_left_alone() {
    for world in World::both() {
        world.dropped().await;
        world.remove_table().await;
        world
            .reconciles(&[(FindingKind::MissingLocation, false)])
            .await;
        assert!(matches!(world.status().await, TableState::Dropped(_)));
        let purged = world.catalog().await.purge_table("t").await.unwrap();
        assert_eq!((purged.objects, purged.bytes), (0, 0));
        world.is_clean().await;
        assert_eq!(world.status().await, TableState::Absent);
    }
}

#[tokio::test]
async fn an_incomplete_table_is_left_alone() {
    let incomplete = [(FindingKind::IncompleteTable, false)];
    for world in World::both() {
        let catalog = world.catalog().await;
        catalog.create_table("n", rows(OTHER)).await.unwrap();
        if let World::Disk(root) = &world {
            std::fs::create_dir(root.join("t.lance")).unwrap();
            world.reconciles(&incomplete).await;
            assert!(root.join("t.lance").is_dir());
        }
        world.plant("t.lance/data/x.lance", "rows").await;
        world.reconciles(&incomplete).await;
        assert_eq!(world.status().await, TableState::Incomplete);
        catalog.drop_table("t").await.unwrap();
        world.is_clean().await;
        catalog.purge_table("t").await.unwrap();
        world.is_clean().await;

        // Reserved on purpose.
        catalog.declare_table("t").await.unwrap();
        world.is_clean().await;
        assert_eq!(world.status().await, TableState::Declared);
    }
}

#[tokio::test]
async fn a_deregistered_table_is_left_alone() {
    for world in World::both() {
        let catalog = world.live().await;
        world.plant(MARKER, "").await;
        world
            .reconciles(&[(FindingKind::DeregisteredTable, false)])
            .await;
        assert_eq!(world.status().await, TableState::Deregistered);
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(world.rows().await, all(OLD));
        world.is_clean().await;
        assert!(world.records().await.is_empty());
    }
}

#[tokio::test]
async fn what_cannot_be_examined_is_told_and_stops_nothing_else() {
    for world in World::both() {
        let drop_id = world.dropped().await;
        let unreadable = format!("t.deleted.{drop_id}.claim");
        world.plant(&unreadable, "mine").await;
        world.pass_the_lease();
        world.reconciles(&[(FindingKind::Unexamined, false)]).await;

        let stale = format!("n.deleted.{}.claim", Uuid::new_v4());
        world.plant(&stale, "mine").await;
        let report = world.run().await;
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|f| (f.ident.name(), f.kind, f.mended))
            .collect();
        assert_eq!(
            found,
            [
                ("n", FindingKind::StaleClaim, true),
                ("t", FindingKind::Unexamined, false),
            ]
        );
        let error = report.findings[1].error.as_ref().unwrap();
        assert!(
            matches!(error, Error::CorruptMetadata { path, .. } if path.ends_with(&unreadable)),
            "{error:?}"
        );
        assert_eq!(world.records().await, ["t.deleted", unreadable.as_str()]);
        world.remove(&unreadable).await;
        world.is_clean().await;
    }
}

/// A drop that is kept for a week, and a decision to purge it as expired that nobody carried out.
async fn drop_and_plant_an_expired_purge(world: &World) -> DroppedTable {
    let catalog = world.live().await;
    let dropping = catalog.drop_table("t").retention(WEEK).reason("a test");
    let drop_id = dropping.await.unwrap().drop_id;
    let mut purge = claim(drop_id, "purge", 0, LEASE);
    purge["if_expired"] = json!(true);
    world.plant_claim(&purge).await;
    only_drop(&catalog).await
}

#[tokio::test]
async fn an_expired_purge_that_came_too_early_is_a_drop_again() {
    for world in World::both() {
        let dropped = drop_and_plant_an_expired_purge(&world).await;
        world.left_to_its_owner(FindingKind::UnfinishedPurge).await;
        world.pass_the_lease();
        world
            .reconciles(&[(FindingKind::UnfinishedPurge, true)])
            .await;
        let catalog = world.catalog().await;
        let again = only_drop(&catalog).await;
        assert_ne!(again.drop_id, dropped.drop_id);
        let mut same = again.clone();
        same.drop_id = dropped.drop_id;
        assert_eq!(same, dropped);
        assert_eq!(world.status().await, TableState::Dropped(again.clone()));
        assert_eq!(world.records().await, ["t.deleted"]);
        let marker = world.read(MARKER).await.unwrap();
        assert_eq!(marker, again.drop_id.to_string().into_bytes());
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(world.rows().await, all(OLD));
    }
}

#[tokio::test]
async fn an_expired_purge_that_came_too_early_is_in_nobodys_way() {
    for by_name in [true, false] {
        for world in World::both() {
            drop_and_plant_an_expired_purge(&world).await;
            world.pass_the_lease();
            let catalog = world.catalog().await;
            if by_name {
                let purged = catalog.purge_table("t").await.unwrap();
                assert!(purged.objects > 0);
                assert_eq!(world.status().await, TableState::Absent);
            } else {
                catalog.undrop_table("t").await.unwrap();
                assert_eq!(world.rows().await, all(OLD));
            }
            assert!(world.records().await.is_empty());
            world.is_clean().await;
        }
    }
}

/// Its new id does not hold it any longer.
#[tokio::test]
async fn a_drop_under_a_new_id_expires_when_it_would_have() {
    let memory = clocked_memory();
    let clock = memory.clock().unwrap();
    let start = clock.now();
    let world = World::Memory(memory);
    let dropped = drop_and_plant_an_expired_purge(&world).await;
    clock.advance(HOUR);
    world
        .reconciles(&[(FindingKind::UnfinishedPurge, true)])
        .await;
    let catalog = world.catalog().await;
    assert_ne!(only_drop(&catalog).await.drop_id, dropped.drop_id);
    for (now, purged) in [
        (start + (WEEK - Duration::from_secs(1)), 0),
        (start + (WEEK + Duration::from_secs(1)), 1),
    ] {
        clock.set(now);
        let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
        assert!(report.failures.is_empty(), "{report:?}");
        assert_eq!(report.tables.len(), purged, "{report:?}");
    }
    assert_eq!(world.status().await, TableState::Absent);
}

#[tokio::test]
async fn an_expired_purge_that_is_due_by_now_is_finished() {
    let memory = clocked_memory();
    let clock = memory.clock().unwrap();
    let world = World::Memory(memory);
    drop_and_plant_an_expired_purge(&world).await;
    clock.advance(WEEK + Duration::from_secs(1));
    world
        .reconciles(&[(FindingKind::UnfinishedPurge, true)])
        .await;
    assert_eq!(world.status().await, TableState::Absent);
    assert!(world.records().await.is_empty());
}

/// What a purge on local disk does first.
fn rename_away(root: &Root, drop_id: Uuid) {
    let away = root.join(&format!("t.deleted.{drop_id}.purge.0a1b2c3d"));
    std::fs::rename(root.join("t.lance"), away).unwrap();
}

/// Finishes a purge that stopped on local disk, in both ways, after its real lease: it counts (objects, bytes), and
/// nothing of it is left.
async fn assert_finished(root: &Root, drop_id: Uuid, counts: (u64, u64)) {
    for by_name in [true, false] {
        let root = root.copy();
        tokio::time::sleep(SHORT + Duration::from_millis(20)).await;
        let catalog = root.catalog().await;
        if by_name {
            let purged = catalog.purge_table("t").await.unwrap();
            assert_eq!((purged.objects, purged.bytes), counts);
            assert_eq!(purged.drop_id, drop_id);
        } else {
            let report = catalog.reconcile(false).await.unwrap();
            let purges: Vec<_> = report.of(FindingKind::UnfinishedPurge).collect();
            assert_eq!(purges.len(), 1, "{report:?}");
            assert!(purges[0].mended, "{report:?}");
        }
        assert_eq!(root.entries(), ["n.lance"], "by name: {by_name}");
        assert!(catalog.reconcile(false).await.unwrap().is_clean());
        let status = catalog.table_status("t").await.unwrap();
        assert_eq!(status, TableState::Absent);
        assert_eq!(table_ids(&catalog, "n").await, all(OTHER));
    }
}

#[tokio::test]
async fn a_purge_stopped_after_its_rename_is_finished() {
    let world = World::Disk(Root::new());
    let drop_id = world.dropped().await;
    world.plant_claim(&claim(drop_id, "purge", 0, SHORT)).await;
    let World::Disk(root) = world else {
        unreachable!()
    };
    let (objects, bytes) = measure(&root.join("t.lance"));
    assert!(objects > 2);
    rename_away(&root, drop_id);
    assert_finished(&root, drop_id, (objects, bytes)).await;

    // A slow drop wrote its marker after the rename.
    let marker = drop_id.to_string();
    root.plant(MARKER, marker.as_bytes());
    let bytes = bytes + u64::try_from(marker.len()).unwrap();
    assert_finished(&root, drop_id, (objects + 1, bytes)).await;
}

/// Two purges stopped, each after a rename of its own.
#[tokio::test]
async fn a_purge_stopped_twice_is_finished() {
    let world = World::Disk(Root::new());
    let drop_id = world.dropped().await;
    for generation in [0, 1] {
        let dead = claim(drop_id, "purge", generation, SHORT);
        world.plant_claim(&dead).await;
    }
    let World::Disk(root) = world else {
        unreachable!()
    };
    let (objects, bytes) = measure(&root.join("t.lance"));
    rename_away(&root, drop_id);
    let second = format!("t.deleted.{drop_id}.purge.4e5f6a7b/data/x.lance");
    root.plant(&second, b"rows!");
    assert_finished(&root, drop_id, (objects + 1, bytes + 5)).await;
}

/// Puts one [`FaultStore`] around the local store. Data files do not pass it: Lance writes them by itself.
#[derive(Debug, Default)]
struct Faulty {
    store: OnceLock<Arc<FaultStore>>,
}

impl WrappingObjectStore for Faulty {
    fn wrap(&self, _prefix: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        // Whatever local store Lance makes leads to the same disk, and one process has one count of requests.
        let store = self
            .store
            .get_or_init(|| Arc::new(FaultStore::new(original)));
        store.clone()
    }

    fn wrap_paginated(
        &self,
        _prefix: &str,
        _original: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        None
    }
}

/// A process on the root that can be stopped at a request.
async fn faulty(root: &Root) -> (Faults, Catalog) {
    let wrapper = Arc::new(Faulty::default());
    let builder = root.builder().object_store_wrapper(wrapper.clone());
    let catalog = builder.build().await.unwrap();
    let faults = wrapper.store.get().unwrap().faults();
    faults.reset();
    (faults, catalog)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Drop,
    Undrop,
    /// A create over an absent name.
    Create,
    /// A create over a dropped name.
    Revive,
    /// A create over a live table.
    Overwrite,
    Purge,
}

impl Op {
    /// `t` live, dropped or absent, and a neighbour `n`.
    async fn start(self) -> Root {
        let root = Root::new();
        let catalog = root.catalog().await;
        catalog.create_table("n", rows(OTHER)).await.unwrap();
        if self != Self::Create {
            catalog.create_table("t", rows(OLD)).await.unwrap();
        }
        if matches!(self, Self::Undrop | Self::Revive | Self::Purge) {
            catalog.drop_table("t").await.unwrap();
        }
        root
    }

    async fn run(self, catalog: &Catalog) -> Result<(), Error> {
        match self {
            Self::Drop => catalog.drop_table("t").await.map(drop),
            Self::Undrop => catalog.undrop_table("t").await.map(drop),
            Self::Create | Self::Revive => catalog.create_table("t", rows(NEW)).await.map(drop),
            Self::Overwrite => {
                let create = catalog.create_table("t", rows(NEW));
                create.mode(CreateMode::Overwrite).await.map(drop)
            }
            Self::Purge => catalog.purge_table("t").await.map(drop),
        }
    }

    /// What a run to the end leaves.
    fn done(self) -> Seen {
        match self {
            Self::Drop => Seen::only(Phase::Dropped),
            Self::Undrop => Seen::live(OLD),
            Self::Create | Self::Revive | Self::Overwrite => Seen::live(NEW),
            Self::Purge => Seen::only(Phase::Absent),
        }
    }

    /// The states that a stopped run may leave.
    fn allowed(self) -> &'static [Phase] {
        match self {
            Self::Drop => &[Phase::Live, Phase::Dropped],
            Self::Undrop | Self::Revive => &[Phase::Dropped, Phase::Restoring, Phase::Live],
            Self::Create => &[
                Phase::Absent,
                Phase::Incomplete,
                Phase::Creating,
                Phase::Live,
            ],
            Self::Overwrite => &[Phase::Live],
            Self::Purge => &[Phase::Dropped, Phase::Purging, Phase::Absent],
        }
    }
}

/// What others then do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Undrop,
    Purge,
    Create,
    Drop,
    Reconcile,
}

impl Action {
    const ALL: [Self; 5] = [
        Self::Undrop,
        Self::Purge,
        Self::Create,
        Self::Drop,
        Self::Reconcile,
    ];

    async fn run(self, catalog: &Catalog) -> Result<(), Error> {
        match self {
            Self::Undrop => catalog.undrop_table("t").await.map(drop),
            Self::Purge => catalog.purge_table("t").await.map(drop),
            Self::Create => catalog.create_table("t", rows(OTHER)).await.map(drop),
            Self::Drop => catalog.drop_table("t").await.map(drop),
            Self::Reconcile => catalog.reconcile(false).await.map(|report| {
                let failed = report.findings.iter().any(|f| f.error.is_some());
                assert!(!failed, "{report:?}");
            }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Live,
    Dropped,
    Restoring,
    Purging,
    Creating,
    Incomplete,
    Absent,
}

/// What readers see of `t`: its state, and its rows while it is live.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    phase: Phase,
    rows: Option<Vec<i32>>,
}

impl Seen {
    fn live(rows: Range<i32>) -> Self {
        Self {
            phase: Phase::Live,
            rows: Some(all(rows)),
        }
    }

    fn only(phase: Phase) -> Self {
        Self { phase, rows: None }
    }
}

/// Looks at `t` in every way, through a new process; all must agree.
async fn look(root: &Root, at: &str) -> Seen {
    let catalog = root.catalog().await;
    let state = catalog.table_status("t").await.unwrap();
    let phase = match &state {
        TableState::Live { .. } => Phase::Live,
        TableState::Dropped(_) => Phase::Dropped,
        TableState::Restoring(_) => Phase::Restoring,
        TableState::Purging(_) => Phase::Purging,
        TableState::Creating => Phase::Creating,
        TableState::Incomplete => Phase::Incomplete,
        TableState::Absent => Phase::Absent,
        other => panic!("{at}: {other:?}"),
    };
    let mut rows = None;
    match (&state, catalog.open_table("t").await) {
        (TableState::Live { version }, Ok(dataset)) => {
            assert_eq!(dataset.version().version, *version, "{at}");
            rows = Some(ids(&dataset).await);
        }
        (
            TableState::Dropped(d) | TableState::Restoring(d) | TableState::Purging(d),
            Err(Error::TableDropped { dropped }),
        ) => assert_eq!(dropped.drop_id, d.drop_id, "{at}"),
        (
            TableState::Creating | TableState::Incomplete | TableState::Absent,
            Err(Error::TableNotFound { .. }),
        ) => {}
        (state, opened) => panic!(
            "{at}: {state:?}, but open gives {:?}",
            opened.map(|dataset| dataset.version().version)
        ),
    }
    let listed = matches!(phase, Phase::Live | Phase::Incomplete);
    let names: &[&str] = if listed { &["n", "t"] } else { &["n"] };
    assert_eq!(
        catalog.table_names().await.unwrap(),
        names,
        "{at}: {state:?}"
    );
    let hidden = matches!(phase, Phase::Dropped | Phase::Restoring | Phase::Purging);
    let dropped = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(dropped.len(), usize::from(hidden), "{at}: {state:?}");
    Seen { phase, rows }
}

/// Reconciles until nothing is left but a create's incomplete table; whether there was anything to mend.
async fn settle(root: &Root, at: &str) -> bool {
    let catalog = root.catalog().await;
    let report = catalog.reconcile(false).await.unwrap();
    for finding in &report.findings {
        assert!(
            finding.mended || finding.kind == FindingKind::IncompleteTable,
            "{at}: {finding:?}"
        );
    }
    let left = catalog.reconcile(true).await.unwrap();
    for finding in &left.findings {
        assert_eq!(
            finding.kind,
            FindingKind::IncompleteTable,
            "{at}: {finding:?}"
        );
    }
    report.findings.iter().any(|finding| finding.mended)
}

/// No claim, no clock object, no purge directory, no marker of a drop that is over.
fn assert_no_litter(root: &Root, phase: Phase, at: &str) {
    let mut expected = vec!["n.lance"];
    if phase == Phase::Dropped {
        expected.push("t.deleted");
    }
    if phase != Phase::Absent {
        expected.push("t.lance");
    }
    assert_eq!(root.entries(), expected, "{at}");
    let marker = root.join(MARKER).is_file();
    assert_eq!(marker, phase == Phase::Dropped, "{at}");
}

fn manifests(root: &Root) -> usize {
    let Ok(entries) = std::fs::read_dir(root.join("t.lance/_versions")) else {
        return 0;
    };
    entries
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().unwrap().ends_with(".manifest")
        })
        .count()
}

/// What an action must answer and leave.
struct Expected {
    outcome: Result<(), ErrorKind>,
    /// Right after it.
    now: Seen,
    /// After a reconcile.
    later: Seen,
}

/// What a stopped run left.
struct Found {
    op: Op,
    root: Root,
    seen: Seen,
    /// Whether its commit is in the history.
    committed: bool,
    /// Whether a creating tombstone stands.
    creating: bool,
    neighbour: (u64, u64),
}

impl Found {
    /// Equal for roots that differ in nothing but ids and times.
    fn signature(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in tree(self.root.path()).into_keys() {
            if name.starts_with("n.lance") {
                continue;
            }
            let record = name.split_once(".deleted.").map(|(_, rest)| &rest[36..]);
            let unique = name
                .rsplit_once('/')
                .filter(|(dir, _)| dir.ends_with("/data") || dir.ends_with("/_transactions"));
            names.push(match (record, unique) {
                (Some(record), _) if record.starts_with(".purge.") => ".purge".to_string(),
                (Some(record), _) => record.to_string(),
                (None, Some((dir, _))) => dir.to_string(),
                (None, None) => name.clone(),
            });
        }
        if self.creating {
            names.push("creating".to_string());
        }
        names.sort();
        names
    }

    fn hidden(&self) -> bool {
        matches!(
            self.seen.phase,
            Phase::Dropped | Phase::Restoring | Phase::Purging
        )
    }

    /// What it becomes when what was decided is finished.
    fn finished(&self) -> Seen {
        match (self.seen.phase, self.op) {
            (Phase::Creating, _) => Seen::only(Phase::Incomplete),
            (Phase::Restoring, Op::Revive) if self.committed => Seen::live(NEW),
            (Phase::Restoring, Op::Revive) => Seen::only(Phase::Dropped),
            (Phase::Restoring, _) => Seen::live(OLD),
            (Phase::Purging, _) => Seen::only(Phase::Absent),
            _ => self.seen.clone(),
        }
    }

    fn expected(&self, action: Action) -> Expected {
        let later = self.finished();
        if action == Action::Drop && self.hidden() {
            // Dropped already, whatever was decided about that drop.
            return Expected {
                outcome: Err(ErrorKind::TableNotFound),
                now: self.seen.clone(),
                later,
            };
        }
        let found = self.seen.phase;
        let (outcome, after) = match (action, later.phase) {
            (Action::Reconcile, _) => (Ok(()), later),
            // An undrop that finishes somebody's create has nothing left to undrop.
            (Action::Undrop, Phase::Live) if found == Phase::Restoring && self.op == Op::Undrop => {
                (Ok(()), later)
            }
            (Action::Undrop | Action::Purge, Phase::Live) => {
                (Err(ErrorKind::TableNotDropped), later)
            }
            (Action::Create, Phase::Live) => (Err(ErrorKind::TableAlreadyExists), later),
            (Action::Undrop, Phase::Dropped) => (Ok(()), Seen::live(OLD)),
            (Action::Purge, Phase::Dropped) => (Ok(()), Seen::only(Phase::Absent)),
            (Action::Purge, Phase::Absent) if found == Phase::Purging => (Ok(()), later),
            (Action::Undrop | Action::Purge, _) => (Err(ErrorKind::TableNotFound), later),
            (Action::Create, _) => (Ok(()), Seen::live(OTHER)),
            (Action::Drop, Phase::Absent) => (Err(ErrorKind::TableNotFound), later),
            (Action::Drop, _) => (Ok(()), Seen::only(Phase::Dropped)),
        };
        Expected {
            outcome,
            now: after.clone(),
            later: after,
        }
    }

    /// What an undrop brings back where the action leaves the table dropped.
    fn kept(&self, action: Action) -> Seen {
        if action != Action::Drop || self.hidden() {
            return Seen::live(OLD);
        }
        match self.finished() {
            live if live.phase == Phase::Live => live,
            _ => Seen::only(Phase::Incomplete),
        }
    }

    /// Another process acts on a copy of what was left, after the lease.
    async fn recover(&self, action: Action, at: &str) {
        let at = format!("{at}; then {action:?}");
        let root = self.root.copy();
        root.age();
        let catalog = root.catalog().await;
        let outcome = Box::pin(action.run(&catalog)).await;
        let expected = self.expected(action);
        assert_eq!(
            outcome.as_ref().copied().map_err(Error::kind),
            expected.outcome,
            "{at}: {outcome:?}"
        );
        let now = Box::pin(look(&root, &at)).await;
        assert_eq!(now, expected.now, "{at}");
        let later = match settle(&root, &at).await {
            true => Box::pin(look(&root, &at)).await,
            false => now,
        };
        assert_eq!(later, expected.later, "{at}");
        assert_no_litter(&root, later.phase, &at);
        assert_eq!(measure(&root.join("n.lance")), self.neighbour, "{at}");
        if later.phase == Phase::Dropped {
            let undropped = root.catalog().await.undrop_table("t").await;
            assert!(undropped.is_ok(), "{at}: {undropped:?}");
            let back = Box::pin(look(&root, &at)).await;
            assert_eq!(back, self.kept(action), "{at}");
        }
    }
}

/// Looks at what a stopped run left, and checks that readers may see it.
async fn inspect(op: Op, start: &Root, root: Root, at: &str) -> Found {
    let seen = Box::pin(look(&root, at)).await;
    assert!(op.allowed().contains(&seen.phase), "{at}: left it {seen:?}");
    let committed = manifests(&root) > manifests(start);
    if seen.phase == Phase::Live {
        let only = match op {
            Op::Drop | Op::Undrop => Seen::live(OLD),
            // Wholly the old rows or the new ones.
            Op::Overwrite if !committed => Seen::live(OLD),
            Op::Create | Op::Revive | Op::Overwrite | Op::Purge => Seen::live(NEW),
        };
        assert_eq!(seen, only, "{at}");
    }
    let tombstone = std::fs::read(root.join("t.deleted")).unwrap_or_default();
    Found {
        op,
        seen,
        committed,
        creating: String::from_utf8_lossy(&tombstone).contains("\"creating\""),
        neighbour: measure(&start.join("n.lance")),
        root,
    }
}

/// Stops the operation before and after each request on local disk. Every point is looked at; each state of the disk
/// is recovered from in every way.
async fn stop_everywhere(op: Op) {
    let start = op.start().await;
    let requests = {
        let root = start.copy();
        let (faults, catalog) = faulty(&root).await;
        let outcome = Box::pin(op.run(&catalog)).await;
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(look(&root, "clean run").await, op.done());
        faults.issued()
    };
    assert!(requests > 0);
    let mut states: HashSet<Vec<String>> = HashSet::new();
    for n in 0..requests {
        for when in [When::Before, When::After] {
            let root = start.copy();
            let (faults, catalog) = faulty(&root).await;
            faults.crash_at(n, when);
            let outcome = Box::pin(op.run(&catalog)).await;
            let at = format!("{op:?} stopped {when:?} request {n}");
            assert!(faults.crashed(), "{at}: not reached");
            drop(catalog);

            let found = inspect(op, &start, root, &at).await;
            if outcome.is_ok() {
                assert_eq!(found.seen, op.done(), "{at}");
            }
            if states.insert(found.signature()) {
                for action in Action::ALL {
                    Box::pin(found.recover(action, &at)).await;
                }
            }
        }
    }
    // The states that make the sweep worth it were among them.
    let reached = |what: &str| states.iter().flatten().any(|name| name == what);
    assert_eq!(reached(".purge"), op == Op::Purge);
    assert_eq!(
        reached("creating"),
        matches!(op, Op::Create | Op::Overwrite)
    );
    assert_eq!(
        reached(".claim"),
        matches!(op, Op::Undrop | Op::Revive | Op::Purge)
    );
    println!(
        "{op:?} on disk: {requests} requests, {} states of the disk",
        states.len()
    );
}

#[tokio::test]
async fn a_drop_on_disk_may_stop_anywhere() {
    stop_everywhere(Op::Drop).await;
}

#[tokio::test]
async fn an_undrop_on_disk_may_stop_anywhere() {
    stop_everywhere(Op::Undrop).await;
}

#[tokio::test]
async fn a_create_on_disk_may_stop_anywhere() {
    stop_everywhere(Op::Create).await;
}

#[tokio::test]
async fn a_revive_on_disk_may_stop_anywhere() {
    stop_everywhere(Op::Revive).await;
}

#[tokio::test]
async fn an_overwrite_on_disk_may_stop_anywhere() {
    stop_everywhere(Op::Overwrite).await;
}

#[tokio::test]
async fn a_purge_on_disk_may_stop_anywhere() {
    stop_everywhere(Op::Purge).await;
}
