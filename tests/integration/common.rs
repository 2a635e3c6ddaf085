//! Tables, rows, roots, random choices and processes that the tests share.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use lancekeep::arrow::array::{AsArray, Int32Array, RecordBatch, RecordBatchIterator};
use lancekeep::arrow::datatypes::Int32Type;
use lancekeep::lance::dataset::{Dataset, WriteMode, WriteParams};
use lancekeep::{Catalog, Clock};

use crate::support::{Actor, StoreClock};

/// A batch with one column `id`.
pub(crate) fn rows(ids: impl IntoIterator<Item = i32>) -> RecordBatch {
    let ids = Arc::new(Int32Array::from_iter_values(ids)) as _;
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

/// All ids of a table, sorted.
pub(crate) async fn ids(dataset: &Dataset) -> Vec<i32> {
    try_ids(dataset).await.unwrap()
}

/// The same of a table that may be purged meanwhile.
pub(crate) async fn try_ids(dataset: &Dataset) -> lance_core::Result<Vec<i32>> {
    let scanned = dataset.scan().try_into_stream().await?;
    let batches: Vec<RecordBatch> = scanned.try_collect().await?;
    let mut ids: Vec<i32> = batches
        .iter()
        .flat_map(|b| b.column(0).as_primitive::<Int32Type>().values().to_vec())
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The ids of a live table, read through the catalog.
pub(crate) async fn table_ids(catalog: &Catalog, name: &str) -> Vec<i32> {
    ids(&catalog.open_table(name).await.unwrap()).await
}

/// Writes a table as an application without a catalog does.
pub(crate) async fn write_with_plain_lance(uri: &str, ids: impl IntoIterator<Item = i32>) {
    write_plainly(uri, ids, WriteParams::default()).await;
}

/// The same, with what the store asks for.
pub(crate) async fn write_plainly(
    uri: &str,
    ids: impl IntoIterator<Item = i32>,
    params: WriteParams,
) {
    let batch = rows(ids);
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let params = WriteParams {
        mode: WriteMode::Create,
        ..params
    };
    Dataset::write(reader, uri, Some(params)).await.unwrap();
}

/// A catalog on the shared memory store, through this actor's requests. Short leases, so that recovery can be waited
/// for.
pub(crate) async fn catalog_of(actor: &Actor) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .leases(LEASE, LEASE)
        .build()
        .await
        .unwrap()
}

/// Lease of [`catalog_of`].
pub(crate) const LEASE: Duration = Duration::from_millis(400);

/// A temporary local root and a catalog on it.
pub(crate) async fn local() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::connect(dir.path().to_str().unwrap())
        .await
        .unwrap();
    (dir, catalog)
}

/// The store's own clock as a catalog's.
#[derive(Debug)]
pub(crate) struct StoreTime(pub(crate) StoreClock);

impl Clock for StoreTime {
    fn now(&self) -> DateTime<Utc> {
        self.0.now()
    }
}

/// Xorshift.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Seeded with what an environment variable says, else with the time. Prints what replays the choices.
    pub(crate) fn seeded_by(variable: &str) -> Self {
        let given = std::env::var(variable).ok();
        let seed = given.and_then(|s| s.parse::<u64>().ok());
        let seed = seed.unwrap_or_else(now_us) | 1;
        println!("{variable}={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

pub(crate) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// This test binary once more, to run one test, which writes to `log`. What it is to do is for its environment to say.
pub(crate) fn another_process(test: &str, log: &Path) -> Command {
    let log = std::fs::File::create(log).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command
}
