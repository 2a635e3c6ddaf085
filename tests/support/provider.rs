//! Lance sessions over one shared memory store, each behind decorators of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use lance::session::Session;
use lance_io::object_store::providers::memory::MemoryStoreProvider;
use lance_io::object_store::{
    ObjectStore as LanceStore, ObjectStoreParams, ObjectStoreProvider, ObjectStoreRegistry,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Attributes, ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use url::Url;

use super::counting::{Counter, CountingStore};
use super::faults::{FaultStore, Faults};
use super::gate::{Gate, GateStore};
use super::latency::LatencyStore;
use super::store_clock::{ClockedStore, StoreClock, Times};

const INDEX_CACHE_BYTES: usize = 16 << 20;
const METADATA_CACHE_BYTES: usize = 64 << 20;
const IO_PARALLELISM: usize = 8;
const DOWNLOAD_RETRIES: usize = 3;

/// A session in which every `memory:` URI leads to `stack`, however Lance asks for it.
///
/// It keeps that scheme because Lance commits with conditional puts there, and unsafely on schemes that it does not
/// know. `ordered` is what Lance is told about the order of listings; the memory store's are always in order.
pub fn session(stack: Arc<dyn ObjectStore>, ordered: bool) -> Arc<Session> {
    let registry = ObjectStoreRegistry::default();
    registry.insert("memory", Arc::new(StackProvider { stack, ordered }));
    Arc::new(Session::new(
        INDEX_CACHE_BYTES,
        METADATA_CACHE_BYTES,
        Arc::new(registry),
    ))
}

#[derive(Debug)]
struct StackProvider {
    stack: Arc<dyn ObjectStore>,
    ordered: bool,
}

#[async_trait]
impl ObjectStoreProvider for StackProvider {
    async fn new_store(
        &self,
        base_path: Url,
        params: &ObjectStoreParams,
    ) -> lance_core::Result<LanceStore> {
        // The registry applies the wrapper of the parameters itself.
        let wrapper = None;
        let mut store = LanceStore::new(
            Arc::clone(&self.stack),
            base_path,
            params.block_size,
            wrapper,
            false,
            self.ordered,
            IO_PARALLELISM,
            DOWNLOAD_RETRIES,
            params.storage_options(),
        );
        // The constructor wraps the store in its I/O tracker and the registry does so again: count once.
        store.inner = Arc::clone(&self.stack);
        Ok(store)
    }

    fn extract_path(&self, url: &Url) -> lance_core::Result<Path> {
        MemoryStoreProvider.extract_path(url)
    }

    fn calculate_object_store_prefix(
        &self,
        url: &Url,
        storage_options: Option<&HashMap<String, String>>,
    ) -> lance_core::Result<String> {
        MemoryStoreProvider.calculate_object_store_prefix(url, storage_options)
    }
}

/// One process as the store sees it: a session of its own, with caches, faults and counts of its own.
#[derive(Clone)]
pub struct Actor {
    pub session: Arc<Session>,
    /// What the session's requests go through, for requests made by hand.
    pub store: Arc<dyn ObjectStore>,
    /// Counts what the actor attempts, also what its faults then refuse.
    pub counter: Counter,
    pub faults: Faults,
}

impl Actor {
    /// Puts faults, and outermost a counter, over `base`.
    pub fn over(base: Arc<dyn ObjectStore>, ordered: bool) -> Self {
        let faulty = FaultStore::new(base);
        let faults = faulty.faults();
        Self::counted(Arc::new(faulty), faults, ordered)
    }

    fn counted(base: Arc<dyn ObjectStore>, faults: Faults, ordered: bool) -> Self {
        let counting = CountingStore::new(base);
        let counter = counting.counter();
        let store: Arc<dyn ObjectStore> = Arc::new(counting);
        Self {
            session: session(Arc::clone(&store), ordered),
            store,
            counter,
            faults,
        }
    }
}

/// All objects of a [`SharedMemory`] at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Vec<(Path, Bytes, Attributes)>,
    times: Times,
}

/// One memory store that any number of actors share; clones share it too.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory {
    memory: Arc<InMemory>,
    clocked: Option<ClockedStore>,
}

impl SharedMemory {
    /// Modification times are the wall clock's.
    pub fn new() -> Self {
        Self::default()
    }

