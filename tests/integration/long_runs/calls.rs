//! The operations that an actor draws, how they are called, and what their answers say to the model.

use std::error::Error as _;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use lancekeep::arrow::array::{AsArray, RecordBatch};
use lancekeep::arrow::datatypes::Int32Type;
use lancekeep::lance;
use lancekeep::lance::dataset::Dataset;
use lancekeep::lifecycle::{PurgeReport, ReconcileReport};
use lancekeep::uuid::Uuid;
use lancekeep::{Catalog, CreateMode, DroppedTable, Error, ErrorKind, Purge, TableState};

use super::history::{Answer, Deed, Refusal, Status, Table};
use crate::common::rows;
use crate::support::Fault;

pub(super) const TABLES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Create {
        table: usize,
        overwrite: bool,
        row: i32,
    },
    Drop {
        table: usize,
        retention: Option<Duration>,
    },
    Undrop {
        table: usize,
        only: Option<Uuid>,
    },
    Purge {
        table: usize,
        only: Option<Uuid>,
    },
    PurgeDropped {
        expired: bool,
    },
    Open {
        table: usize,
    },
    Status {
        table: usize,
    },
    Names,
    Drops,
    Reconcile {
        dry: bool,
    },
    Declare {
        table: usize,
    },
}

/// A good answer.
#[derive(Debug)]
pub(super) enum Told {
    Created(u64),
    Dropped(DroppedTable),
    Undropped(Uuid),
    Purged(Uuid),
    Swept(PurgeReport),
    Opened {
        version: u64,
        rows: Result<Vec<i32>, lance::Error>,
    },
    Status(TableState),
    Names(Vec<String>),
    Drops(Vec<DroppedTable>),
    Reconciled(ReconcileReport),
    Declared,
}

pub(super) type Reply = Result<Told, Error>;

/// What happened to an operation while it ran.
#[derive(Clone, Debug, Default)]
pub(super) struct Luck {
    pub(super) faults: Vec<Fault>,
    /// Half a lease passed, so that the operation may have stopped itself.
    pub(super) waited: bool,
}

impl Call {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Create {
                overwrite: false, ..
            } => "create",
            Self::Create {
                overwrite: true, ..
            } => "overwrite",
            Self::Drop { .. } => "drop",
            Self::Undrop { only: None, .. } => "undrop",
            Self::Undrop { only: Some(_), .. } => "undrop by id",
            Self::Purge { only: None, .. } => "purge",
            Self::Purge { only: Some(_), .. } => "purge by id",
            Self::PurgeDropped { expired: true } => "purge expired",
            Self::PurgeDropped { expired: false } => "purge all",
            Self::Open { .. } => "open",
            Self::Status { .. } => "status",
            Self::Names => "names",
            Self::Drops => "list dropped",
            Self::Reconcile { dry: true } => "reconcile dry",
            Self::Reconcile { dry: false } => "reconcile",
            Self::Declare { .. } => "declare",
        }
    }

    /// The one table that it is about; `None`: all.
    pub(super) fn table(self) -> Option<usize> {
        match self {
            Self::Create { table, .. }
            | Self::Drop { table, .. }
            | Self::Undrop { table, .. }
            | Self::Purge { table, .. }
            | Self::Open { table }
            | Self::Status { table }
            | Self::Declare { table } => Some(table),
            Self::PurgeDropped { .. } | Self::Names | Self::Drops | Self::Reconcile { .. } => None,
        }
    }

    pub(super) fn only_reads(self) -> bool {
        matches!(self.deed(DateTime::UNIX_EPOCH), Deed::Look)
    }

    pub(super) fn deed(self, now: DateTime<Utc>) -> Deed {
        match self {
            Self::Create { row, overwrite, .. } => Deed::Create { row, overwrite },
            Self::Drop { retention, .. } => Deed::Drop {
                expires: retention.map(|retention| now + retention),
            },
            Self::Undrop { only, .. } => Deed::Undrop { only },
            Self::Purge { only, .. } => Deed::Purge { only },
            Self::PurgeDropped { expired: true } => Deed::PurgeExpired,
            Self::PurgeDropped { expired: false } => Deed::Purge { only: None },
            Self::Declare { .. } => Deed::Declare,
            Self::Reconcile { dry: false } => Deed::Reconcile,
            Self::Reconcile { dry: true }
            | Self::Open { .. }
            | Self::Status { .. }
            | Self::Names
            | Self::Drops => Deed::Look,
        }
    }

    pub(super) async fn run(self, catalog: Catalog) -> Reply {
        Ok(match self {
            Self::Create {
                table,
                overwrite,
                row,
            } => {
                let mode = match overwrite {
                    true => CreateMode::Overwrite,
                    false => CreateMode::Create,
                };
                let create = catalog.create_table(TABLES[table], rows([row]));
                Told::Created(create.mode(mode).await?.version().version)
            }
            Self::Drop { table, retention } => {
                let drop = catalog.drop_table(TABLES[table]).retention(retention);
                Told::Dropped(drop.await?)
            }
            Self::Undrop { table, only } => {
                let mut undrop = catalog.undrop_table(TABLES[table]);
                if let Some(drop_id) = only {
                    undrop = undrop.drop_id(drop_id);
                }
                Told::Undropped(undrop.await?.drop_id)
            }
            Self::Purge { table, only } => {
                let mut purge = catalog.purge_table(TABLES[table]);
                if let Some(drop_id) = only {
                    purge = purge.drop_id(drop_id);
                }
                Told::Purged(purge.await?.drop_id)
            }
            Self::PurgeDropped { expired } => {
                let which = match expired {
                    true => Purge::expired(),
                    false => Purge::all(),
                };
                Told::Swept(catalog.purge_dropped(which).await?)
            }
            Self::Open { table } => {
                let dataset = catalog.open_table(TABLES[table]).await?;
                Told::Opened {
                    version: dataset.version().version,
                    rows: read(&dataset).await,
                }
            }
            Self::Status { table } => Told::Status(catalog.table_status(TABLES[table]).await?),
            Self::Names => Told::Names(catalog.table_names().await?),
            Self::Drops => Told::Drops(catalog.list_dropped_tables().await?),
            Self::Reconcile { dry } => Told::Reconciled(catalog.reconcile(dry).await?),
            Self::Declare { table } => {
                catalog.declare_table(TABLES[table]).await?;
                Told::Declared
            }
        })
    }
}

