//! Notes what every request of a run touched, and where what stands in the store comes from.
//!
//! A scheduler needs the first to know which requests can be swapped, and the second to know whether two runs left the
//! same: names and contents hold random ids, so an object is "what actor 1 put there as its next write after having
//! heard this and that".

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};

use super::faults::{Fault, When};
use super::request::{Kind, Request};

/// A fingerprint of any value.
pub fn fingerprint(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, Debug)]
struct ActorState {
    /// Everything it was told, in order.
    history: u64,
    /// How often it changed something.
    changes: u64,
    /// Done to its next request.
    fault: Option<(When, Fault)>,
}

/// What a request read and what it changed; a create-if-absent that fails, or a delete of nothing, only read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    reads: Vec<String>,
    /// Prefixes of which anything may have been read.
    listed: Vec<String>,
    writes: Vec<String>,
    /// Prefixes below which anything may be changed.
    cleared: Vec<String>,
}

impl Footprint {
    /// What a request may touch that was not sent yet. A bulk delete is known by its first path only; it stays below
    /// `scope` if that path does.
    pub fn expected(request: &Request, scope: &str) -> Self {
        let path = vec![request.path.clone()];
        let mut expected = Self::default();
        match request.kind {
            Kind::Get | Kind::Head => expected.reads = path,
            Kind::List | Kind::ListDelimited => expected.listed = path,
            Kind::Delete if below(&request.path, scope) => expected.cleared = vec![scope.into()],
            _ => expected.writes = path,
        }
        expected
    }

    /// Whether the order of two requests can matter.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.hits(other) || other.hits(self)
    }

    /// Whether what this one changes is something that the other one touches.
    fn hits(&self, other: &Self) -> bool {
        let touched = || other.reads.iter().chain(&other.writes);
        let trees = || other.listed.iter().chain(&other.cleared);
        let near = |tree: &String, path: &String| below(path, tree) || below(tree, path);
        self.writes
            .iter()
            .any(|path| touched().any(|p| p == path) || trees().any(|tree| below(path, tree)))
            || self.cleared.iter().any(|tree| {
                touched().any(|path| below(path, tree)) || trees().any(|other| near(tree, other))
            })
    }
}

fn below(path: &str, prefix: &str) -> bool {
    prefix.is_empty()
        || path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub actor: usize,
    pub request: Request,
    pub footprint: Footprint,
}

#[derive(Debug)]
struct State {
    /// The origin of what stands at each path.
    objects: BTreeMap<Path, u64>,
    actors: Vec<ActorState>,
    log: Vec<Sent>,
}

/// What all actors of one run were told, and what stands in the store by its origin; clones share it.
#[derive(Clone, Debug)]
pub struct Trace {
    state: Arc<Mutex<State>>,
}

impl Trace {
    /// `objects`: what is there at the start.
    pub fn new(actors: usize, objects: impl IntoIterator<Item = String>) -> Self {
        let start = |path: String| {
            let origin = fingerprint(&path);
            (Path::from(path), origin)
        };
        let silent = ActorState {
            history: 0,
            changes: 0,
            fault: None,
        };
        Self {
            state: Arc::new(Mutex::new(State {
                objects: objects.into_iter().map(start).collect(),
                actors: vec![silent; actors],
                log: Vec::new(),
            })),
        }
    }

    /// Fails the actor's next request.
    pub fn fail_next(&self, actor: usize, when: When, fault: Fault) {
        self.state.lock().unwrap().actors[actor].fault = Some((when, fault));
    }

    /// How often others than this actor changed something.
    pub fn changes_by_others(&self, actor: usize) -> u64 {
        let state = self.state.lock().unwrap();
        let others = state.actors.iter().enumerate().filter(|(i, _)| *i != actor);
        others.map(|(_, other)| other.changes).sum()
    }

    /// What stands in the store, by its origins.
    pub fn objects(&self) -> u64 {
        let state = self.state.lock().unwrap();
        let mut origins: Vec<u64> = state.objects.values().copied().collect();
        origins.sort_unstable();
        fingerprint(origins)
    }

    /// What was sent so far, in order.
    pub fn log(&self) -> Vec<Sent> {
        self.state.lock().unwrap().log.clone()
    }