    /// Modification times of what actors write are this clock's.
    pub fn with_clock(clock: StoreClock) -> Self {
        let memory = Arc::new(InMemory::new());
        let clocked = ClockedStore::new(memory.clone(), clock);
        Self {
            memory,
            clocked: Some(clocked),
        }
    }

    pub fn clock(&self) -> Option<StoreClock> {
        self.clocked.as_ref().map(ClockedStore::clock)
    }

    /// The objects without any decorator, for assertions. Writes made here bypass the clock.
    pub fn raw(&self) -> Arc<dyn ObjectStore> {
        self.memory.clone()
    }

    /// What all actors' decorators sit on: the memory, behind the clock if there is one. For planting objects.
    pub fn base(&self) -> Arc<dyn ObjectStore> {
        match &self.clocked {
            Some(clocked) => Arc::new(clocked.clone()),
            None => self.raw(),
        }
    }

    pub fn actor(&self) -> Actor {
        Actor::over(self.base(), true)
    }

    /// An actor whose Lance session does not rely on the order of listings.
    pub fn actor_unordered(&self) -> Actor {
        Actor::over(self.base(), false)
    }

    pub fn actor_with_latency(&self, latency: Duration) -> Actor {
        Actor::over(Arc::new(LatencyStore::new(self.base(), latency)), true)
    }

    /// An actor whose requests wait at the gate, except those that its faults refuse.
    pub fn actor_at_gate(&self, gate: &Gate, actor: usize) -> Actor {
        let gated = GateStore::new(self.base(), gate.clone(), actor);
        Actor::over(Arc::new(gated), true)
    }

    /// An actor whose requests wait at the gate and meet its faults behind it: who lets one through can decide just
    /// then that it fails. The next request released is the one numbered [`Faults::issued`].
    pub fn actor_at_gate_before_faults(&self, gate: &Gate, actor: usize) -> Actor {
        let faulty = FaultStore::new(self.base());
        let faults = faulty.faults();
        let gated = GateStore::new(Arc::new(faulty), gate.clone(), actor);
        Actor::counted(Arc::new(gated), faults, true)
    }

    /// The paths of all objects, sorted.
    pub async fn dump(&self) -> Vec<String> {
        let mut paths: Vec<String> = self
            .metas()
            .await
            .into_iter()
            .map(|meta| meta.location.to_string())
            .collect();
        paths.sort();
        paths
    }

    pub async fn snapshot(&self) -> Snapshot {
        let mut objects = Vec::new();
        for meta in self.metas().await {
            let found = self.memory.get(&meta.location).await.unwrap();
            let attributes = found.attributes.clone();
            objects.push((meta.location, found.bytes().await.unwrap(), attributes));
        }
        let times = match &self.clocked {
            Some(clocked) => clocked.times().await,
            None => Times::new(),
        };
        Snapshot { objects, times }
    }

    /// Makes the objects those of the snapshot again, with the clock's times of then; the wall clock's times and
    /// the entity tags are new. [`Self::fork`] keeps them too.
    ///
    /// Actors made before it hold caches of what was here: make new ones.
    pub async fn restore(&self, snapshot: &Snapshot) {
        for meta in self.metas().await {
            self.memory.delete(&meta.location).await.unwrap();
        }
        for (path, bytes, attributes) in &snapshot.objects {
            let payload = PutPayload::from(bytes.clone());
            let options = PutOptions::from(attributes.clone());
            self.memory.put_opts(path, payload, options).await.unwrap();
        }
        if let Some(clocked) = &self.clocked {
            clocked.set_times(snapshot.times.clone()).await;
        }
    }

    /// A separate copy, identical down to times and entity tags, with a clock of its own that shows the same time.
    pub async fn fork(&self) -> Self {
        let memory = Arc::new(self.memory.fork());
        let clocked = match &self.clocked {
            Some(clocked) => Some(ClockedStore::with_times(
                memory.clone(),
                StoreClock::new(clocked.clock().now()),
                clocked.times().await,
            )),
            None => None,
        };
        Self { memory, clocked }
    }

    async fn metas(&self) -> Vec<ObjectMeta> {
        self.memory.list(None).try_collect().await.unwrap()
    }
}