/// The rows of a table, which a purge may delete under the reader.
pub(super) async fn read(dataset: &Dataset) -> Result<Vec<i32>, lance::Error> {
    let scan = dataset.scan().try_into_stream().await?;
    let batches: Vec<RecordBatch> = scan.try_collect().await?;
    let values = |batch: &RecordBatch| {
        let ids = batch.column(0).as_primitive::<Int32Type>();
        ids.values().to_vec()
    };
    Ok(batches.iter().flat_map(values).collect())
}

/// What a reply says about each table that it is about; an error where nothing at all justifies it.
pub(super) fn answers(
    call: Call,
    reply: &Reply,
    luck: &Luck,
) -> Result<Vec<(usize, Answer)>, String> {
    let each = |answer: &dyn Fn(&str) -> Answer| -> Vec<(usize, Answer)> {
        let tables = TABLES.iter().enumerate();
        tables.map(|(table, name)| (table, answer(name))).collect()
    };
    let one = |answer: Answer| match call.table() {
        Some(table) => vec![(table, answer)],
        None => each(&|_| answer),
    };
    let told = match reply {
        Ok(told) => told,
        // Only the listing before the work fails as a whole.
        Err(error) if call.table().is_none() => {
            refusal(error, luck)?;
            return Ok(each(&|_| Answer::Nothing));
        }
        Err(error) => return Ok(one(Answer::Refused(refusal(error, luck)?))),
    };
    Ok(match told {
        Told::Created(version) => one(Answer::Created { version: *version }),
        Told::Dropped(dropped) => one(Answer::Dropped(dropped.drop_id)),
        Told::Undropped(drop_id) => {
            if let Call::Undrop {
                only: Some(only), ..
            } = call
                && only != *drop_id
            {
                return Err(format!("asked to undo {only}, it undid {drop_id}"));
            }
            one(Answer::Undropped(*drop_id))
        }
        Told::Purged(drop_id) => one(Answer::Purged(*drop_id)),
        Told::Swept(report) => {
            let mut found = each(&|_| Answer::Nothing);
            for purged in &report.tables {
                found[index(&purged.ident.parts().concat())?].1 = Answer::Purged(purged.drop_id);
            }
            for (ident, error) in &report.failures {
                let refused = Answer::Refused(refusal(error, luck)?);
                found[index(&ident.parts().concat())?].1 = refused;
            }
            found
        }
        Told::Opened { version, rows } => one(opened(*version, rows, luck)?),
        Told::Status(state) => one(Answer::Status(status(state)?)),
        Told::Names(names) => each(&|name| Answer::Named(names.iter().any(|n| n == name))),
        Told::Drops(drops) => each(&|name| {
            let mut drops = drops.iter();
            let found = drops.find(|dropped| dropped.ident.parts() == [name]);
            Answer::Kept(found.map(|dropped| dropped.drop_id))
        }),
        Told::Reconciled(report) => {
            for finding in &report.findings {
                if let Some(error) = &finding.error {
                    refusal(error, luck)?;
                }
            }
            each(&|_| Answer::Nothing)
        }
        Told::Declared => one(Answer::Declared),
    })
}

