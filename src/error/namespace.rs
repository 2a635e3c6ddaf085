//! Our errors as those of the namespace trait, so that every path to a catalog (this crate's own calls, the trait,
//! REST) tells the same code.

use lance_namespace::NamespaceError;

use crate::error::{Error, ErrorKind};

impl From<Error> for NamespaceError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::InvalidIdent | ErrorKind::InvalidInput => Self::InvalidInput { message },
            // To who asks for the table it is not there; the message says how to get it back.
            ErrorKind::TableNotFound | ErrorKind::TableDropped | ErrorKind::TableDeregistered => {
                Self::TableNotFound { message }
            }
            ErrorKind::VersionNotFound => Self::TableVersionNotFound { message },
            ErrorKind::TableAlreadyExists => Self::TableAlreadyExists { message },
            ErrorKind::TableNotDropped => Self::InvalidTableState { message },
            ErrorKind::PurgeInProgress | ErrorKind::RestoreInProgress | ErrorKind::Conflict => {
                Self::ConcurrentModification { message }
            }
            ErrorKind::Unsupported => Self::Unsupported { message },
            ErrorKind::Storage if error.is_retryable() => Self::ServiceUnavailable { message },
            ErrorKind::Storage | ErrorKind::CorruptMetadata | ErrorKind::Lance => {
                Self::Internal { message }
            }
        }
    }
}

impl From<Error> for lance_core::Error {
    fn from(error: Error) -> Self {
        NamespaceError::from(error).into()
    }
}
