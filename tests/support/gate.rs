//! Lets a test decide whose request goes next.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use tokio::sync::{Notify, oneshot};

use super::request::{PAGE, Request};

/// Turns given to other tasks of the runtime before an actor is taken to have parked all that it will park.
pub const SETTLE_TURNS: usize = 32;

struct Parked {
    actor: usize,
    /// How many the actor had parked before this one.
    number: usize,
    ticket: u64,
    request: Request,
    permit: oneshot::Sender<()>,
}

#[derive(Default)]
struct State {
    open: bool,
    next_ticket: u64,
    /// Grows with every change, so that a waiter can tell that nothing happened.
    changes: u64,
    /// In order of arrival.
    parked: Vec<Parked>,
    /// How many each actor has parked so far.
    numbers: BTreeMap<usize, usize>,
    /// Requests let through and not answered yet.
    running: BTreeMap<usize, usize>,
    finished: BTreeSet<usize>,
}

impl State {
    fn is_blocked(&self, actor: usize) -> bool {
        let running = self.running.get(&actor).copied().unwrap_or_default();
        let parked = self.parked.iter().any(|parked| parked.actor == actor);
        running == 0 && (parked || self.finished.contains(&actor))
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

/// The scheduler's end of the [`GateStore`]s of all actors; clones share it. Closed at first: requests park.
///
/// A schedule is driven on a current-thread runtime, each actor in its own task inside [`Gate::run`]: wait until all
/// actors are blocked, choose one of [`Gate::waiting`], release it, and again until nobody waits. The same choices
/// then give the same run, as long as actors wait for nothing but the store: one that waits for a timer, a lock of
/// another actor or a thread of its own leaves [`Gate::wait_until_blocked`] waiting, or (with a second request
/// parked) lets it return early.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<Shared>,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets through everything that waits and everything to come.
    pub fn open(&self) {
        self.change(|state| {
            state.open = true;
            while !state.parked.is_empty() {
                let_through(state, 0);
            }
        });
    }

    /// Parks requests again from now on.
    pub fn close(&self) {
        self.change(|state| state.open = false);
    }

    /// What waits, by actor and within one actor in order of arrival.
    pub fn waiting(&self) -> Vec<(usize, Request)> {
        let state = self.shared.state.lock().unwrap();
        let mut waiting: Vec<_> = state
            .parked
            .iter()
            .map(|parked| (parked.actor, parked.request.clone()))
            .collect();
        waiting.sort_by_key(|(actor, _)| *actor);
        waiting
    }

    /// What waits, by actor, each request with its number among all that the actor has made.
    pub fn numbered(&self) -> Vec<(usize, usize, Request)> {
        let state = self.shared.state.lock().unwrap();
        let mut waiting: Vec<_> = state
            .parked
            .iter()
            .map(|parked| (parked.actor, parked.number, parked.request.clone()))
            .collect();
        waiting.sort_by_key(|(actor, number, _)| (*actor, *number));
        waiting
    }

    /// Waits until each of these actors has finished or has a request parked, and none of theirs is under way.
    ///
    /// An actor that waits for something else than the store keeps this waiting: put a timeout around it.
    pub async fn wait_until_blocked(&self, actors: &[usize]) {
        loop {
            // Made before looking, so that no change in between is missed.
            let changed = self.shared.changed.notified();
            let Some(seen) = self.blocked(actors) else {
                changed.await;
                continue;
            };
            // An actor with several requests at once may be about to park one more.
            for _ in 0..SETTLE_TURNS {
                tokio::task::yield_now().await;
            }
            if self.blocked(actors) == Some(seen) {
                return;
            }
        }
    }

    /// Lets the actor's oldest parked request through, and says which it was. Panics if none waits.
    pub fn release(&self, actor: usize) -> Request {
        self.release_nth(actor, 0)
    }

    /// Lets the `nth` parked request of the actor through, for actors that have several at once.
    pub fn release_nth(&self, actor: usize, nth: usize) -> Request {
        let released = self.change(|state| {
            let mut of_actor = state
                .parked
                .iter()
                .enumerate()
                .filter(|(_, parked)| parked.actor == actor);
            let found = of_actor.nth(nth).map(|(index, _)| index);
            found.map(|index| let_through(state, index))
        });
        // Out here, the panic does not poison the gate for the other actors.
        released.unwrap_or_else(|| panic!("actor {actor} has no request number {nth} waiting"))
    }

    /// Lets one request of the actor through; false if that one does not wait.
    pub fn release_numbered(&self, actor: usize, number: usize) -> bool {
        self.change(|state| {
            let found = state
                .parked
                .iter()
                .position(|parked| (parked.actor, parked.number) == (actor, number));
            found.map(|index| let_through(state, index)).is_some()
        })
    }

    /// Runs an actor's work; the actor counts as finished when it ends or is dropped.
    pub fn run<T, W: Future<Output = T>>(
        &self,
        actor: usize,
        work: W,
    ) -> impl Future<Output = T> + use<T, W> {
        // Now rather than at the first poll, or the actor's last run would still count.
        self.change(|state| state.finished.remove(&actor));
        let finish = Finish {
            gate: self.clone(),
            actor,
        };
        async move {
            let _finish = finish;
            work.await
        }
    }

    pub fn is_finished(&self, actor: usize) -> bool {
        self.shared.state.lock().unwrap().finished.contains(&actor)
    }

    /// Whether a request of the actor was let through and is not answered yet.
    pub fn is_under_way(&self, actor: usize) -> bool {
        let running = &self.shared.state.lock().unwrap().running;
        running.get(&actor).is_some_and(|count| *count > 0)
    }

    pub fn is_blocked(&self, actor: usize) -> bool {
        self.shared.state.lock().unwrap().is_blocked(actor)
    }

    /// The number of changes so far, if all these actors are blocked.
    pub fn blocked(&self, actors: &[usize]) -> Option<u64> {
        let state = self.shared.state.lock().unwrap();
        actors
            .iter()
            .all(|actor| state.is_blocked(*actor))
            .then_some(state.changes)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = {
            let mut state = self.shared.state.lock().unwrap();
            state.changes += 1;
            change(&mut state)
        };
        self.shared.changed.notify_waiters();
        changed
    }

    /// Waits for permission. The request is under way until the pass is dropped.
    async fn pass(&self, actor: usize, request: Request) -> Pass {
        let (permit, permitted) = oneshot::channel();
        let ticket = self.change(|state| {
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            let numbers = state.numbers.entry(actor).or_default();
            let number = *numbers;
            *numbers += 1;
            state.parked.push(Parked {
                actor,
                number,
                ticket,
                request,
                permit,
            });
            if state.open {
                let last = state.parked.len() - 1;
                let_through(state, last);
            }
            ticket
        });
        // Made before waiting: a caller that gives up takes its request back.
        let pass = Pass {
            gate: self.clone(),
            actor,
            ticket,
        };
        permitted.await.expect("the gate drops no permit unsent");
        pass
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// Counts the request as under way at once, so that its actor is not taken for blocked before it wakes up.
fn let_through(state: &mut State, index: usize) -> Request {
    let parked = state.parked.remove(index);
    *state.running.entry(parked.actor).or_default() += 1;
    // Whoever gave up meanwhile settles the count when its pass is dropped.
    let _ = parked.permit.send(());
    parked.request
}

struct Pass {
    gate: Gate,
    actor: usize,
    ticket: u64,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Self { actor, ticket, .. } = *self;
        self.gate.change(|state| {
            let parked = state.parked.iter().position(|it| it.ticket == ticket);
            match parked {
                Some(index) => drop(state.parked.remove(index)),
                None => *state.running.entry(actor).or_default() -= 1,
            }
        });
    }
}

struct Finish {
    gate: Gate,
    actor: usize,
}

impl Drop for Finish {
    fn drop(&mut self) {
        let actor = self.actor;
        self.gate.change(|state| state.finished.insert(actor));
    }
}

/// Parks every request of one actor until the [`Gate`] releases it.
///
/// A listing parks once, when it is first polled, and then shows the store as of its release; a bulk delete parks
/// once for every [`PAGE`] paths. Starting, completing and aborting a multipart upload park, its parts do not.
#[derive(Debug)]
pub struct GateStore {
    inner: Arc<dyn ObjectStore>,
    gate: Gate,
    actor: usize,
}

impl GateStore {
    pub fn new(inner: Arc<dyn ObjectStore>, gate: Gate, actor: usize) -> Self {
        Self { inner, gate, actor }
    }

    fn gate_listing(
        &self,
        request: Request,
        open: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let gate = self.gate.clone();
        let actor = self.actor;
        stream::once(async move {
            let _pass = gate.pass(actor, request).await;
            // Read to its end here: a half-read listing would count as under way for as long as it is kept.
            stream::iter(open().collect::<Vec<_>>().await)
        })
        .flatten()
        .boxed()
    }
}

impl fmt::Display for GateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GateStore({}, {})", self.actor, self.inner)
    }
}

