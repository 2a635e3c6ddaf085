//! One of the processes: operations at random, each noted before and after, until it is killed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lance_core::Error as E;
use lancekeep::arrow::array::RecordBatchIterator;
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::{Catalog, CreateMode, DroppedTable, Error, Purge, Result, TableIdent, TableState};

use super::Setting;
use super::journal::{Content, Journal, Kind, OPS_OF_A_SPAWN, Outcome, Record, rows_of};
use crate::common::{Rng, another_process, rows, try_ids};

const ROOT: &str = "LANCEKEEP_KILLED_ROOT";
const JOURNAL: &str = "LANCEKEEP_KILLED_JOURNAL";
const MANAGED: &str = "LANCEKEEP_KILLED_MANAGED";
const SEAT: &str = "LANCEKEEP_KILLED_SEAT";
const SPAWN: &str = "LANCEKEEP_KILLED_SPAWN";
const CHOICES: &str = "LANCEKEEP_KILLED_CHOICES";

/// A process that nobody kills ends itself, so that a test that failed leaves none.
const LIFE: Duration = Duration::from_secs(300);

/// Fragments from which on a table is not appended to.
const FULL: usize = 20;

/// What a process is told.
pub(super) struct Orders {
    pub(super) root: PathBuf,
    pub(super) journal: PathBuf,
    pub(super) managed: bool,
    /// Which own table is its.
    pub(super) seat: usize,
    /// Which process of all it is.
    pub(super) spawn: u32,
    pub(super) choices: u64,
}

impl Orders {
    pub(super) fn command(&self, log: &std::path::Path) -> Command {
        let mut command = another_process("killed::worker::worker", log);
        command
            .env(ROOT, &self.root)
            .env(JOURNAL, &self.journal)
            .env(MANAGED, u8::from(self.managed).to_string())
            .env(SEAT, self.seat.to_string())
            .env(SPAWN, self.spawn.to_string())
            .env(CHOICES, self.choices.to_string());
        command
    }

    fn given() -> Option<Self> {
        let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
        Some(Self {
            root: std::env::var_os(ROOT)?.into(),
            journal: std::env::var_os(JOURNAL)?.into(),
            managed: number(MANAGED) == 1,
            seat: usize::try_from(number(SEAT)).unwrap(),
            spawn: u32::try_from(number(SPAWN)).unwrap(),
            choices: number(CHOICES),
        })
    }
}

/// A name as the journal writes it.
pub(super) fn ident(name: &str) -> TableIdent {
    let parts: Vec<String> = name.split('$').map(ToString::to_string).collect();
    TableIdent::from(parts.as_slice())
}

pub(super) fn name_of(ident: &TableIdent) -> String {
    ident.parts().join("$")
}

pub(super) fn is_child(name: &str) -> bool {
    name.contains('$')
}

/// A file for every row, so that there is something between nothing and all.
fn params() -> WriteParams {
    WriteParams {
        max_rows_per_file: 1,
        ..Default::default()
    }
}

struct Worker {
    catalog: Catalog,
    journal: Journal,
    rng: Rng,
    /// The names that it works on.
    names: Vec<String>,
    managed: bool,
    next_op: u32,
    /// Under managed versioning an old handle is safe to write with.
    handles: HashMap<String, Dataset>,
}

impl Worker {
    async fn with(orders: &Orders) -> Self {
        let setting = Setting::of(orders.managed);
        Self {
            catalog: setting.catalog(&orders.root).await,
            journal: Journal::open(&orders.journal),
            rng: Rng::new(orders.choices),
            names: setting.names_of(orders.seat),
            managed: orders.managed,
            next_op: orders.spawn * OPS_OF_A_SPAWN,
            handles: HashMap::new(),
        }
    }

    /// One thing: sometimes with the whole root, mostly with one table, and then mostly what its state allows.
    async fn step(&mut self) {
        let (kind, name) = match self.rng.below(100) {
            0..2 => (Kind::List, String::new()),
            2..7 => (Kind::Reconcile, String::new()),
            7..12 => (Kind::PurgeDropped, String::new()),
            _ => {
                let name = self.names[self.rng.below(self.names.len())].clone();
                (self.choose(&name).await, name)
            }
        };
        self.act(kind, &name).await;
    }

