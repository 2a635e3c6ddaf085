//! The catalog's view of the object store under its root: single requests with typed answers.
//!
//! Promises: "not found" is an answer, every other failure is an error; a create-if-absent whose acknowledgement was
//! lost is recognised by its content. Refuses: retries of its own (the store's client retries already), and any
//! path outside the root.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance::session::Session;
use lance_io::object_store::{
    ObjectStore, ObjectStoreParams, StorageOptionsAccessor, WrappingObjectStore,
};
use lance_table::io::commit::{CommitHandler, commit_handler_from_url};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode};

use crate::error::{Error, Redactor, Result, is_retryable_store_error};
use crate::ident::{MAX_CHILD_ID_LEN, MAX_LOCAL_CHILD_ID_LEN, MAX_LOCAL_NAME_LEN, MAX_NAME_LEN};

mod local;
mod manifests;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod slot;
mod uri;

pub(crate) use slot::Slot;
use uri::{encode_segment, has_atomic_create, normalize_root, store_of};
pub(crate) use uri::{join, uri_below};

/// Tells the time of day. Decides when a drop counts as expired, never what is safe.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The current time.
    fn now(&self) -> DateTime<Utc>;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// Keys of one bulk delete, as S3 limits them.
pub(crate) const DELETE_BATCH: usize = 1000;

/// What became of a create-if-absent.
pub(crate) enum Created {
    /// The object is ours.
    New,
    /// Somebody else's object is there (its content, unless it vanished again).
    Exists(Option<(Bytes, ObjectMeta)>),
}

/// What became of publishing a manifest.
pub(crate) enum Published {
    /// It is there, with this tag.
    Here { e_tag: Option<String> },
    /// Another one is.
    Other,
}

/// The store, the root in it, and what every request under it needs.
pub(crate) struct RootStore {
    pub(crate) store: Arc<ObjectStore>,
    pub(crate) base: Path,
    /// Root without a trailing slash: a plain path on local disk, a URL elsewhere.
    pub(crate) root_uri: String,
    pub(crate) params: ObjectStoreParams,
    pub(crate) session: Arc<Session>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) redactor: Redactor,
    pub(crate) commit_handler: Arc<dyn CommitHandler>,
    plain_path: bool,
}

impl fmt::Debug for RootStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootStore")
            .field("root_uri", &self.root_uri)
            .finish_non_exhaustive()
    }
}

impl RootStore {
    /// Resolves the root. No request, except a look at the directory itself on local disk.
    pub(crate) async fn connect(
        uri: &str,
        options: HashMap<String, String>,
        wrapper: Option<Arc<dyn WrappingObjectStore>>,
        session: Arc<Session>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let redactor = Redactor::new(&options);
        let bad_root = |e: lance_core::Error| Error::InvalidInput {
            message: format!(
                "cannot use {:?} as a root: {}",
                redactor.text(uri),
                redactor.text(&e.to_string())
            ),
        };
        let params = ObjectStoreParams {
            storage_options_accessor: (!options.is_empty())
                .then(|| Arc::new(StorageOptionsAccessor::with_static_options(options))),
            object_store_wrapper: wrapper,
            ..Default::default()
        };
        let (root_uri, plain_path) = normalize_root(uri, &redactor)?;
        if !plain_path && !has_atomic_create(&root_uri) {
            return Err(Error::Unsupported {
                message: format!(
                    "root {:?}: Lance has no atomic create-if-absent for this scheme, so neither commits nor drops \
                     would be safe",
                    redactor.text(uri)
                ),
            });
        }
        let handler = commit_handler_from_url(&root_uri, &Some(params.clone()))
            .await
            .map_err(bad_root)?;
        let (store, base) =
            ObjectStore::from_uri_and_params(session.store_registry(), &root_uri, &params)
                .await
                .map_err(bad_root)?;
        let this = Self {
            store,
            base,
            root_uri,
            params,
            session,
            clock,
            redactor,
            commit_handler: handler,
            plain_path,
        };
        if let Some(dir) = this.local_path(&this.base) {
            let is_file = match std::fs::metadata(&dir) {
                Ok(found) => !found.is_dir(),
                Err(e) => e.kind() == std::io::ErrorKind::NotADirectory,
            };
            if is_file {
                return Err(Error::InvalidInput {
                    message: format!(
                        "root {:?} is a file, or below one, not a directory",
                        this.root_uri
                    ),
                });
            }
        }
        Ok(this)
    }

