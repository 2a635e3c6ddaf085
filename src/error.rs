//! One error type, and what each kind asks of the caller.
//!
//! Every operation of the crate fails with [`Error`]. Match on [`Error::kind`] to decide what to do, and use
//! [`Error::is_retryable`] to decide whether the same call may succeed later. A failure of the store is always
//! [`Error::Storage`] or [`Error::Lance`], never "not found".
//!
//! No value of a storage option is ever printed: when the text of an underlying error holds one, the error is
//! replaced by a copy of its text with the value blacked out (see [`CatalogBuilder`](crate::catalog::CatalogBuilder)).

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use snafu::Snafu;
use uuid::Uuid;

use crate::ident::TableIdent;
use crate::lifecycle::DroppedTable;

mod namespace;

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An underlying error, already free of storage option values.
pub type Cause = Box<dyn std::error::Error + Send + Sync + 'static>;

/// What went wrong.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be the name of a table; refused before any I/O.
    #[snafu(display("invalid table name {name:?}: {rule}"))]
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

    /// A live table already has this name.
    #[snafu(display("table {ident} already exists"))]
    TableAlreadyExists {
        /// The table that is there.
        ident: TableIdent,
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
    #[snafu(display("conflict on table {ident}: {message}"))]
    Conflict {
        /// The contended table.
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
    /// Choose another name or mode.
    TableAlreadyExists,
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
            Self::TableAlreadyExists { .. } => ErrorKind::TableAlreadyExists,
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

/// Blacks out the values of storage options in the text of errors.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    values: Vec<String>,
}

impl Redactor {
    pub(crate) fn new(options: &HashMap<String, String>) -> Self {
        let mut values: Vec<String> = options
            .values()
            // A short value or a flag would black out half of every message and hides nothing.
            .filter(|v| v.len() >= 4 && !matches!(v.as_str(), "true" | "false"))
            // As it is, as `Debug` escapes it, and as a URL does.
            .flat_map(|v| [v.clone(), v.escape_debug().to_string(), url_encoded(v)])
            .collect();
        // Longest first, so that a value that holds another one goes as a whole.
        values.sort_by_key(|v| std::cmp::Reverse(v.len()));
        Self { values }
    }

    pub(crate) fn cause(&self, error: impl std::error::Error + Send + Sync + 'static) -> Cause {
        let mut texts = vec![error.to_string(), format!("{error:?}")];
        let mut next = std::error::Error::source(&error);
        while let Some(inner) = next {
            texts.push(inner.to_string());
            next = inner.source();
        }
        if texts.iter().all(|t| self.is_clean(t)) {
            Box::new(error)
        } else {
            Box::new(Redacted {
                text: self.text(&texts[0]),
            })
        }
    }

    pub(crate) fn text(&self, text: &str) -> String {
        self.values.iter().fold(text.to_string(), |t, v| {
            t.replace(v.as_str(), "[storage option]")
        })
    }

    fn is_clean(&self, text: &str) -> bool {
        !self.values.iter().any(|v| text.contains(v.as_str()))
    }
}

fn url_encoded(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(b).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.values.len())
    }
}

/// The text of an error that held a storage option's value.
#[derive(Debug, Snafu)]
#[snafu(display("{text}"))]
struct Redacted {
    text: String,
}

/// Whether a failed store request may succeed when sent again.
pub(crate) fn is_retryable_store_error(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    match error {
        E::Generic { source, .. } => !is_permanent_io(source.as_ref()),
        E::JoinError { .. } => true,
        _ => false,
    }
}

fn is_permanent_io(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind as K;
    let mut next = Some(error);
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                K::StorageFull
                    | K::ReadOnlyFilesystem
                    | K::NotADirectory
                    | K::IsADirectory
                    | K::PermissionDenied
                    | K::InvalidFilename
                    | K::QuotaExceeded
            );
        }
        next = e.source();
    }
    false
}

