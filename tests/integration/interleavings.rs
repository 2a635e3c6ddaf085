//! Two actors on one table, request by request, in every order that matters; and single orders that once were, or
//! could have been, wrong.
//!
//! The explorer replays lists of turns on copies of a start state. It looks at what the requests of a run touched:
//! where a later request of one actor conflicts with an earlier one of the other, that order is turned around in a run
//! to come, few turns first. An order that only swaps requests that do not conflict is not run again. Requests that
//! one actor has under way together go in the order in which it made them.
//!
//! Explored under paused time, so that polling costs nothing; a ticker keeps the clock from jumping over a lease while
//! Lance works on a thread of its own.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use lancekeep::lance::dataset::Dataset;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lifecycle::FindingKind;
use lancekeep::uuid::Uuid;
use lancekeep::{Catalog, Clock, CreateMode, Error, ErrorKind, TableState};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};

use crate::common::{ids, rows, table_ids};
use crate::support::{Actor, Gate, Kind, Request, SharedMemory, StoreClock};

/// Schedules run for each pair, at most; [`SCHEDULES_VARIABLE`] overrides it.
const SCHEDULES: usize = 64;
const SCHEDULES_VARIABLE: &str = "LANCEKEEP_SCHEDULES";

/// Longer than any schedule takes, also by the ticker's clock.
const LEASE: Duration = Duration::from_secs(4 * 60 * 60);

/// Somebody waits for what never comes.
const STALL: Duration = Duration::from_secs(120);

const OLD: Range<i32> = 0..3;

const TABLE: &str = "root/t.lance";
const TOMBSTONE: &str = "root/t.deleted";
const MARKER: &str = "root/t.lance/.lance-deregistered";

/// What an actor creates.
fn new_rows(actor: usize) -> Range<i32> {
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
    Open,
    Drop,
    Undrop,
    Purge,
    /// Over a dropped name a revive.
    Create,
    Overwrite,
    Reconcile,
}

impl Op {
    async fn run(self, catalog: Catalog, actor: usize) -> Result<Option<Dataset>, Error> {
        let data = rows(new_rows(actor));
        match self {
            Self::Open => catalog.open_table("t").await.map(Some),
            Self::Drop => catalog.drop_table("t").await.map(|_| None),
            Self::Undrop => catalog.undrop_table("t").await.map(|_| None),
            Self::Purge => catalog.purge_table("t").await.map(|_| None),
            Self::Create => catalog.create_table("t", data).await.map(Some),
            Self::Overwrite => {
                let create = catalog.create_table("t", data);
                create.mode(CreateMode::Overwrite).await.map(Some)
            }
            Self::Reconcile => {
                let report = catalog.reconcile(false).await?;
                for finding in &report.findings {
                    assert!(finding.error.is_none(), "{finding:?}");
                }
                Ok(None)
            }
        }
    }

    fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Reconcile)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    version: u64,
    rows: Vec<i32>,
}

impl Table {
    fn old() -> Self {
        Self {
            version: 1,
            rows: OLD.collect(),
        }
    }

