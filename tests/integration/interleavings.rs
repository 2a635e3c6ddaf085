//! Single orders of requests that once were, or could have been, wrong; [`schedules`](crate::schedules) walks all.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use futures::TryStreamExt;
use lancekeep::lance::dataset::Dataset;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, CreateMode, Error, ErrorKind, TableState};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::common::{StoreTime, ids, rows, table_ids};
use crate::support::{Actor, Gate, Kind, Request, SharedMemory, StoreClock};

/// Longer than any schedule takes, also by the ticker's clock.
pub(crate) const LEASE: Duration = Duration::from_secs(4 * 60 * 60);

/// Somebody waits for what never comes.
const STALL: Duration = Duration::from_secs(120);

pub(crate) const OLD: Range<i32> = 0..3;

pub(crate) const TOMBSTONE: &str = "root/t.deleted";
pub(crate) const MARKER: &str = "root/t.lance/.lance-deregistered";

/// What an actor creates.
pub(crate) fn new_rows(actor: usize) -> Range<i32> {
    match actor {
        0 => 100..102,
        _ => 200..203,
    }
}

async fn catalog_for(actor: &Actor) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .leases(LEASE, LEASE)
        .build()
        .await
        .unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Drop,
    Undrop,
    Purge,
    /// Over a dropped name a revive.
    Create,
}

