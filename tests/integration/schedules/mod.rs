//! Every interleaving of the lifecycle's operations on one table, request by request.
//!
//! The operations run as they are, over a store in memory whose every request waits at a gate ([`stage`]). All schedules
//! are walked ([`explore`]), except that two requests which do not touch the same object are tried in one order only: no
//! run could tell. What the actors were told and what they left must be explained by a serial order of the operations
//! ([`oracle`]), and nothing may be left to mend ([`ends`]).
//!
//! - *Pairs* of all operations, and *triples* of drop, undrop, create (over a dropped name a revive) and purge, with
//!   some more, from every start ([`starts`]).
//! - *Stops*: one actor of the pair stops for ever after any of its requests, the other goes on; then, the leases
//!   over, each of undrop, purge, create, drop and reconcile comes across what is left.
//! - *Sleeps*: it sleeps there past its lease instead, the other goes on and may take over, and then it wakes up.
//! - *Faults*: one request of one actor of the pair is refused (503, 403, time-out), or its answer is lost: it hears of a
//!   time-out or a 503, or, of a create-if-absent that its client repeats, that the object is there.
//! - *Harmed triples*: drawn schedules of the triples with a stop or a fault at a drawn request.
//!
//! The normal run walks the pairs to their end, and of each triple [`TRIPLE_SCHEDULES`], some depth first and most drawn;
//! it stops, or puts to sleep, at every [`STOPS_APART`]th request and fails every [`FAULTS_APART`]th, with two schedules
//! each, one of them drawn. `LANCEKEEP_SCHEDULES=all` walks everything at every request, which takes many hours; a number
//! bounds the schedules of each combination, at every request.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt;

use self::ends::{assert_definite, assert_mends, staged};
use self::explore::{Drawer, Explorer};
use self::operations::{Heard, Op, Why};
use self::oracle::{Part, State, nobody_won, possible};
use self::stage::{Harm, Run, Scene};
use self::starts::{Start, fresh, pass_the_lease};
use crate::common::Rng;
use crate::support::witness::fingerprint;
use crate::support::{Fault, When};

mod ends;
mod explore;
mod operations;
mod oracle;
mod stage;
mod starts;

/// Actors in the largest combination, and one who comes later.
const ACTORS: usize = 4;

/// More than any pair has.
const PAIR_SCHEDULES: usize = 2_000;
const TRIPLE_SCHEDULES: usize = 16;
const HARMED_TRIPLES: usize = 16;
/// Of each triple, where everything is to be walked.
const DRAWN: usize = 200;
/// Requests of one operation, about: what is to befall a later one befalls nobody.
const LONG: usize = 16;
const STOPS_APART: usize = 4;
const FAULTS_APART: usize = 12;
const VARIABLE: &str = "LANCEKEEP_SCHEDULES";
const SEED: u64 = 20_261_201;

/// How much is run.
#[derive(Clone, Copy)]
struct Bound {
    schedules: usize,
    /// Of the requests at which somebody is harmed, every so many'th.
    apart: usize,
}

impl Bound {
    fn of(schedules: usize, apart: usize) -> Self {
        let schedules = match std::env::var(VARIABLE).as_deref() {
            Ok("all") => usize::MAX,
            Ok(given) => given.parse().expect("a number of schedules, or \"all\""),
            Err(_) => return Self { schedules, apart },
        };
        Self {
            schedules,
            apart: 1,
        }
    }
}

impl Bound {
    /// How many of the schedules are those that come first; the others are drawn.
    fn depth_first(self) -> usize {
        match self.schedules {
            few @ ..=32 => few / 3 + 1,
            many => many,
        }
    }
}

