//! Races on one name: random pairs in one process and between two, and eight of a kind, on each store.
//!
//! Every round starts from a known state, and its outcomes and what they leave must be those of some serial order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lancekeep::{Catalog, CreateMode, Error, TableState};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::common::{Rng, another_process, ids, now_us, rows, table_ids};
use crate::stores::{Place, Store, on_each_store};

const NAME: &str = "t";

/// Rounds of random pairs in one process.
const ROUNDS: usize = 150;
/// Rounds between two processes.
const PROCESS_ROUNDS: usize = 200;
/// Rounds between two processes, of all pairs, where there are those of one pair too.
const MORE_ROUNDS: usize = 100;
/// Contestants of the same kind, and how often they meet.
const EIGHT: i32 = 8;
const MEETINGS: i32 = 4;

/// Versions after which a round starts with a new table: a long history makes every open slower.
const LONG_HISTORY: u64 = 6;
/// How long a table may be busy with what a round left.
const SETTLING: Duration = Duration::from_secs(10);
/// How long the processes wait for each other, all in all.
const WAITING: Duration = Duration::from_secs(240);

/// Replays the choices of a run.
const SEED: &str = "LANCEKEEP_RACE_SEED";
const RACE_ROOT: &str = "LANCEKEEP_RACE_ROOT";
const RACE_DESK: &str = "LANCEKEEP_RACE_DESK";
const RACE_WORKER: &str = "LANCEKEEP_RACE_WORKER";
const RACE_ROUNDS: &str = "LANCEKEEP_RACE_ROUNDS";

