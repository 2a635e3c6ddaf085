//! Many writers of one table, and every request of a commit failing once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};
use lancekeep::Catalog;
use lancekeep::lance::dataset::Dataset;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::optimize::{CompactionOptions, compact_files};
use object_store::local::LocalFileSystem;
use tokio::task::JoinSet;

use super::{
    LanceResult, NO_HURRY, append, managed, managed_in, names, overwrite, plainly, staged,
};
use crate::common::{ids, rows, table_ids};
use crate::support::{Fault, SharedMemory, When};

/// How often a writer begins anew after a conflict.
const ATTEMPTS: usize = 50;

/// Points of failure that are run together: Lance waits between its own repetitions.
const TOGETHER: usize = 8;

/// A root with one table of the row -1, and two catalogs on it.
struct Arena {
    root: tempfile::TempDir,
    catalogs: [Catalog; 2],
}

/// Who committed which row, in which version.
type Committed = BTreeMap<u64, i32>;

/// Whether nothing was committed and another attempt may do better.
fn is_conflict(error: &lance_core::Error) -> bool {
    use lance_core::Error as E;
    matches!(
        error,
        E::CommitConflict { .. }
            | E::RetryableCommitConflict { .. }
            | E::TooMuchWriteContention { .. }
            | E::IncompatibleTransaction { .. }
    )
}

impl Arena {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let catalogs = [
            managed(root.path(), NO_HURRY).await,
            managed(root.path(), NO_HURRY).await,
        ];
        catalogs[0].create_table("t", rows([-1])).await.unwrap();
        Self { root, catalogs }
    }

    fn uri(&self) -> String {
        format!("{}/t.lance", self.root.path().to_str().unwrap())
    }

    /// Writers, by turns on the two catalogs, append `batches` rows each; those of the n-th begin at 1000 * n.
    fn appenders(&self, writers: i32, batches: i32) -> JoinSet<Committed> {
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let catalog = self.catalogs[usize::from(writer % 2 == 1)].clone();
            tasks.spawn(async move {
                let mut table = catalog.open_table("t").await.unwrap();
                let mut committed = Committed::new();
                for batch in 0..batches {
                    let row = 1000 * writer + batch;
                    let version = append_stubbornly(&catalog, &mut table, row).await;
                    committed.insert(version, row);
                }
                committed
            });
        }
        tasks
    }

    /// The versions of the table are 1 up to this one, each there once, and nothing staged is left.
    async fn assert_tidy(&self) -> u64 {
        let listed = self.catalogs[0].list_versions("t").await.unwrap();
        let numbers: Vec<u64> = listed.iter().map(|v| v.version).collect();
        let last = u64::try_from(numbers.len()).unwrap();
        assert!(numbers.iter().copied().eq(1..=last), "{numbers:?}");
        let table = self.catalogs[0].open_table("t").await.unwrap();
        let names = names(&LocalFileSystem::new(), &table.branch_location().path).await;
        assert_eq!(staged(&names), Vec::<&String>::new());
        last
    }
}

/// The version in which the row was committed.
async fn append_stubbornly(catalog: &Catalog, table: &mut Dataset, row: i32) -> u64 {
    for _ in 0..ATTEMPTS {
        match append(table, [row]).await {
            Ok(()) => return table.version().version,
            Err(error) if is_conflict(&error) => {
                *table = catalog.open_table("t").await.unwrap();
            }
            Err(error) => panic!("row {row}: {error}"),
        }
    }
    panic!("row {row}: {ATTEMPTS} conflicts");
}

/// What all of the tasks committed, no version twice.
async fn gather(mut tasks: JoinSet<Committed>) -> Committed {
    let mut all = Committed::new();
    while let Some(done) = tasks.join_next().await {
        for (version, row) in done.unwrap() {
            let other = all.insert(version, row);
            assert_eq!(other, None, "version {version} is also that of row {row}");
        }
    }
    all
}

