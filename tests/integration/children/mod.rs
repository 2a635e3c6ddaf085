//! Child namespaces and the tables in them, through the catalog's own calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use lancekeep::arrow::array::{Array, AsArray, RecordBatch};
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::session::Session;
use lancekeep::{Catalog, Error, ErrorKind, TableIdent};

use crate::common::{ids, rows};
use crate::stores;
use crate::support::{Gate, SharedMemory};

/// The same test on local disk and in memory.
macro_rules! on_both {
    ($body:ident: $on_disk:ident, $in_memory:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $on_disk() {
            $body(&Place::on_disk()).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $in_memory() {
            $body(&Place::in_memory()).await;
        }
    };
}

/// The same test on the servers too.
macro_rules! on_servers {
    ($body:ident: $on_s3:ident, $on_azure:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $on_s3() {
            $body(&Place::on_server(crate::stores::Store::S3)).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $on_azure() {
            $body(&Place::on_server(crate::stores::Store::Azure)).await;
        }
    };
}

mod costs;
mod crashes;
mod declared;
mod deletions;
mod drops;
mod leak;
mod life;
mod names;
mod namespaces;
mod overtaken;
mod pages;
mod races;
mod readonly;
mod register;
mod remembered;
mod secrets;
mod stock;
mod storm;
mod taken;

/// How long contention may last before it is a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Nobody waits so long for a request.
const STALL: Duration = Duration::from_secs(60);

/// Points of one test that are run together.
const TOGETHER: usize = 6;

const MANIFEST: &str = "__manifest";

/// Where a root is.
enum Place {
    Disk(tempfile::TempDir),
    Memory(SharedMemory),
    Server(stores::Place),
}

/// A row of `__manifest`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    id: String,
    kind: String,
    location: Option<String>,
    metadata: Option<String>,
}

impl Place {
    fn on_disk() -> Self {
        Self::Disk(tempfile::tempdir().unwrap())
    }

    fn in_memory() -> Self {
        Self::Memory(SharedMemory::new())
    }

    fn on_server(store: stores::Store) -> Self {
        Self::Server(stores::Place::new(store))
    }

    fn uri(&self) -> String {
        match self {
            Self::Server(place) => place.uri.clone(),
            Self::Disk(dir) => dir.path().to_str().unwrap().to_string(),
            Self::Memory(_) => "memory://root".to_string(),
        }
    }

    /// A session of a process of its own.
    fn session(&self) -> Arc<Session> {
        match self {
            Self::Disk(_) => Arc::new(Session::default()),
            Self::Memory(memory) => memory.actor().session,
            Self::Server(place) => place.session(),
        }
    }

    fn options(&self) -> HashMap<String, String> {
        match self {
            Self::Disk(_) | Self::Memory(_) => HashMap::new(),
            Self::Server(place) => place.options.clone(),
        }
    }

    /// The catalog of a process of its own, with the default leases: nothing may need one to run out.
    async fn catalog(&self) -> Catalog {
        match self {
            Self::Disk(_) | Self::Memory(_) => with_session(&self.uri(), self.session()).await,
            Self::Server(place) => place.catalog().await,
        }
    }

    /// What lies directly in the root.
    async fn entries(&self) -> BTreeSet<String> {
        match self {
            Self::Disk(dir) => std::fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect(),
            Self::Memory(memory) => entries(memory).await,
            Self::Server(place) => place.entries().await,
        }
    }

    async fn has_manifest(&self) -> bool {
        self.entries().await.contains(MANIFEST)
    }

    /// `__manifest` as anybody can read it; empty where there is none.
    async fn manifest(&self) -> Vec<Row> {
        if !self.has_manifest().await {
            return Vec::new();
        }
        read_manifest(&self.uri(), self.session(), self.options()).await
    }

    /// At rest: one row an id, every parent there, and nothing in the root but what is known.
    async fn assert_tidy(&self, root_tables: &[&str]) -> Vec<Row> {
        let rows = self.manifest().await;
        check_rows(&rows);
        let mut known: BTreeSet<String> =
            rows.iter().filter_map(|row| row.location.clone()).collect();
        known.extend(root_tables.iter().map(|name| format!("{name}.lance")));
        let mut found = self.entries().await;
        found.remove(MANIFEST);
        assert_eq!(found, known, "{rows:?}");
        rows
    }
}

async fn with_session(uri: &str, session: Arc<Session>) -> Catalog {
    Catalog::builder(uri)
        .session(session)
        .build()
        .await
        .unwrap()
}

async fn entries(memory: &SharedMemory) -> BTreeSet<String> {
    let dump = memory.dump().await;
    dump.iter()
        .map(|path| path.split('/').nth(1).unwrap().to_string())
        .collect()
}

async fn read_manifest(
    uri: &str,
    session: Arc<Session>,
    options: HashMap<String, String>,
) -> Vec<Row> {
    let manifest = DatasetBuilder::from_uri(format!("{uri}/{MANIFEST}"))
        .with_session(session)
        .with_storage_options(options)
        .load()
        .await
        .unwrap();
    let batches: Vec<RecordBatch> = manifest
        .scan()
        .try_into_stream()
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let mut rows = Vec::new();
    for batch in &batches {
        let column = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>();
        let text = |name: &str, row: usize| {
            let column = column(name);
            (!column.is_null(row)).then(|| column.value(row).to_string())
        };
        for row in 0..batch.num_rows() {
            rows.push(Row {
                id: text("object_id", row).unwrap(),
                kind: text("object_type", row).unwrap(),
                location: text("location", row),
                metadata: text("metadata", row),
            });
        }
    }
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows
}

/// One row an id, one id a location, and no id in a namespace that is not there.
#[track_caller]
fn check_rows(rows: &[Row]) {
    let mut kinds = BTreeMap::new();
    let mut locations = BTreeSet::new();
    for row in rows {
        let before = kinds.insert(row.id.as_str(), row.kind.as_str());
        assert_eq!(before, None, "two rows of {:?}: {rows:?}", row.id);
        if let Some(location) = &row.location {
            assert!(locations.insert(location), "{location} twice: {rows:?}");
        }
    }
    for row in rows {
        if let Some((parent, _)) = row.id.rsplit_once('$') {
            let kind = kinds.get(parent).copied();
            assert_eq!(kind, Some("namespace"), "parent of {:?}: {rows:?}", row.id);
        }
    }
}

#[track_caller]
fn assert_kind<T: fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

async fn read(catalog: &Catalog, ident: impl Into<TableIdent>) -> Vec<i32> {
    ids(&catalog.open_table(ident).await.unwrap()).await
}

async fn tables(catalog: &Catalog, namespace: &[&str]) -> Vec<String> {
    let namespace: Vec<String> = namespace.iter().map(ToString::to_string).collect();
    let page = catalog.list_tables().namespace(namespace).await.unwrap();
    assert_eq!(page.page_token, None);
    page.tables
}

/// Creates the namespaces, one after the other.
async fn make(catalog: &Catalog, namespaces: &[&[&str]]) {
    for parts in namespaces {
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        catalog.create_namespace(parts).await.unwrap();
    }
}

fn numbers(range: Range<i32>) -> Vec<i32> {
    range.collect()
}

/// Does it, again while others are said to be at it.
async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, Error>
where
    F: IntoFuture<Output = Result<T, Error>>,
{
    let start = Instant::now();
    loop {
        match attempt().await {
            Err(error) if error.is_retryable() && start.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            done => return done,
        }
    }
}

/// An actor in the hands of a test, stopped before one of its requests.
struct Stopped<T> {
    gate: Gate,
    task: tokio::task::JoinHandle<T>,
}

impl<T: Send + 'static> Stopped<T> {
    /// Runs the work until it has made `requests`, or `None` when it ends before. The work's store is behind the gate,
    /// as actor 0, on a current-thread runtime.
    async fn after(
        gate: Gate,
        requests: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<Self> {
        let task = tokio::spawn(gate.run(0, work));
        for made in 0..=requests {
            let blocked = gate.wait_until_blocked(&[0]);
            tokio::time::timeout(STALL, blocked).await.unwrap();
            if gate.is_finished(0) {
                return None;
            }
            if made < requests {
                gate.release(0);
            }
        }
        Some(Self { gate, task })
    }

    async fn go_on(self) -> T {
        self.gate.open();
        tokio::time::timeout(STALL, self.task)
            .await
            .unwrap()
            .unwrap()
    }
}

/// Runs point 0, 1, 2, …, some of them together since they mostly wait, until one says that there is no such point.
async fn each_point<T, F: Future<Output = Option<T>>>(point: impl FnMut(usize) -> F) -> Vec<T> {
    let points = stream::iter(0..).map(point).buffered(TOGETHER);
    let mut done = Vec::new();
    let mut points = std::pin::pin!(points);
    while let Some(Some(outcome)) = points.next().await {
        done.push(outcome);
    }
    done
}

/// The rows of contestant `n`.
fn rows_of(n: i32) -> Range<i32> {
    n * 10..n * 10 + 2 + n
}

fn batch_of(n: i32) -> RecordBatch {
    rows(rows_of(n))
}