    async fn choose(&mut self, name: &str) -> Kind {
        use Kind::{Append, Create, Drop, Open, Overwrite, Purge, Revive, Undrop};
        let op = self.begin(Kind::Status, name);
        let began = Instant::now();
        let status = self.catalog.table_status(ident(name)).await;
        let outcome = match &status {
            Ok(_) => Outcome::DONE,
            Err(e) => Outcome::failed(e),
        };
        self.end(op, began, outcome);
        let kinds: &[Kind] = match status {
            Ok(TableState::Live { .. }) if is_child(name) => &[Overwrite, Drop, Open, Create],
            Ok(TableState::Live { .. }) if self.managed => &[
                Append, Append, Append, Append, Append, Overwrite, Overwrite, Drop, Drop, Drop,
                Open,
            ],
            Ok(TableState::Live { .. }) => &[
                Overwrite, Overwrite, Drop, Drop, Drop, Drop, Open, Open, Create, Undrop,
            ],
            Ok(TableState::Dropped(_)) => &[
                Revive, Revive, Revive, Undrop, Undrop, Undrop, Purge, Purge, Open, Drop,
            ],
            Ok(TableState::Incomplete) => &[Create, Create, Create, Drop],
            Ok(TableState::Absent) | Err(_) => &[Create, Create, Create, Create, Overwrite, Open],
            Ok(_) => &[Create, Open, Drop, Undrop, Purge, Overwrite],
        };
        match kinds[self.rng.below(kinds.len())] {
            Undrop | Purge if is_child(name) => Open,
            kind => kind,
        }
    }

    fn begin(&mut self, kind: Kind, name: &str) -> u32 {
        let op = self.next_op;
        self.next_op += 1;
        let name = name.to_string();
        self.journal.note(&Record::Begin { op, kind, name });
        op
    }

    fn end(&mut self, op: u32, began: Instant, outcome: Outcome) {
        let us = u64::try_from(began.elapsed().as_micros()).unwrap();
        self.journal.note(&Record::End { op, us, outcome });
    }

    async fn act(&mut self, kind: Kind, name: &str) {
        let op = self.begin(kind, name);
        let began = Instant::now();
        let outcome = self.perform(kind, name, op).await;
        self.end(op, began, outcome);
    }

    async fn perform(&mut self, kind: Kind, name: &str, op: u32) -> Outcome {
        let catalog = self.catalog.clone();
        match kind {
            Kind::Create | Kind::Revive | Kind::Overwrite => {
                let mode = match kind {
                    Kind::Overwrite => CreateMode::Overwrite,
                    _ => CreateMode::Create,
                };
                let create = catalog.create_table(ident(name), rows(rows_of(op)));
                let created = create.mode(mode).write_params(params()).await;
                created.map_or_else(|e| Outcome::failed(&e), |_| Outcome::DONE)
            }
            Kind::Append => self.append(name, op).await,
            Kind::Drop => {
                let drop = catalog.drop_table(ident(name));
                of_drop(match self.rng.below(4) {
                    // For the purges of what is expired.
                    0 if !is_child(name) => drop.retention(Duration::ZERO).await,
                    _ => drop.await,
                })
            }
            Kind::Undrop => of_drop(catalog.undrop_table(name).await),
            Kind::Purge => {
                let purged = catalog.purge_table(name).await;
                purged.map_or_else(|e| Outcome::failed(&e), |_| Outcome::DONE)
            }
            Kind::PurgeDropped => self.purge_dropped().await,
            Kind::Reconcile => {
                let report = catalog.reconcile(false).await;
                report.map_or_else(|e| Outcome::failed(&e), |_| Outcome::DONE)
            }
            Kind::Open => match catalog.open_table(ident(name)).await {
                Ok(table) => {
                    let read = try_ids(&table).await;
                    let version = table.version().version;
                    self.handles.insert(name.to_string(), table);
                    match read {
                        Ok(rows) => Outcome::Read {
                            version,
                            rows: Content::of(&rows),
                        },
                        Err(e) => Outcome::told("Unread", &e.to_string()),
                    }
                }
                Err(e) => Outcome::failed(&e),
            },
            Kind::Status | Kind::List => match catalog.table_names().await {
                Ok(_) => Outcome::DONE,
                Err(e) => Outcome::failed(&e),
            },
        }
    }

