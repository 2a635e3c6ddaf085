//! Errors of Lance and of the object store as ours.

use crate::error::{Error, ErrorKind, Redactor};
use crate::ident::TableIdent;

/// Whether a failed store request may succeed when sent again.
pub(crate) fn is_retryable_store_error(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    match error {
        E::Generic { source, .. } => {
            !is_permanent_io(source.as_ref())
                && !http_status(source.as_ref()).is_some_and(is_permanent_status)
        }
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

/// The status that a server answered with. Where the client keeps it from its own error kinds, as it does for listings,
/// it is only in the words of the innermost error.
fn http_status(error: &(dyn std::error::Error + 'static)) -> Option<u16> {
    let mut next = Some(error);
    while let Some(e) = next {
        let text = e.to_string();
        let status = text.strip_prefix("Server returned non-2xx status code: ");
        if let Some(status) = status.and_then(|s| s.get(..3)?.parse().ok()) {
            return Some(status);
        }
        next = e.source();
    }
    None
}

/// Whether the same request would be answered so again: refused, or sent to a place that is not there. What a server
/// is too busy for, or busy with, is not.
fn is_permanent_status(status: u16) -> bool {
    matches!(status, 400..=499 | 501) && !matches!(status, 408 | 409 | 425 | 429)
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
    use snafu::Snafu;

    #[derive(Debug, Snafu)]
    #[snafu(display("Server returned non-2xx status code: {status} Some Words: <Error/>"))]
    struct Answered {
        status: u16,
    }

    #[derive(Debug, Snafu)]
    #[snafu(display("Error performing list request: {source}"))]
    struct Listing {
        source: Answered,
    }

    #[test]
    fn a_listing_is_worth_repeating_by_its_status() {
        for (status, retryable) in [
            (403, false),
            (404, false),
            (400, false),
            (501, false),
            (408, true),
            (409, true),
            (429, true),
            (500, true),
            (503, true),
        ] {
            let source = Answered { status };
            let error = object_store::Error::Generic {
                store: "S3",
                source: Box::new(Listing { source }),
            };
            assert_eq!(is_retryable_store_error(&error), retryable, "{status}");
        }
    }
}