    pub fn last(&self) -> Option<Sent> {
        self.state.lock().unwrap().log.last().cloned()
    }
}

impl State {
    fn hear(&mut self, actor: usize, what: impl Hash) {
        let actor = &mut self.actors[actor];
        actor.history = fingerprint((actor.history, what));
    }

    fn hear_error(&mut self, actor: usize, error: &Error) {
        let kind = match error {
            Error::NotFound { .. } => "not found",
            Error::AlreadyExists { .. } => "exists",
            Error::Precondition { .. } => "precondition",
            Error::NotModified { .. } => "not modified",
            _ => "other",
        };
        self.hear(actor, ("error", kind));
    }

    fn written(&mut self, actor: usize, location: &Path) {
        self.hear(actor, "written");
        self.changed(actor, location);
        let origin = fingerprint((actor, self.actors[actor].history));
        self.objects.insert(location.clone(), origin);
    }

    fn changed(&mut self, actor: usize, location: &Path) {
        self.actors[actor].changes += 1;
        self.footprint().writes.push(location.to_string());
    }

    fn deleted(&mut self, actor: usize, locations: &[Path]) {
        let mut origins = Vec::new();
        for location in locations {
            let was = self.objects.remove(location);
            match was {
                Some(_) => self.changed(actor, location),
                None => self.footprint().reads.push(location.to_string()),
            }
            origins.push(was);
        }
        // In the order of their origins: the names are random.
        origins.sort_unstable();
        self.hear(actor, ("deleted", origins));
    }

    fn got(&mut self, actor: usize, location: &Path) {
        let origin = self.objects.get(location).copied();
        self.hear(actor, ("got", origin));
    }

    /// Of the request that is running: one at a time.
    fn footprint(&mut self) -> &mut Footprint {
        let running = self.log.last_mut();
        &mut running.expect("a request is running").footprint
    }

    fn listed<'a>(&mut self, actor: usize, found: impl Iterator<Item = &'a ObjectMeta>) {
        let mut origins: Vec<Option<u64>> = found
            .map(|meta| self.objects.get(&meta.location).copied())
            .collect();
        origins.sort_unstable();
        self.hear(actor, ("listed", origins));
    }
}

/// Records one actor's requests in the [`Trace`], and fails those that it is told to.
#[derive(Debug)]
pub struct WitnessStore {
    inner: Arc<dyn ObjectStore>,
    trace: Trace,
    actor: usize,
}

impl WitnessStore {
    pub fn new(inner: Arc<dyn ObjectStore>, trace: Trace, actor: usize) -> Self {
        Self {
            inner,
            trace,
            actor,
        }
    }

    /// Runs a request and has `record` note a success; a fault comes before it or hides it.
    async fn run<T>(
        &self,
        request: Request,
        effect: impl Future<Output = Result<T>>,
        record: impl FnOnce(&mut State, &T),
    ) -> Result<T> {
        let fault = {
            let mut state = self.trace.state.lock().unwrap();
            let mut footprint = Footprint::default();
            match request.kind {
                Kind::List | Kind::ListDelimited => footprint.listed.push(request.path.clone()),
                // A write that fails has read what stands there.
                _ => footprint.reads.push(request.path.clone()),
            }
            state.log.push(Sent {
                actor: self.actor,
                request: request.clone(),
                footprint,
            });
            let fault = state.actors[self.actor].fault.take();
            // Only a create-if-absent is told that it was there.
            let hears = request.kind == Kind::PutCreate;
            fault.filter(|(_, fault)| *fault != Fault::AlreadyExists || hears)
        };
        if let Some((When::Before, fault)) = fault {
            self.trace.state.lock().unwrap().hear(self.actor, "refused");
            return Err(fault.error(&request));
        }
        let result = effect.await;
        let mut state = self.trace.state.lock().unwrap();
        match &result {
            Ok(value) => record(&mut state, value),
            Err(error) => state.hear_error(self.actor, error),
        }
        if let Some((_, fault)) = fault {
            state.hear(self.actor, "lost");
            return Err(fault.error(&request));
        }
        result
    }

