//! What the model is told: what an operation does to a table, what it answers, and what is found at rest.

use chrono::{DateTime, Utc};
use lancekeep::uuid::Uuid;

/// What a table holds: the only row of its latest version, which tells who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Table {
    pub(super) row: i32,
    pub(super) version: u64,
}

/// What an operation does to this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Create { row: i32, overwrite: bool },
    Drop { expires: Option<DateTime<Utc>> },
    Undrop { only: Option<Uuid> },
    Purge { only: Option<Uuid> },
    PurgeExpired,
    Declare,
    Reconcile,
    Look,
}

impl Deed {
    pub(super) fn may_restore(self) -> bool {
        // A drop that fell on nothing takes itself back by a restore.
        matches!(
            self,
            Self::Create { .. } | Self::Undrop { .. } | Self::Drop { .. }
        )
    }

    pub(super) fn may_purge(self) -> bool {
        matches!(self, Self::Purge { .. } | Self::PurgeExpired)
    }
}

/// What an operation said about this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Created {
        version: u64,
    },
    Dropped(Uuid),
    Undropped(Uuid),
    Purged(Uuid),
    Declared,
    Opened(Table),
    /// It was opened, and then its rows were gone.
    Unread {
        version: u64,
    },
    /// It was opened, and a fault kept its rows from being read.
    Unseen {
        version: u64,
    },
    Status(Status),
    /// Whether the name was among those of the visible tables.
    Named(bool),
    /// Whether, and as which, it was among the drops.
    Kept(Option<Uuid>),
    /// It did nothing here and said nothing.
    Nothing,
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Live { version: u64 },
    Dropped(Uuid),
    Restoring(Uuid),
    Purging(Uuid),
    Creating,
    Declared,
    Incomplete,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    Exists,
    IsDropped(Uuid),
    NotDropped,
    Restoring(Uuid),
    Purging(Uuid),
    Conflict,
    /// A fault that was injected into this operation, as itself; or its own time-out. What became of the operation is
    /// not known.
    Fault,
}

/// What was found when nothing was under way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Bare { clean: bool },
    Live(Table),
    Dropped { table: Option<Table>, drop_id: Uuid },
}