fn index(name: &str) -> Result<usize, String> {
    let found = TABLES.iter().position(|table| *table == name);
    found.ok_or_else(|| format!("there is no table {name}"))
}

fn opened(
    version: u64,
    rows: &Result<Vec<i32>, lance::Error>,
    luck: &Luck,
) -> Result<Answer, String> {
    match rows {
        Ok(rows) => match rows.as_slice() {
            [row] => Ok(Answer::Opened(Table { row: *row, version })),
            _ => Err(format!("rows of more than one create: {rows:?}")),
        },
        Err(error) => {
            let text = format!("{error} {error:?}");
            if luck.faults.iter().any(|fault| shows(&text, *fault)) {
                return Ok(Answer::Unseen { version });
            }
            if text.to_lowercase().contains("not found") {
                return Ok(Answer::Unread { version });
            }
            Err(format!("its rows cannot be read: {text}"))
        }
    }
}

fn status(state: &TableState) -> Result<Status, String> {
    Ok(match state {
        TableState::Live { version } => Status::Live { version: *version },
        TableState::Dropped(dropped) => Status::Dropped(dropped.drop_id),
        TableState::Restoring(dropped) => Status::Restoring(dropped.drop_id),
        TableState::Purging(dropped) => Status::Purging(dropped.drop_id),
        TableState::Creating => Status::Creating,
        TableState::Declared => Status::Declared,
        TableState::Incomplete => Status::Incomplete,
        TableState::Absent => Status::Absent,
        other => return Err(format!("nobody makes it {other:?}")),
    })
}

/// What an error says; an error where it says what cannot be.
fn refusal(error: &Error, luck: &Luck) -> Result<Refusal, String> {
    Ok(match error {
        Error::TableNotFound { .. } => Refusal::NotFound,
        Error::TableAlreadyExists { .. } => Refusal::Exists,
        Error::TableDropped { dropped } => Refusal::IsDropped(dropped.drop_id),
        Error::TableNotDropped { .. } => Refusal::NotDropped,
        Error::RestoreInProgress { drop_id, .. } => Refusal::Restoring(*drop_id),
        Error::PurgeInProgress { drop_id, .. } => Refusal::Purging(*drop_id),
        Error::Conflict { .. } => Refusal::Conflict,
        // Lance's own word for another commit that came first.
        Error::Lance { .. } if error.kind() == ErrorKind::Conflict => Refusal::Conflict,
        Error::Storage { .. } | Error::Lance { .. } => {
            let text = chain(error);
            let injected = luck.faults.iter().any(|fault| shows(&text, *fault));
            // Lance's own time-out of a commit whose lease is used up.
            let timed_out = luck.waited && error.kind() == ErrorKind::Lance && error.is_retryable();
            if !injected && !timed_out {
                return Err(format!(
                    "of the faults {:?} none explains {text}",
                    luck.faults
                ));
            }
            Refusal::Fault
        }
        other => return Err(format!("nothing justifies {}", chain(other))),
    })
}

fn chain(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Whether the text names the fault for what it was.
fn shows(text: &str, fault: Fault) -> bool {
    match fault {
        Fault::Unavailable503 => text.contains("503 Service Unavailable"),
        Fault::Timeout => text.contains("operation timed out"),
        Fault::PermissionDenied => text.contains("403 Forbidden"),
        Fault::NotImplemented | Fault::AlreadyExists => false,
    }
}
