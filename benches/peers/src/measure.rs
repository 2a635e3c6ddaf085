//! How a figure comes about.
//!
//! Contestants take turns, so that what else the machine does meets them all. Each turn gets the root as it was: a fork
//! of the memory store or, where the workload changes it, a copy of the directory. Making ready (connecting, opening what
//! the operation is made on) is not timed, and each turn has a session, and so caches, of its own. The first turn of a
//! contestant is a warm-up.
//!
//! A ratio is that of one turn to lancekeep's turn of the same round. Requests are counted above the store. Round trips are
//! what a turn takes longer when a request takes 40 ms longer, divided by 40 ms, so that the work of the machine itself
//! cancels out.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use lance::dataset::WriteParams;
use lance::session::Session;
use lance_io::object_store::{ObjectStoreParams, StorageOptionsAccessor};
use object_store::ObjectStore;

use crate::roots;
use crate::support::servers::Server;
use crate::support::{Actor, Counter, SharedMemory};

/// What a request takes on the latency store.
pub(crate) const LATENCY: Duration = Duration::from_millis(20);

/// And where round trips are counted.
const SLOWER: Duration = Duration::from_millis(60);

/// A contestant has no more than [`FEW`] turns when they have taken this long,
const BUDGET: Duration = Duration::from_secs(6);
const FEW: usize = 3;

/// and none at all after this.
const MOST: Duration = Duration::from_secs(15);

/// What takes longer has no turn for warming up, and none on the slower store.
const LONG: Duration = Duration::from_secs(2);

/// What is timed.
pub(crate) type Timed = BoxFuture<'static, ()>;

type Prepare = Box<dyn Fn(Root) -> BoxFuture<'static, Timed>>;

/// One who does a workload's job in its own way.
pub(crate) struct Contestant {
    name: String,
    prepare: Prepare,
}

impl Contestant {
    /// `prepare` makes ready on a root and gives what is to be timed.
    pub(crate) fn new<F>(name: &str, prepare: impl Fn(Root) -> F + 'static) -> Self
    where
        F: Future<Output = Timed> + Send + 'static,
    {
        Self {
            name: name.to_string(),
            prepare: Box::new(move |root| prepare(root).boxed()),
        }
    }
}

impl Contestant {
    pub(crate) fn renamed(self, name: &str) -> Self {
        Self {
            name: name.to_string(),
            ..self
        }
    }
}

pub(crate) fn timed(operation: impl Future<Output = ()> + Send + 'static) -> Timed {
    operation.boxed()
}

/// Where a workload happens.
pub(crate) enum Place {
    /// In memory, with a latency.
    Slow(SharedMemory),
    /// A directory that the workload only reads.
    Disk(PathBuf),
    /// A directory of which each turn gets a copy.
    Copies(PathBuf),
    /// A bucket that the workload only reads.
    Server(&'static Server, String),
}

impl Place {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Slow(_) => "latency store",
            Self::Disk(_) | Self::Copies(_) => "local disk",
            Self::Server(..) => "S3 server",
        }
    }

    pub(crate) async fn root(&self, latency: Duration) -> Root {
        match self {
            Self::Slow(memory) => Root::in_memory(memory.fork().await, latency),
            Self::Disk(path) => Root::on_disk(path.clone(), None),
            Self::Copies(path) => {
                let copy = tempfile::tempdir().unwrap();
                roots::copy_tree(path, copy.path());
                Root::on_disk(copy.path().to_path_buf(), Some(copy))
            }
            Self::Server(server, uri) => Root::on_server(server, uri),
        }
    }
}

/// What opens a store that needs options.
pub(crate) fn store_params(options: &[(String, String)]) -> Option<ObjectStoreParams> {
    let accessor = || {
        let options = options.iter().cloned().collect();
        Arc::new(StorageOptionsAccessor::with_static_options(options))
    };
    (!options.is_empty()).then(|| ObjectStoreParams {
        storage_options_accessor: Some(accessor()),
        ..Default::default()
    })
}

