//! The suites on real stores: memory, local disk, S3 (moto's server) and Azure Blob (azurite), each test on each of them.
//!
//! A suite is a function of a [`Place`] or of a catalog on it, and [`on_each_store!`] makes its four tests: those of the
//! facade are in [`namespace`](crate::namespace), of the manifest store in [`managed`](crate::managed), of the lifecycle
//! in [`lifecycle`](crate::lifecycle) and [`children`](crate::children). Here is what only a store of one's own, or a
//! server that can be harmed, shows. The servers are started by the tests; one that cannot start fails them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::TryStreamExt;
use lancekeep::Catalog;
use lancekeep::catalog::CatalogBuilder;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::lance::session::Session;
use lancekeep::lance_io::object_store::{
    ObjectStore as LanceStore, ObjectStoreParams, StorageOptionsAccessor,
};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::support::SharedMemory;
use crate::support::servers::{Protocol, Server};

mod errors;
mod life;

/// The same tests on each store, which their names tell.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            use crate::stores::{Place, Store};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                super::$test(&Place::new(Store::Memory)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_local_disk() {
                super::$test(&Place::new(Store::Disk)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_s3() {
                super::$test(&Place::new(Store::S3)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_azure() {
                super::$test(&Place::new(Store::Azure)).await;
            }
        })*
    };
}
pub(crate) use on_each_store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Disk,
    S3,
    Azure,
}

/// A root of its own on a store.
pub(crate) struct Place {
    pub(crate) uri: String,
    pub(crate) options: HashMap<String, String>,
    memory: Option<SharedMemory>,
    _dir: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn new(store: Store) -> Self {
        match store {
            Store::Memory => {
                let memory = Some(SharedMemory::new());
                let uri = "memory://root".to_string();
                Self {
                    memory,
                    ..Self::at(uri, [])
                }
            }
            Store::Disk => {
                let dir = tempfile::tempdir().unwrap();
                let uri = dir.path().to_str().unwrap().to_string();
                let _dir = Some(dir);
                Self {
                    _dir,
                    ..Self::at(uri, [])
                }
            }
            Store::S3 => Self::on(Server::shared(Protocol::S3)),
            Store::Azure => Self::on(Server::shared(Protocol::Azure)),
        }
    }

    /// In a new bucket of the server.
    pub(crate) fn on(server: &Server) -> Self {
        Self::at(format!("{}/root", server.bucket()), server.options())
    }

    /// Where somebody else made it; not in memory, which one process does not share with another.
    pub(crate) fn at(uri: String, options: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            uri,
            options: options.into_iter().collect(),
            memory: None,
            _dir: None,
        }
    }

    /// For another process, which is [`Self::told`] it; on a server the text holds the test's keys.
    pub(crate) fn tell(&self) -> String {
        assert!(self.memory.is_none(), "memory is one process's own");
        serde_json::to_string(&(&self.uri, &self.options)).unwrap()
    }

    pub(crate) fn told(text: &str) -> Self {
        let (uri, options): (String, HashMap<String, String>) = serde_json::from_str(text).unwrap();
        Self::at(uri, options)
    }

    /// A root of its own below this one's place, that goes with it.
    pub(crate) fn below(&self, name: &str) -> Self {
        Self {
            memory: self.memory.clone(),
            ..Self::at(self.uri_of(name), self.options.clone())
        }
    }

    /// The session of a process of its own.
    pub(crate) fn session(&self) -> Arc<Session> {
        match &self.memory {
            Some(memory) => memory.actor().session,
            None => Arc::new(Session::default()),
        }
    }

    /// The catalog of a process of its own, to be built; with the default leases nothing may need one to run out.
    pub(crate) fn builder(&self) -> CatalogBuilder {
        Catalog::builder(&self.uri)
            .storage_options(self.options.clone())
            .session(self.session())
    }

    pub(crate) async fn catalog(&self) -> Catalog {
        self.builder().build().await.unwrap()
    }

    pub(crate) fn uri_of(&self, name: &str) -> String {
        format!("{}/{name}", self.uri)
    }

    /// How an application without a catalog writes here.
    pub(crate) fn write_params(&self) -> WriteParams {
        WriteParams {
            store_params: Some(self.params()),
            session: Some(self.session()),
            ..Default::default()
        }
    }

    /// A table as an application without a catalog opens it.
    pub(crate) async fn plain(&self, uri: &str) -> Dataset {
        DatasetBuilder::from_uri(uri)
            .with_session(self.session())
            .with_storage_options(self.options.clone())
            .load()
            .await
            .unwrap()
    }

    pub(crate) fn params(&self) -> ObjectStoreParams {
        store_params(self.options.clone())
    }

    /// The objects themselves, past every catalog, and the root among them.
    pub(crate) async fn objects(&self) -> (Arc<dyn ObjectStore>, Path) {
        let registry = self.session().store_registry();
        let found = LanceStore::from_uri_and_params(registry, &self.uri, &self.params()).await;
        let (store, base) = found.unwrap();
        (store.inner.clone(), base)
    }

    /// Writes an object below the root.
    pub(crate) async fn plant(&self, name: &str, content: impl Into<Vec<u8>>) {
        let (objects, base) = self.objects().await;
        let path = Path::parse(format!("{base}/{name}")).unwrap();
        let content: Vec<u8> = content.into();
        objects.put(&path, content.into()).await.unwrap();
    }

    /// What lies directly in the root, directories of local disk too.
    pub(crate) async fn entries(&self) -> BTreeSet<String> {
        if !self.uri.contains("://") {
            let entries = std::fs::read_dir(&self.uri).unwrap();
            return entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
        }
        let first = |name: String| name.split('/').next().unwrap().to_string();
        self.names().await.into_iter().map(first).collect()
    }

    /// All objects below the root by name.
    pub(crate) async fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let (objects, base) = self.objects().await;
        let mut contents = BTreeMap::new();
        for name in self.names().await {
            let path = Path::parse(format!("{base}/{name}")).unwrap();
            let found = objects.get(&path).await.unwrap();
            contents.insert(name, found.bytes().await.unwrap().to_vec());
        }
        contents
    }

    /// Removes what is below a prefix of the root by hand.
    pub(crate) async fn remove(&self, prefix: &str) {
        let (objects, base) = self.objects().await;
        for name in self.names().await {
            if name.starts_with(&format!("{prefix}/")) {
                let path = Path::parse(format!("{base}/{name}")).unwrap();
                objects.delete(&path).await.unwrap();
            }
        }
    }

    /// The names of all objects below the root, sorted.
    pub(crate) async fn names(&self) -> Vec<String> {
        let (objects, base) = self.objects().await;
        let metas: Vec<ObjectMeta> = objects.list(Some(&base)).try_collect().await.unwrap();
        let name = |meta: &ObjectMeta| {
            let parts = meta.location.prefix_match(&base).unwrap();
            let parts: Vec<String> = parts.map(|p| p.as_ref().to_string()).collect();
            parts.join("/")
        };
        let mut names: Vec<String> = metas.iter().map(name).collect();
        names.sort();
        names
    }
}

/// What Lance wants to be told of the storage options.
pub(crate) fn store_params(options: HashMap<String, String>) -> ObjectStoreParams {
    ObjectStoreParams {
        storage_options_accessor: (!options.is_empty())
            .then(|| Arc::new(StorageOptionsAccessor::with_static_options(options))),
        ..Default::default()
    }
}
