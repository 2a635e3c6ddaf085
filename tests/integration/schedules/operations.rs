//! What an actor can do to the one table, and what it can be told.

use std::sync::Arc;

use lance_core::Error as LanceError;
use lance_namespace::ErrorCode;
use lancekeep::lance::dataset::{
    CommitBuilder, Dataset, InsertBuilder, WriteDestination, WriteMode, WriteParams,
};
use lancekeep::{Catalog, CreateMode, Error, ErrorKind, Purge};

use crate::common::rows;
use crate::managed::code_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// Over a dropped name that is a revive.
    Create,
    Overwrite,
    Drop,
    Undrop,
    Purge,
    /// Of all drops that are expired.
    PurgeExpired,
    Reconcile,
    Open,
    /// The names, and then the drops.
    List,
    /// An append through a table of the catalog, which manages the versions.
    Commit,
}

impl Op {
    pub(super) const ALL: [Self; 10] = [
        Self::Create,
        Self::Overwrite,
        Self::Drop,
        Self::Undrop,
        Self::Purge,
        Self::PurgeExpired,
        Self::Reconcile,
        Self::Open,
        Self::List,
        Self::Commit,
    ];

    /// Whether it may change what the table is; the others only look, or finish what was decided.
    pub(super) fn changes(self) -> bool {
        !matches!(self, Self::Reconcile | Self::Open | Self::List)
    }

    pub(super) async fn run(self, catalog: Catalog, actor: usize) -> Heard {
        let heard = match self {
            Self::Create => create(&catalog, actor, CreateMode::Create).await,
            Self::Overwrite => create(&catalog, actor, CreateMode::Overwrite).await,
            Self::Drop => catalog.drop_table("t").await.map(|_| Heard::Done),
            Self::Undrop => catalog.undrop_table("t").await.map(|_| Heard::Done),
            Self::Purge => catalog.purge_table("t").await.map(|_| Heard::Done),
            Self::PurgeExpired => purge_expired(&catalog).await,
            Self::Reconcile => reconcile(&catalog).await,
            Self::Open => match catalog.open_table("t").await {
                Ok(table) => Ok(Heard::Given(Table::of(&table).await)),
                Err(error) => Err(error),
            },
            Self::List => list(&catalog).await,
            Self::Commit => return commit(&catalog, actor).await,
        };
        heard.unwrap_or_else(|error| Heard::Failed(Why::of(&error), format!("{error:?}")))
    }
}

async fn create(catalog: &Catalog, actor: usize, mode: CreateMode) -> Result<Heard, Error> {
    let table = catalog.create_table("t", rows(created(actor)));
    let table = table.mode(mode).await?;
    Ok(Heard::Given(Table::of(&table).await))
}

async fn purge_expired(catalog: &Catalog) -> Result<Heard, Error> {
    let mut report = catalog.purge_dropped(Purge::expired()).await?;
    if let Some((_, error)) = report.failures.pop() {
        return Err(error);
    }
    Ok(match report.tables.len() {
        0 => Heard::NothingDue,
        _ => Heard::Done,
    })
}

async fn reconcile(catalog: &Catalog) -> Result<Heard, Error> {
    let report = catalog.reconcile(false).await?;
    for finding in report.findings {
        if let Some(error) = finding.error {
            return Err(error);
        }
    }
    Ok(Heard::Done)
}

async fn list(catalog: &Catalog) -> Result<Heard, Error> {
    let names = catalog.table_names().await?;
    let drops = catalog.list_dropped_tables().await?;
    assert!(names.is_empty() || names == ["t"], "{names:?}");
    assert!(drops.len() <= 1, "{drops:?}");
    Ok(Heard::Listed {
        visible: !names.is_empty(),
        dropped: !drops.is_empty(),
    })
}

async fn commit(catalog: &Catalog, actor: usize) -> Heard {
    let table = match catalog.open_table("t").await {
        Ok(table) => Arc::new(table),
        Err(error) => return Heard::Failed(Why::of(&error), format!("{error:?}")),
    };
    let read = Table::of(&table).await;
    match append(table, actor).await {
        Ok(table) => Heard::Given(Table::of(&table).await),
        Err(error) => {
            let why = Why::of_commit(&error);
            Heard::Failed(why, format!("{error:?}, having read {read:?}"))
        }
    }
}