/// A root as one turn has it, with a session of its own; clones share both.
#[derive(Clone)]
pub(crate) struct Root {
    pub(crate) uri: String,
    pub(crate) session: Arc<Session>,
    pub(crate) options: Vec<(String, String)>,
    /// For bare requests; local disk has none.
    pub(crate) store: Option<Arc<dyn ObjectStore>>,
    pub(crate) directory: Option<PathBuf>,
    memory: Option<(SharedMemory, Duration)>,
    counters: Arc<Mutex<Vec<Counter>>>,
    server: Option<&'static Server>,
    _copy: Option<Arc<tempfile::TempDir>>,
}

impl Root {
    pub(crate) fn in_memory(memory: SharedMemory, latency: Duration) -> Self {
        let Actor {
            session,
            store,
            counter,
            ..
        } = memory.actor_with_latency(latency);
        Self {
            uri: "memory://root".to_string(),
            session,
            options: Vec::new(),
            store: Some(store),
            directory: None,
            memory: Some((memory, latency)),
            counters: Arc::new(Mutex::new(vec![counter])),
            server: None,
            _copy: None,
        }
    }

    fn on_disk(path: PathBuf, copy: Option<tempfile::TempDir>) -> Self {
        Self {
            uri: path.to_str().unwrap().to_string(),
            session: Arc::new(Session::default()),
            options: Vec::new(),
            store: None,
            directory: Some(path),
            memory: None,
            counters: Arc::default(),
            server: None,
            _copy: copy.map(Arc::new),
        }
    }

    fn on_server(server: &'static Server, uri: &str) -> Self {
        Self {
            uri: uri.to_string(),
            session: Arc::new(Session::default()),
            options: server.options(),
            store: None,
            directory: None,
            memory: None,
            counters: Arc::default(),
            server: Some(server),
            _copy: None,
        }
    }

    /// The same root as another process sees it.
    pub(crate) fn another(&self) -> Self {
        let mut other = self.clone();
        match &self.memory {
            Some((memory, latency)) => {
                let actor = memory.actor_with_latency(*latency);
                self.counters.lock().unwrap().push(actor.counter.clone());
                other.session = actor.session;
                other.store = Some(actor.store);
            }
            None => other.session = Arc::new(Session::default()),
        }
        other
    }

    pub(crate) fn uri_of(&self, table: &str) -> String {
        format!("{}/{table}.lance", self.uri)
    }

    pub(crate) fn write_params(&self) -> WriteParams {
        WriteParams {
            session: Some(self.session.clone()),
            store_params: store_params(&self.options),
            ..Default::default()
        }
    }

    /// The store for bare requests, where there is one.
    pub(crate) fn bare(&self) -> Arc<dyn ObjectStore> {
        self.store.clone().unwrap()
    }

    fn reset(&self) {
        for counter in self.counters.lock().unwrap().iter() {
            counter.reset();
        }
        if let Some(server) = self.server {
            server.requests(&self.uri);
        }
    }

    /// Since it was reset; local disk tells none.
    fn requests(&self) -> Option<Vec<String>> {
        if let Some(server) = self.server {
            return Some(server.requests(&self.uri));
        }
        let counters = self.counters.lock().unwrap();
        let log = counters.iter().flat_map(Counter::log);
        let told = log.map(|request| format!("{:?} {}", request.kind, request.path));
        self.memory.is_some().then(|| told.collect())
    }
}

/// What one contestant took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figure {
    pub(crate) contestant: String,
    /// A turn each.
    pub(crate) times: Vec<Duration>,
    pub(crate) requests: Option<usize>,
    /// Those of the last turn.
    pub(crate) log: Vec<String>,
    pub(crate) trips: Option<u64>,
    /// Memory at most, in MiB, above what was resident before.
    pub(crate) peak: Option<f64>,
    pub(crate) remark: Option<String>,
}

impl Figure {
    pub(crate) fn of(contestant: &str) -> Self {
        Self {
            contestant: contestant.to_string(),
            ..Default::default()
        }
    }

