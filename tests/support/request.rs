//! What one call to a store costs in requests: the vocabulary that the decorators share.

use object_store::path::Path;
use object_store::{GetOptions, PutMode, PutOptions};

/// Entries in one page of a listing, and paths in one bulk delete, as on S3.
pub const PAGE: usize = 1000;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Get,
    Head,
    Put,
    /// A put that succeeds only where nothing is.
    PutCreate,
    /// The start, the completion or the abort of a multipart upload; its parts are not requests here.
    PutMultipart,
    /// One bulk delete of up to [`PAGE`] paths.
    Delete,
    List,
    ListDelimited,
    Copy,
    Rename,
}

impl Kind {
    pub fn is_write(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::List | Self::ListDelimited => false,
            Self::Put
            | Self::PutCreate
            | Self::PutMultipart
            | Self::Delete
            | Self::Copy
            | Self::Rename => true,
        }
    }
}

/// One request, as a decorator sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    pub kind: Kind,
    /// The object, the listed prefix, the first path of a bulk delete, or the target of a copy or rename.
    pub path: String,
}

impl Request {
    pub fn new(kind: Kind, path: impl Into<String>) -> Self {
        Self {
            kind,
            path: path.into(),
        }
    }

    pub fn put(location: &Path, options: &PutOptions) -> Self {
        let kind = match options.mode {
            PutMode::Create => Kind::PutCreate,
            PutMode::Overwrite | PutMode::Update(_) => Kind::Put,
        };
        Self::at(kind, location)
    }

    pub fn put_multipart(location: &Path) -> Self {
        Self::at(Kind::PutMultipart, location)
    }

    pub fn get(location: &Path, options: &GetOptions) -> Self {
        let kind = if options.head { Kind::Head } else { Kind::Get };
        Self::at(kind, location)
    }

    /// However many the ranges, they travel together.
    pub fn get_ranges(location: &Path) -> Self {
        Self::at(Kind::Get, location)
    }

    pub fn delete(first: &Path) -> Self {
        Self::at(Kind::Delete, first)
    }

    pub fn list(prefix: Option<&Path>) -> Self {
        Self::under(Kind::List, prefix)
    }

    pub fn list_delimited(prefix: Option<&Path>) -> Self {
        Self::under(Kind::ListDelimited, prefix)
    }

    pub fn copy(to: &Path) -> Self {
        Self::at(Kind::Copy, to)
    }

    pub fn rename(to: &Path) -> Self {
        Self::at(Kind::Rename, to)
    }

    fn at(kind: Kind, location: &Path) -> Self {
        Self::new(kind, location.to_string())
    }

    fn under(kind: Kind, prefix: Option<&Path>) -> Self {
        Self::new(kind, prefix.map(Path::to_string).unwrap_or_default())
    }
}

/// Requests that a listing of this many results takes: an empty one takes one too.
pub fn pages(results: usize) -> usize {
    results.div_ceil(PAGE).max(1)
}