impl Op {
    async fn run(self, catalog: Catalog, actor: usize) -> Result<Option<Dataset>, Error> {
        let data = rows(new_rows(actor));
        match self {
            Self::Drop => catalog.drop_table("t").await.map(|_| None),
            Self::Undrop => catalog.undrop_table("t").await.map(|_| None),
            Self::Purge => catalog.purge_table("t").await.map(|_| None),
            Self::Create => catalog.create_table("t", data).await.map(Some),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    version: u64,
    rows: Vec<i32>,
}

impl Table {
    pub(crate) fn old() -> Self {
        Self {
            version: 1,
            rows: OLD.collect(),
        }
    }

    /// As an actor makes it.
    pub(crate) fn of(actor: usize, version: u64) -> Self {
        Self {
            version,
            rows: new_rows(actor).collect(),
        }
    }

    async fn read(dataset: &Dataset) -> Self {
        Self {
            version: dataset.version().version,
            rows: ids(dataset).await,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    Live(Table),
    Dropped(Table),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Absent,
    Live,
}

impl Start {
    pub(crate) async fn memory(self) -> SharedMemory {
        let memory = SharedMemory::new();
        let catalog = catalog_for(&memory.actor()).await;
        if !matches!(self, Self::Absent) {
            catalog.create_table("t", rows(OLD)).await.unwrap();
        }
        memory
    }
}

/// Looks at `t` through a new process: its state, its rows, and that nothing is left to mend or to clear away.
async fn end_state(memory: &SharedMemory, at: &str) -> State {
    let actor = memory.actor();
    let catalog = catalog_for(&actor).await;
    let state = match catalog.table_status("t").await.unwrap() {
        TableState::Absent => State::Absent,
        TableState::Live { version } => {
            let table = Table::read(&catalog.open_table("t").await.unwrap()).await;
            assert_eq!(table.version, version, "{at}");
            State::Live(table)
        }
        TableState::Dropped(dropped) => {
            // Past the catalog: what an undrop would bring back.
            let builder = DatasetBuilder::from_uri(format!("{}/t.lance", catalog.root_uri()));
            let builder = builder.with_session(actor.session.clone());
            let table = Table::read(&builder.load().await.unwrap()).await;
            // What was committed between the drop's look and its tombstone is kept too.
            assert!(dropped.version <= Some(table.version), "{at}: {dropped:?}");
            State::Dropped(table)
        }
        other => panic!("{at}: left {other:?}"),
    };
    let is_live = matches!(state, State::Live(_));
    let is_dropped = matches!(state, State::Dropped(_));
    let names = catalog.table_names().await.unwrap();
    assert_eq!(names == ["t"], is_live, "{at}: {names:?}");
    assert!(is_live || names.is_empty(), "{at}: {names:?}");
    let drops = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(drops.len(), usize::from(is_dropped), "{at}: {drops:?}");
    let report = catalog.reconcile(true).await.unwrap();
    assert!(report.is_clean(), "{at}: {report:?}");

    let dump = memory.dump().await;
    let under = |prefix: &str| {
        let inside = dump.iter().filter(|path| path.starts_with(prefix));
        inside.count()
    };
    let records: Vec<&str> = dump
        .iter()
        .map(String::as_str)
        .filter(|path| !path.starts_with("root/t.lance/"))
        .collect();
    let expected: &[&str] = if is_dropped { &[TOMBSTONE] } else { &[] };
    assert_eq!(records, expected, "{at}");
    assert_eq!(under(MARKER), usize::from(is_dropped), "{at}: {dump:?}");
    // One file for each version: nothing of those who lost.
    let files = match &state {
        State::Absent => 0,
        State::Live(table) | State::Dropped(table) => table.version,
    };
    let found = u64::try_from(under("root/t.lance/data/")).unwrap();
    assert_eq!(found, files, "{at}: {dump:?}");
    assert!(files > 0 || dump.is_empty(), "{at}: {dump:?}");
    state
}

/// Actors whose requests wait at a gate, in a schedule written by hand.
pub(crate) struct Stage {
    pub(crate) memory: SharedMemory,
    pub(crate) gate: Gate,
}

impl Stage {
    pub(crate) fn new(memory: SharedMemory) -> Self {
        Self {
            memory,
            gate: Gate::new(),
        }
    }

    pub(crate) fn actor(&self, actor: usize) -> Actor {
        self.memory.actor_at_gate(&self.gate, actor)
    }

    pub(crate) async fn catalog(&self, actor: usize) -> Catalog {
        catalog_for(&self.actor(actor)).await
    }

    /// The catalog of a process that waits for nobody.
    pub(crate) async fn others(&self) -> Catalog {
        catalog_for(&self.memory.actor()).await
    }

    pub(crate) fn start<T: Send + 'static>(
        &self,
        actor: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        tokio::spawn(self.gate.run(actor, work))
    }

    /// The actor's next request, once it waits; `None` when it has ended.
    pub(crate) async fn next(&self, actor: usize) -> Option<Request> {
        let actors = [actor];
        let blocked = self.gate.wait_until_blocked(&actors);
        timeout(STALL, blocked).await.expect("an actor is stuck");
        let waiting = self.gate.waiting();
        let mut own = waiting.into_iter().filter(|(who, _)| *who == actor);
        own.next().map(|(_, request)| request)
    }

    /// Lets the actor go on until this is its next request.
    pub(crate) async fn until(&self, actor: usize, kind: Kind, path: &str) {
        let wanted = Request::new(kind, path);
        loop {
            let next = self.next(actor).await;
            let next = next.unwrap_or_else(|| panic!("actor {actor} ended without {wanted:?}"));
            if next == wanted {
                return;
            }
            self.gate.release(actor);
        }
    }

    /// Lets so many requests of the actor through, and gives the one after them, if it gets that far.
    pub(crate) async fn skip(&self, actor: usize, requests: usize) -> Option<Request> {
        for _ in 0..requests {
            self.next(actor).await?;
            self.gate.release(actor);
        }
        self.next(actor).await
    }

    pub(crate) async fn finish(&self, actor: usize) {
        while self.next(actor).await.is_some() {
            self.gate.release(actor);
        }
    }

    pub(crate) async fn has(&self, path: &str) -> bool {
        self.memory.dump().await.iter().any(|found| found == path)
    }

    pub(crate) async fn end(&self, at: &str) -> State {
        Box::pin(end_state(&self.memory, at)).await
    }
}

/// The drop writes its marker after the undrop removed it, and reads its tombstone before the undrop deletes it: the
/// drop sees nothing to take back, so the undrop must.
#[tokio::test]
async fn a_marker_that_comes_late_goes_with_the_undrop() {
    let stage = Stage::new(Start::Live.memory().await);
    let dropping = stage.catalog(0).await.drop_table("t").into_future();
    let dropping = stage.start(0, dropping);
    stage.until(0, Kind::Put, MARKER).await;
    let undropping = stage.catalog(1).await.undrop_table("t").into_future();
    let undropping = stage.start(1, undropping);
    stage.until(1, Kind::Delete, TOMBSTONE).await;
    assert!(!stage.has(MARKER).await);

    stage.finish(0).await;
    let dropped = dropping.await.unwrap().unwrap();
    assert!(dropped.hidden_from_stock_clients);
    assert!(stage.has(MARKER).await, "the drop was not late");
    assert!(stage.has(TOMBSTONE).await);

    stage.finish(1).await;
    let undone = undropping.await.unwrap().unwrap();
    assert_eq!(undone.drop_id, dropped.drop_id);
    assert_eq!(stage.end("late marker").await, State::Live(Table::old()));
}

/// The drop writes its marker when the undrop has ended: the drop must take it back.
#[tokio::test]
async fn a_marker_that_comes_after_the_undrop_goes_with_the_drop() {
    let stage = Stage::new(Start::Live.memory().await);
    let dropping = stage.catalog(0).await.drop_table("t").into_future();
    let dropping = stage.start(0, dropping);
    stage.until(0, Kind::Put, MARKER).await;
    let undone = stage.others().await.undrop_table("t").await.unwrap();
    assert!(!stage.has(TOMBSTONE).await);

    stage.gate.release(0);
    stage.until(0, Kind::Get, TOMBSTONE).await;
    assert!(stage.has(MARKER).await);
    stage.finish(0).await;
    let dropped = dropping.await.unwrap().unwrap();
    assert_eq!(undone.drop_id, dropped.drop_id);
    assert_eq!(
        stage.end("marker after all").await,
        State::Live(Table::old())
    );
}

/// A create's answer, as the version that it made or the kind of its error, and what is there in the end.
type Outcome = (Result<u64, ErrorKind>, State);

/// Others do all this while a create waits at the gate, which then goes on to its end.
async fn overtake(
    stage: &Stage,
    create: JoinHandle<Result<Dataset, Error>>,
    others: &[Op],
    at: &str,
) -> Outcome {
    let catalog = stage.others().await;
    for op in others {
        let done = Box::pin(op.run(catalog.clone(), 1)).await;
        done.unwrap_or_else(|e| panic!("{at}: {op:?}: {e}"));
    }
    stage.finish(0).await;
    let answer = create.await.unwrap();
    assert!(
        !matches!(answer, Err(Error::Lance { .. } | Error::Storage { .. })),
        "{at}: {answer:?}"
    );
    let end = stage.end(at).await;
    let answer = answer.map(|dataset| dataset.version().version);
    (answer.map_err(|error| error.kind()), end)
}

/// A create that has written its data and is about to take the name, overtaken there.
async fn overtaken(start: Start, mode: CreateMode, others: &[Op]) -> Outcome {
    let at = format!("{mode:?} from {start:?}, overtaken by {others:?}");
    let stage = Stage::new(start.memory().await);
    let create = stage.catalog(0).await.create_table("t", rows(new_rows(0)));
    let create = stage.start(0, create.mode(mode).into_future());
    stage.until(0, Kind::PutCreate, TOMBSTONE).await;
    let dump = stage.memory.dump().await;
    let data = dump.iter().filter(|path| path.contains("/data/")).count();
    let before = usize::from(!matches!(start, Start::Absent));
    assert_eq!(data, before + 1, "{at}: {dump:?}");
    overtake(&stage, create, others, &at).await
}

/// A create overtaken before each of its requests up to the one that takes the name.
async fn overtaken_anywhere(start: Start, mode: CreateMode, others: &[Op]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    loop {
        let stage = Stage::new(start.memory().await);
        let create = stage.catalog(0).await.create_table("t", rows(new_rows(0)));
        let create = stage.start(0, create.mode(mode).into_future());
        let request = stage.skip(0, outcomes.len()).await.unwrap();
        if stage.has(TOMBSTONE).await {
            return outcomes;
        }
        let at = format!("{mode:?} from {start:?}, overtaken by {others:?} before {request:?}");
        outcomes.push(overtake(&stage, create, others, &at).await);
    }
}

/// The purge of an earlier table of that name takes what a slow create has written: the create must not commit it.
#[tokio::test]
async fn a_create_whose_data_was_purged_with_an_earlier_table_fails() {
    let create = async |others: &[Op]| overtaken(Start::Absent, CreateMode::Create, others).await;
    assert_eq!(
        create(&[Op::Create, Op::Drop, Op::Purge]).await,
        (Err(ErrorKind::Conflict), State::Absent)
    );
    assert_eq!(
        create(&[Op::Create, Op::Drop, Op::Purge, Op::Create]).await,
        (
            Err(ErrorKind::TableAlreadyExists),
            State::Live(Table::of(1, 1))
        )
    );
    assert_eq!(
        create(&[Op::Create, Op::Drop]).await,
        (
            Err(ErrorKind::TableDropped),
            State::Dropped(Table::of(1, 1))
        )
    );
    assert_eq!(
        create(&[Op::Create]).await,
        (
            Err(ErrorKind::TableAlreadyExists),
            State::Live(Table::of(1, 1))
        )
    );
    // Nobody in the way.
    assert_eq!(create(&[]).await, (Ok(1), State::Live(Table::of(0, 1))));
}

/// An overwrite must not commit onto a table that took the place of the one that it read.
#[tokio::test]
async fn an_overwrite_of_a_table_that_was_replaced_fails() {
    let overwrite =
        async |others: &[Op]| overtaken(Start::Live, CreateMode::Overwrite, others).await;
    assert_eq!(
        overwrite(&[Op::Drop, Op::Purge, Op::Create]).await,
        (Err(ErrorKind::Conflict), State::Live(Table::of(1, 1)))
    );
    assert_eq!(
        overwrite(&[Op::Drop, Op::Purge]).await,
        (Err(ErrorKind::Conflict), State::Absent)
    );
    assert_eq!(
        overwrite(&[Op::Drop]).await,
        (Err(ErrorKind::TableDropped), State::Dropped(Table::old()))
    );
    // The same table again.
    assert_eq!(
        overwrite(&[Op::Drop, Op::Undrop]).await,
        (Ok(2), State::Live(Table::of(0, 2)))
    );
    assert_eq!(overwrite(&[]).await, (Ok(2), State::Live(Table::of(0, 2))));
}

/// Wherever it was overtaken, it made a whole table of what it found in the end, or nothing.
#[tokio::test]
async fn a_create_may_be_overtaken_before_any_request() {
    let others = [Op::Create, Op::Drop, Op::Purge];
    let made = (Ok(1), State::Live(Table::of(0, 1)));
    let lost = (Err(ErrorKind::Conflict), State::Absent);
    let outcomes = overtaken_anywhere(Start::Absent, CreateMode::Create, &others).await;
    println!("a create overtaken before {} requests", outcomes.len());
    assert!(
        outcomes.iter().all(|o| *o == made || *o == lost),
        "{outcomes:?}"
    );
    assert_eq!(outcomes.first(), Some(&made));
    assert_eq!(outcomes.last(), Some(&lost));

    let others = [Op::Drop, Op::Purge, Op::Create];
    let made = (Ok(2), State::Live(Table::of(0, 2)));
    let lost = (Err(ErrorKind::Conflict), State::Live(Table::of(1, 1)));
    let outcomes = overtaken_anywhere(Start::Live, CreateMode::Overwrite, &others).await;
    println!("an overwrite overtaken before {} requests", outcomes.len());
    assert!(
        outcomes.iter().all(|o| *o == made || *o == lost),
        "{outcomes:?}"
    );
    assert_eq!(outcomes.first(), Some(&made));
    assert_eq!(outcomes.last(), Some(&lost));
}

/// A catalog whose clock is the store's.
pub(crate) async fn timed(memory: &SharedMemory, actor: &Actor, purge_lease: Duration) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .clock(Arc::new(StoreTime(memory.clock().unwrap())))
        .leases(LEASE, purge_lease)
        .build()
        .await
        .unwrap()
}

/// A purge stops before any of its requests until its lease is over; it is taken over, and a new table of that name is
/// dropped. What the first purger then still does must not touch that one.
#[tokio::test]
async fn a_purge_that_was_taken_over_leaves_the_next_drop_alone() {
    // The owner goes by real time, for half of it; the others by the store's clock.
    const SHORT: Duration = Duration::from_secs(2);
    // Not a whole second: the store's clock must not look coarse.
    let now = DateTime::from_timestamp_millis(1_750_000_000_123).unwrap();
    let start = SharedMemory::with_clock(StoreClock::new(now));
    let catalog = timed(&start, &start.actor(), LEASE).await;
    catalog.create_table("t", rows(OLD)).await.unwrap();
    let first = catalog.drop_table("t").await.unwrap();

    let mut stopped = Vec::new();
    loop {
        let stage = Stage::new(start.fork().await);
        let slow = timed(&stage.memory, &stage.actor(0), SHORT).await;
        let purge = slow.purge_table("t").drop_id(first.drop_id);
        let purge = stage.start(0, purge.into_future());
        let Some(request) = stage.skip(0, stopped.len()).await else {
            let purged = purge.await.unwrap().unwrap();
            assert_eq!(purged.drop_id, first.drop_id);
            break;
        };
        stopped.push((stage, purge, format!("stopped before {request:?}")));
    }
    println!("a purge stopped before each of {} requests", stopped.len());
    assert!(stopped.len() >= 8);

    let mut resumed = Vec::new();
    for (stage, purge, at) in stopped {
        let clock = stage.memory.clock().unwrap();
        clock.advance(SHORT + Duration::from_secs(1));
        let others = timed(&stage.memory, &stage.memory.actor(), LEASE).await;
        if stage.has(TOMBSTONE).await {
            let purged = others.purge_table("t").await;
            let purged = purged.unwrap_or_else(|e| panic!("{at}: {e}"));
            assert_eq!(purged.drop_id, first.drop_id, "{at}");
        }
        let created = others.create_table("t", rows(new_rows(1))).await;
        created.unwrap_or_else(|e| panic!("{at}: {e}"));
        let second = others.drop_table("t").await.unwrap();
        resumed.push((stage, purge, at, others, second));
    }
    sleep(SHORT / 2 + Duration::from_millis(100)).await;

    for (stage, purge, at, others, second) in resumed {
        stage.finish(0).await;
        match purge.await.unwrap() {
            // The drop that it was to purge is purged.
            Ok(purged) => assert_eq!(purged.drop_id, first.drop_id, "{at}"),
            Err(Error::Conflict { .. } | Error::TableNotFound { .. }) => {}
            Err(error) => panic!("{at}: {error:?}"),
        }
        let drops = others.list_dropped_tables().await.unwrap();
        assert_eq!(drops.len(), 1, "{at}: {drops:?}");
        assert_eq!(drops[0].drop_id, second.drop_id, "{at}");
        assert_eq!(stage.end(&at).await, State::Dropped(Table::of(1, 1)));
        let undone = others.undrop_table("t").await;
        undone.unwrap_or_else(|e| panic!("{at}: {e}"));
        let restored = table_ids(&others, "t").await;
        assert_eq!(restored, new_rows(1).collect::<Vec<_>>(), "{at}");
    }
}

/// Two creators; the second takes the name when the first has ended. Its creating tombstone must hide nothing.
#[tokio::test]
async fn a_creating_tombstone_over_a_live_table_hides_nothing() {
    let stage = Stage::new(SharedMemory::new());
    let second = stage.catalog(0).await.create_table("t", rows(new_rows(0)));
    let second = stage.start(0, second.into_future());
    stage.until(0, Kind::PutCreate, TOMBSTONE).await;
    let first = stage.others().await;
    first.create_table("t", rows(OLD)).await.unwrap();
    stage.gate.release(0);
    assert!(stage.next(0).await.is_some());
    assert!(stage.has(TOMBSTONE).await);

    for reader in [&first, &stage.others().await] {
        assert_eq!(table_ids(reader, "t").await, OLD.collect::<Vec<_>>());
        let version = 1;
        let dataset = reader.open_table("t").version(version).await.unwrap();
        assert_eq!(Table::read(&dataset).await, Table::old());
        let status = reader.table_status("t").await.unwrap();
        assert_eq!(status, TableState::Live { version });
        assert!(reader.table_exists("t").await.unwrap());
        assert_eq!(reader.table_names().await.unwrap(), ["t"]);
        let page = reader.list_tables().limit(5).await.unwrap();
        assert_eq!(page.tables, ["t"]);
        let openable = reader.list_tables().include_declared(false).await.unwrap();
        assert_eq!(openable.tables, ["t"]);
        let streamed: Vec<String> = reader.list_tables().stream().try_collect().await.unwrap();
        assert_eq!(streamed, ["t"]);
        assert!(reader.list_dropped_tables().await.unwrap().is_empty());
        let report = reader.reconcile(true).await.unwrap();
        let kinds: Vec<FindingKind> = report.findings.iter().map(|f| f.kind).collect();
        assert_eq!(kinds, [FindingKind::UnfinishedCreate]);
        // It is not a drop to undo or to purge.
        for error in [
            reader.undrop_table("t").await.map(drop).unwrap_err(),
            reader.purge_table("t").await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
        }
    }

    stage.finish(0).await;
    let lost = second.await.unwrap().unwrap_err();
    assert!(matches!(lost, Error::TableAlreadyExists { .. }), "{lost:?}");
    assert_eq!(
        stage.end("creating over live").await,
        State::Live(Table::old())
    );
}
