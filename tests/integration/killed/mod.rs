//! Processes that are killed, on one local root.
//!
//! Three processes (this test binary again) do things at random to the same tables: create, create over a dropped name,
//! overwrite, drop, undrop, purge by name and all together, open and read, list, reconcile; tables in a namespace too,
//! and in a test of its own, under managed versioning, appends through new and old handles. What they begin and what
//! they are told they note in a [`journal`] outside the root. In each round some of them are killed with SIGKILL: after a
//! random time, or a random moment after they began an operation of a chosen kind. The others go on, new ones take the
//! place of the dead, and finish what these left once its lease is over.
//!
//! After every few rounds nobody is left ([`settle`]): every table is looked at, version by version, undropped where it
//! is dropped, and its state must be [explained](history::explain) by what was acknowledged and any part of what was
//! not. Then `reconcile` must end without an error and find nothing any more, but for what its documentation leaves to
//! whoever calls it, and nothing may be in the root that belongs to no table.
//!
//! `LANCEKEEP_KILL_SEED` replays the choices (not the schedule of the machine), `LANCEKEEP_KILL_ROUNDS` sets how many
//! rounds each of the two tests makes.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use lancekeep::Catalog;
use lancekeep::lifecycle::FindingKind;

use crate::common::Rng;

mod account;
mod history;
mod journal;
mod settle;
mod worker;

use history::State;
use journal::{Kind, Record, Tail};
use worker::Orders;

/// Replays the choices of a run.
const SEED: &str = "LANCEKEEP_KILL_SEED";
const ROUNDS: &str = "LANCEKEEP_KILL_ROUNDS";

/// Processes at a time.
const SEATS: usize = 3;

/// How long a process may take to start, and the longest wait for a chosen moment to kill it.
const STARTING: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(4);

/// Milliseconds in which a process is killed at random: most rounds are short, and in some those who go on have the time
/// to come across what is left and to finish it.
const SHORT: usize = 400;
const LONG: usize = 3_000;

/// How often the journal is looked at meanwhile.
const GLANCE: Duration = Duration::from_micros(100);

/// The namespace with tables of its own.
const NAMESPACE: &str = "n";

/// One of the two tests.
#[derive(Debug, Clone, Copy)]
struct Setting {
    managed: bool,
    rounds: usize,
    /// Rounds after which everything is looked at.
    window: usize,
    restore_lease: Duration,
    purge_lease: Duration,
}

/// A request on a busy machine takes effect well within half a lease, which is what the protocol asks for.
const LEASE: Duration = Duration::from_secs(2);

/// A commit too must take effect within half of this.
const COMMIT_WINDOW: Duration = Duration::from_millis(1_500);

impl Setting {
    fn of(managed: bool) -> Self {
        let given = std::env::var(ROUNDS).ok();
        let rounds = given.map(|rounds| rounds.parse().unwrap());
        if managed {
            return Self {
                managed,
                rounds: rounds.unwrap_or(18),
                window: 6,
                restore_lease: LEASE,
                purge_lease: 4 * COMMIT_WINDOW,
            };
        }
        Self {
            managed,
            rounds: rounds.unwrap_or(48),
            window: 8,
            restore_lease: LEASE,
            purge_lease: LEASE,
        }
    }

    async fn catalog(&self, root: &Path) -> Catalog {
        let mut builder = Catalog::builder(root.to_str().unwrap())
            .leases(self.restore_lease, self.purge_lease)
            .managed_versioning(self.managed);
        if self.managed {
            builder = builder.commit_window(COMMIT_WINDOW);
        }
        builder.build().await.unwrap()
    }

    fn lease(&self) -> Duration {
        self.restore_lease.max(self.purge_lease)
    }

    fn shared_names(&self) -> Vec<String> {
        let mut names: Vec<String> = (0..4).map(|i| format!("s{i}")).collect();
        if !self.managed {
            names.push(format!("{NAMESPACE}$c"));
        }
        names
    }

    /// What the process on a seat works on: one table is its own.
    fn names_of(&self, seat: usize) -> Vec<String> {
        let mut names = self.shared_names();
        names.push(format!("own{seat}"));
        names
    }

    fn names(&self) -> Vec<String> {
        let mut names = self.shared_names();
        names.extend((0..SEATS).map(|seat| format!("own{seat}")));
        names
    }