    /// The longest id of a table in a namespace: it is part of a directory's name, beside which the records of a drop
    /// must fit.
    pub(crate) fn max_child_id_len(&self) -> usize {
        if self.max_name_len() == MAX_LOCAL_NAME_LEN {
            MAX_LOCAL_CHILD_ID_LEN
        } else {
            MAX_CHILD_ID_LEN
        }
    }

    /// The longest name of a table that can be dropped and restored here.
    pub(crate) fn max_name_len(&self) -> usize {
        if self.store.is_local() || self.store.scheme() == "file-object-store" {
            MAX_LOCAL_NAME_LEN
        } else {
            MAX_NAME_LEN * 4
        }
    }

    /// An object or prefix directly under the root. The name is a checked path segment.
    pub(crate) fn child(&self, name: &str) -> Result<Path> {
        join(&self.base, name)
    }

    /// The URI that Lance opens for a directory below the root.
    pub(crate) fn uri_of(&self, location: &str, table: &Path) -> Result<String> {
        // As a URL escapes it; and literally, as the base writes what a URL need not escape.
        let escaped = location
            .split('/')
            .map(encode_segment)
            .collect::<Vec<_>>()
            .join("/");
        let spellings = match self.plain_path {
            true => vec![location],
            false => vec![escaped.as_str(), location],
        };
        let registry = self.session.store_registry();
        for spelling in spellings {
            let uri = format!("{}/{spelling}", self.root_uri);
            let resolved = ObjectStore::extract_path_from_uri(registry.clone(), &uri);
            if resolved.is_ok_and(|path| &path == table) {
                return Ok(uri);
            }
        }
        Err(Error::InvalidIdent {
            name: location.to_string(),
            rule: "Lance cannot address this name in a URI of this store".to_string(),
        })
    }

    /// The path below the root that a URI (or an absolute local path) names, relative to the root; `None` for any
    /// other place.
    pub(crate) fn location_of(&self, uri: &str) -> Option<String> {
        if store_of(uri)? != store_of(&self.root_uri)? {
            return None;
        }
        let registry = self.session.store_registry();
        let path = ObjectStore::extract_path_from_uri(registry, uri).ok()?;
        let mut rest = path.prefix_match(&self.base)?.peekable();
        rest.peek()?;
        let parts: Vec<_> = rest.map(|p| p.as_ref().to_string()).collect();
        Some(parts.join("/"))
    }

    pub(crate) fn storage(
        &self,
        operation: &'static str,
        path: &Path,
        error: object_store::Error,
    ) -> Error {
        Error::Storage {
            operation,
            path: path.to_string(),
            retryable: is_retryable_store_error(&error),
            source: self.redactor.cause(error),
        }
    }

    /// A failure that reached us through lance-io.
    pub(crate) fn storage_via_lance(
        &self,
        operation: &'static str,
        path: &Path,
        error: lance_core::Error,
    ) -> Error {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        let mut retryable = false;
        while let Some(e) = next {
            if let Some(found) = e.downcast_ref::<object_store::Error>() {
                retryable = is_retryable_store_error(found);
                break;
            }
            next = e.source();
        }
        Error::Storage {
            operation,
            path: path.to_string(),
            retryable,
            source: self.redactor.cause(error),
        }
    }

    /// Whether an error says that nothing is there. A file where a directory would have to be says so too, unless it
    /// is the root itself; and so does a name that no file can have.
    fn is_absent(&self, error: &object_store::Error) -> bool {
        use std::io::ErrorKind as K;
        match (error, io_kind(error)) {
            (object_store::Error::NotFound { .. }, _) | (_, Some(K::InvalidFilename)) => true,
            (_, Some(K::NotADirectory)) => self.is_dir(&self.base),
            _ => false,
        }
    }