    /// As an actor makes it.
    fn of(actor: usize, version: u64) -> Self {
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
enum State {
    Absent,
    Live(Table),
    Dropped(Table),
}

impl State {
    /// What a change makes of it when it is alone; `None` where it cannot succeed.
    fn after(&self, op: Op, actor: usize) -> Option<Self> {
        Some(match (op, self) {
            (Op::Drop, Self::Live(table)) => Self::Dropped(table.clone()),
            (Op::Undrop, Self::Dropped(table)) => Self::Live(table.clone()),
            (Op::Purge, Self::Dropped(_)) => Self::Absent,
            (Op::Create | Op::Overwrite, Self::Absent) => Self::Live(Table::of(actor, 1)),
            (Op::Create | Op::Overwrite, Self::Dropped(table))
            | (Op::Overwrite, Self::Live(table)) => Self::Live(Table::of(actor, table.version + 1)),
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Start {
    Absent,
    Live,
    Dropped,
}

impl Start {
    async fn memory(self) -> SharedMemory {
        let memory = SharedMemory::new();
        let catalog = catalog_for(&memory.actor()).await;
        if !matches!(self, Self::Absent) {
            catalog.create_table("t", rows(OLD)).await.unwrap();
        }
        if matches!(self, Self::Dropped) {
            catalog.drop_table("t").await.unwrap();
        }
        memory
    }

    fn state(self) -> State {
        match self {
            Self::Absent => State::Absent,
            Self::Live => State::Live(Table::old()),
            Self::Dropped => State::Dropped(Table::old()),
        }
    }
}

/// What an actor was told.
#[derive(Debug)]
enum Heard {
    Done,
    Given(Table),
    Failed(Error),
}

impl Heard {
    fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// Whether the answers and the end are those of some serial order of the changes that succeeded.
fn judge(start: &State, ops: [Op; 2], heard: &[Heard; 2], end: &State) -> Result<(), String> {
    let won: Vec<usize> = (0..2)
        .filter(|actor| ops[*actor].changes() && !heard[*actor].is_failure())
        .collect();
    let orders = match won.as_slice() {
        [] => return Err("nobody won".to_string()),
        [only] => vec![vec![*only]],
        _ => vec![vec![0, 1], vec![1, 0]],
    };
    let mut reasons = Vec::new();
    for order in orders {
        match explain(start, ops, heard, end, &order) {
            Ok(()) => return Ok(()),
            Err(why) => reasons.push(format!("in the order {order:?}: {why}")),
        }
    }
    Err(reasons.join("; "))
}

fn explain(
    start: &State,
    ops: [Op; 2],
    heard: &[Heard; 2],
    end: &State,
    order: &[usize],
) -> Result<(), String> {
    let mut states = vec![start.clone()];
    for &actor in order {
        let next = states[states.len() - 1].after(ops[actor], actor);
        let next = next.ok_or_else(|| format!("actor {actor} cannot succeed"))?;
        if let Heard::Given(table) = &heard[actor]
            && next != State::Live(table.clone())
        {
            return Err(format!("actor {actor} was given {table:?}, not {next:?}"));
        }
        states.push(next);
    }
    if states.last() != Some(end) {
        return Err(format!("it must end as {:?}", states.last()));
    }
    for actor in [0, 1] {
        let honest = match &heard[actor] {
            Heard::Done => true,
            Heard::Given(table) => states.contains(&State::Live(table.clone())),
            Heard::Failed(error) => is_honest(ops[actor], ops[1 - actor], error, &states),
        };
        if !honest {
            return Err(format!("actor {actor} must not hear {:?}", heard[actor]));
        }
    }
    Ok(())
}

/// Whether a failure says no more than what was true at some time.
fn is_honest(op: Op, rival: Op, error: &Error, states: &[State]) -> bool {
    // Whatever kind Lance or the store failed with, the catalog must say who was in the way.
    if matches!(error, Error::Lance { .. } | Error::Storage { .. }) {
        return false;
    }
    let was_live = states.iter().any(|s| matches!(s, State::Live(_)));
    let was_dropped = states.iter().any(|s| matches!(s, State::Dropped(_)));
    let was_absent = states.contains(&State::Absent);
    match (error.kind(), op) {
        (ErrorKind::TableDropped, Op::Open | Op::Overwrite) => was_dropped,
        (ErrorKind::TableNotFound, Op::Open | Op::Undrop | Op::Purge) => was_absent,
        (ErrorKind::TableNotFound, Op::Drop) => was_dropped || was_absent,
        (ErrorKind::TableNotDropped, Op::Undrop | Op::Purge) => was_live,
        (ErrorKind::TableAlreadyExists, Op::Create) => was_live,
        (ErrorKind::PurgeInProgress, Op::Undrop | Op::Create) => rival == Op::Purge,
        (ErrorKind::RestoreInProgress, Op::Undrop | Op::Purge | Op::Create) => {
            matches!(rival, Op::Undrop | Op::Create)
        }
        // The drop that was to be revived was over.
        (ErrorKind::Conflict, Op::Create) => was_dropped,
        _ => false,
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

/// What a request touches: one object, or (`true`) all below a prefix.
fn reach(op: Op, request: &Request) -> (&str, bool) {
    match request.kind {
        Kind::List | Kind::ListDelimited => (request.path.as_str(), true),
        // A bulk delete is known by its first path only.
        Kind::Delete if op == Op::Purge && request.path.starts_with("root/t.lance/") => {
            (TABLE, true)
        }
        _ => (request.path.as_str(), false),
    }
}

/// Whether the order of two requests can matter.
fn conflict(op: Op, request: &Request, other_op: Op, other: &Request) -> bool {
    let below = |path: &str, prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (path, is_tree) = reach(op, request);
    let (other_path, other_is_tree) = reach(other_op, other);
    let overlap = path == other_path
        || (is_tree && below(other_path, path))
        || (other_is_tree && below(path, other_path));
    overlap && (request.kind.is_write() || other.kind.is_write())
}

/// Whose turn it is; `tried`: the other one's turn here belongs to another plan.
#[derive(Clone, Copy, Debug)]
struct Turn {
    actor: usize,
    tried: bool,
}

struct Step {
    turn: Turn,
    request: Request,
    /// Whether the other one could have gone first, with nothing of it known from another plan.
    open: bool,
}

struct Played {
    memory: SharedMemory,
    steps: Vec<Step>,
    heard: [Heard; 2],
}

/// Whether an actor asks again what it asked before, with nothing changed since: it waits for the other one.
fn polls(request: &Request, asked: &[Request]) -> bool {
    let record = request.path == TOMBSTONE || request.path.contains(".claim");
    let times = asked.iter().filter(|known| *known == request).count();
    let patience = if request.kind == Kind::PutCreate {
        1
    } else {
        2
    };
    record && times >= patience
}

/// Runs one schedule: the plan, and then each actor for as long as it can.
async fn play(start: &SharedMemory, ops: [Op; 2], plan: &[Turn]) -> Played {
    let memory = start.fork().await;
    let gate = Gate::new();
    let mut actors = Vec::new();
    for (actor, op) in ops.into_iter().enumerate() {
        let catalog = catalog_for(&memory.actor_at_gate(&gate, actor)).await;
        let work = gate.run(actor, op.run(catalog, actor));
        actors.push(tokio::task::spawn_local(work));
    }
    let mut steps: Vec<Step> = Vec::new();
    // Whose next request would only lead to what another plan shows.
    let mut asleep: Option<usize> = None;
    // Since the last change.
    let mut asked: [Vec<Request>; 2] = Default::default();
    loop {
        gate.wait_until_blocked(&[0, 1]).await;
        let waiting = gate.waiting();
        let next: [Option<Request>; 2] = [0, 1].map(|actor: usize| {
            let mut own = waiting.iter().filter(|(who, _)| *who == actor);
            own.next().map(|(_, request)| request.clone())
        });
        if next.iter().all(Option::is_none) {
            break;
        }
        let stuck = [0, 1].map(|actor: usize| {
            let request = next[actor].as_ref();
            request.is_some_and(|request| polls(request, &asked[actor]))
        });
        let ready = [0, 1].map(|actor: usize| {
            let other = 1 - actor;
            next[actor].is_some() && (!stuck[actor] || stuck[other] || next[other].is_none())
        });
        let awake = |actor: usize| ready[actor] && asleep != Some(actor);
        let planned = plan.get(steps.len()).copied();
        let planned = planned.filter(|turn| next[turn.actor].is_some());
        let last = steps.last().map_or(0, |step| step.turn.actor);
        let actor = match planned {
            Some(turn) => turn.actor,
            None if awake(last) => last,
            None if awake(1 - last) => 1 - last,
            None if ready[last] => last,
            None => 1 - last,
        };
        let other = 1 - actor;
        let tried = planned.is_some_and(|turn| turn.tried);
        let open = !tried && awake(other);
        if asleep == Some(actor) {
            asleep = None;
        }
        if tried && ready[other] {
            asleep = Some(other);
        }
        let request = gate.release(actor);
        if asleep == Some(other)
            && let Some(pending) = &next[other]
            && conflict(ops[actor], &request, ops[other], pending)
        {
            asleep = None;
        }
        if request.kind.is_write() {
            asked[other].clear();
            // Mostly an attempt that fails.
            if (request.kind, request.path.as_str()) != (Kind::PutCreate, TOMBSTONE) {
                asked[actor].clear();
            }
        }
        asked[actor].push(request.clone());
        steps.push(Step {
            turn: Turn { actor, tried },
            request,
            open,
        });
    }
    gate.open();
    let mut heard = Vec::new();
    for actor in actors {
        heard.push(match actor.await.unwrap() {
            Ok(Some(dataset)) => Heard::Given(Table::read(&dataset).await),
            Ok(None) => Heard::Done,
            Err(error) => Heard::Failed(error),
        });
    }
    Played {
        memory,
        steps,
        heard: heard.try_into().unwrap(),
    }
}

/// The steps before which the other actor is to go first: those that a later request of it conflicts with, unless
/// that one comes after them anyway.
fn races(ops: [Op; 2], steps: &[Step]) -> Vec<usize> {
    let mut found = Vec::new();
    // The newest step of the other one that each actor's last step comes after.
    let mut behind: [Option<usize>; 2] = [None, None];
    for (at, step) in steps.iter().enumerate() {
        let actor = step.turn.actor;
        let rival = (0..at).rev().find(|earlier| {
            let earlier = &steps[*earlier];
            let who = earlier.turn.actor;
            who != actor && conflict(ops[who], &earlier.request, ops[actor], &step.request)
        });
        if let Some(rival) = rival
            && behind[actor].is_none_or(|known| rival > known)
        {
            behind[actor] = Some(rival);
            if steps[rival].open {
                found.push(rival);
            }
        }
    }
    found
}

/// Stops the paused clock from jumping to the next lease whenever Lance works on a thread of its own.
async fn tick() {
    loop {
        sleep(Duration::from_millis(1)).await;
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn cap() -> usize {
    match std::env::var(SCHEDULES_VARIABLE) {
        Ok(given) => given.parse().unwrap(),
        Err(_) => SCHEDULES,
    }
}

/// Runs the schedules of two operations, and expects each of these pairs of "it succeeded" among them.
async fn explore(start: Start, ops: [Op; 2], expected: &[[bool; 2]]) {
    drop(tokio::spawn(tick()));
    let memory = start.memory().await;
    let cap = cap();
    let mut plans: VecDeque<Vec<Turn>> = VecDeque::from([Vec::new()]);
    let mut known: HashSet<Vec<usize>> = HashSet::new();
    let mut outcomes: BTreeSet<[bool; 2]> = BTreeSet::new();
    let mut schedules = 0;
    while schedules < cap
        && let Some(plan) = plans.pop_front()
    {
        let local = LocalSet::new();
        let played = local.run_until(Box::pin(play(&memory, ops, &plan)));
        let Ok(played) = timeout(STALL, played).await else {
            panic!("{start:?}, {ops:?}: nothing moves any more: {plan:?}");
        };
        schedules += 1;
        let trace: Vec<String> = played
            .steps
            .iter()
            .map(|s| format!("{} {:?} {}", s.turn.actor, s.request.kind, s.request.path))
            .collect();
        let at = format!("{start:?}, {ops:?}: {}", trace.join(", "));
        let end = Box::pin(end_state(&played.memory, &at)).await;
        if let Err(why) = judge(&start.state(), ops, &played.heard, &end) {
            panic!("{why}; it ended as {end:?} with {:?}; {at}", played.heard);
        }
        let outcome = played.heard.each_ref().map(|heard| !heard.is_failure());
        outcomes.insert(outcome);
        for rival in races(ops, &played.steps) {
            let mut turned: Vec<Turn> = played.steps[..rival].iter().map(|s| s.turn).collect();
            turned.push(Turn {
                actor: 1 - played.steps[rival].turn.actor,
                tried: true,
            });
            if known.insert(turned.iter().map(|turn| turn.actor).collect()) {
                plans.push_back(turned);
            }
        }
    }
    let rest = match plans.len() {
        0 => "all".to_string(),
        more => format!("{more} more known"),
    };
    println!("{start:?}, {ops:?}: {schedules} schedules, {rest}; succeeded: {outcomes:?}");
    if cap >= SCHEDULES {
        for outcome in expected {
            assert!(
                outcomes.contains(outcome),
                "{start:?}, {ops:?}: {outcome:?} was not reached"
            );
        }
    }
}

const FIRST: [bool; 2] = [true, false];
const SECOND: [bool; 2] = [false, true];
const BOTH: [bool; 2] = [true, true];

macro_rules! pairs {
    ($($name:ident: $start:ident, $first:ident, $second:ident => $expected:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            explore(Start::$start, [Op::$first, Op::$second], &$expected).await;
        }
    )*};
}

pairs! {
    undrop_and_purge_of_a_dropped_table: Dropped, Undrop, Purge => [FIRST, SECOND];
    two_undrops_of_a_dropped_table: Dropped, Undrop, Undrop => [FIRST, SECOND];
    revive_and_purge_of_a_dropped_table: Dropped, Create, Purge => [FIRST, SECOND];
    revive_and_undrop_of_a_dropped_table: Dropped, Create, Undrop => [FIRST, SECOND];
    open_and_revive_of_a_dropped_table: Dropped, Open, Create => [BOTH, SECOND];
    open_and_undrop_of_a_dropped_table: Dropped, Open, Undrop => [BOTH, SECOND];
    open_and_purge_of_a_dropped_table: Dropped, Open, Purge => [SECOND];
    two_drops_of_a_live_table: Live, Drop, Drop => [FIRST, SECOND];
    drop_and_open_of_a_live_table: Live, Drop, Open => [FIRST, BOTH];
    drop_and_overwrite_of_a_live_table: Live, Drop, Overwrite => [FIRST, BOTH];
    drop_and_reconcile_of_a_live_table: Live, Drop, Reconcile => [BOTH];
    drop_and_undrop_of_a_live_table: Live, Drop, Undrop => [FIRST, BOTH];
    two_creates_over_an_absent_name: Absent, Create, Create => [FIRST, SECOND];
}

/// The oracle convicts, and knows which requests conflict.
#[test]
fn the_oracle_can_tell() {
    let ident = || "t".into();
    let not_dropped = || Heard::Failed(Error::TableNotDropped { ident: ident() });
    let not_found = || {
        Heard::Failed(Error::TableNotFound {
            ident: ident(),
            reason: String::new(),
        })
    };
    let restoring = || {
        Heard::Failed(Error::RestoreInProgress {
            ident: ident(),
            drop_id: Uuid::nil(),
            owner: Uuid::nil(),
            since: Utc::now(),
        })
    };
    let lance = || {
        Heard::Failed(Error::Lance {
            operation: "commit",
            ident: ident(),
            kind: ErrorKind::Conflict,
            retryable: true,
            source: "lost".into(),
        })
    };
    let live = || State::Live(Table::old());
    let judge = |ops, heard: [Heard; 2], end: State| {
        judge(&State::Dropped(Table::old()), ops, &heard, &end).is_ok()
    };
    use Op::{Create, Open, Purge, Undrop};
    assert!(judge([Undrop, Purge], [Heard::Done, not_dropped()], live()));
    assert!(judge([Undrop, Purge], [Heard::Done, restoring()], live()));
    assert!(!judge([Undrop, Purge], [Heard::Done, not_found()], live()));
    assert!(!judge([Undrop, Purge], [Heard::Done, Heard::Done], live()));
    assert!(!judge([Undrop, Purge], [restoring(), Heard::Done], live()));
    assert!(!judge(
        [Undrop, Purge],
        [restoring(), Heard::Done],
        State::Absent
    ));
    assert!(!judge([Undrop, Purge], [restoring(), restoring()], live()));
    let dropped = State::Dropped(Table::old());
    assert!(!judge([Undrop, Purge], [Heard::Done, restoring()], dropped));

    let revived = || State::Live(Table::of(1, 2));
    let given = |actor, version| Heard::Given(Table::of(actor, version));
    let old = || Heard::Given(Table::old());
    assert!(judge([Open, Create], [given(1, 2), given(1, 2)], revived()));
    assert!(!judge([Open, Create], [old(), given(1, 2)], revived()));
    assert!(!judge([Open, Create], [Heard::Done, old()], revived()));
    assert!(judge([Open, Undrop], [old(), Heard::Done], live()));
    assert!(!judge([Open, Purge], [old(), Heard::Done], State::Absent));
    assert!(judge(
        [Purge, Create],
        [Heard::Done, given(1, 1)],
        State::Live(Table::of(1, 1))
    ));
    assert!(!judge([Undrop, Create], [Heard::Done, lance()], live()));

    let clash = |a: (Kind, &str), b: (Kind, &str)| {
        let (a, b) = (Request::new(a.0, a.1), Request::new(b.0, b.1));
        let there = conflict(Open, &a, Undrop, &b);
        assert_eq!(there, conflict(Undrop, &b, Open, &a));
        there
    };
    let versions = (Kind::List, "root/t.lance/_versions");
    assert!(clash((Kind::Get, TOMBSTONE), (Kind::Delete, TOMBSTONE)));
    assert!(!clash((Kind::Get, TOMBSTONE), (Kind::Get, TOMBSTONE)));
    assert!(!clash((Kind::Get, MARKER), (Kind::Delete, TOMBSTONE)));
    assert!(clash(
        versions,
        (Kind::PutCreate, "root/t.lance/_versions/1.manifest")
    ));
    assert!(!clash(versions, (Kind::Put, "root/t.lance/_versions2/x")));
    assert!(!clash(versions, (Kind::Delete, MARKER)));
    // A bulk delete, known by its first path.
    let (list, bulk) = (
        Request::new(versions.0, versions.1),
        Request::new(Kind::Delete, MARKER),
    );
    assert!(conflict(Open, &list, Purge, &bulk));
}

/// Actors whose requests wait at a gate, in a schedule written by hand.
struct Stage {
    memory: SharedMemory,
    gate: Gate,
}

impl Stage {
    fn new(memory: SharedMemory) -> Self {
        Self {
            memory,
            gate: Gate::new(),
        }
    }

    fn actor(&self, actor: usize) -> Actor {
        self.memory.actor_at_gate(&self.gate, actor)
    }

    async fn catalog(&self, actor: usize) -> Catalog {
        catalog_for(&self.actor(actor)).await
    }

    /// The catalog of a process that waits for nobody.
    async fn others(&self) -> Catalog {
        catalog_for(&self.memory.actor()).await
    }

    fn start<T: Send + 'static>(
        &self,
        actor: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        tokio::spawn(self.gate.run(actor, work))
    }

    /// The actor's next request, once it waits; `None` when it has ended.
    async fn next(&self, actor: usize) -> Option<Request> {
        let actors = [actor];
        let blocked = self.gate.wait_until_blocked(&actors);
        timeout(STALL, blocked).await.expect("an actor is stuck");
        let waiting = self.gate.waiting();
        let mut own = waiting.into_iter().filter(|(who, _)| *who == actor);
        own.next().map(|(_, request)| request)
    }

    /// Lets the actor go on until this is its next request.
    async fn until(&self, actor: usize, kind: Kind, path: &str) {
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
    async fn skip(&self, actor: usize, requests: usize) -> Option<Request> {
        for _ in 0..requests {
            self.next(actor).await?;
            self.gate.release(actor);
        }
        self.next(actor).await
    }

    async fn finish(&self, actor: usize) {
        while self.next(actor).await.is_some() {
            self.gate.release(actor);
        }
    }

    async fn has(&self, path: &str) -> bool {
        self.memory.dump().await.iter().any(|found| found == path)
    }

    async fn end(&self, at: &str) -> State {
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

#[derive(Debug)]
struct StoreTime(StoreClock);

impl Clock for StoreTime {
    fn now(&self) -> DateTime<Utc> {
        self.0.now()
    }
}

/// A catalog whose clock is the store's.
async fn timed(memory: &SharedMemory, actor: &Actor, purge_lease: Duration) -> Catalog {
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
