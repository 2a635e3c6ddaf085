//! Counts requests.

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

use super::request::{Kind, PAGE, Request, pages};

/// The requests that a [`CountingStore`] saw, in order; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    log: Arc<Mutex<Vec<Request>>>,
}

impl Counter {
    /// Forgets everything seen so far.
    pub fn reset(&self) {
        self.log.lock().unwrap().clear();
    }

    pub fn total(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    pub fn of(&self, kind: Kind) -> usize {
        self.count(|request| request.kind == kind)
    }

    /// Requests that could change the store, whether or not they succeeded.
    pub fn writes(&self) -> usize {
        self.count(|request| request.kind.is_write())
    }

    pub fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }

    fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|request| wanted(request)).count()
    }

    fn record(&self, request: Request) {
        self.log.lock().unwrap().push(request);
    }

    fn record_listing(
        &self,
        request: Request,
        open: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let counter = self.clone();
        // A listing asks for its first page when it is first polled, not when it is made.
        stream::once(async move {
            counter.record(request.clone());
            let mut seen = 0_usize;
            open().inspect(move |entry| {
                if entry.is_ok() {
                    if seen > 0 && seen.is_multiple_of(PAGE) {
                        counter.record(request.clone());
                    }
                    seen += 1;
                }
            })
        })
        .flatten()
        .boxed()
    }
}

/// Counts every request on its way in, also those that then fail.
///
/// A listing counts a page when its first entry is taken, a bulk delete when its first path is. One that nobody
/// polls counts nothing.
#[derive(Debug)]
pub struct CountingStore {
    inner: Arc<dyn ObjectStore>,
    counter: Counter,
}

impl CountingStore {
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            counter: Counter::default(),
        }
    }

    pub fn counter(&self) -> Counter {
        self.counter.clone()
    }
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountingStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CountingStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.counter.record(Request::put(location, &opts));
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.counter.record(Request::put_multipart(location));
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(CountingUpload {
            upload,
            location: location.clone(),
            counter: self.counter.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.counter.record(Request::get(location, &options));
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.counter.record(Request::get_ranges(location));
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let counter = self.counter.clone();
        let mut seen = 0_usize;
        let counted = locations.inspect(move |location| {
            if let Ok(location) = location {
                if seen.is_multiple_of(PAGE) {
                    counter.record(Request::delete(location));
                }
                seen += 1;
            }
        });
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let request = Request::list(prefix);
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        self.counter
            .record_listing(request, move || inner.list(prefix.as_ref()))
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
        self.counter.record_listing(request, move || {
            inner.list_with_offset(prefix.as_ref(), &offset)
        })
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let request = Request::list_delimited(prefix);
        self.counter.record(request.clone());
        let listed = self.inner.list_with_delimiter(prefix).await?;
        for _ in 1..pages(listed.objects.len() + listed.common_prefixes.len()) {
            self.counter.record(request.clone());
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.counter.record(Request::copy(to));
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.counter.record(Request::rename(to));
        self.inner.rename_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct CountingUpload {
    upload: Box<dyn MultipartUpload>,
    location: Path,
    counter: Counter,
}

#[async_trait]
impl MultipartUpload for CountingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.counter.record(Request::put_multipart(&self.location));
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.counter.record(Request::put_multipart(&self.location));
        self.upload.abort().await
    }
}
