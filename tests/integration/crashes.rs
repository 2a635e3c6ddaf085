//! Every operation is stopped, or has one request fail, at each of its requests; what is left must be readable,
//! harmless to others, and recoverable (invariants 3 and 7).
//!
//! Leases are waited for by moving the store's clock, which the catalogs' clock follows; tokio's time is real, because
//! a paused clock would jump over the owner's own half of the lease whenever Lance works on a thread of its own.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use futures::TryStreamExt;
use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, Error, ErrorKind, TableState};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use crate::common::{StoreTime, ids, rows};
use crate::support::{Actor, Fault, Faults, Kind, SharedMemory, StoreClock, When};

/// Longer than any run takes in real time: only the store's clock ends it.
const LEASE: Duration = Duration::from_secs(20);

const OLD: Range<i32> = 0..3;
const NEW: Range<i32> = 100..102;
/// What others create.
const OTHER: Range<i32> = 200..201;

const MARKER: &str = "root/t.lance/.lance-deregistered";

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

/// The catalog of a process that knows nothing yet.
async fn fresh(memory: &SharedMemory) -> Catalog {
    catalog_on(memory, &memory.actor()).await
}

fn pass_the_lease(memory: &SharedMemory) {
    memory
        .clock()
        .unwrap()
        .advance(LEASE + Duration::from_secs(1));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Drop,
    Undrop,
    /// A create over a dropped name.
    Revive,
    /// A revive whose commit the store refuses: it ends in a drop again.
    Refused,
    /// A create over an absent name.
    Create,
    Purge,
}

impl Op {
    /// The start state: `t` live, dropped or absent, and a neighbour `t2` that nothing may touch.
    async fn start(self) -> SharedMemory {
        // Not a whole second: the store's clock must not look coarse.
        let now = DateTime::from_timestamp_millis(1_750_000_000_123).unwrap();
        let memory = SharedMemory::with_clock(StoreClock::new(now));
        let catalog = fresh(&memory).await;
        catalog.create_table("t2", rows(OLD)).await.unwrap();
        if self != Self::Create {
            catalog.create_table("t", rows(OLD)).await.unwrap();
        }
        if !matches!(self, Self::Create | Self::Drop) {
            catalog.drop_table("t").await.unwrap();
        }
        memory
    }

    fn arm(self, faults: &Faults) {
        if self == Self::Refused {
            faults.fail_matching(
                |request| request.kind == Kind::PutCreate && request.path.contains("/_versions/"),
                Fault::PermissionDenied,
            );
        }
    }

    async fn run(self, catalog: &Catalog) -> Result<(), Error> {
        match self {
            Self::Drop => catalog.drop_table("t").await.map(drop),
            Self::Undrop => catalog.undrop_table("t").await.map(drop),
            Self::Revive | Self::Refused | Self::Create => {
                catalog.create_table("t", rows(NEW)).await.map(drop)
            }
            Self::Purge => catalog.purge_table("t").await.map(drop),
        }
    }

    /// What a run to the end leaves.
    fn done(self) -> Seen {
        match self {
            Self::Drop | Self::Refused => Seen::only(Phase::Dropped),
            Self::Undrop => Seen::live(OLD),
            Self::Revive | Self::Create => Seen::live(NEW),
            Self::Purge => Seen::only(Phase::Absent),
        }
    }

    /// The states that a stopped run may leave.
    fn allowed(self) -> &'static [Phase] {
        match self {
            Self::Drop => &[Phase::Live, Phase::Dropped],
            Self::Undrop | Self::Revive => &[Phase::Dropped, Phase::Restoring, Phase::Live],
            Self::Refused => &[Phase::Dropped, Phase::Restoring],
            Self::Create => &[
                Phase::Absent,
                Phase::Incomplete,
                Phase::Creating,
                Phase::Live,
            ],
            Self::Purge => &[Phase::Dropped, Phase::Purging, Phase::Absent],
        }
    }

    /// The only rows that may be seen after a stopped run; for a revive never the old ones.
    fn if_live(self) -> Seen {
        match self {
            Self::Drop | Self::Undrop => Seen::live(OLD),
            Self::Revive | Self::Refused | Self::Create | Self::Purge => Seen::live(NEW),
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
            Self::Reconcile => {
                let report = catalog.reconcile(false).await?;
                assert!(
                    report.findings.iter().all(|f| f.error.is_none()),
                    "{report:?}"
                );
                Ok(())
            }
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
            rows: Some(rows.collect()),
        }
    }

    fn only(phase: Phase) -> Self {
        Self { phase, rows: None }
    }
}