    /// Kinds of operations to kill in, and how often compared with each other.
    fn aims(&self) -> &'static [(Kind, usize)] {
        match self.managed {
            true => &[
                (Kind::Create, 1),
                (Kind::Revive, 1),
                (Kind::Append, 3),
                (Kind::Drop, 1),
                (Kind::Undrop, 1),
                (Kind::Purge, 1),
            ],
            false => &[
                (Kind::Create, 2),
                (Kind::Revive, 2),
                (Kind::Overwrite, 2),
                (Kind::Drop, 3),
                (Kind::Undrop, 3),
                (Kind::Purge, 3),
                (Kind::PurgeDropped, 1),
                (Kind::Reconcile, 1),
            ],
        }
    }
}

/// A process, killed at the latest when this is dropped.
struct Running {
    process: Child,
    spawn: u32,
    log: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// When to kill.
enum Aim {
    After(Instant),
    /// At a random moment of an operation of this kind.
    Inside(Kind),
}

/// What was killed.
#[derive(Default)]
struct Tally {
    rounds: usize,
    kills: usize,
    inside: BTreeMap<Kind, usize>,
    /// What was left for `reconcile` at the end of a window.
    left: BTreeMap<FindingKind, usize>,
    /// What the processes were told.
    told: BTreeMap<String, usize>,
}

struct Stage {
    setting: Setting,
    root: tempfile::TempDir,
    desk: tempfile::TempDir,
    rng: Rng,
    seats: [Option<Running>; SEATS],
    spawned: u32,
    tail: Tail,
    /// Records of windows that are over.
    settled: usize,
    states: BTreeMap<String, State>,
    tally: Tally,
    wrong: Vec<String>,
}

impl Stage {
    async fn new(setting: Setting) -> Self {
        let root = tempfile::tempdir().unwrap();
        let desk = tempfile::tempdir().unwrap();
        if !setting.managed {
            let catalog = setting.catalog(root.path()).await;
            catalog.create_namespace(NAMESPACE).await.unwrap();
        }
        let tail = Tail::of(&desk.path().join("journal"));
        let states = setting.names().into_iter().map(|n| (n, State::Absent));
        Self {
            setting,
            rng: Rng::seeded_by(SEED),
            seats: [const { None }; SEATS],
            spawned: 0,
            tail,
            settled: 0,
            states: states.collect(),
            tally: Tally::default(),
            wrong: Vec::new(),
            root,
            desk,
        }
    }

    /// Fills the empty seats, and returns when everybody is at work.
    fn fill(&mut self) {
        for seat in 0..SEATS {
            if self.seats[seat].is_some() {
                continue;
            }
            self.spawned += 1;
            let spawn = self.spawned;
            let orders = Orders {
                root: self.root.path().to_path_buf(),
                journal: self.desk.path().join("journal"),
                managed: self.setting.managed,
                seat,
                spawn,
                choices: u64::try_from(self.rng.below(1 << 30)).unwrap(),
            };
            let log = self.desk.path().join(format!("log.{spawn}"));
            let process = orders.command(&log).spawn().unwrap();
            self.seats[seat] = Some(Running {
                process,
                spawn,
                log,
            });
        }
        let began = Instant::now();
        for running in self.seats.iter().flatten() {
            let here = |record: &Record| matches!(record, Record::Hello { spawn } if *spawn == running.spawn);
            while !self.tail.all()[self.settled..].iter().any(here) {
                assert!(began.elapsed() < STARTING, "{}", running.says());
                std::thread::sleep(GLANCE);
            }
        }
    }

    /// Kills some, or all.
    fn round(&mut self, everybody: bool) {
        self.fill();
        let mut victims: Vec<usize> = (0..SEATS).collect();
        if !everybody {
            for _ in 0..[0, 1, 1, 2][self.rng.below(4)] {
                victims.remove(self.rng.below(victims.len()));
            }
        }
        let now = Instant::now();
        let mut open: Vec<(usize, Aim, Option<Instant>)> = Vec::new();
        for seat in victims {
            let aim = match self.rng.below(4) {
                0 => {
                    let ms = 5 + self.rng.below(if everybody { LONG } else { SHORT });
                    Aim::After(now + Duration::from_millis(u64::try_from(ms).unwrap()))
                }
                _ => Aim::Inside(self.least_hit()),
            };
            open.push((seat, aim, None));
        }
        while !open.is_empty() {
            std::thread::sleep(GLANCE);
            self.tail.all();
            let mut still_open = Vec::new();
            for (seat, aim, at) in open {
                let at = at.or_else(|| self.take_aim(seat, &aim));
                if at.is_some_and(|at| at <= Instant::now()) || now.elapsed() > PATIENCE {
                    self.kill(seat);
                } else {
                    still_open.push((seat, aim, at));
                }
            }
            open = still_open;
        }
        self.tally.rounds += 1;
    }