    async fn purge_dropped(&mut self) -> Outcome {
        let which = match self.rng.below(2) {
            0 => Purge::expired(),
            _ => Purge::all(),
        };
        match self.catalog.purge_dropped(which).await {
            Ok(report) => Outcome::Purged {
                names: report.tables.iter().map(|t| name_of(&t.ident)).collect(),
                failed: report
                    .failures
                    .iter()
                    .map(|(ident, e)| (name_of(ident), super::journal::kind_of(e)))
                    .collect(),
            },
            Err(e) => Outcome::failed(&e),
        }
    }

    /// Through a new handle or an old one.
    async fn append(&mut self, name: &str, op: u32) -> Outcome {
        let kept = self.handles.remove(name).filter(|_| self.rng.below(2) == 0);
        let opened = match kept {
            Some(kept) => Ok(kept),
            None => self.catalog.open_table(name).await,
        };
        let mut table = match opened {
            Ok(table) => table,
            // Nothing was sent.
            Err(e) => return Outcome::told("Unopened", &e.to_string()),
        };
        if table.count_fragments() > FULL {
            return Outcome::told("Unopened", "it has enough of them");
        }
        let batch = rows(rows_of(op));
        let schema = batch.schema();
        let reader = RecordBatchIterator::new([Ok(batch)], schema);
        let appended = table.append(reader, Some(params())).await;
        match appended {
            Ok(()) => {
                self.handles.insert(name.to_string(), table);
                Outcome::DONE
            }
            Err(
                e @ (E::CommitConflict { .. }
                | E::RetryableCommitConflict { .. }
                | E::TooMuchWriteContention { .. }
                | E::IncompatibleTransaction { .. }
                | E::Namespace { .. }),
            ) => Outcome::told("Refused", &e.to_string()),
            Err(e) => Outcome::told("Lance", &e.to_string()),
        }
    }
}

fn of_drop(dropped: Result<DroppedTable, Error>) -> Outcome {
    match dropped {
        Ok(dropped) => Outcome::Done {
            version: dropped.version,
        },
        Err(e) => Outcome::failed(&e),
    }
}

/// One of the processes where the environment says so; otherwise what one does, for a while, alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    if let Some(orders) = Orders::given() {
        let (parent, began) = (std::os::unix::process::parent_id(), Instant::now());
        let mut worker = Worker::with(&orders).await;
        let spawn = orders.spawn;
        worker.journal.note(&Record::Hello { spawn });
        while began.elapsed() < LIFE && std::os::unix::process::parent_id() == parent {
            worker.step().await;
        }
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let desk = tempfile::tempdir().unwrap();
    let orders = Orders {
        root: root.path().to_path_buf(),
        journal: desk.path().join("journal"),
        managed: false,
        seat: 0,
        spawn: 1,
        choices: 1,
    };
    let mut worker = Worker::with(&orders).await;
    for kind in [Kind::Create, Kind::Drop, Kind::Undrop, Kind::Open] {
        worker.act(kind, "s0").await;
    }
    let mut tail = super::journal::Tail::of(&orders.journal);
    let told: Vec<Outcome> = tail
        .all()
        .iter()
        .filter_map(|record| match record {
            Record::End { outcome, .. } => Some(outcome.clone()),
            _ => None,
        })
        .collect();
    let version = Some(1);
    let read = Outcome::Read {
        version: 1,
        rows: Content::Of(vec![10_000]),
    };
    assert_eq!(
        told,
        [
            Outcome::DONE,
            Outcome::Done { version },
            Outcome::Done { version },
            read
        ]
    );
}
