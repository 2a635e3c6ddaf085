//! Stops an actor, or fails its requests, at a chosen point.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, future};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};

use super::request::Request;

const NAME: &str = "FaultStore";

/// On which side of its effect a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// Nothing happened.
    Before,
    /// It happened, but the answer was lost.
    After,
    /// A put that is answered first, and takes effect right before the next listing; anything else as [`Self::Before`].
    Late,
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    Unavailable503,
    Timeout,
    PermissionDenied,
    /// What a store without conditional puts says to one.
    NotImplemented,
    /// What a client hears that repeats a create-if-absent whose answer was lost.
    AlreadyExists,
}

impl Fault {
    pub(super) fn error(self, request: &Request) -> Error {
        match self {
            Self::Unavailable503 => Error::Generic {
                store: NAME,
                source: "503 Service Unavailable: reduce your request rate".into(),
            },
            Self::Timeout => Error::Generic {
                store: NAME,
                source: "operation timed out".into(),
            },
            Self::PermissionDenied => Error::PermissionDenied {
                path: request.path.clone(),
                source: "403 Forbidden".into(),
            },
            Self::AlreadyExists => Error::AlreadyExists {
                path: request.path.clone(),
                source: "412 Precondition Failed".into(),
            },
            Self::NotImplemented => Error::NotImplemented {
                operation: format!("{:?}", request.kind),
                implementer: NAME.to_owned(),
            },
        }
    }
}

type Predicate = Box<dyn Fn(&Request) -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    issued: usize,
    crash: Option<(usize, When)>,
    crashed: bool,
    once: Vec<(usize, When, Fault)>,
    matching: Vec<(Predicate, Fault)>,
    late: Vec<BoxFuture<'static, ()>>,
}

enum Verdict {
    Pass,
    Refuse(Error),
    Lose(Error),
    Delay(Error),
}

/// The programs of one actor's [`FaultStore`] and its count of requests; clones share them.
///
/// Requests are numbered from 0 in the order in which they are issued. Once crashed, nothing is issued any more.
#[derive(Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

impl Faults {
    /// The actor stops at its `n`-th request: that one takes effect or not, and it and all later ones get an error
    /// that says "crashed".
    ///
    /// The error is of a kind that Lance does not retry, so that a stopped actor ends soon.
    pub fn crash_at(&self, n: usize, when: When) {
        self.state.lock().unwrap().crash = Some((n, when));
    }

    /// Only the `n`-th request fails.
    pub fn fail_at(&self, n: usize, when: When, fault: Fault) {
        self.state.lock().unwrap().once.push((n, when, fault));
    }

    /// Every request that matches fails without effect. The predicate must not use this handle.
    pub fn fail_matching(
        &self,
        predicate: impl Fn(&Request) -> bool + Send + Sync + 'static,
        fault: Fault,
    ) {
        let mut state = self.state.lock().unwrap();
        state.matching.push((Box::new(predicate), fault));
    }

    /// Takes all programs away and revives a crashed actor; the count goes on.
    pub fn clear(&self) {
        let mut state = self.state.lock().unwrap();
        *state = State {
            issued: state.issued,
            ..State::default()
        };
    }

    /// Numbers the next request 0; the programs stay, and so does a crash.
    pub fn reset(&self) {
        self.state.lock().unwrap().issued = 0;
    }

    pub fn issued(&self) -> usize {
        self.state.lock().unwrap().issued
    }

    /// Whether the point of [`Self::crash_at`] was reached.
    pub fn crashed(&self) -> bool {
        self.state.lock().unwrap().crashed
    }

    /// Crashes and single failures that were asked for and not reached yet.
    pub fn pending(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.once.len() + usize::from(state.crash.is_some())
    }

    fn issue(&self, request: &Request) -> Verdict {
        let mut state = self.state.lock().unwrap();
        if state.crashed {
            return Verdict::Refuse(crash_error(request));
        }
        let n = state.issued;
        state.issued += 1;
        if let Some((at, when)) = state.crash
            && at == n
        {
            state.crash = None;
            state.crashed = true;
            return fail(when, crash_error(request));
        }
        if let Some(found) = state.once.iter().position(|(at, ..)| *at == n) {
            let (_, when, fault) = state.once.remove(found);
            return fail(when, fault.error(request));
        }
        match state
            .matching
            .iter()
            .find(|(predicate, _)| predicate(request))
        {
            Some((_, fault)) => Verdict::Refuse(fault.error(request)),
            None => Verdict::Pass,
        }
    }

    /// Futures are lazy: an effect that is not awaited does not happen.
    async fn run<T>(&self, request: Request, effect: impl Future<Output = Result<T>>) -> Result<T> {
        match self.issue(&request) {
            Verdict::Pass => effect.await,
            Verdict::Refuse(error) | Verdict::Delay(error) => Err(error),
            Verdict::Lose(error) => {
                drop(effect.await);
                Err(error)
            }
        }
    }