    /// A kind of operation in which too few were killed so far.
    fn least_hit(&mut self) -> Kind {
        let aims = self.setting.aims();
        let first = self.rng.below(aims.len());
        let hits = |kind: &Kind| self.tally.inside.get(kind).copied().unwrap_or_default();
        let (kind, _) = (0..aims.len())
            .map(|i| aims[(first + i) % aims.len()])
            .min_by_key(|(kind, weight)| 6 * hits(kind) / weight)
            .unwrap();
        kind
    }

    /// When to kill, if that is known.
    fn take_aim(&mut self, seat: usize, aim: &Aim) -> Option<Instant> {
        let kind = match aim {
            Aim::After(at) => return Some(*at),
            Aim::Inside(kind) => *kind,
        };
        let spawn = self.seats[seat].as_ref().unwrap().spawn;
        let records = self.tail.all();
        let last = records.iter().rev().find(|r| r.spawn() == spawn)?;
        if !matches!(last, Record::Begin { kind: begun, .. } if *begun == kind) {
            return None;
        }
        let us = self.rng.below(usual(records, kind));
        Some(Instant::now() + Duration::from_micros(u64::try_from(us).unwrap()))
    }

    fn kill(&mut self, seat: usize) {
        let mut running = self.seats[seat].take().unwrap();
        running.process.kill().unwrap();
        let status = running.process.wait().unwrap();
        // SIGKILL; whoever ended otherwise has something to tell.
        assert_eq!(status.signal(), Some(9), "{status}: {}", running.says());
        self.tally.kills += 1;
        let records = self.tail.all();
        let last = records.iter().rev().find(|r| r.spawn() == running.spawn);
        if let Some(Record::Begin { kind, .. }) = last {
            *self.tally.inside.entry(*kind).or_default() += 1;
        }
    }

    /// What goes wrong in a window does not keep the others from being run.
    fn report(&mut self, wrong: String) {
        println!("WRONG, after round {}: {wrong}", self.tally.rounds);
        self.wrong.push(wrong);
    }
}

impl Running {
    fn says(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// How long an operation of a kind usually takes here, in microseconds.
fn usual(records: &[Record], kind: Kind) -> usize {
    let mut begun = std::collections::HashSet::new();
    let mut took = Vec::new();
    // The last few hundred will do.
    for record in &records[records.len().saturating_sub(2_000)..] {
        match record {
            Record::Begin { op, kind: k, .. } if *k == kind => drop(begun.insert(*op)),
            Record::End { op, us, outcome }
                if begun.contains(op) && !matches!(outcome, journal::Outcome::Failed { .. }) =>
            {
                took.push(usize::try_from(*us).unwrap());
            }
            _ => {}
        }
    }
    took.sort_unstable();
    took.get(took.len() / 2)
        .map_or(20_000, |us| us + us / 4 + 1)
}

async fn kill_and_look(managed: bool) {
    let setting = Setting::of(managed);
    let mut stage = Stage::new(setting).await;
    for round in 1..=setting.rounds {
        let last = round % setting.window == 0 || round == setting.rounds;
        stage.round(last);
        if last {
            stage.settle().await;
        }
    }
    let Tally {
        rounds,
        kills,
        inside,
        left,
        told,
    } = &stage.tally;
    let counted: usize = inside.values().sum();
    let changing: usize = inside
        .iter()
        .filter(|(kind, _)| kind.changes())
        .map(|(_, n)| n)
        .sum();
    let by_kind: Vec<String> = inside.iter().map(|(k, n)| format!("{k:?} {n}")).collect();
    println!("answers: {told:?}");
    println!("left for reconcile: {left:?}");
    println!(
        "kill rounds: {rounds}, kills: {kills}, inside an operation: {counted} ({}), lost: {}",
        by_kind.join(", "),
        stage.wrong.len()
    );
    assert_eq!(stage.wrong, Vec::<String>::new());
    // Kills between the operations would show nothing.
    assert!(changing * 2 >= *kills, "{changing} of {kills}");
    if *rounds >= 12 {
        let hit = |(kind, _): &(Kind, usize)| inside.contains_key(kind);
        assert!(setting.aims().iter().all(hit), "{inside:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_killed_at_random() {
    kill_and_look(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_killed_under_managed_versioning() {
    kill_and_look(true).await;
}