    /// 1 GET.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<(Bytes, ObjectMeta)>> {
        let read = async {
            let result = self.store.inner.get(path).await?;
            let meta = result.meta.clone();
            Ok((result.bytes().await?, meta))
        };
        match read.await {
            Ok(found) => Ok(Some(found)),
            Err(e) if self.is_absent(&e) => Ok(None),
            Err(e) => Err(self.storage("read", path, e)),
        }
    }

    /// 1 HEAD.
    pub(crate) async fn head(&self, path: &Path) -> Result<Option<ObjectMeta>> {
        match self.store.inner.head(path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(e) if self.is_absent(&e) => Ok(None),
            Err(e) => Err(self.storage("stat", path, e)),
        }
    }

    /// Creates the object if it is absent: 1 PUT, and 1 GET unless it was plainly created.
    ///
    /// `content` must be unique to the caller: finding it under the name means that an acknowledgement was lost.
    pub(crate) async fn create(&self, path: &Path, content: Bytes) -> Result<Created> {
        use object_store::Error as E;
        let put = self
            .store
            .inner
            .put_opts(path, content.clone().into(), PutMode::Create.into())
            .await;
        let error = match put {
            Ok(_) => return Ok(Created::New),
            Err(E::NotImplemented { .. } | E::NotSupported { .. }) => return Err(self.no_create()),
            Err(e) => e,
        };
        let exists = matches!(error, E::AlreadyExists { .. } | E::Precondition { .. });
        if exists && self.is_dir(path) {
            return Err(Error::CorruptMetadata {
                path: path.to_string(),
                message: "a directory is where the catalog keeps a record".to_string(),
            });
        }
        match self.get(path).await {
            Ok(Some((found, _))) if found == content => Ok(Created::New),
            Ok(found) if exists || found.is_some() => Ok(Created::Exists(found)),
            Err(e) if exists => Err(e),
            _ => Err(self.storage("create", path, error)),
        }
    }

    fn no_create(&self) -> Error {
        Error::Unsupported {
            message: format!(
                "the store under {:?} has no atomic create-if-absent (conditional put), which every drop, restore and \
                 commit needs; nothing was written",
                self.root_uri
            ),
        }
    }

    /// 1 PUT, whatever was there.
    pub(crate) async fn put(&self, path: &Path, content: Bytes) -> Result<()> {
        match self.store.inner.put(path, content.into()).await {
            Ok(_) => Ok(()),
            Err(e) => Err(self.storage("write", path, e)),
        }
    }

    /// 1 DELETE; deleting what is gone is success.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        match self.store.inner.delete(path).await {
            Ok(()) => Ok(()),
            Err(e) if self.is_absent(&e) => Ok(()),
            Err(e) => Err(self.storage("delete", path, e)),
        }
    }

    /// One bulk delete of at most [`DELETE_BATCH`] objects; those already gone do not matter.
    pub(crate) async fn delete_batch(&self, batch: &[Path]) -> Result<()> {
        let Some(first) = batch.first() else {
            return Ok(());
        };
        let paths: Vec<_> = batch.iter().cloned().map(Ok).collect();
        let mut deleted = self
            .store
            .inner
            .delete_stream(futures::stream::iter(paths).boxed());
        let mut failed = None;
        // To the end, also after a failure: some stores delete one by one, several at a time.
        while let Some(result) = deleted.next().await {
            match result {
                Ok(_) => {}
                Err(e) if self.is_absent(&e) => {}
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        match failed {
            Some(e) => Err(self.storage("bulk-delete from", first, e)),
            None => Ok(()),
        }
    }

    /// Every object below a prefix, as they are read: ⌈K/1000⌉ LIST, each when what it finds is asked for. Holds one
    /// page where the store lists in pages.
    pub(crate) fn list<'a>(&'a self, prefix: &'a Path) -> BoxStream<'a, Result<ObjectMeta>> {
        let listing = self.store.inner.list(Some(prefix));
        let found = listing.filter_map(move |found| {
            let found = match found {
                Ok(object) => Some(Ok(object)),
                Err(e) if self.is_absent(&e) => None,
                Err(e) => Some(Err(self.storage("list", prefix, e))),
            };
            std::future::ready(found)
        });
        found.boxed()
    }

    /// The same, all in memory.
    pub(crate) async fn list_all(&self, prefix: &Path) -> Result<Vec<ObjectMeta>> {
        self.list(prefix).try_collect().await
    }

    /// The immediate children of a directory, as (names of objects, names of prefixes): ⌈children/1000⌉ LIST.
    pub(crate) async fn list_dir(&self, dir: &Path) -> Result<(Vec<String>, Vec<String>)> {
        let listed = match self.store.inner.list_with_delimiter(Some(dir)).await {
            Ok(listed) => listed,
            Err(e) if self.is_absent(&e) => return Ok(Default::default()),
            Err(e) => return Err(self.storage("list", dir, e)),
        };
        let name = |p: &Path| p.filename().map(str::to_string);
        Ok((
            listed
                .objects
                .iter()
                .filter_map(|o| name(&o.location))
                .collect(),
            listed.common_prefixes.iter().filter_map(name).collect(),
        ))
    }
}

/// The file system's own word inside a store error.
fn io_kind(error: &object_store::Error) -> Option<std::io::ErrorKind> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = match error {
        object_store::Error::Generic { source, .. } => Some(source.as_ref()),
        _ => None,
    };
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        next = e.source();
    }
    None
}

pub(crate) fn is_not_found(error: &lance_core::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = next {
        if let Some(found) = e.downcast_ref::<object_store::Error>() {
            return matches!(found, object_store::Error::NotFound { .. });
        }
        next = e.source();
    }
    false
}
