//! Several processes write to one managed table.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lance_core::Error as E;
use object_store::local::LocalFileSystem;
use tokio::process::{Child, Command};

use super::{NO_HURRY, append, managed, names, plainly, staged};
use crate::common::{another_process, rows, table_ids};

const PROCESSES: i32 = 4;
const BATCHES: i32 = 25;

/// How often a writer begins anew after a conflict.
const ATTEMPTS: usize = 100;

/// How long the processes wait for each other's start, and how long they may take.
const STARTING: Duration = Duration::from_secs(60);
const RUNNING: Duration = Duration::from_secs(240);

const ROOT: &str = "LANCEKEEP_WRITER_ROOT";
const DESK: &str = "LANCEKEEP_WRITER_DESK";
const WRITER: &str = "LANCEKEEP_WRITER";

/// The rows of a writer.
fn rows_of(writer: i32, batches: i32) -> impl Iterator<Item = i32> {
    1000 * writer..1000 * writer + batches
}

/// Appends the writer's rows to `t`, each in a version of its own.
async fn write(root: &Path, writer: i32, batches: i32) {
    let catalog = managed(root, NO_HURRY).await;
    let mut table = catalog.open_table("t").await.unwrap();
    for row in rows_of(writer, batches) {
        let mut attempts = 0;
        while let Err(error) = append(&mut table, [row]).await {
            // Nothing was committed.
            let conflict = matches!(
                error,
                E::CommitConflict { .. }
                    | E::RetryableCommitConflict { .. }
                    | E::TooMuchWriteContention { .. }
                    | E::IncompatibleTransaction { .. }
            );
            attempts += 1;
            assert!(conflict && attempts < ATTEMPTS, "row {row}: {error}");
            table = catalog.open_table("t").await.unwrap();
        }
    }
}

/// Returns when all processes are there.
async fn meet(desk: &Path, me: i32) {
    let ready = |writer: i32| desk.join(format!("ready.{writer}"));
    std::fs::write(ready(me), "").unwrap();
    let began = Instant::now();
    while !(0..PROCESSES).all(|writer| ready(writer).exists()) {
        assert!(began.elapsed() < STARTING, "the others did not come");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One of the processes where the environment says so; otherwise what one does, alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer() {
    if let Some(root) = std::env::var_os(ROOT) {
        let desk = PathBuf::from(std::env::var_os(DESK).unwrap());
        let me = std::env::var(WRITER).unwrap().parse().unwrap();
        meet(&desk, me).await;
        return write(Path::new(&root), me, BATCHES).await;
    }
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), NO_HURRY).await;
    catalog.create_table("t", rows([-1])).await.unwrap();
    write(root.path(), 3, 2).await;
    assert_eq!(table_ids(&catalog, "t").await, [-1, 3000, 3001]);
}

fn log_of(desk: &Path, me: i32) -> PathBuf {
    desk.join(format!("log.{me}"))
}

fn spawn_writer(root: &Path, desk: &Path, me: i32) -> Child {
    let command = another_process("managed::processes::writer", &log_of(desk, me));
    Command::from(command)
        .env(ROOT, root)
        .env(DESK, desk)
        .env(WRITER, me.to_string())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_local_root_lose_nothing() {
    let root = tempfile::tempdir().unwrap();
    let desk = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), NO_HURRY).await;
    let created = catalog.create_table("t", rows([-1])).await.unwrap();
    let writers: Vec<Child> = (0..PROCESSES)
        .map(|me| spawn_writer(root.path(), desk.path(), me))
        .collect();
    for (me, mut writer) in (0..).zip(writers) {
        let ended = tokio::time::timeout(RUNNING, writer.wait()).await;
        let log = std::fs::read_to_string(log_of(desk.path(), me)).unwrap_or_default();
        let succeeded = matches!(&ended, Ok(Ok(status)) if status.success());
        assert!(succeeded, "writer {me}: {ended:?}: {log}");
        // A name that filters no test in succeeds too.
        assert!(desk.path().join(format!("ready.{me}")).exists(), "{log}");
    }

    let versions = catalog.list_versions("t").await.unwrap();
    let numbers: Vec<u64> = versions.iter().map(|v| v.version).collect();
    assert!(numbers.iter().copied().eq(1..=101), "{numbers:?}");
    let wanted: Vec<i32> = std::iter::once(-1)
        .chain((0..PROCESSES).flat_map(|writer| rows_of(writer, BATCHES)))
        .collect();
    assert_eq!(table_ids(&catalog, "t").await, wanted);
    assert_eq!(plainly(created.uri()).await, (wanted, 101));
    let names = names(&LocalFileSystem::new(), &created.branch_location().path).await;
    assert_eq!(staged(&names), Vec::<&String>::new());
}
