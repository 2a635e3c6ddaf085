//! How a catalog is put together.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lance::session::Session;
use lance_io::object_store::WrappingObjectStore;

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::lifecycle::claim::MAX_LEASE;
use crate::lifecycle::{COMMIT_WINDOW, Lifecycle};
use crate::store::{Clock, RootStore, SystemClock};

/// How long a drop is kept unless the catalog or the drop says otherwise: 7 days.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const RESTORE_LEASE: Duration = Duration::from_secs(60);
const PURGE_LEASE: Duration = Duration::from_secs(15 * 60);

/// Builds a [`Catalog`]. Values of storage options are never printed: `Debug` shows their keys, and an error whose
/// text holds a value of four or more characters shows `[storage option]` in its place.
pub struct CatalogBuilder {
    uri: String,
    storage_options: HashMap<String, String>,
    session: Option<Arc<Session>>,
    retention: Option<Duration>,
    clock: Arc<dyn Clock>,
    wrapper: Option<Arc<dyn WrappingObjectStore>>,
    restore_lease: Duration,
    purge_lease: Duration,
    managed: bool,
    commit_window: Duration,
}

impl fmt::Debug for CatalogBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut keys: Vec<_> = self.storage_options.keys().collect();
        keys.sort_unstable();
        f.debug_struct("CatalogBuilder")
            .field("storage_options", &keys)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

impl CatalogBuilder {
    pub(crate) fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            storage_options: HashMap::new(),
            session: None,
            retention: Some(DEFAULT_RETENTION),
            clock: Arc::new(SystemClock),
            wrapper: None,
            restore_lease: RESTORE_LEASE,
            purge_lease: PURGE_LEASE,
            managed: false,
            commit_window: COMMIT_WINDOW,
        }
    }

    /// Options of the store (credentials, region, endpoint, …), as Lance takes them. They reach every table.
    pub fn storage_options(
        mut self,
        options: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        self.storage_options
            .extend(options.into_iter().map(|(k, v)| (k.into(), v.into())));
        self
    }

    /// One more option of the store.
    pub fn storage_option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.storage_options.insert(key.into(), value.into());
        self
    }

    /// The Lance session to use, for its caches and its registry of stores. Default: one of the catalog's own.
    pub fn session(mut self, session: Arc<Session>) -> Self {
        self.session = Some(session);
        self
    }

    /// How long a drop is kept unless it says otherwise; `None`: until it is purged by name. Default:
    /// [`DEFAULT_RETENTION`].
    pub fn retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.retention = retention.into();
        self
    }

    /// The clock that dates drops and decides which are expired. Default: the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Wraps the store under the catalog and under every table that it opens, to meter or to trace requests. On
    /// local disk Lance reads and writes data files without it.
    pub fn object_store_wrapper(mut self, wrapper: Arc<dyn WrappingObjectStore>) -> Self {
        self.wrapper = Some(wrapper);
        self
    }

    /// How long the work of a process that stopped in the middle of a restore (undrop, create) or of a purge is left
    /// alone before others finish it. A lease must be several times longer than the slowest single request of the
    /// store, its retries included: the owner stops after half of it. Default: 1 minute and 15 minutes.
    pub fn leases(mut self, restore: Duration, purge: Duration) -> Self {
        self.restore_lease = restore;
        self.purge_lease = purge;
        self
    }

    /// Whether the versions of tables are created through the catalog: by the datasets that it returns, and by every
    /// client that asks it for a table and follows `managed_versioning`. Then a commit to a dropped root table is refused,
    /// and so is one by a writer that read an earlier table of the name. What is on disk is the same, so stock readers read on.
    ///
    /// It is a matter of the whole root: switch it on in every catalog that writes or purges there. A purge waits until its
    /// drop is one [`commit_window`](Self::commit_window) old. Default: `false`.
    pub fn managed_versioning(mut self, managed: bool) -> Self {
        self.managed = managed;
        self
    }

    /// How long a commit under managed versioning may take from its look at the drop state until it has taken effect; the
    /// same in every catalog of a root. The commit itself stops after half of it, so a single request to the store, its
    /// retries included, may take the other half. A purge of a drop that is younger waits for the rest. Default: 10 seconds.
    pub fn commit_window(mut self, window: Duration) -> Self {
        self.commit_window = window;
        self
    }

    /// The catalog. Resolves the root and looks at nothing but, on local disk, the root directory itself; writes
    /// nothing, and the root need not exist yet.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a root that cannot be one (a file, an unknown scheme, a bad option), and
    /// [`Error::Unsupported`] for a store on which Lance has no atomic create-if-absent.
    pub async fn build(self) -> Result<Catalog> {
        let leases = [self.restore_lease, self.purge_lease];
        if leases.iter().any(|l| l.is_zero() || *l > MAX_LEASE) {
            return Err(Error::InvalidInput {
                message: "a lease must be longer than zero, and at most a day".to_string(),
            });
        }
        let too_long = self.commit_window > self.purge_lease / 4;
        if self.managed && (too_long || self.commit_window.is_zero()) {
            return Err(Error::InvalidInput {
                message: "the commit window must be longer than zero, and at most a quarter of a purge's lease"
                    .to_string(),
            });
        }
        let session = self.session.unwrap_or_default();
        let store = RootStore::connect(
            &self.uri,
            self.storage_options,
            self.wrapper,
            session,
            self.clock,
        )
        .await?;
        let lifecycle = Lifecycle::new(
            Arc::new(store),
            self.restore_lease,
            self.purge_lease,
            self.managed.then_some(self.commit_window),
        );
        Ok(Catalog::from_parts(lifecycle, self.retention, self.managed))
    }
}