    fn run_listing(
        &self,
        request: Request,
        open: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let this = self.share();
        async move {
            let actor = this.actor;
            let all = async move {
                let found: Vec<Result<ObjectMeta>> = open().collect().await;
                found.into_iter().collect::<Result<Vec<_>>>()
            };
            let record = |state: &mut State, all: &Vec<_>| state.listed(actor, all.iter());
            match this.run(request, all, record).await {
                Ok(all) => stream::iter(all.into_iter().map(Ok)).left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            }
        }
        .into_stream()
        .flatten()
        .boxed()
    }

    fn share(&self) -> Self {
        Self::new(Arc::clone(&self.inner), self.trace.clone(), self.actor)
    }
}

impl fmt::Display for WitnessStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WitnessStore({}, {})", self.actor, self.inner)
    }
}

#[async_trait]
impl ObjectStore for WitnessStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let request = Request::put(location, &opts);
        let effect = self.inner.put_opts(location, payload, opts);
        let record = |state: &mut State, _: &_| state.written(self.actor, location);
        self.run(request, effect, record).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let request = Request::put_multipart(location);
        let effect = self.inner.put_multipart_opts(location, opts);
        let record = |state: &mut State, _: &_| state.hear(self.actor, "started");
        let upload = self.run(request, effect, record).await?;
        Ok(Box::new(WitnessUpload {
            upload,
            location: location.clone(),
            store: self.share(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let request = Request::get(location, &options);
        let effect = self.inner.get_opts(location, options);
        let record = |state: &mut State, _: &_| state.got(self.actor, location);
        self.run(request, effect, record).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let request = Request::get_ranges(location);
        let effect = self.inner.get_ranges(location, ranges);
        let record = |state: &mut State, _: &_| state.got(self.actor, location);
        self.run(request, effect, record).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let this = self.share();
        async move {
            let paths: Vec<Result<Path>> = locations.collect().await;
            let Some(Ok(first)) = paths.iter().find(|path| path.is_ok()) else {
                return stream::iter(paths);
            };
            let request = Request::delete(first);
            let inner = Arc::clone(&this.inner);
            let named: Vec<Path> = paths.iter().flatten().cloned().collect();
            let effect = async move {
                let answers = inner.delete_stream(stream::iter(paths).boxed());
                Ok(answers.collect::<Vec<_>>().await)
            };
            let actor = this.actor;
            let record = |state: &mut State, _: &Vec<_>| state.deleted(actor, &named);
            match this.run(request, effect, record).await {
                Ok(answers) => stream::iter(answers),
                Err(error) => stream::iter(vec![Err(error)]),
            }
        }
        .into_stream()
        .flatten()
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let below = prefix.cloned();
        self.run_listing(Request::list(prefix), move || inner.list(below.as_ref()))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let below = prefix.cloned();
        let offset = offset.clone();
        self.run_listing(Request::list(prefix), move || {
            inner.list_with_offset(below.as_ref(), &offset)
        })
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let request = Request::list_delimited(prefix);
        let effect = self.inner.list_with_delimiter(prefix);
        let record = |state: &mut State, found: &ListResult| {
            state.listed(self.actor, found.objects.iter());
            state.hear(self.actor, &found.common_prefixes);
        };
        self.run(request, effect, record).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let effect = self.inner.copy_opts(from, to, options);
        let record = |state: &mut State, (): &_| state.written(self.actor, to);
        self.run(Request::copy(to), effect, record).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let effect = self.inner.rename_opts(from, to, options);
        let record = |state: &mut State, (): &_| {
            state.deleted(self.actor, std::slice::from_ref(from));
            state.written(self.actor, to);
        };
        self.run(Request::rename(to), effect, record).await
    }
}

#[derive(Debug)]
struct WitnessUpload {
    upload: Box<dyn MultipartUpload>,
    location: Path,
    store: WitnessStore,
}

#[async_trait]
impl MultipartUpload for WitnessUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let request = Request::put_multipart(&self.location);
        let actor = self.store.actor;
        let location = self.location.clone();
        let record = |state: &mut State, _: &_| state.written(actor, &location);
        let effect = self.upload.complete();
        self.store.run(request, effect, record).await
    }

    async fn abort(&mut self) -> Result<()> {
        let request = Request::put_multipart(&self.location);
        let actor = self.store.actor;
        let record = |state: &mut State, (): &_| state.hear(actor, "aborted");
        let effect = self.upload.abort();
        self.store.run(request, effect, record).await
    }
}