/// Turns an error of Lance into ours, keeping what it asks of the caller.
pub(crate) fn from_lance(
    error: lance_core::Error,
    operation: &'static str,
    ident: &TableIdent,
    redactor: &Redactor,
) -> Error {
    use lance_core::Error as L;
    let ident = ident.clone();
    if let Some(store) = store_error(&error) {
        let retryable = is_retryable_store_error(store);
        let kind = match store {
            object_store::Error::NotImplemented { .. }
            | object_store::Error::NotSupported { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Storage,
        };
        return Error::Lance {
            operation,
            ident,
            kind,
            retryable,
            source: redactor.cause(error),
        };
    }
    if let Some(permanent) = io_error(&error) {
        return Error::Lance {
            operation,
            ident,
            kind: ErrorKind::Storage,
            retryable: !permanent,
            source: redactor.cause(error),
        };
    }
    let (kind, retryable) = match &error {
        L::DatasetNotFound { .. } => {
            return Error::TableNotFound {
                ident,
                reason: "nothing is there".to_string(),
            };
        }
        L::DatasetAlreadyExists { .. } => return Error::TableAlreadyExists { ident },
        L::VersionNotFound { .. } | L::RefNotFound { .. } => {
            return Error::VersionNotFound {
                ident,
                reason: redactor.text(&error.to_string()),
            };
        }
        L::InvalidRef { .. }
        | L::InvalidInput { .. }
        | L::SchemaMismatch { .. }
        | L::Schema { .. } => (ErrorKind::InvalidInput, false),
        L::NotSupported { .. } => (ErrorKind::Unsupported, false),
        L::CommitConflict { .. }
        | L::RetryableCommitConflict { .. }
        | L::TooMuchWriteContention { .. } => (ErrorKind::Conflict, true),
        L::Timeout { .. } => (ErrorKind::Lance, true),
        _ => (ErrorKind::Lance, false),
    };
    Error::Lance {
        operation,
        ident,
        kind,
        retryable,
        source: redactor.cause(error),
    }
}

/// Whether the file system failed, for good or not, under Lance's own local readers and writers.
fn io_error(error: &lance_core::Error) -> Option<bool> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            // `Other` is how sources of data and Lance itself wrap what is no failure of the file system.
            let is_file_system = !matches!(
                io.kind(),
                std::io::ErrorKind::NotFound
                    | std::io::ErrorKind::Other
                    | std::io::ErrorKind::InvalidData
                    | std::io::ErrorKind::InvalidInput
            );
            return is_file_system.then(|| is_permanent_io(e));
        }
        next = e.source();
    }
    None
}

/// The object store's error inside an error of Lance, where there is one.
fn store_error(error: &lance_core::Error) -> Option<&object_store::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = next {
        if let Some(found) = e.downcast_ref::<object_store::Error>() {
            return match found {
                object_store::Error::NotFound { .. } => None,
                other => Some(other),
            };
        }
        next = e.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redactor_blacks_out_values_anywhere_in_the_chain() {
        let options = HashMap::from([
            ("secret".to_string(), "sentinel-1234".to_string()),
            ("allow_http".to_string(), "true".to_string()),
        ]);
        let redactor = Redactor::new(&options);
        let inner = std::io::Error::other("denied for sentinel-1234");
        let error = object_store::Error::Generic {
            store: "S3",
            source: Box::new(inner),
        };
        let cause = redactor.cause(error);
        assert!(!format!("{cause} {cause:?}").contains("sentinel"));
        assert!(cause.to_string().contains("[storage option]"));
        assert!(!format!("{redactor:?}").contains("sentinel"));
    }

    #[test]
    fn a_clean_error_keeps_its_type() {
        let redactor = Redactor::default();
        let cause = redactor.cause(std::io::Error::other("x"));
        assert!(cause.downcast_ref::<std::io::Error>().is_some());
    }
}