    pub(crate) fn median(&self) -> Option<Duration> {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// Turn by turn, sorted.
    pub(crate) fn ratios_to(&self, other: &Self) -> Vec<f64> {
        let pairs = self.times.iter().zip(&other.times);
        let mut ratios: Vec<f64> = pairs
            .map(|(mine, theirs)| mine.as_secs_f64() / theirs.as_secs_f64())
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios
    }

    /// The one in the middle.
    pub(crate) fn ratio_to(&self, other: &Self) -> Option<f64> {
        let ratios = self.ratios_to(other);
        ratios.get(ratios.len() / 2).copied()
    }
}

/// All contestants of one workload at one size in one place; lancekeep is the first.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) workload: &'static str,
    pub(crate) size: usize,
    pub(crate) of: &'static str,
    pub(crate) place: &'static str,
    pub(crate) figures: Vec<Figure>,
}

impl Group {
    pub(crate) fn figure(&self, contestant: &str) -> Option<&Figure> {
        self.figures.iter().find(|f| f.contestant == contestant)
    }

    /// One that is not run here, and why.
    pub(crate) fn not_run(&mut self, contestant: &str, why: String) {
        self.figures.push(Figure {
            remark: Some(why),
            ..Figure::of(contestant)
        });
    }

    /// Remarks how many of the operation's parts were done in a second.
    pub(crate) fn each_second(&mut self, parts: usize, what: &str) {
        for figure in &mut self.figures {
            if let Some(median) = figure.median() {
                let rate = parts as f64 / median.as_secs_f64();
                figure.remark = Some(format!("{rate:.0} {what}/s"));
            }
        }
    }
}

struct Sample {
    elapsed: Duration,
    requests: Option<Vec<String>>,
}

async fn turn(contestant: &Contestant, place: &Place, latency: Duration) -> Sample {
    let root = place.root(latency).await;
    let operation = (contestant.prepare)(root.clone()).await;
    root.reset();
    let start = Instant::now();
    operation.await;
    let elapsed = start.elapsed();
    let requests = root.requests();
    Sample { elapsed, requests }
}

/// Sequential round trips, from the quicker of two turns on either store.
async fn trips(contestant: &Contestant, place: &Place, quickest: Duration) -> u64 {
    let mut slower = Duration::MAX;
    for _ in 0..2 {
        slower = slower.min(turn(contestant, place, SLOWER).await.elapsed);
    }
    let longer = slower.saturating_sub(quickest).as_secs_f64();
    (longer / (SLOWER - LATENCY).as_secs_f64()).round() as u64
}

/// What is measured, by name, and with which size of what.
pub(crate) type Title = (&'static str, usize, &'static str);

/// Gives all contestants their turns, and counts their round trips.
pub(crate) async fn compare(
    title: Title,
    place: &Place,
    repetitions: usize,
    contestants: Vec<Contestant>,
) -> Group {
    let mut group = take_turns(title, place, repetitions, &contestants).await;
    if let Place::Slow(_) = place {
        for (contestant, figure) in contestants.iter().zip(&mut group.figures) {
            let quickest = figure.times.iter().min().copied().unwrap_or_default();
            figure.trips = Some(match quickest > LONG {
                true => (quickest.as_secs_f64() / LATENCY.as_secs_f64()) as u64,
                false => trips(contestant, place, quickest).await,
            });
        }
    }
    group
}

/// Without round trips, where chance decides how many there are.
pub(crate) async fn take_turns(
    title: Title,
    place: &Place,
    repetitions: usize,
    contestants: &[Contestant],
) -> Group {
    let (workload, size, of) = title;
    let began = Instant::now();
    let mut figures: Vec<Figure> = contestants.iter().map(|c| Figure::of(&c.name)).collect();
    for round in 0..=repetitions {
        for (contestant, figure) in contestants.iter().zip(&mut figures) {
            let taken: Duration = figure.times.iter().sum();
            if taken > MOST || (taken > BUDGET && figure.times.len() >= FEW) {
                continue;
            }
            let sample = turn(contestant, place, LATENCY).await;
            figure.requests = sample.requests.as_ref().map(Vec::len);
            figure.log = sample.requests.unwrap_or_default();
            // Warming up.
            if round > 0 || sample.elapsed > LONG {
                figure.times.push(sample.elapsed);
            }
        }
    }
    let place = place.name();
    let took = began.elapsed().as_secs_f64();
    eprintln!("   {workload}: {size} {of}, {place}: {took:.1} s");
    Group {
        workload,
        size,
        of,
        place,
        figures,
    }
}
