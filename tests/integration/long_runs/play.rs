//! The scheduler: one seed, one run.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use lancekeep::uuid::Uuid;
use lancekeep::{Catalog, Clock};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::calls::{Call, Luck, Reply, TABLES, Told, answers};
use super::dice::{Dice, Style};
use super::model::{Model, OpId};
use super::tally::{Tally, outcome, without_random};
use crate::support::{Actor, Fault, Gate, Kind, SharedMemory, StoreClock, When};

const ACTORS: usize = 4;

/// The run's clock moves by multiples of [`PART`] and by seconds. So the quarter and the half of a lease that owners go
/// by are never close, and the ticker's milliseconds decide nothing.
pub(super) const LEASE: Duration = hours(20);
pub(super) const PART: Duration = hours(3);
pub(super) const OVER_A_LEASE: Duration = hours(21);

/// Steps from one rest to the next.
const ROUND: usize = 250;

/// Drop ids that are remembered, to be used when they are old.
const REMEMBERED: usize = 24;

/// Lines of the log that a violation shows.
const SHOWN: usize = 400;

/// Somebody waits for what never comes; by the paused clock.
const STALL: Duration = hours(1);

/// Longer than Lance ever waits before it repeats a listing.
const LIST_PAUSE: Duration = Duration::from_secs(10);

/// Turns of the runtime in which a task that was woken comes to its next request.
const SETTLE: usize = 64;

pub(super) const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}
#[derive(Debug)]
struct StoreTime(StoreClock);

impl Clock for StoreTime {
    fn now(&self) -> DateTime<Utc> {
        self.0.now()
    }
}

struct Process {
    /// At the gate. A process that is started again has a new one.
    number: usize,
    actor: Actor,
    catalog: Catalog,
    busy: Option<Busy>,
}

struct Busy {
    id: OpId,
    call: Call,
    handle: JoinHandle<Reply>,
    luck: Luck,
    began: DateTime<Utc>,
}

pub(super) struct Run {
    seed: u64,
    dice: Dice,
    style: Style,
    pub(super) memory: SharedMemory,
    pub(super) clock: StoreClock,
    gate: Gate,
    processes: Vec<Process>,
    last: usize,
    next_number: usize,
    next_op: OpId,
    pub(super) models: Vec<Model>,
    /// Since a table's directory was last empty a create of it was disturbed: it may have left files.
    pub(super) disturbed: Vec<bool>,
    /// Drops made and seen, the oldest first.
    drops: VecDeque<(usize, Uuid)>,
    /// When the acknowledged drops may be purged by themselves.
    expires: BTreeMap<Uuid, Option<DateTime<Utc>>>,
    tally: Tally,
    rested_at: usize,
    /// Done before the first rest that has what it takes.
    pub(super) sabotage: Option<Sabotage>,
    log: VecDeque<String>,
    hash: DefaultHasher,
}

/// What a store does wrong, for once, to show that it is noticed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sabotage {
    ForgetADrop,
    LoseData,
    LoseAVersion,
    LeaveSomething,
}

/// Plays a seed for so many steps. The error is the first violation, with what led to it.
pub(super) fn play(seed: u64, steps: usize, sabotage: Option<Sabotage>) -> Result<Tally, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        drop(tokio::spawn(tick()));
        let mut run = Run::new(seed).await;
        run.sabotage = sabotage;
        if let Err(why) = Box::pin(run.play(steps)).await {
            return Err(run.report(&why));
        }
        run.tally.trace = run.hash.finish();
        Ok(run.tally)
    })
}