async fn append(table: Arc<Dataset>, actor: usize) -> Result<Dataset, LanceError> {
    let params = WriteParams {
        mode: WriteMode::Append,
        ..Default::default()
    };
    let batch = rows(committed(actor));
    let transaction = InsertBuilder::new(WriteDestination::Dataset(table.clone()))
        .with_params(&params)
        .execute_uncommitted(vec![batch])
        .await?;
    // One attempt more than a rival needs: what looks as a conflict to Lance is tried again twenty times otherwise.
    CommitBuilder::new(WriteDestination::Dataset(table))
        .with_max_retries(2)
        .execute(transaction)
        .await
}

/// The ids that are there at the start.
pub(super) fn original() -> std::ops::Range<i32> {
    0..1
}

/// The ids of what an actor creates. No two sets of writers add up to the same number of rows.
pub(super) fn created(actor: usize) -> std::ops::Range<i32> {
    range(100, actor, 1)
}

/// The ids of what an actor appends.
pub(super) fn committed(actor: usize) -> std::ops::Range<i32> {
    range(1000, actor, 2)
}

fn range(from: i32, actor: usize, shift: u32) -> std::ops::Range<i32> {
    let actor = i32::try_from(actor).unwrap();
    let first = from * (actor + 1);
    first..first + (1 << (2 * u32::try_from(actor).unwrap() + shift))
}

/// A version as a handle knows it, without reading: the number of its rows tells who wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub(super) version: u64,
    pub(super) rows: usize,
}

impl Table {
    pub(super) fn original() -> Self {
        Self {
            version: 1,
            rows: original().len(),
        }
    }

    pub(super) async fn of(dataset: &Dataset) -> Self {
        Self {
            version: dataset.version().version,
            rows: dataset.count_rows(None).await.unwrap(),
        }
    }

    /// All rows that its writers wrote, sorted.
    pub(super) fn ids(self) -> Vec<i32> {
        let mut ids = Vec::new();
        let mut take = |range: std::ops::Range<i32>| {
            if self.rows & range.len() != 0 {
                ids.extend(range);
            }
        };
        take(original());
        for actor in 0..super::ACTORS {
            take(created(actor));
            take(committed(actor));
        }
        ids.sort_unstable();
        ids
    }
}

/// What an actor was told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Heard {
    Done,
    Given(Table),
    /// No drop is expired.
    NothingDue,
    Listed {
        visible: bool,
        dropped: bool,
    },
    Failed(Why, String),
    /// Nothing: it was stopped, or it waits for somebody who was.
    Nothing,
}

/// Why an operation failed, for the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Why {
    Dropped,
    NotFound,
    NotDropped,
    Exists,
    Purging,
    Restoring,
    Conflict,
    Replaced,
    /// The store, or Lance on it.
    Storage,
    Other,
}

impl Why {
    fn of(error: &Error) -> Self {
        // What Lance says of a commit that lost is passed on.
        let conflict = error.kind() == ErrorKind::Conflict;
        if matches!(error, Error::Lance { .. } | Error::Storage { .. }) && !conflict {
            return Self::Storage;
        }
        match error.kind() {
            ErrorKind::TableDropped => Self::Dropped,
            ErrorKind::TableNotFound => Self::NotFound,
            ErrorKind::TableNotDropped => Self::NotDropped,
            ErrorKind::TableAlreadyExists => Self::Exists,
            ErrorKind::PurgeInProgress => Self::Purging,
            ErrorKind::RestoreInProgress => Self::Restoring,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::TableReplaced => Self::Replaced,
            _ => Self::Other,
        }
    }

    /// Lance wraps what the catalog says of a commit.
    fn of_commit(error: &LanceError) -> Self {
        match (code_of(error), error) {
            (Some(ErrorCode::InvalidTableState), _) => Self::Dropped,
            (Some(ErrorCode::TableNotFound), _) => Self::NotFound,
            (Some(ErrorCode::ConcurrentModification), _) => Self::Conflict,
            (
                None,
                LanceError::CommitConflict { .. }
                | LanceError::RetryableCommitConflict { .. }
                | LanceError::TooMuchWriteContention { .. }
                | LanceError::IncompatibleTransaction { .. },
            ) => Self::Conflict,
            (Some(_), _) => Self::Other,
            (None, _) => Self::Storage,
        }
    }
}