    /// Lets the puts take effect that were answered before.
    async fn settle(&self) {
        let late = std::mem::take(&mut self.state.lock().unwrap().late);
        future::join_all(late).await;
    }

    fn run_listing(
        &self,
        request: Request,
        open: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let faults = self.clone();
        stream::once(async move {
            faults.settle().await;
            match faults.issue(&request) {
                Verdict::Pass => open(),
                // Reading changes nothing, so the two sides of it look alike.
                Verdict::Refuse(error) | Verdict::Lose(error) | Verdict::Delay(error) => {
                    failed(error)
                }
            }
        })
        .flatten()
        .boxed()
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap();
        f.debug_struct("Faults")
            .field("issued", &state.issued)
            .field("crash", &state.crash)
            .field("crashed", &state.crashed)
            .field("once", &state.once)
            .field("matching", &state.matching.len())
            .finish()
    }
}

fn fail(when: When, error: Error) -> Verdict {
    match when {
        When::Before => Verdict::Refuse(error),
        When::After => Verdict::Lose(error),
        When::Late => Verdict::Delay(error),
    }
}

fn crash_error(request: &Request) -> Error {
    // Lance's listing retries most other kinds, with seconds of backoff.
    Error::NotSupported {
        source: format!("crashed: {:?} {}", request.kind, request.path).into(),
    }
}

fn failed<T: Send + 'static>(error: Error) -> BoxStream<'static, Result<T>> {
    stream::once(future::ready(Err(error))).boxed()
}

/// Does to one actor's requests what its [`Faults`] say, and passes the others on.
///
/// A call of `delete_stream` or of a listing is one request, issued when it is first polled; a delete of no paths
/// is none. Starting, completing and aborting a multipart upload are one each, its parts none.
#[derive(Debug)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
}

impl FaultStore {
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            faults: Faults::default(),
        }
    }

    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let request = Request::put(location, &opts);
        match self.faults.issue(&request) {
            Verdict::Pass => self.inner.put_opts(location, payload, opts).await,
            Verdict::Refuse(error) => Err(error),
            Verdict::Lose(error) => {
                drop(self.inner.put_opts(location, payload, opts).await);
                Err(error)
            }
            Verdict::Delay(error) => {
                let (inner, location) = (Arc::clone(&self.inner), location.clone());
                let effect = async move { drop(inner.put_opts(&location, payload, opts).await) };
                self.faults.state.lock().unwrap().late.push(effect.boxed());
                Err(error)
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let request = Request::put_multipart(location);
        let upload = self
            .faults
            .run(request, self.inner.put_multipart_opts(location, opts))
            .await?;
        Ok(Box::new(FaultUpload {
            upload,
            location: location.clone(),
            faults: self.faults.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let request = Request::get(location, &options);
        self.faults
            .run(request, self.inner.get_opts(location, options))
            .await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let request = Request::get_ranges(location);
        self.faults
            .run(request, self.inner.get_ranges(location, ranges))
            .await
    }

    fn delete_stream(
        &self,
        mut locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        let faults = self.faults.clone();
        stream::once(async move {
            let first = match locations.next().await {
                Some(Ok(first)) => first,
                // The caller has no path to delete: no request goes out.
                Some(Err(error)) => return failed(error),
                None => return stream::empty::<Result<Path>>().boxed(),
            };
            let request = Request::delete(&first);
            let locations = stream::iter([Ok(first)]).chain(locations).boxed();
            match faults.issue(&request) {
                Verdict::Pass => inner.delete_stream(locations),
                Verdict::Refuse(error) | Verdict::Delay(error) => failed(error),
                Verdict::Lose(error) => {
                    drop(inner.delete_stream(locations).collect::<Vec<_>>().await);
                    failed(error)
                }
            }
        })
        .flatten()
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let request = Request::list(prefix);
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        self.faults
            .run_listing(request, move || inner.list(prefix.as_ref()))
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
        self.faults.run_listing(request, move || {
            inner.list_with_offset(prefix.as_ref(), &offset)
        })
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let request = Request::list_delimited(prefix);
        self.faults
            .run(request, self.inner.list_with_delimiter(prefix))
            .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let request = Request::copy(to);
        self.faults
            .run(request, self.inner.copy_opts(from, to, options))
            .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let request = Request::rename(to);
        self.faults
            .run(request, self.inner.rename_opts(from, to, options))
            .await
    }
}

#[derive(Debug)]
struct FaultUpload {
    upload: Box<dyn MultipartUpload>,
    location: Path,
    faults: Faults,
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        if self.faults.crashed() {
            let error = crash_error(&Request::put_multipart(&self.location));
            return Box::pin(future::ready(Err(error)));
        }
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let request = Request::put_multipart(&self.location);
        self.faults.run(request, self.upload.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        let request = Request::put_multipart(&self.location);
        self.faults.run(request, self.upload.abort()).await
    }
}
