//! One error type, and what each kind asks of the caller.
//!
//! Every operation of the crate fails with [`Error`]. Match on [`Error::kind`] to decide what to do, and use
//! [`Error::is_retryable`] to decide whether the same call may succeed later. A failure of the store is always
//! [`Error::Storage`] or [`Error::Lance`], never "not found".
//!
//! No value of a storage option is ever printed: when the text of an underlying error holds one, the error is
//! replaced by a copy of its text with the value blacked out (see [`CatalogBuilder`](crate::catalog::CatalogBuilder)).

use chrono::{DateTime, Utc};
use snafu::Snafu;
use uuid::Uuid;

use crate::ident::{NamespaceIdent, TableIdent};
use crate::lifecycle::DroppedTable;

mod from_lance;
mod namespace;
pub(crate) mod redact;

pub(crate) use from_lance::{from_lance, is_retryable_store_error};
pub(crate) use namespace::{Subject, from_base};
pub(crate) use redact::Redactor;

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An underlying error, already free of storage option values.
pub type Cause = Box<dyn std::error::Error + Send + Sync + 'static>;

/// What went wrong.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be the name of a table or namespace; refused before any I/O.
    #[snafu(display("invalid name {name:?}: {rule}"))]
    InvalidIdent {
        /// The offending name, as given.
        name: String,
        /// The rule that it breaks.
        rule: String,
    },

    /// An argument other than a name is wrong; refused before anything was changed.
    #[snafu(display("invalid input: {message}"))]
    InvalidInput {
        /// What is wrong with it.
        message: String,
    },

    /// There is no such table, or what is there cannot be opened as one.
    #[snafu(display("table {ident} not found: {reason}"))]
    TableNotFound {
        /// The table asked for.
        ident: TableIdent,
        /// Missing, incomplete, declared only, or finished by somebody else meanwhile.
        reason: String,
    },

    /// The table exists, but not the version or tag asked for.
    #[snafu(display("table {ident} has no such version: {reason}"))]
    VersionNotFound {
        /// The table asked for.
        ident: TableIdent,
        /// The version or tag, and what Lance says of it.
        reason: String,
    },

    /// The table that a writer read was purged; what is there now under its name is another one. Open it again.
    #[snafu(display(
        "table {ident} is not the one that was read: {reason}; open it again to write to it"
    ))]
    TableReplaced {
        /// The table written to.
        ident: TableIdent,
        /// What tells them apart.
        reason: String,
    },

    /// A live table already has this name.
    #[snafu(display("table {ident} already exists"))]
    TableAlreadyExists {
        /// The table that is there.
        ident: TableIdent,
    },

    /// There is no such namespace.
    #[snafu(display("namespace {ident} not found"))]
    NamespaceNotFound {
        /// The namespace that is missing.
        ident: NamespaceIdent,
    },

    /// A namespace, or a table in the same parent, already has this name.
    #[snafu(display("namespace {ident} already exists"))]
    NamespaceAlreadyExists {
        /// The namespace that is there.
        ident: NamespaceIdent,
    },

    /// Only an empty namespace can be dropped.
    #[snafu(display("namespace {ident} is not empty: drop what is in it first"))]
    NamespaceNotEmpty {
        /// The namespace, unchanged.
        ident: NamespaceIdent,
    },

    /// The table was dropped and is kept: undrop it, purge it, or create over it.
    #[snafu(display(
        "table {} was dropped at {}{}; undrop_table restores it, purge_table deletes it for good, \
         create_table starts a new version over it",
        dropped.ident,
        dropped.deleted_at,
        match dropped.expires_at { Some(t) => format!(" and may be purged from {t}"), None => " and is kept until purged by name".to_string() },
    ))]
    TableDropped {
        /// The drop: when, until when, and why.
        dropped: Box<DroppedTable>,
    },

    /// Another client deregistered the table: its data is there, [`undrop_table`](crate::Catalog::undrop_table)
    /// brings it back.
    #[snafu(display(
        "table {ident} was deregistered by another client; undrop_table brings it back"
    ))]
    TableDeregistered {
        /// The deregistered table.
        ident: TableIdent,
    },

    /// The table is live, so there is nothing to restore or to purge.
    #[snafu(display("table {ident} is not dropped"))]
    TableNotDropped {
        /// The live table.
        ident: TableIdent,
    },

    /// Somebody decided to purge this drop first; the table will be gone.
    #[snafu(display(
        "a purge of table {ident} (drop {drop_id}) is in progress since {since}, owner {owner}"
    ))]
    PurgeInProgress {
        /// The table being purged.
        ident: TableIdent,
        /// The drop that the decision is about.
        drop_id: Uuid,
        /// Who decided.
        owner: Uuid,
        /// When, by the store's clock.
        since: DateTime<Utc>,
    },

    /// Somebody decided to restore this drop first (undrop or create); the table will be live.
    #[snafu(display(
        "a restore of table {ident} (drop {drop_id}) is in progress since {since}, owner {owner}"
    ))]
    RestoreInProgress {
        /// The table being restored.
        ident: TableIdent,
        /// The drop that the decision is about.
        drop_id: Uuid,
        /// Who decided.
        owner: Uuid,
        /// When, by the store's clock.
        since: DateTime<Utc>,
    },

    /// Another process got in between, or a lease ran out under work that can be resumed; the same call may be made
    /// again.
    #[snafu(display("conflict on {ident}: {message}"))]
    Conflict {
        /// The contended table or namespace.
        ident: TableIdent,
        /// Who or what got in between.
        message: String,
    },

    /// The operation, or the store under the catalog, cannot do this.
    #[snafu(display("unsupported: {message}"))]
    Unsupported {
        /// What is missing.
        message: String,
    },

    /// A record of the catalog on the store cannot be read as one.
    #[snafu(display("corrupt metadata at {path}: {message}"))]
    CorruptMetadata {
        /// The object.
        path: String,
        /// Why it cannot be read.
        message: String,
    },

    /// The object store failed.
    #[snafu(display("storage failure while trying to {operation} {path}: {source}"))]
    Storage {
        /// What was being done.
        operation: &'static str,
        /// The object or prefix.
        path: String,
        /// Whether the same request may succeed later.
        retryable: bool,
        /// The store's own error.
        source: Cause,
    },

    /// Lance failed on the table's data or metadata.
    #[snafu(display("lance failed to {operation} table {ident}: {source}"))]
    Lance {
        /// What was being done.
        operation: &'static str,
        /// The table.
        ident: TableIdent,
        /// What it means for the caller.
        kind: ErrorKind,
        /// Whether the same call may succeed later.
        retryable: bool,
        /// Lance's own error.
        source: Cause,
    },
}