#[async_trait]
impl ObjectStore for GateStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let request = Request::put(location, &opts);
        let _pass = self.gate.pass(self.actor, request).await;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let request = Request::put_multipart(location);
        let _pass = self.gate.pass(self.actor, request).await;
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(GateUpload {
            upload,
            location: location.clone(),
            gate: self.gate.clone(),
            actor: self.actor,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let request = Request::get(location, &options);
        let _pass = self.gate.pass(self.actor, request).await;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let request = Request::get_ranges(location);
        let _pass = self.gate.pass(self.actor, request).await;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        let gate = self.gate.clone();
        let actor = self.actor;
        locations
            .chunks(PAGE)
            .then(move |bulk| {
                let inner = Arc::clone(&inner);
                let gate = gate.clone();
                async move {
                    let Some(Ok(first)) = bulk.iter().find(|location| location.is_ok()) else {
                        return stream::iter(bulk);
                    };
                    let _pass = gate.pass(actor, Request::delete(first)).await;
                    let deleted = inner.delete_stream(stream::iter(bulk).boxed());
                    stream::iter(deleted.collect::<Vec<_>>().await)
                }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let request = Request::list(prefix);
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        self.gate_listing(request, move || inner.list(prefix.as_ref()))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let request = Request::list(prefix);
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        let offset = offset.clone();
        self.gate_listing(request, move || {
            inner.list_with_offset(prefix.as_ref(), &offset)
        })
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let request = Request::list_delimited(prefix);
        let _pass = self.gate.pass(self.actor, request).await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _pass = self.gate.pass(self.actor, Request::copy(to)).await;
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _pass = self.gate.pass(self.actor, Request::rename(to)).await;
        self.inner.rename_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct GateUpload {
    upload: Box<dyn MultipartUpload>,
    location: Path,
    gate: Gate,
    actor: usize,
}

#[async_trait]
impl MultipartUpload for GateUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let request = Request::put_multipart(&self.location);
        let _pass = self.gate.pass(self.actor, request).await;
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        let request = Request::put_multipart(&self.location);
        let _pass = self.gate.pass(self.actor, request).await;
        self.upload.abort().await
    }
}