fn sorted(rows: impl IntoIterator<Item = i32>) -> Vec<i32> {
    let mut rows: Vec<i32> = rows.into_iter().collect();
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_on_two_catalogs_lose_nothing() {
    let arena = Arena::new().await;
    let committed = gather(arena.appenders(8, 25)).await;
    assert!(committed.keys().copied().eq(2..=201));
    assert_eq!(arena.assert_tidy().await, 201);
    let wanted = sorted(committed.into_values().chain([-1]));
    assert_eq!(wanted.len(), 201);
    for catalog in &arena.catalogs {
        assert_eq!(table_ids(catalog, "t").await, wanted);
    }
    assert_eq!(plainly(&arena.uri()).await, (wanted, 201));
}

async fn compact(table: &mut Dataset) -> LanceResult<()> {
    compact_files(table, CompactionOptions::default(), None)
        .await
        .map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn appends_against_compaction_lose_nothing() {
    let arena = Arena::new().await;
    let over = Arc::new(AtomicBool::new(false));
    let compactor = {
        let (over, catalog) = (over.clone(), arena.catalogs[1].clone());
        tokio::spawn(async move {
            let mut done = 0;
            // One after the appends too, against nobody.
            loop {
                let last = over.load(Ordering::Acquire);
                let mut table = catalog.open_table("t").await.unwrap();
                let before = table.version().version;
                match compact(&mut table).await {
                    Ok(()) if table.version().version > before => done += 1,
                    Ok(()) => tokio::task::yield_now().await,
                    Err(error) => assert!(!last && is_conflict(&error), "{error}"),
                }
                if last {
                    return done;
                }
            }
        })
    };
    let committed = gather(arena.appenders(4, 10)).await;
    over.store(true, Ordering::Release);
    let compactions = compactor.await.unwrap();
    println!("{compactions} compactions");
    assert!(compactions > 0);
    let last = arena.assert_tidy().await;
    assert!(last > 41, "a compaction is a version too");
    let wanted = sorted(committed.into_values().chain([-1]));
    assert_eq!(wanted.len(), 41);
    assert_eq!(table_ids(&arena.catalogs[0], "t").await, wanted);
    assert_eq!(plainly(&arena.uri()).await, (wanted, last));
}

/// Rows of overwrites begin here.
const OVERWRITES: i32 = 1_000_000;

/// Each version has the rows of the one before it and its own, or only its own where it is an overwrite.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn appends_against_overwrites_are_some_serial_order() {
    let arena = Arena::new().await;
    let mut tasks = arena.appenders(4, 10);
    let catalog = arena.catalogs[1].clone();
    tasks.spawn(async move {
        let mut committed = Committed::new();
        for row in OVERWRITES..OVERWRITES + 8 {
            let mut attempts = 0;
            let version = loop {
                let table = catalog.open_table("t").await.unwrap();
                match overwrite(&table, [row]).await {
                    Ok(table) => break table.version().version,
                    Err(error) => assert!(is_conflict(&error), "{error}"),
                }
                attempts += 1;
                assert!(attempts < ATTEMPTS);
            };
            committed.insert(version, row);
        }
        committed
    });
    let committed = gather(tasks).await;
    assert_eq!(committed.len(), 48);
    let last = arena.assert_tidy().await;
    assert!(committed.keys().copied().eq(2..=last));
    let mut rows = vec![-1];
    for (version, row) in committed {
        if row >= OVERWRITES {
            rows.clear();
        }
        rows.push(row);
        let table = arena.catalogs[0].open_table("t").version(version).await;
        let found = ids(&table.unwrap()).await;
        assert_eq!(found, sorted(rows.clone()), "version {version}");
    }
    assert_eq!(plainly(&arena.uri()).await, (sorted(rows), last));
}

/// One append of the row 7 with a failure at its n-th request; its requests all in all.
async fn append_with_failure(
    origin: &SharedMemory,
    failure: Option<(usize, When, Fault)>,
) -> usize {
    let shared = origin.fork().await;
    let actor = shared.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    let mut table = catalog.open_table("t").await.unwrap();
    actor.faults.reset();
    if let Some((n, when, fault)) = failure {
        actor.faults.fail_at(n, when, fault);
    }
    let appended = append(&mut table, [7]).await;
    let issued = actor.faults.issued();
    actor.faults.clear();
    let text = appended.as_ref().err().map(ToString::to_string);
    let what = format!("{failure:?}: {text:?}");
    if failure.is_none() {
        assert!(appended.is_ok(), "{what}");
    }

    // A process that knows nothing of it, with the catalog and without.
    let fresh = shared.actor();
    let catalog = managed_in(&fresh, NO_HURRY).await;
    let found = table_ids(&catalog, "t").await;
    let plain = DatasetBuilder::from_uri(table.uri())
        .with_session(fresh.session.clone())
        .load()
        .await
        .unwrap();
    assert_eq!(ids(&plain).await, found, "{what}");
    let times = found.iter().filter(|id| **id == 7).count();
    assert!(times == 1 || (appended.is_err() && times == 0), "{what}");
    let others: Vec<i32> = found.into_iter().filter(|id| *id != 7).collect();
    assert_eq!(others, [0, 1, 2, 3], "{what}");
    let versions = catalog.list_versions("t").await.unwrap().len();
    assert_eq!(versions, 2 + times, "{what}");

    // Whatever is left of it, the next one goes through: by the same handle, and by a new one.
    append(&mut table, [8]).await.unwrap();
    let mut opened = catalog.open_table("t").await.unwrap();
    append(&mut opened, [9]).await.unwrap();
    let rows = table_ids(&catalog, "t").await;
    assert_eq!(rows.len(), 6 + times, "{what}");
    issued
}

/// No acknowledged commit is lost, none is applied twice, and nothing that can be reached is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_of_an_append_failing_once() {
    let shared = SharedMemory::new();
    let catalog = managed_in(&shared.actor(), NO_HURRY).await;
    let mut table = catalog.create_table("t", rows(0..2)).await.unwrap();
    append(&mut table, 2..4).await.unwrap();
    let requests = append_with_failure(&shared, None).await;
    println!("{requests} requests");
    assert!(requests >= 6);
    let mut points = Vec::new();
    for n in 0..requests {
        for when in [When::Before, When::After] {
            for fault in [Fault::Unavailable503, Fault::PermissionDenied] {
                points.push(Some((n, when, fault)));
            }
        }
    }
    stream::iter(points)
        .map(|point| append_with_failure(&shared, point))
        .buffer_unordered(TOGETHER)
        .for_each(|_| async {})
        .await;
}