/// What an error asks of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Correct the name.
    InvalidIdent,
    /// Correct the argument.
    InvalidInput,
    /// The table is not there.
    TableNotFound,
    /// The version or tag is not there.
    VersionNotFound,
    /// Open the table again.
    TableReplaced,
    /// Choose another name or mode.
    TableAlreadyExists,
    /// Create the namespace first.
    NamespaceNotFound,
    /// Choose another name, or use what is there.
    NamespaceAlreadyExists,
    /// Drop what is in it first.
    NamespaceNotEmpty,
    /// Undrop, purge or create over it.
    TableDropped,
    /// Undrop it.
    TableDeregistered,
    /// Drop it first.
    TableNotDropped,
    /// Wait; it will be gone.
    PurgeInProgress,
    /// Wait; it will be live.
    RestoreInProgress,
    /// Try again.
    Conflict,
    /// Do something else.
    Unsupported,
    /// Look at the store; try again if retryable.
    Storage,
    /// Look at the named object.
    CorruptMetadata,
    /// Lance refused or failed; look at the source.
    Lance,
}

impl Error {
    /// The kind, for matching.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidIdent { .. } => ErrorKind::InvalidIdent,
            Self::InvalidInput { .. } => ErrorKind::InvalidInput,
            Self::TableNotFound { .. } => ErrorKind::TableNotFound,
            Self::VersionNotFound { .. } => ErrorKind::VersionNotFound,
            Self::TableReplaced { .. } => ErrorKind::TableReplaced,
            Self::TableAlreadyExists { .. } => ErrorKind::TableAlreadyExists,
            Self::NamespaceNotFound { .. } => ErrorKind::NamespaceNotFound,
            Self::NamespaceAlreadyExists { .. } => ErrorKind::NamespaceAlreadyExists,
            Self::NamespaceNotEmpty { .. } => ErrorKind::NamespaceNotEmpty,
            Self::TableDropped { .. } => ErrorKind::TableDropped,
            Self::TableDeregistered { .. } => ErrorKind::TableDeregistered,
            Self::TableNotDropped { .. } => ErrorKind::TableNotDropped,
            Self::PurgeInProgress { .. } => ErrorKind::PurgeInProgress,
            Self::RestoreInProgress { .. } => ErrorKind::RestoreInProgress,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::CorruptMetadata { .. } => ErrorKind::CorruptMetadata,
            Self::Storage { .. } => ErrorKind::Storage,
            Self::Lance { kind, .. } => *kind,
        }
    }

    /// Whether the same call, unchanged, may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::PurgeInProgress { .. }
            | Self::RestoreInProgress { .. }
            | Self::Conflict { .. } => true,
            Self::Storage { retryable, .. } | Self::Lance { retryable, .. } => *retryable,
            _ => false,
        }
    }
}