/// Stops the paused clock from jumping to the next lease whenever Lance works on a thread of its own.
async fn tick() {
    loop {
        sleep(Duration::from_millis(20)).await;
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Run {
    async fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let style = Style::draw(&mut dice);
        // Never a whole second: the store's clock must not look coarse.
        let clock =
            StoreClock::new(DateTime::from_timestamp_micros(1_750_000_000_123_500).unwrap());
        let mut run = Self {
            seed,
            dice,
            style,
            memory: SharedMemory::with_clock(clock.clone()),
            clock,
            gate: Gate::new(),
            processes: Vec::new(),
            last: 0,
            next_number: 0,
            next_op: 1,
            models: vec![Model::new(); TABLES.len()],
            disturbed: vec![false; TABLES.len()],
            drops: VecDeque::new(),
            expires: BTreeMap::new(),
            tally: Tally::default(),
            rested_at: 0,
            sabotage: None,
            log: VecDeque::new(),
            hash: DefaultHasher::new(),
        };
        for _ in 0..ACTORS {
            let process = run.process().await;
            run.processes.push(process);
        }
        run
    }

    async fn process(&mut self) -> Process {
        let number = self.next_number;
        self.next_number += 1;
        let actor = self.memory.actor_at_gate_before_faults(&self.gate, number);
        let catalog = catalog(&self.memory, &actor).await;
        Process {
            number,
            actor,
            catalog,
            busy: None,
        }
    }

    async fn play(&mut self, steps: usize) -> Result<(), String> {
        while self.tally.steps < steps {
            self.hear().await?;
            let crowded = self.models.iter().any(Model::is_crowded);
            match crowded || self.tally.steps - self.rested_at >= ROUND {
                true => self.rest().await?,
                false => self.turn().await?,
            }
        }
        self.rest().await
    }

    pub(super) fn note(&mut self, line: String) {
        if self.log.len() == SHOWN {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    /// Notes what is to be the same whenever the seed is played.
    fn trace(&mut self, line: &str) {
        without_random(line).hash(&mut self.hash);
        let steps = self.tally.steps;
        self.note(format!("{steps:5} {line}"));
    }

    fn report(&self, why: &str) -> String {
        let log: Vec<&str> = self.log.iter().map(String::as_str).collect();
        format!(
            "seed {}, step {}: {why}\n\
             again: LANCEKEEP_LONG_SEED={} LANCEKEEP_LONG_STEPS={}\n{:?}\nbefore that:\n{}",
            self.seed,
            self.tally.steps,
            self.seed,
            self.tally.steps + 1,
            self.style,
            log.join("\n")
        )
    }

    /// Waits until every actor waits for the scheduler, and takes the answers of those that ended.
    async fn hear(&mut self) -> Result<(), String> {
        for at in 0..self.processes.len() {
            let number = self.processes[at].number;
            if self.processes[at].busy.is_none() {
                continue;
            }
            if timeout(STALL, self.gate.wait_until_blocked(&[number]))
                .await
                .is_err()
            {
                return Err(format!("actor {at} waits for what never comes"));
            }
            if self.gate.is_finished(number) {
                self.answered(at).await?;
            }
        }
        Ok(())
    }

    async fn answered(&mut self, at: usize) -> Result<(), String> {
        let process = &mut self.processes[at];
        let Some(busy) = process.busy.take() else {
            return Ok(());
        };
        let Busy {
            id,
            call,
            handle,
            luck,
            began,
        } = busy;
        let writes = process.actor.counter.writes();
        process.actor.counter.reset();
        let reply = handle
            .await
            .map_err(|e| format!("operation {id}, {call:?}: {e}"))?;
        let outcome = outcome(&reply);
        self.trace(&format!("actor {at} operation {id} answers {outcome}"));
        self.note(format!("      {reply:?}"));
        let count = self.tally.operations.entry((call.kind(), outcome));
        *count.or_default() += 1;
        if call.only_reads() && writes > 0 {
            return Err(format!("operation {id}, {call:?}, wrote"));
        }
        self.dated(call, &reply, began)?;
        if reply.is_err()
            && let Some(table) = call.table()
        {
            self.disturbed[table] |= matches!(call, Call::Create { .. });
        }
        let now = self.clock.now();
        let found = answers(call, &reply, &luck);
        let found = found.map_err(|why| format!("operation {id}, {call:?}: {why}"))?;
        for (table, answer) in found {
            let disturbed = luck.waited || !luck.faults.is_empty();
            let heard = self.models[table].end(id, &answer, luck.waited, disturbed, now);
            heard.map_err(|why| {
                let name = TABLES[table];
                format!("table {name}, operation {id}, {call:?}, {reply:?}: {why}")
            })?;
        }
        Ok(())
    }

    /// The times of drops, and that none is purged by itself before its time.
    fn dated(&mut self, call: Call, reply: &Reply, began: DateTime<Utc>) -> Result<(), String> {
        let now = self.clock.now();
        match (call, reply) {
            (Call::Drop { table, retention }, Ok(Told::Dropped(dropped))) => {
                let expires = retention.map(|retention| dropped.deleted_at + retention);
                let in_time = began <= dropped.deleted_at && dropped.deleted_at <= now;
                if dropped.expires_at != expires || !in_time {
                    return Err(format!("{call:?}, begun at {began}, is dated {dropped:?}"));
                }
                self.remember(table, dropped.drop_id);
                self.expires.insert(dropped.drop_id, expires);
            }
            (Call::Drops, Ok(Told::Drops(drops))) => {
                for dropped in drops {
                    let table = TABLES
                        .iter()
                        .position(|name| dropped.ident.parts() == [*name]);
                    self.remember(table.unwrap(), dropped.drop_id);
                }
            }
            (Call::PurgeDropped { expired: true }, Ok(Told::Swept(report))) => {
                for purged in &report.tables {
                    let expires = self.expires.get(&purged.drop_id);
                    if expires.is_some_and(|expires| expires.is_none_or(|expires| expires > now)) {
                        return Err(format!("{purged:?} was to be kept until {expires:?}"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn remember(&mut self, table: usize, drop_id: Uuid) {
        if self.drops.len() == REMEMBERED {
            self.drops.pop_front();
        }
        self.drops.push_back((table, drop_id));
    }

    /// One choice: move the clock, begin an operation, or let a request through, or not.
    async fn turn(&mut self) -> Result<(), String> {
        if self.dice.one_in(self.style.clock) {
            let by = self.dice.advance();
            self.wait(by).await;
            return Ok(());
        }
        let stays = self.dice.below(100) < self.style.stick;
        let at = match stays && self.processes[self.last].busy.is_some() {
            true => self.last,
            false => self.dice.below(ACTORS),
        };
        self.last = at;
        if self.processes[at].busy.is_none() {
            let call = self.draw();
            self.begin(at, call);
            return Ok(());
        }
        if self.dice.one_in(self.style.crash) {
            return match self.dice.one_in(3) {
                true => self.cancel(at).await,
                false => self.crash(at).await,
            };
        }
        let fails = self.dice.one_in(self.style.fault);
        let fault = fails.then(|| self.dice.fault());
        if self.release(at, fault) == Kind::List && fails {
            // Lance lists again after a pause of its own drawing; let it be over, whatever else the actor waits for.
            self.wait(LIST_PAUSE).await;
            for _ in 0..SETTLE {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Time passes for all alike: for the owners of leases, and for the store and the catalogs.
    pub(super) async fn wait(&mut self, by: Duration) {
        self.trace(&format!("{by:?} pass"));
        tokio::time::advance(by).await;
        self.clock.advance(by);
        for process in &mut self.processes {
            if let Some(busy) = &mut process.busy {
                busy.luck.waited |= busy.began + LEASE / 2 < self.clock.now();
                if let Some(table) = busy.call.table() {
                    self.disturbed[table] |= busy.luck.waited;
                }
            }
        }
    }
    fn draw(&mut self) -> Call {
        let table = self.dice.table(self.style);
        let row = i32::try_from(self.next_op).unwrap();
        let remembered: Vec<Uuid> = self
            .drops
            .iter()
            .filter(|(of, _)| *of == table)
            .map(|(_, drop_id)| *drop_id)
            .collect();
        self.dice.call(table, row, &remembered)
    }

    fn begin(&mut self, at: usize, call: Call) {
        let id = self.next_op;
        self.next_op += 1;
        self.trace(&format!("actor {at} begins operation {id}: {call:?}"));
        let began = self.clock.now();
        let deed = call.deed(began);
        for (table, model) in self.models.iter_mut().enumerate() {
            if call.table().is_none_or(|only| only == table) {
                model.start(id, deed);
            }
        }
        let process = &mut self.processes[at];
        process.actor.counter.reset();
        let work = Box::pin(call.run(process.catalog.clone()));
        let work = self.gate.run(process.number, work);
        process.busy = Some(Busy {
            id,
            call,
            handle: tokio::spawn(work),
            luck: Luck::default(),
            began,
        });
    }

    /// Lets one request of the actor through, in most cases its oldest; says what kind it was.
    fn release(&mut self, at: usize, fault: Option<(When, Fault)>) -> Kind {
        let number = self.processes[at].number;
        let waiting = self.gate.waiting();
        let own = waiting.iter().filter(|(actor, _)| *actor == number).count();
        let nth = self.dice.below(own);
        let faults = &self.processes[at].actor.faults;
        if let Some((when, fault)) = fault {
            faults.fail_at(faults.issued(), when, fault);
        }
        let request = self.gate.release_nth(number, nth);
        self.tally.steps += 1;
        self.clock.advance(Duration::from_millis(1));
        let suffix = match fault {
            Some((when, fault)) => format!(", which fails {when:?}: {fault:?}"),
            None => String::new(),
        };
        self.trace(&format!(
            "actor {at} {:?} {}{suffix}",
            request.kind, request.path
        ));
        if let (Some((_, fault)), Some(busy)) = (fault, &mut self.processes[at].busy) {
            self.tally.faults += 1;
            busy.luck.faults.push(fault);
            if let Some(table) = busy.call.table() {
                self.disturbed[table] = true;
            }
        }
        request.kind
    }

    /// The process stops for ever at one of its requests, which takes effect or not; a new one takes its place.
    async fn crash(&mut self, at: usize) -> Result<(), String> {
        let number = self.processes[at].number;
        let when = self.dice.pick(&[When::Before, When::After]);
        let faults = &self.processes[at].actor.faults;
        faults.crash_at(faults.issued(), when);
        let mut last = String::new();
        if when == When::After {
            let request = self.gate.release(number);
            self.tally.steps += 1;
            last = format!("{:?} {}", request.kind, request.path);
            let numbers = [number];
            let blocked = self.gate.wait_until_blocked(&numbers);
            if timeout(STALL, blocked).await.is_err() {
                return Err(format!("actor {at} does not end"));
            }
        }
        let fresh = self.process().await;
        let stopped = std::mem::replace(&mut self.processes[at], fresh);
        let Some(busy) = stopped.busy else {
            return Ok(());
        };
        self.tally.crashes += 1;
        let id = busy.id;
        self.trace(&format!(
            "actor {at} stops {when:?} {last} in operation {id}"
        ));
        self.end(busy, "crash").await
    }

    /// The operation's future is dropped; the process goes on, with all that it remembers.
    async fn cancel(&mut self, at: usize) -> Result<(), String> {
        let Some(busy) = self.processes[at].busy.take() else {
            return Ok(());
        };
        self.tally.cancels += 1;
        self.trace(&format!("actor {at} cancels operation {}", busy.id));
        self.end(busy, "cancel").await?;
        // What Lance had given to tasks of its own goes on.
        let numbers = [self.processes[at].number];
        let rest = self.gate.wait_until_blocked(&numbers);
        if timeout(STALL, rest).await.is_err() {
            return Err(format!("what actor {at} cancelled does not end"));
        }
        while self.gate.waiting().iter().any(|(of, _)| *of == numbers[0]) {
            let request = self.gate.release(numbers[0]);
            self.trace(&format!("left over: {:?} {}", request.kind, request.path));
            self.gate.wait_until_blocked(&numbers).await;
        }
        Ok(())
    }

    /// Nobody will hear of it any more.
    async fn end(&mut self, busy: Busy, how: &str) -> Result<(), String> {
        busy.handle.abort();
        drop(busy.handle.await);
        let Busy { id, call, .. } = busy;
        let count = self.tally.operations.entry((call.kind(), how.to_string()));
        *count.or_default() += 1;
        let now = self.clock.now();
        for (table, model) in self.models.iter_mut().enumerate() {
            if call.table().is_none_or(|only| only == table) {
                self.disturbed[table] = true;
                let lost = model.lose(id, now);
                lost.map_err(|why| format!("operation {id}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Everybody finishes, undisturbed; then what is left is put in order and compared with the models.
    async fn rest(&mut self) -> Result<(), String> {
        let mut turns = 0;
        loop {
            self.hear().await?;
            let busy: Vec<usize> = (0..ACTORS)
                .filter(|at| self.processes[*at].busy.is_some())
                .collect();
            if busy.is_empty() {
                break;
            }
            let at = self.dice.pick(&busy);
            self.release(at, None);
            turns += 1;
            // Somebody waits for one that stopped.
            if turns % 200 == 0 {
                self.wait(OVER_A_LEASE).await;
            }
        }
        self.wait(OVER_A_LEASE).await;
        self.tally.rests += 1;
        Box::pin(self.check()).await?;
        self.rested_at = self.tally.steps;
        Ok(())
    }
}

pub(super) async fn catalog(memory: &SharedMemory, actor: &Actor) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .clock(Arc::new(StoreTime(memory.clock().unwrap())))
        .leases(LEASE, LEASE)
        .build()
        .await
        .unwrap()
}
