//! Moves the store's own time by hand.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use tokio::sync::RwLock;

/// A clock that stands still until it is moved; clones share it.
#[derive(Clone, Debug)]
pub struct StoreClock {
    now: Arc<Mutex<DateTime<Utc>>>,
}

impl StoreClock {
    pub fn new(start: DateTime<Utc>) -> Self {
        Self {
            now: Arc::new(Mutex::new(start)),
        }
    }

    pub fn now(&self) -> DateTime<Utc> {
        *self.now.lock().unwrap()
    }

    pub fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
    }

    pub fn set(&self, now: DateTime<Utc>) {
        *self.now.lock().unwrap() = now;
    }
}

/// Starts at the time of the wall clock.
impl Default for StoreClock {
    fn default() -> Self {
        Self::new(Utc::now())
    }
}

/// When each path was last written, by the store's clock.
pub type Times = HashMap<Path, DateTime<Utc>>;

/// Reports as `last_modified` the time that its [`StoreClock`] showed when the object was written through it.
///
/// Objects written past it keep the metadata they have, except where the path was written through it before. Clones
/// share the recorded times. An object and its time change together: nobody sees one without the other. Meant to
/// sit right on the memory store, because it takes writes one by one. Date conditions of a get are judged by the
/// wrapped store's own times.
#[derive(Clone, Debug)]
pub struct ClockedStore {
    inner: Arc<dyn ObjectStore>,
    clock: StoreClock,
    times: Arc<RwLock<Times>>,
}

impl ClockedStore {
    pub fn new(inner: Arc<dyn ObjectStore>, clock: StoreClock) -> Self {
        Self::with_times(inner, clock, Times::new())
    }

    pub fn with_times(inner: Arc<dyn ObjectStore>, clock: StoreClock, times: Times) -> Self {
        Self {
            inner,
            clock,
            times: Arc::new(RwLock::new(times)),
        }
    }

    pub fn clock(&self) -> StoreClock {
        self.clock.clone()
    }

    pub async fn times(&self) -> Times {
        self.times.read().await.clone()
    }

    pub async fn set_times(&self, times: Times) {
        *self.times.write().await = times;
    }

    async fn write<T>(
        &self,
        location: &Path,
        effect: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut times = self.times.write().await;
        let written = effect.await?;
        times.insert(location.clone(), self.clock.now());
        Ok(written)
    }

    fn stamp_listing(
        &self,
        open: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let times = Arc::clone(&self.times);
        stream::once(async move {
            let times = times.read().await;
            let mut entries: Vec<Result<ObjectMeta>> = open().collect().await;
            for meta in entries.iter_mut().flatten() {
                stamp(&times, meta);
            }
            stream::iter(entries)
        })
        .flatten()
        .boxed()
    }
}

fn stamp(times: &Times, meta: &mut ObjectMeta) {
    if let Some(time) = times.get(&meta.location) {
        meta.last_modified = *time;
    }
}

impl fmt::Display for ClockedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClockedStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for ClockedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.write(location, self.inner.put_opts(location, payload, opts))
            .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(ClockedUpload {
            upload,
            location: location.clone(),
            store: self.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let times = self.times.read().await;
        let mut found = self.inner.get_opts(location, options).await?;
        stamp(&times, &mut found.meta);
        Ok(found)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        // The recorded times stay: the next write of a path replaces its own.
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        self.stamp_listing(move || inner.list(prefix.as_ref()))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        let offset = offset.clone();
        self.stamp_listing(move || inner.list_with_offset(prefix.as_ref(), &offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let times = self.times.read().await;
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        for meta in &mut listed.objects {
            stamp(&times, meta);
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.write(to, self.inner.copy_opts(from, to, options))
            .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.write(to, self.inner.rename_opts(from, to, options))
            .await
    }
}

#[derive(Debug)]
struct ClockedUpload {
    upload: Box<dyn MultipartUpload>,
    location: Path,
    store: ClockedStore,
}

#[async_trait]
impl MultipartUpload for ClockedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.store
            .write(&self.location, self.upload.complete())
            .await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}