/// Looks at `t` in every way, through a new process; all must agree.
async fn look(memory: &SharedMemory, at: &str) -> Seen {
    let catalog = fresh(memory).await;
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
            if *version > 1 {
                // The history before the drop is kept.
                let before = catalog.open_table("t").version(1).await.unwrap();
                assert_eq!(ids(&before).await, OLD.collect::<Vec<_>>(), "{at}");
            }
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

    let names = |with_t: bool| -> Vec<String> {
        let names: &[&str] = if with_t { &["t", "t2"] } else { &["t2"] };
        names.iter().map(|name| name.to_string()).collect()
    };
    let listed = matches!(phase, Phase::Live | Phase::Incomplete);
    assert_eq!(
        catalog.table_names().await.unwrap(),
        names(listed),
        "{at}: {state:?}"
    );
    let openable = catalog.list_tables().include_declared(false).await.unwrap();
    assert_eq!(
        openable.tables,
        names(phase == Phase::Live),
        "{at}: {state:?}"
    );
    let dropped = catalog.list_dropped_tables().await.unwrap();
    let hidden = matches!(phase, Phase::Dropped | Phase::Restoring | Phase::Purging);
    assert_eq!(dropped.len(), usize::from(hidden), "{at}: {state:?}");
    Seen { phase, rows }
}

async fn manifests(memory: &SharedMemory) -> usize {
    let dump = memory.dump().await;
    dump.iter()
        .filter(|path| path.starts_with("root/t.lance/_versions/") && path.ends_with(".manifest"))
        .count()
}

/// The neighbour's objects with their entity tags: equal only if nobody wrote them.
async fn neighbour(memory: &SharedMemory) -> Vec<(String, Option<String>)> {
    let prefix = Path::from("root/t2.lance");
    let metas: Vec<ObjectMeta> = memory
        .raw()
        .list(Some(&prefix))
        .try_collect()
        .await
        .unwrap();
    metas
        .into_iter()
        .map(|meta| (meta.location.to_string(), meta.e_tag))
        .collect()
}

async fn is_creating(memory: &SharedMemory) -> bool {
    match memory.raw().get(&Path::from("root/t.deleted")).await {
        Ok(found) => {
            let content = found.bytes().await.unwrap();
            String::from_utf8_lossy(&content).contains("\"creating\"")
        }
        Err(_) => false,
    }
}

