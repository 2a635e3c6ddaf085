//! Our errors as those of the namespace trait and back, so that every path to a catalog (this crate's own calls, the
//! trait, REST) tells the same code.

use lance_namespace::NamespaceError;

use crate::error::from_lance::from_lance;
use crate::error::{Error, ErrorKind, Redactor};
use crate::ident::{NamespaceIdent, TableIdent};

/// What an operation of a base namespace was about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'a> {
    Table(&'a TableIdent),
    Namespace(&'a NamespaceIdent),
}

impl Subject<'_> {
    fn table(self) -> TableIdent {
        match self {
            Self::Table(ident) => ident.clone(),
            Self::Namespace(ident) => TableIdent::from(ident.parts()),
        }
    }

    /// The namespace that is missing, where one is.
    fn namespace(self) -> NamespaceIdent {
        match self {
            Self::Table(ident) => ident.namespace(),
            Self::Namespace(ident) => ident.clone(),
        }
    }
}

/// An error of a base namespace as ours: by its code where it has one.
pub(crate) fn from_base(
    error: lance_core::Error,
    operation: &'static str,
    subject: Subject<'_>,
    redactor: &Redactor,
) -> Error {
    use NamespaceError as N;
    let code = match &error {
        lance_core::Error::Namespace { source, .. } => source.downcast_ref::<N>(),
        _ => None,
    };
    let Some(code) = code else {
        return from_lance(error, operation, &subject.table(), redactor);
    };
    let message = redactor.text(code.message());
    match code {
        N::NamespaceNotFound { .. } => Error::NamespaceNotFound {
            ident: subject.namespace(),
        },
        N::NamespaceAlreadyExists { .. } => Error::NamespaceAlreadyExists {
            ident: subject.namespace(),
        },
        N::NamespaceNotEmpty { .. } => Error::NamespaceNotEmpty {
            ident: subject.namespace(),
        },
        N::TableNotFound { .. } => Error::TableNotFound {
            ident: subject.table(),
            reason: "no such table is registered".to_string(),
        },
        N::TableAlreadyExists { .. } => Error::TableAlreadyExists {
            ident: subject.table(),
        },
        N::ConcurrentModification { .. } | N::Throttling { .. } => Error::Conflict {
            ident: subject.table(),
            message,
        },
        N::InvalidInput { .. } => Error::InvalidInput { message },
        N::Unsupported { .. } => Error::Unsupported { message },
        _ => {
            let retryable = matches!(code, N::ServiceUnavailable { .. });
            Error::Storage {
                operation,
                path: format!("{:?}", subject.table().parts()),
                retryable,
                source: redactor.cause(error),
            }
        }
    }
}

impl From<Error> for NamespaceError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::InvalidIdent | ErrorKind::InvalidInput => Self::InvalidInput { message },
            // To who asks for the table it is not there; the message says how to get it back.
            ErrorKind::TableNotFound | ErrorKind::TableDropped | ErrorKind::TableDeregistered => {
                Self::TableNotFound { message }
            }
            ErrorKind::NamespaceNotFound => Self::NamespaceNotFound { message },
            ErrorKind::NamespaceAlreadyExists => Self::NamespaceAlreadyExists { message },
            ErrorKind::NamespaceNotEmpty => Self::NamespaceNotEmpty { message },
            ErrorKind::VersionNotFound => Self::TableVersionNotFound { message },
            ErrorKind::TableAlreadyExists => Self::TableAlreadyExists { message },
            ErrorKind::TableNotDropped | ErrorKind::TableReplaced => {
                Self::InvalidTableState { message }
            }
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