impl Rng {
    /// A start for each of two contestants, sometimes the same.
    fn starts(&mut self, ops: [Op; 2], after: Duration) -> [u64; 2] {
        let spread = [1, 300, 4_000][self.below(3)];
        let start = now_us() + u64::try_from(after.as_micros()).unwrap();
        // A create writes its data before it decides anything: mostly its rival comes later, about when it decides.
        let lead = [1, 20_000, 40_000][self.below(3)];
        [0, 1].map(|i| {
            let mut late = self.below(spread);
            if ops[i] != Op::Revive && ops[1 - i] == Op::Revive {
                late += self.below(lead);
            }
            start + u64::try_from(late).unwrap()
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Drop,
    Undrop,
    /// Create; over a dropped table that is a revive.
    Revive,
    Purge,
}

impl Op {
    const ALL: [Self; 4] = [Self::Drop, Self::Undrop, Self::Revive, Self::Purge];

    fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Undrop => "undrop",
            Self::Revive => "revive",
            Self::Purge => "purge",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// What one contestant is to do, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    op: Op,
    /// The first id of the rows of a create.
    first_row: i32,
    at_us: u64,
}

impl Task {
    fn rows(&self) -> Vec<i32> {
        rows_of(self.first_row)
    }

    fn encode(&self) -> String {
        format!("{} {} {}", self.op.name(), self.first_row, self.at_us)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let task = Self {
            op: Op::parse(words.next()?)?,
            first_row: words.next()?.parse().ok()?,
            at_us: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(task)
    }
}

fn rows_of(first: i32) -> Vec<i32> {
    (first..first + 3).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Won,
    Lost { kind: String, message: String },
}

impl Outcome {
    fn of<T>(result: Result<T, Error>) -> Self {
        match result {
            Ok(_) => Self::Won,
            Err(error) => Self::Lost {
                // What Lance failed with is not allowed here, whatever kind it is given.
                kind: match &error {
                    Error::Lance { .. } => "Lance".to_string(),
                    other => format!("{:?}", other.kind()),
                },
                message: error.to_string().replace('\n', " "),
            },
        }
    }

    fn lost(kind: &str) -> Self {
        Self::Lost {
            kind: kind.to_string(),
            message: "a message".to_string(),
        }
    }

    fn has_kind(&self, wanted: &str) -> bool {
        matches!(self, Self::Lost { kind, .. } if kind == wanted)
    }

    fn encode(&self) -> String {
        match self {
            Self::Won => "won".to_string(),
            Self::Lost { kind, message } => format!("lost {kind} {message}"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        if line == "won" {
            return Some(Self::Won);
        }
        let (kind, message) = line.strip_prefix("lost ")?.split_once(' ')?;
        Some(Self::Lost {
            kind: kind.to_string(),
            message: message.to_string(),
        })
    }
}

/// Waits for the start, and does it.
async fn perform(catalog: &Catalog, task: &Task) -> Outcome {
    while now_us() < task.at_us {
        tokio::task::yield_now().await;
    }
    match task.op {
        Op::Drop => Outcome::of(catalog.drop_table(NAME).await),
        Op::Undrop => Outcome::of(catalog.undrop_table(NAME).await),
        Op::Revive => Outcome::of(catalog.create_table(NAME, rows(task.rows())).await),
        Op::Purge => Outcome::of(catalog.purge_table(NAME).await),
    }
}

fn launch(catalog: &Catalog, task: &Task) -> JoinHandle<Outcome> {
    let (catalog, task) = (catalog.clone(), task.clone());
    tokio::spawn(async move { perform(&catalog, &task).await })
}

/// A table that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    dropped: bool,
    version: u64,
    rows: Vec<i32>,
    /// The version before the latest, and its rows.
    before: Option<(u64, Vec<i32>)>,
}

impl Kept {
    fn new(first_row: i32) -> Self {
        Self {
            dropped: false,
            version: 1,
            rows: rows_of(first_row),
            before: None,
        }
    }
}

/// `None`: absent.
type State = Option<Kept>;

fn is_live(state: &State) -> bool {
    state.as_ref().is_some_and(|kept| !kept.dropped)
}

/// What an operation makes of a state when it is alone; `None` where it cannot succeed.
fn step(state: &State, task: &Task) -> Option<State> {
    match (task.op, state) {
        (Op::Drop, Some(kept)) if !kept.dropped => Some(Some(Kept {
            dropped: true,
            ..kept.clone()
        })),
        (Op::Undrop, Some(kept)) if kept.dropped => Some(Some(Kept {
            dropped: false,
            ..kept.clone()
        })),
        (Op::Revive, Some(kept)) if kept.dropped => Some(Some(Kept {
            dropped: false,
            version: kept.version + 1,
            rows: task.rows(),
            before: Some((kept.version, kept.rows.clone())),
        })),
        (Op::Revive, None) => Some(Some(Kept::new(task.first_row))),
        (Op::Purge, Some(kept)) if kept.dropped => Some(None),
        _ => None,
    }
}

/// The states that these operations lead through, one after the other.
fn play(start: &State, tasks: &[Task; 2], order: &[usize]) -> Option<Vec<State>> {
    let mut states = vec![start.clone()];
    for &i in order {
        let next = step(&states[states.len() - 1], &tasks[i])?;
        states.push(next);
    }
    Some(states)
}

/// The state in which the outcomes leave the table, if they are those of a serial order and the loser says no more
/// than the truth.
fn judge(start: &State, tasks: &[Task; 2], outcomes: &[Outcome; 2]) -> Result<State, String> {
    let took_effect = |i: usize| {
        outcomes[i] == Outcome::Won
            // A purge that ended the drop before the drop looked again: the drop finds nothing, rightly, and cannot always
            // tell whether it was its own that was purged.
            || (is_live(start)
                && (tasks[i].op, tasks[1 - i].op) == (Op::Drop, Op::Purge)
                && (outcomes[i].has_kind("TableNotFound") || outcomes[i].has_kind("Conflict"))
                && outcomes[1 - i] == Outcome::Won)
    };
    let orders: &[&[usize]] = match (took_effect(0), took_effect(1)) {
        (false, false) => return Err("nobody won".to_string()),
        (true, false) => &[&[0]],
        (false, true) => &[&[1]],
        (true, true) => &[&[0, 1], &[1, 0]],
    };
    let states = orders
        .iter()
        .find_map(|order| play(start, tasks, order))
        .ok_or("no serial order has these winners")?;
    for (i, outcome) in outcomes.iter().enumerate() {
        let Outcome::Lost { kind, message } = outcome else {
            continue;
        };
        let (op, rival) = (tasks[i].op, tasks[1 - i].op);
        let was_live = states.iter().any(is_live);
        let was_dropped = states.iter().flatten().any(|kept| kept.dropped);
        let was_absent = states.iter().any(Option::is_none);
        let honest = match kind.as_str() {
            "Conflict" => true,
            "PurgeInProgress" => op != Op::Drop && rival == Op::Purge,
            "RestoreInProgress" => op != Op::Drop && matches!(rival, Op::Undrop | Op::Revive),
            "TableNotDropped" => was_live && matches!(op, Op::Undrop | Op::Purge),
            "TableAlreadyExists" => was_live && op == Op::Revive,
            "TableNotFound" => was_absent || (op == Op::Drop && was_dropped),
            _ => false,
        };
        if !honest {
            return Err(format!("{} must not fail so: {kind}: {message}", op.name()));
        }
    }
    states.last().cloned().ok_or_else(|| "no state".to_string())
}

/// Compares the table, its rows and every listing with what they must be.
async fn verify(catalog: &Catalog, state: &State, what: &str) {
    let failed = |e: Error| -> TableState { panic!("{what}: {e}") };
    let status = catalog.table_status(NAME).await.unwrap_or_else(failed);
    match (state, &status) {
        (None, TableState::Absent) => {}
        (Some(kept), TableState::Dropped(found)) if kept.dropped => {
            // What the drop saw just before it hid the table; a rival may have committed in between.
            assert!(found.version <= Some(kept.version), "{what}: {found:?}");
        }
        (Some(kept), TableState::Live { version }) if !kept.dropped => {
            assert_eq!(*version, kept.version, "{what}");
            let table = catalog.open_table(NAME).await;
            let table = table.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(table.version().version, kept.version, "{what}");
            assert_eq!(ids(&table).await, kept.rows, "{what}");
            if let Some((version, rows)) = &kept.before {
                let old = catalog.open_table(NAME).version(*version).await;
                let old = old.unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(&ids(&old).await, rows, "{what}: version {version}");
            }
        }
        _ => panic!("{what}: expected {state:?}, found {status:?}"),
    }
    let names = catalog.table_names().await.unwrap();
    assert_eq!(names == [NAME], is_live(state), "{what}: {names:?}");
    let dropped = catalog.list_dropped_tables().await.unwrap();
    let expected = usize::from(state.as_ref().is_some_and(|kept| kept.dropped));
    assert_eq!(dropped.len(), expected, "{what}: {dropped:?}");
    let left = catalog.reconcile(true).await.unwrap();
    assert!(left.is_clean(), "{what}: {left:?}");
}

/// Does it, again while somebody is said to be at it.
async fn patiently<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let deadline = Instant::now() + SETTLING;
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(e) if e.is_retryable() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(e) => panic!("{what} between two rounds: {e}"),
        }
    }
}

/// The table that they race on, as it must be.
struct Arena {
    state: State,
    last_row: i32,
}

impl Arena {
    fn new() -> Self {
        Self {
            state: None,
            last_row: 0,
        }
    }

    /// Rows that no table had yet.
    fn fresh(&mut self) -> i32 {
        self.last_row += 10;
        self.last_row
    }

    fn task(&mut self, op: Op, at_us: u64) -> Task {
        Task {
            op,
            first_row: self.fresh(),
            at_us,
        }
    }

    /// Makes the table live or dropped, anew where it is gone or its history is long.
    async fn arrange(&mut self, catalog: &Catalog, live: bool) {
        let mut kept = match self.state.take() {
            Some(kept) if kept.version < LONG_HISTORY => kept,
            other => {
                if let Some(old) = other {
                    if !old.dropped {
                        patiently("drop", async || catalog.drop_table(NAME).await).await;
                    }
                    patiently("purge", async || catalog.purge_table(NAME).await).await;
                }
                let first = self.fresh();
                let create = async || catalog.create_table(NAME, rows(rows_of(first))).await;
                patiently("create", create).await;
                Kept::new(first)
            }
        };
        match (live, kept.dropped) {
            (true, true) => {
                patiently("undrop", async || catalog.undrop_table(NAME).await).await;
            }
            (false, false) => {
                patiently("drop", async || catalog.drop_table(NAME).await).await;
            }
            _ => {}
        }
        kept.dropped = !live;
        self.state = Some(kept);
    }

    async fn conclude(
        &mut self,
        catalog: &Catalog,
        round: usize,
        tasks: &[Task; 2],
        outcomes: &[Outcome; 2],
    ) {
        let what = format!(
            "round {round}: from {:?}: {tasks:?} gave {outcomes:?}",
            self.state
        );
        self.state =
            judge(&self.state, tasks, outcomes).unwrap_or_else(|why| panic!("{why}; {what}"));
        verify(catalog, &self.state, &what).await;
    }
}

/// Who won and who lost how often.
#[derive(Default)]
struct Tally(BTreeMap<(&'static str, bool), usize>);

impl Tally {
    fn add(&mut self, tasks: &[Task; 2], outcomes: &[Outcome; 2]) {
        for (task, outcome) in tasks.iter().zip(outcomes) {
            *self
                .0
                .entry((task.op.name(), *outcome == Outcome::Won))
                .or_default() += 1;
        }
    }

    /// Rounds in which always the same side wins would be no races.
    fn assert_all_ways(&self, ops: &[Op]) {
        println!("(operation, won): rounds {:?}", self.0);
        for op in ops {
            for won in [true, false] {
                assert!(
                    self.0.contains_key(&(op.name(), won)),
                    "{} {won}: {:?}",
                    op.name(),
                    self.0
                );
            }
        }
    }
}

async fn random_pairs(place: &Place) {
    let catalogs = two(place).await;
    let mut rng = Rng::seeded_by(SEED);
    let mut arena = Arena::new();
    let mut tally = Tally::default();
    for round in 0..ROUNDS {
        let live = rng.below(4) == 0;
        arena.arrange(&catalogs[rng.below(2)], live).await;
        // At least one of the two can succeed.
        let able = match live {
            true => Op::Drop,
            false => [Op::Undrop, Op::Revive, Op::Purge][rng.below(3)],
        };
        let mut ops = [able, Op::ALL[rng.below(4)]];
        if rng.below(2) == 0 {
            ops.reverse();
        }
        let starts = rng.starts(ops, Duration::from_micros(300));
        let tasks = [0, 1].map(|i| arena.task(ops[i], starts[i]));
        let first = launch(&catalogs[0], &tasks[0]);
        let second = launch(&catalogs[1], &tasks[1]);
        let outcomes = [first.await.unwrap(), second.await.unwrap()];
        tally.add(&tasks, &outcomes);
        arena
            .conclude(&catalogs[rng.below(2)], round, &tasks, &outcomes)
            .await;
    }
    tally.assert_all_ways(&Op::ALL);
    assert_only_the_table(place).await;
}

/// Two catalogs with the default leases: nothing here may need one to run out.
async fn two(place: &Place) -> [Catalog; 2] {
    [place.catalog().await, place.catalog().await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_pairs_in_memory() {
    random_pairs(&Place::new(Store::Memory)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_pairs_on_local_disk() {
    random_pairs(&Place::new(Store::Disk)).await;
}

/// What is under a root at rest: no claim, no purged directory, no half-written object.
async fn assert_only_the_table(place: &Place) {
    for name in place.entries().await {
        assert!(
            name == "t.lance" || name == "t.deleted",
            "left behind: {name:?}"
        );
    }
}

/// Eight of a kind at once.
async fn contest(catalogs: &[Catalog; 2], op: Op, first_row: i32) -> Vec<Outcome> {
    let at_us = now_us() + 2_000;
    let running: Vec<_> = (0..EIGHT)
        .zip(catalogs.iter().cycle())
        .map(|(i, catalog)| {
            let task = Task {
                op,
                first_row: first_row + 10 * i,
                at_us,
            };
            launch(catalog, &task)
        })
        .collect();
    let mut outcomes = Vec::new();
    for outcome in running {
        outcomes.push(outcome.await.unwrap());
    }
    outcomes
}

/// Which one won; the others lost in one of the given ways.
fn only_winner(what: &str, outcomes: &[Outcome], losses: &[&str]) -> i32 {
    let mut winners = Vec::new();
    for (i, outcome) in (0..).zip(outcomes) {
        match outcome {
            Outcome::Won => winners.push(i),
            Outcome::Lost { kind, message } => assert!(
                losses.contains(&kind.as_str()),
                "{what} must not fail so: {kind}: {message}"
            ),
        }
    }
    assert_eq!(winners.len(), 1, "{what}: {outcomes:?}");
    winners[0]
}

async fn eight_of_a_kind(place: &Place) {
    let catalogs = two(place).await;
    let catalog = &catalogs[0];
    for meeting in 0..MEETINGS {
        let first = 1_000 * meeting;
        let created = contest(&catalogs, Op::Revive, first).await;
        let winner = only_winner("create", &created, &["TableAlreadyExists", "Conflict"]);
        let mut kept = Kept::new(first + 10 * winner);
        verify(catalog, &Some(kept.clone()), "eight creates").await;

        let dropped = contest(&catalogs, Op::Drop, 0).await;
        only_winner("drop", &dropped, &["TableNotFound"]);
        kept.dropped = true;
        verify(catalog, &Some(kept.clone()), "eight drops").await;

        let undropped = contest(&catalogs, Op::Undrop, 0).await;
        let losses = ["RestoreInProgress", "TableNotDropped", "Conflict"];
        only_winner("undrop", &undropped, &losses);
        kept.dropped = false;
        verify(catalog, &Some(kept.clone()), "eight undrops").await;

        catalog.drop_table(NAME).await.unwrap();
        let revived = contest(&catalogs, Op::Revive, first + 500).await;
        let losses = ["RestoreInProgress", "TableAlreadyExists", "Conflict"];
        let winner = only_winner("revive", &revived, &losses);
        let over = Kept {
            dropped: false,
            version: kept.version + 1,
            rows: rows_of(first + 500 + 10 * winner),
            before: Some((kept.version, kept.rows)),
        };
        verify(catalog, &Some(over), "eight revives").await;

        catalog.drop_table(NAME).await.unwrap();
        let purged = contest(&catalogs, Op::Purge, 0).await;
        let losses = ["PurgeInProgress", "TableNotFound", "Conflict"];
        only_winner("purge", &purged, &losses);
        verify(catalog, &None, "eight purges").await;
    }
    assert_eq!(place.entries().await.len(), 0);
}

/// Who only wants a table to be there gets it, whoever made it.
async fn eight_exist_ok(place: &Place) {
    let catalogs = two(place).await;
    for meeting in 0..MEETINGS {
        let first = 1_000 * meeting;
        let running: Vec<_> = (0..EIGHT)
            .zip(catalogs.iter().cycle())
            .map(|(i, catalog)| {
                let create = catalog
                    .create_table(NAME, rows(rows_of(first + 10 * i)))
                    .mode(CreateMode::ExistOk);
                tokio::spawn(create.into_future())
            })
            .collect();
        let mut seen = Vec::new();
        for created in running {
            let created = created.await.unwrap();
            let table = created.unwrap_or_else(|e| panic!("exist_ok: {e}"));
            seen.push(ids(&table).await);
        }
        let rows = table_ids(&catalogs[0], NAME).await;
        assert!(
            (0..EIGHT).any(|i| rows == rows_of(first + 10 * i)),
            "{rows:?}"
        );
        assert!(seen.iter().all(|s| *s == rows), "{rows:?}: {seen:?}");
        assert_eq!(table_ids(&catalogs[1], NAME).await, rows);
        catalogs[1].drop_table(NAME).await.unwrap();
        catalogs[0].purge_table(NAME).await.unwrap();
    }
}

on_each_store!(eight_of_a_kind, eight_exist_ok);

/// Puts a file on the desk in one step, so that whoever sees it sees all of it.
fn publish(desk: &Path, name: &str, text: &str) {
    let half = desk.join(format!(".{name}"));
    std::fs::write(&half, text).unwrap();
    std::fs::rename(half, desk.join(name)).unwrap();
}

/// Waits for a file; `watch` may end the waiting by panicking.
async fn await_file(file: &Path, patience: &mut Duration, mut watch: impl FnMut()) -> String {
    let started = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            *patience = patience.saturating_sub(started.elapsed());
            return text;
        }
        assert!(
            started.elapsed() < *patience,
            "waited too long for {}",
            file.display()
        );
        watch();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The line that a worker answers with.
fn answer(op: Op, outcome: &Outcome) -> String {
    format!("{} {}", op.name(), outcome.encode())
}

fn parse_answer(line: &str) -> Option<(Op, Outcome)> {
    let (op, outcome) = line.split_once(' ')?;
    Some((Op::parse(op)?, Outcome::parse(outcome)?))
}

async fn work(place: Place, desk: PathBuf, me: usize, rounds: usize) {
    let catalog = place.catalog().await;
    publish(&desk, &format!("ready.{me}"), "");
    for round in 0..rounds {
        let mut patience = WAITING;
        let go = desk.join(format!("go.{round}"));
        let go = await_file(&go, &mut patience, || {}).await;
        let task = go.lines().nth(me).and_then(Task::parse).unwrap();
        let outcome = perform(&catalog, &task).await;
        let line = answer(task.op, &outcome);
        publish(&desk, &format!("result.{round}.{me}"), &line);
    }
}

/// One of the two processes where the environment says so. Otherwise the vocabulary of both: what they tell each
/// other comes back as it was, and the oracle convicts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    if let Ok(told) = std::env::var(RACE_ROOT) {
        let place = Place::told(&told);
        let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
        let desk = PathBuf::from(std::env::var_os(RACE_DESK).unwrap());
        return work(place, desk, number(RACE_WORKER), number(RACE_ROUNDS)).await;
    }
    let outcomes = [
        Outcome::Won,
        Outcome::lost("Conflict"),
        Outcome::of::<()>(Err(Error::InvalidInput {
            message: "two\nlines".to_string(),
        })),
    ];
    assert!(outcomes[2].has_kind("InvalidInput"));
    for op in Op::ALL {
        for outcome in &outcomes {
            let line = answer(op, outcome);
            assert_eq!(line.lines().count(), 1, "{line:?}");
            assert_eq!(parse_answer(&line), Some((op, outcome.clone())));
        }
        let task = Task {
            op,
            first_row: -7,
            at_us: u64::MAX,
        };
        assert_eq!(Task::parse(&task.encode()), Some(task));
    }
    for bad in ["", "won", "drop", "drop maybe", "undrop lost Conflict"] {
        assert_eq!(parse_answer(bad), None, "{bad:?}");
    }
    assert_eq!(Task::parse("drop 1"), None);

    let dropped = Some(Kept {
        dropped: true,
        ..Kept::new(0)
    });
    let task = |op| Task {
        op,
        first_row: 10,
        at_us: 0,
    };
    let verdict = |ops: [Op; 2], outcomes: [Outcome; 2]| judge(&dropped, &ops.map(task), &outcomes);
    use Op::{Drop, Purge, Revive, Undrop};
    let lost = Outcome::lost;
    let undropped = verdict([Undrop, Purge], [Outcome::Won, lost("RestoreInProgress")]);
    assert_eq!(undropped, Ok(Some(Kept::new(0))));
    let created = verdict([Revive, Purge], [Outcome::Won, Outcome::Won]);
    assert_eq!(created, Ok(Some(Kept::new(10))));
    let revived = verdict([Revive, Drop], [Outcome::Won, lost("TableNotFound")]);
    assert_eq!(revived.unwrap().unwrap().before, Some((1, rows_of(0))));
    for (ops, outcomes) in [
        ([Undrop, Purge], [Outcome::Won, Outcome::Won]),
        ([Undrop, Revive], [Outcome::Won, Outcome::Won]),
        ([Undrop, Undrop], [Outcome::Won, Outcome::Won]),
        ([Purge, Purge], [Outcome::Won, Outcome::Won]),
        ([Undrop, Purge], [lost("Conflict"), lost("Conflict")]),
        ([Undrop, Purge], [Outcome::Won, lost("PurgeInProgress")]),
        ([Undrop, Purge], [Outcome::Won, lost("TableNotFound")]),
        ([Undrop, Purge], [Outcome::Won, lost("Storage")]),
        ([Revive, Purge], [lost("Lance"), Outcome::Won]),
        ([Revive, Purge], [lost("TableAlreadyExists"), Outcome::Won]),
        ([Drop, Undrop], [Outcome::Won, lost("TableNotDropped")]),
    ] {
        let found = verdict(ops, outcomes.clone());
        assert!(found.is_err(), "{ops:?} {outcomes:?}: {found:?}");
    }
}

fn spawn_worker(me: usize, place: &Place, rounds: usize, desk: &Path) -> Child {
    let log = desk.join(format!("log.{me}"));
    Command::from(another_process("races::worker", &log))
        .env(RACE_ROOT, place.tell())
        .env(RACE_DESK, desk)
        .env(RACE_WORKER, me.to_string())
        .env(RACE_ROUNDS, rounds.to_string())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn log_of(me: usize, desk: &Path) -> String {
    std::fs::read_to_string(desk.join(format!("log.{me}"))).unwrap_or_default()
}

/// A worker that ended will not write the file any more.
fn assert_running(me: usize, worker: &mut Child, desk: &Path, file: &Path) {
    if let Some(status) = worker.try_wait().unwrap() {
        assert!(
            file.exists(),
            "worker {me} ended early ({status}): {}",
            log_of(me, desk)
        );
    }
}

async fn two_processes(place: &Place, pairs: &[[Op; 2]], rounds: usize) {
    let mut rng = Rng::seeded_by(SEED);
    let catalog = place.catalog().await;
    let desk = tempfile::tempdir().unwrap();
    let desk = desk.path();
    let mut workers = [0, 1].map(|me| spawn_worker(me, place, rounds, desk));
    let mut patience = WAITING;
    for (me, worker) in workers.iter_mut().enumerate() {
        let ready = desk.join(format!("ready.{me}"));
        await_file(&ready, &mut patience, || {
            assert_running(me, worker, desk, &ready);
        })
        .await;
    }

    let mut arena = Arena::new();
    let mut tally = Tally::default();
    for round in 0..rounds {
        let mut ops = pairs[round % pairs.len()];
        arena.arrange(&catalog, ops == [Op::Drop, Op::Drop]).await;
        if rng.below(2) == 0 {
            ops.reverse();
        }
        // Time for both to see the file.
        let starts = rng.starts(ops, Duration::from_millis(4));
        let tasks = [0, 1].map(|i| arena.task(ops[i], starts[i]));
        let go = format!("{}\n{}\n", tasks[0].encode(), tasks[1].encode());
        publish(desk, &format!("go.{round}"), &go);
        let mut outcomes = Vec::new();
        for (me, task) in tasks.iter().enumerate() {
            let file = desk.join(format!("result.{round}.{me}"));
            let line = await_file(&file, &mut patience, || {
                assert_running(me, &mut workers[me], desk, &file);
            })
            .await;
            let (op, outcome) = parse_answer(&line).unwrap_or_else(|| panic!("{line:?}"));
            assert_eq!(op, task.op);
            outcomes.push(outcome);
        }
        let outcomes: [Outcome; 2] = outcomes.try_into().unwrap();
        tally.add(&tasks, &outcomes);
        arena.conclude(&catalog, round, &tasks, &outcomes).await;
    }
    for (me, worker) in workers.iter_mut().enumerate() {
        let ended = tokio::time::timeout(SETTLING, worker.wait()).await;
        let status = ended.unwrap().unwrap();
        assert!(status.success(), "worker {me}: {}", log_of(me, desk));
    }
    tally.assert_all_ways(pairs.as_flattened());
    assert_only_the_table(place).await;
}

const PAIRS: [[Op; 2]; 5] = [
    [Op::Undrop, Op::Purge],
    [Op::Undrop, Op::Revive],
    [Op::Revive, Op::Purge],
    [Op::Revive, Op::Drop],
    [Op::Drop, Op::Drop],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_local_disk() {
    two_processes(&Place::new(Store::Disk), &PAIRS, PROCESS_ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_undrop_and_purge_on_s3() {
    let pair = [[Op::Undrop, Op::Purge]];
    two_processes(&Place::new(Store::S3), &pair, PROCESS_ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_s3() {
    two_processes(&Place::new(Store::S3), &PAIRS, MORE_ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_azure() {
    two_processes(&Place::new(Store::Azure), &PAIRS, MORE_ROUNDS).await;
}