/// One more reconcile, after which nothing is left to mend but a create's incomplete table.
async fn settle(memory: &SharedMemory, at: &str) {
    let catalog = fresh(memory).await;
    let mended = catalog.reconcile(false).await.unwrap();
    for finding in &mended.findings {
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
}

/// No claim, no clock object, no marker of a drop that is over.
async fn assert_no_litter(memory: &SharedMemory, phase: Phase, at: &str) {
    let dump = memory.dump().await;
    let records: Vec<&str> = dump
        .iter()
        .map(String::as_str)
        .filter(|path| !path.starts_with("root/t.lance/") && !path.starts_with("root/t2.lance/"))
        .collect();
    let expected: &[&str] = match phase {
        Phase::Dropped => &["root/t.deleted"],
        _ => &[],
    };
    assert_eq!(records, expected, "{at}");
    let data = dump.iter().any(|path| path.starts_with("root/t.lance/"));
    assert_eq!(data, phase != Phase::Absent, "{at}: {dump:?}");
    let marker = dump.iter().any(|path| path == MARKER);
    assert_eq!(marker, phase == Phase::Dropped, "{at}: {dump:?}");
}

/// An error of who was alone: it may blame the store or Lance, never say that something is not there, and never name
/// another party, since there is none.
fn assert_honest(error: &Error, at: &str) {
    let honest = match error {
        Error::Conflict { message, .. } => message.contains("lease"),
        _ => matches!(
            error.kind(),
            ErrorKind::Storage | ErrorKind::Unsupported | ErrorKind::Lance
        ),
    };
    assert!(honest, "{at}: {error:?}");
}

/// What an action must answer and leave.
struct Expected {
    outcome: Result<(), ErrorKind>,
    /// Right after it.
    now: Seen,
    /// After the lease and a reconcile.
    later: Seen,
}

/// What a stopped or failed run left.
struct Found {
    op: Op,
    memory: SharedMemory,
    seen: Seen,
    /// Whether its commit is in the history.
    committed: bool,
    /// Whether a creating tombstone stands.
    creating: bool,
    neighbour: Vec<(String, Option<String>)>,
}

impl Found {
    /// Whether a decision stands that only its owner may carry out before the lease is over.
    fn held(&self) -> bool {
        self.creating || matches!(self.seen.phase, Phase::Restoring | Phase::Purging)
    }

    /// What it becomes when what was decided is finished.
    fn finished(&self) -> Seen {
        match (self.seen.phase, self.op) {
            _ if self.creating && self.committed => Seen::live(NEW),
            _ if self.creating => Seen::only(Phase::Incomplete),
            (Phase::Restoring, Op::Revive | Op::Refused) if self.committed => Seen::live(NEW),
            (Phase::Restoring, Op::Revive | Op::Refused) => Seen::only(Phase::Dropped),
            (Phase::Restoring, _) => Seen::live(OLD),
            (Phase::Purging, _) => Seen::only(Phase::Absent),
            _ => self.seen.clone(),
        }
    }

    fn expected(&self, action: Action, lease_over: bool) -> Expected {
        let found = self.seen.phase;
        let later = self.finished();
        let hidden = matches!(found, Phase::Dropped | Phase::Restoring | Phase::Purging);
        if action == Action::Drop && hidden {
            // Dropped already, whatever was decided about that drop.
            return Expected {
                outcome: Err(ErrorKind::TableNotFound),
                now: self.seen.clone(),
                later,
            };
        }
        if self.held() && !lease_over {
            let outcome = match (action, found) {
                (Action::Reconcile, _) => Ok(()),
                (_, Phase::Restoring) => Err(ErrorKind::RestoreInProgress),
                (_, Phase::Purging) => Err(ErrorKind::PurgeInProgress),
                _ => Err(ErrorKind::Conflict),
            };
            return Expected {
                outcome,
                now: self.seen.clone(),
                later,
            };
        }
        let (outcome, after) = match (action, later.phase) {
            (Action::Reconcile, _) => (Ok(()), later),
            // An undrop that finishes somebody's create has nothing left to undrop.
            (Action::Undrop, Phase::Live)
                if found == Phase::Restoring && !matches!(self.op, Op::Revive | Op::Refused) =>
            {
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

    /// Another process acts on a copy of what was left.
    async fn recover(&self, action: Action, lease_over: bool, at: &str) {
        let at = format!("{at}; then {action:?}, lease over: {lease_over}");
        let memory = self.memory.fork().await;
        if lease_over {
            pass_the_lease(&memory);
        }
        let before = memory.dump().await;
        let catalog = fresh(&memory).await;
        // A create and a drop wait for a creator by polling, for two leases: let that time pass at once. Nothing but
        // the polling happens meanwhile.
        let polls = matches!(action, Action::Create | Action::Drop) && self.creating && !lease_over;
        if polls {
            tokio::time::pause();
        }
        let outcome = Box::pin(action.run(&catalog)).await;
        if polls {
            tokio::time::resume();
        }
        let expected = self.expected(action, lease_over);
        assert_eq!(
            outcome.as_ref().copied().map_err(Error::kind),
            expected.outcome,
            "{at}: {outcome:?}"
        );
        if !lease_over {
            assert_eq!(look(&memory, &at).await, expected.now, "{at}");
            if self.held() && action != Action::Reconcile {
                assert_eq!(memory.dump().await, before, "{at}");
            }
            pass_the_lease(&memory);
        }
        settle(&memory, &at).await;
        assert_eq!(look(&memory, &at).await, expected.later, "{at}");
        assert_no_litter(&memory, expected.later.phase, &at).await;
        assert_eq!(neighbour(&memory).await, self.neighbour, "{at}");
    }
}

/// A start state and what a clean run of the operation on it takes.
struct Start {
    op: Op,
    memory: SharedMemory,
    requests: usize,
    manifests: usize,
    neighbour: Vec<(String, Option<String>)>,
}

impl Start {
    async fn of(op: Op) -> Self {
        let memory = op.start().await;
        let mut start = Self {
            op,
            requests: 0,
            manifests: manifests(&memory).await,
            neighbour: neighbour(&memory).await,
            memory,
        };
        let (trial, actor, catalog) = start.process().await;
        let outcome = op.run(&catalog).await;
        start.requests = actor.faults.issued();
        assert_eq!(outcome.is_ok(), op != Op::Refused, "{outcome:?}");
        assert_eq!(look(&trial, "clean run").await, op.done());
        assert!(start.requests > 0);
        start
    }

    /// A process of its own on a copy of the start state.
    async fn process(&self) -> (SharedMemory, Actor, Catalog) {
        let memory = self.memory.fork().await;
        let actor = memory.actor();
        let catalog = catalog_on(&memory, &actor).await;
        self.op.arm(&actor.faults);
        actor.counter.reset();
        actor.faults.reset();
        (memory, actor, catalog)
    }

    /// Looks at what a run left, and checks that readers may see it.
    async fn inspect(&self, memory: SharedMemory, at: &str) -> Found {
        let seen = look(&memory, at).await;
        assert!(
            self.op.allowed().contains(&seen.phase),
            "{at}: left it {seen:?}"
        );
        if seen.phase == Phase::Live {
            assert_eq!(seen, self.op.if_live(), "{at}");
        }
        Found {
            op: self.op,
            committed: manifests(&memory).await > self.manifests,
            creating: is_creating(&memory).await,
            neighbour: self.neighbour.clone(),
            seen,
            memory,
        }
    }
}

/// Stops the operation before and after each request. Every point is looked at; each state of the store, which only
/// writes change, is recovered from in every way.
async fn stop_everywhere(op: Op) {
    let start = Start::of(op).await;
    let mut states: HashMap<usize, Seen> = HashMap::new();
    let mut points = 0;
    for n in 0..start.requests {
        for when in [When::Before, When::After] {
            let (memory, actor, catalog) = start.process().await;
            actor.faults.crash_at(n, when);
            let outcome = op.run(&catalog).await;
            let log = actor.counter.log();
            let at = format!("{op:?} stopped {when:?} request {n}, {:?}", log.get(n));
            assert!(actor.faults.crashed(), "{at}: not reached");
            points += 1;

            let found = start.inspect(memory, &at).await;
            match &outcome {
                Ok(()) => assert_eq!(found.seen, op.done(), "{at}"),
                Err(error) => assert_honest(error, &at),
            }
            let effects = log
                .iter()
                .take(n + usize::from(when == When::After))
                .filter(|request| request.kind.is_write())
                .count();
            if let Some(known) = states.insert(effects, found.seen.clone()) {
                assert_eq!(known, found.seen, "{at}");
                continue;
            }
            for lease_over in [false, true] {
                for action in Action::ALL {
                    Box::pin(found.recover(action, lease_over, &at)).await;
                }
            }
        }
    }
    println!(
        "{op:?}: {} requests, {points} crash points, {} states of the store",
        start.requests,
        states.len()
    );
}

/// Fails each request once: its answer is lost, or the store refuses it.
async fn fail_everywhere(op: Op) {
    let start = Start::of(op).await;
    let (mut points, mut errors) = (0, 0);
    for (when, fault) in [
        (When::After, Fault::Timeout),
        (When::Before, Fault::Unavailable503),
        (When::Before, Fault::PermissionDenied),
    ] {
        for n in 0..start.requests {
            let (memory, actor, catalog) = start.process().await;
            actor.faults.fail_at(n, when, fault);
            let outcome = op.run(&catalog).await;
            let request = actor.counter.log().get(n).cloned();
            let at = format!("{op:?} with {fault:?} {when:?} request {n}, {request:?}");
            assert_eq!(actor.faults.pending(), 0, "{at}: not reached");
            points += 1;

            let found = start.inspect(memory, &at).await;
            match &outcome {
                Ok(()) => {
                    assert_eq!(found.seen, op.done(), "{at}");
                    Box::pin(found.recover(Action::Reconcile, true, &at)).await;
                }
                Err(error) => {
                    errors += 1;
                    assert_honest(error, &at);
                    // What took effect to the end is recognised, not reported as failed.
                    assert_ne!(found.seen, op.done(), "{at}: {error:?}");
                    for action in Action::ALL {
                        Box::pin(found.recover(action, true, &at)).await;
                    }
                }
            }
        }
    }
    println!(
        "{op:?}: {} requests, {points} single faults, {errors} of them reported",
        start.requests
    );
}

#[tokio::test]
async fn a_drop_may_stop_anywhere() {
    stop_everywhere(Op::Drop).await;
}

#[tokio::test]
async fn an_undrop_may_stop_anywhere() {
    stop_everywhere(Op::Undrop).await;
}

#[tokio::test]
async fn a_revive_may_stop_anywhere() {
    stop_everywhere(Op::Revive).await;
}

#[tokio::test]
async fn a_revive_that_cannot_commit_may_stop_anywhere() {
    stop_everywhere(Op::Refused).await;
}

#[tokio::test]
async fn a_create_may_stop_anywhere() {
    stop_everywhere(Op::Create).await;
}

#[tokio::test]
async fn a_purge_may_stop_anywhere() {
    stop_everywhere(Op::Purge).await;
}

#[tokio::test]
async fn a_drop_survives_any_single_fault() {
    fail_everywhere(Op::Drop).await;
}

#[tokio::test]
async fn an_undrop_survives_any_single_fault() {
    fail_everywhere(Op::Undrop).await;
}

#[tokio::test]
async fn a_revive_survives_any_single_fault() {
    fail_everywhere(Op::Revive).await;
}

#[tokio::test]
async fn a_create_survives_any_single_fault() {
    fail_everywhere(Op::Create).await;
}

#[tokio::test]
async fn a_purge_survives_any_single_fault() {
    fail_everywhere(Op::Purge).await;
}