/// What was run.
#[derive(Default)]
struct Count {
    /// What went wrong first, in each combination.
    violations: Vec<String>,
    combinations: usize,
    whole: usize,
    schedules: usize,
    recoveries: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.combinations += other.combinations;
        self.whole += other.whole;
        self.schedules += other.schedules;
        self.recoveries += other.recoveries;
    }

    async fn judge(&mut self, start: Start, scene: &Scene, run: &Run, judged: &mut Judged) {
        self.schedules += 1;
        let judged = judge(start, scene, run, judged, &mut self.recoveries);
        if let Err(panic) = AssertUnwindSafe(Box::pin(judged)).catch_unwind().await {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.unwrap_or_else(|| format!("{:?}: {}", scene.ops, run.describe()));
            self.violations.push(said);
        }
    }

    fn report(&self, what: &str, began: Instant) {
        println!(
            "{what}: {} combinations, {} of them to the end, {} schedules, {} recoveries, {} violations, {:.0?}",
            self.combinations,
            self.whole,
            self.schedules,
            self.recoveries,
            self.violations.len(),
            began.elapsed()
        );
        assert!(self.violations.is_empty(), "{}", self.violations.join("\n"));
    }
}

/// Stops the paused clock from jumping to the next lease whenever Lance works on a thread of its own.
async fn tick() {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn needs_managed(ops: &[Op]) -> bool {
    ops.contains(&Op::Commit)
}

/// What was left over is told apart by its origin: what was judged once is not judged again.
type Judged = HashSet<u64>;

/// Runs the schedules of a scene, and judges each.
async fn walk(start: Start, scene: &Scene, bound: Bound, judged: &mut Judged) -> (Count, bool) {
    let mut count = Count {
        combinations: 1,
        ..Count::default()
    };
    let mut harmed = false;
    let mut explorer = Explorer::new(scene.clone());
    let mut drawer = Drawer::new(scene.clone(), SEED);
    while count.schedules < bound.schedules && count.violations.is_empty() {
        let run = if count.schedules < bound.depth_first() {
            Box::pin(explorer.next()).await
        } else if explorer.has_more() {
            Some(Box::pin(drawer.next()).await)
        } else {
            None
        };
        let Some(run) = run else {
            break;
        };
        harmed |= run.harmed;
        count.judge(start, scene, &run, judged).await;
    }
    count.whole = usize::from(!explorer.has_more() && count.violations.is_empty());
    (count, harmed)
}

async fn judge(
    start: Start,
    scene: &Scene,
    run: &Run,
    judged: &mut Judged,
    recoveries: &mut usize,
) {
    let at = || {
        format!(
            "{start:?}, {:?}, {:?}: {}",
            scene.ops,
            scene.harm,
            run.describe()
        )
    };
    for part in &run.parts {
        let stopped = matches!(scene.harm, Some((who, _, Harm::Stop)) if who == part.actor);
        let excused = run.harmed && stopped;
        assert!(
            part.heard != Heard::Nothing || excused,
            "{:?} waits for ever; {}",
            part.op,
            at()
        );
    }
    if let Some((who, _, Harm::Fail(_, fault))) = scene.harm
        && let Heard::Failed(Why::Storage, text) = &run.parts[who].heard
    {
        let words = match fault {
            Fault::Unavailable503 => "503 Service Unavailable",
            Fault::PermissionDenied => "403 Forbidden",
            Fault::AlreadyExists => "412 Precondition Failed",
            _ => "operation timed out",
        };
        assert!(text.contains(words), "it does not say {words:?}; {}", at());
    }
    let ends = possible(start.state(), &run.parts);
    assert!(!ends.is_empty(), "nothing explains it; {}", at());
    assert!(
        run.harmed || start.state().finished().is_some() || !nobody_won(&run.parts),
        "nobody won; {}",
        at()
    );
    let seen: Vec<_> = run
        .parts
        .iter()
        .map(|p| (p.op, p.heard_kind(), p.span))
        .collect();
    if !judged.insert(fingerprint((run.trace.objects(), scene.harm, seen))) {
        return;
    }
    if !run.harmed {
        let left: Vec<State> = ends
            .iter()
            .copied()
            .filter(|s| s.finished().is_none())
            .collect();
        // What somebody left before the start may be left still.
        if start.state().finished().is_none() {
            assert_eq!(staged(&run.memory).await, Vec::<String>::new(), "{}", at());
            // Lance leaves the rows of an append that it refuses.
            let orphans = scene.ops.contains(&Op::Commit);
            assert_definite(&run.memory, scene.managed, &left, orphans, &at).await;
            return;
        }
        assert_mends(&run.memory, scene.managed, &ends, true, &at).await;
        return;
    }
    assert_mends(&run.memory, scene.managed, &ends, true, &at).await;
    for action in [Op::Undrop, Op::Purge, Op::Create, Op::Drop, Op::Reconcile] {
        *recoveries += 1;
        Box::pin(recover(start, scene, run, action, &at)).await;
    }
}

/// Somebody comes across what is left, when the leases are over.
async fn recover(start: Start, scene: &Scene, run: &Run, action: Op, at: &dyn Fn() -> String) {
    let memory = run.memory.fork().await;
    pass_the_lease(&memory);
    let actor = ACTORS - 1;
    let catalog = fresh(&memory, scene.managed).await;
    let heard = action.run(catalog, actor).await;
    let mut parts = run.parts.clone();
    // Those who are still waiting have not ended, but they do nothing any more.
    let end = usize::MAX - 1;
    parts.push(Part {
        actor,
        op: action,
        heard: heard.clone(),
        span: (end, usize::MAX),
        faulted: false,
    });
    let ends = possible(start.state(), &parts);
    let at = || format!("then {action:?} heard {heard:?}; {}", at());
    let stuck = matches!(
        heard,
        Heard::Failed(Why::Purging | Why::Restoring | Why::Conflict, _)
    );
    assert!(!stuck, "the leases are over; {}", at());
    assert!(!ends.is_empty(), "nothing explains it; {}", at());
    assert_mends(&memory, scene.managed, &ends, true, &at).await;
}

impl Part {
    /// Its answer without its wording, which names random ids.
    fn heard_kind(&self) -> Heard {
        match &self.heard {
            Heard::Failed(why, _) => Heard::Failed(*why, String::new()),
            other => other.clone(),
        }
    }
}

async fn scene(start: Start, ops: &[Op]) -> Scene {
    let managed = needs_managed(ops);
    Scene {
        memory: start.memory(managed).await,
        ops: ops.to_vec(),
        managed,
        harm: None,
    }
}

/// Unordered pairs, each with itself too.
fn pairs() -> Vec<[Op; 2]> {
    let mut pairs = Vec::new();
    for (index, first) in Op::ALL.into_iter().enumerate() {
        pairs.extend(Op::ALL[index..].iter().map(|second| [first, *second]));
    }
    pairs
}

/// Of the operations that decide, and some around a managed commit.
fn triples() -> Vec<[Op; 3]> {
    let four = [Op::Drop, Op::Undrop, Op::Create, Op::Purge];
    let mut triples = Vec::new();
    for (i, first) in four.into_iter().enumerate() {
        for (j, second) in four.into_iter().enumerate().skip(i) {
            triples.extend(four[j..].iter().map(|third| [first, second, *third]));
        }
    }
    triples.extend([
        [Op::Commit, Op::Drop, Op::Purge],
        [Op::Commit, Op::Drop, Op::Undrop],
        [Op::Commit, Op::Drop, Op::Create],
        [Op::Commit, Op::Purge, Op::Create],
        [Op::Commit, Op::Commit, Op::Drop],
        [Op::Open, Op::Purge, Op::Create],
        [Op::Reconcile, Op::Undrop, Op::Purge],
        [Op::Reconcile, Op::PurgeExpired, Op::Create],
    ]);
    triples
}

async fn walk_all(what: &str, start: Start, combinations: &[&[Op]], normal: usize) {
    drop(tokio::spawn(tick()));
    let began = Instant::now();
    let mut all = Count::default();
    for ops in combinations {
        let scene = scene(start, ops).await;
        let (count, _) = walk(start, &scene, Bound::of(normal, 1), &mut Judged::new()).await;
        let extent = if count.whole == 1 { "all" } else { "some" };
        println!(
            "{start:?}, {ops:?}: {} schedules, {extent}",
            count.schedules
        );
        all.add(count);
    }
    all.report(&format!("{what} from {start:?}"), began);
}

/// Every harm to each actor of a pair, at every request that it gets to.
async fn harm_all(what: &str, start: Start, harms: &[Harm], apart: usize) {
    drop(tokio::spawn(tick()));
    let began = Instant::now();
    let mut all = Count::default();
    let mut points = 0;
    let bound = Bound::of(2, apart);
    for (index, ops) in pairs().into_iter().enumerate() {
        let mut scene = scene(start, &ops).await;
        let mut of_pair = Count::default();
        let mut judged = Judged::new();
        let whom = if ops[0] == ops[1] { 0..1 } else { 0..2 };
        for who in whom {
            for harm in harms {
                // Who stops before the first request never came.
                let first = usize::from(!matches!(harm, Harm::Fail(..)));
                // Elsewhere in each pair; of short operations at least the first is harmed.
                let offset = (index + who) % bound.apart.min(3);
                let first = first + offset;
                for at in (first..).step_by(bound.apart) {
                    scene.harm = Some((who, at, *harm));
                    let (count, harmed) = walk(start, &scene, bound, &mut judged).await;
                    if !harmed {
                        break;
                    }
                    points += 1;
                    let failed = !count.violations.is_empty();
                    of_pair.add(count);
                    if failed {
                        break;
                    }
                }
            }
        }
        println!(
            "{start:?}, {ops:?}: {} schedules, {} recoveries",
            of_pair.schedules, of_pair.recoveries
        );
        all.add(of_pair);
    }
    println!("{what} from {start:?}: {points} points");
    assert!(points >= pairs().len() * harms.len() / 2, "{points} points");
    all.report(&format!("{what} from {start:?}"), began);
}

/// Drawn schedules of triples, in each of which somebody is stopped or a request fails.
async fn harm_triples(start: Start, each: usize) {
    drop(tokio::spawn(tick()));
    let began = Instant::now();
    let mut all = Count::default();
    let mut rng = Rng::new(SEED);
    let mut harmed = 0;
    let bound = Bound::of(each, 1);
    // Drawing has no end of its own.
    let each = bound.schedules.min(DRAWN);
    for ops in triples() {
        let mut scene = scene(start, &ops).await;
        let mut judged = Judged::new();
        let mut count = Count {
            combinations: 1,
            ..Count::default()
        };
        for _ in 0..each {
            let harm = match rng.below(3) {
                0 => Harm::Stop,
                1 => Harm::Sleep,
                _ => FAULTS[rng.below(FAULTS.len())],
            };
            let first = usize::from(!matches!(harm, Harm::Fail(..)));
            scene.harm = Some((rng.below(3), first + rng.below(LONG), harm));
            let seed = u64::try_from(rng.below(1 << 30)).unwrap();
            let run = Box::pin(Drawer::new(scene.clone(), seed).next()).await;
            harmed += usize::from(run.harmed);
            count.judge(start, &scene, &run, &mut judged).await;
            if !count.violations.is_empty() {
                break;
            }
        }
        all.add(count);
    }
    println!("harmed triples from {start:?}: {harmed} of them harmed");
    all.report(&format!("harmed triples from {start:?}"), began);
    assert!(harmed > 0);
}

/// Two operations from a start, and who wins in some schedule.
type Contest = (Start, [Op; 2], &'static [[bool; 2]]);

/// Without each of these the walk would have missed something.
const CONTESTS: [Contest; 13] = {
    use Op::{Create, Drop, Open, Overwrite, Purge, Reconcile, Undrop};
    const FIRST: [bool; 2] = [true, false];
    const SECOND: [bool; 2] = [false, true];
    const BOTH: [bool; 2] = [true, true];
    [
        (Start::Dropped, [Undrop, Purge], &[FIRST, SECOND]),
        (Start::Dropped, [Undrop, Undrop], &[FIRST, SECOND]),
        (Start::Dropped, [Create, Purge], &[FIRST, SECOND]),
        (Start::Dropped, [Create, Undrop], &[FIRST, SECOND]),
        (Start::Dropped, [Open, Create], &[BOTH, SECOND]),
        (Start::Dropped, [Open, Undrop], &[BOTH, SECOND]),
        (Start::Dropped, [Open, Purge], &[SECOND]),
        (Start::Live, [Drop, Drop], &[FIRST, SECOND]),
        (Start::Live, [Drop, Open], &[FIRST, BOTH]),
        (Start::Live, [Drop, Overwrite], &[FIRST, BOTH]),
        (Start::Live, [Drop, Reconcile], &[BOTH]),
        (Start::Live, [Drop, Undrop], &[FIRST, BOTH]),
        (Start::Absent, [Create, Create], &[FIRST, SECOND]),
    ]
};

#[tokio::test(start_paused = true)]
async fn whoever_can_win_does_in_some_schedule() {
    drop(tokio::spawn(tick()));
    for (start, ops, expected) in CONTESTS {
        let mut explorer = Explorer::new(scene(start, &ops).await);
        let mut outcomes = HashSet::new();
        while let Some(run) = Box::pin(explorer.next()).await {
            let won = |part: &Part| part.took_effect() == Some(true);
            outcomes.insert([won(&run.parts[0]), won(&run.parts[1])]);
        }
        for outcome in expected {
            assert!(
                outcomes.contains(outcome),
                "{start:?}, {ops:?}: no {outcome:?}"
            );
        }
    }
}

const STOPS: [Harm; 1] = [Harm::Stop];
const SLEEPS: [Harm; 1] = [Harm::Sleep];
const FAULTS: [Harm; 6] = [
    Harm::Fail(When::After, Fault::Timeout),
    Harm::Fail(When::After, Fault::Unavailable503),
    Harm::Fail(When::After, Fault::AlreadyExists),
    Harm::Fail(When::Before, Fault::Timeout),
    Harm::Fail(When::Before, Fault::Unavailable503),
    Harm::Fail(When::Before, Fault::PermissionDenied),
];

macro_rules! from_every_start {
    ($($name:ident: $start:ident;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(start_paused = true)]
            async fn pairs() {
                let pairs = super::pairs();
                let pairs: Vec<&[Op]> = pairs.iter().map(|pair| pair.as_slice()).collect();
                walk_all("pairs", Start::$start, &pairs, PAIR_SCHEDULES).await;
            }

            #[tokio::test(start_paused = true)]
            async fn triples() {
                let triples = super::triples();
                let triples: Vec<&[Op]> = triples.iter().map(|ops| ops.as_slice()).collect();
                walk_all("triples", Start::$start, &triples, TRIPLE_SCHEDULES).await;
            }

            #[tokio::test(start_paused = true)]
            async fn harmed_triples() {
                harm_triples(Start::$start, HARMED_TRIPLES).await;
            }

            #[tokio::test(start_paused = true)]
            async fn stops() {
                harm_all("stops", Start::$start, &STOPS, STOPS_APART).await;
            }

            #[tokio::test(start_paused = true)]
            async fn sleeps() {
                harm_all("sleeps", Start::$start, &SLEEPS, STOPS_APART).await;
            }

            #[tokio::test(start_paused = true)]
            async fn faults() {
                harm_all("faults", Start::$start, &FAULTS, FAULTS_APART).await;
            }
        }
    )*};
}

from_every_start! {
    absent: Absent;
    live: Live;
    dropped: Dropped;
    expired: Expired;
    half_restored: HalfRestored;
    half_purged: HalfPurged;
}
