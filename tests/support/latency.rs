//! Turns round trips into time.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use tokio::time::sleep;

use super::request::{PAGE, pages};

/// Makes every request take the same time, so that under tokio's paused clock elapsed time divided by the latency
/// is the number of round trips made one after another.
///
/// Pages of one listing and bulk requests of one delete follow each other; requests made side by side overlap.
#[derive(Debug)]
pub struct LatencyStore {
    inner: Arc<dyn ObjectStore>,
    latency: Duration,
}

impl LatencyStore {
    pub fn new(inner: Arc<dyn ObjectStore>, latency: Duration) -> Self {
        Self { inner, latency }
    }

    fn delay_listing(
        &self,
        open: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let latency = self.latency;
        stream::once(async move {
            sleep(latency).await;
            open().enumerate().then(move |(index, entry)| async move {
                if index > 0 && index.is_multiple_of(PAGE) {
                    sleep(latency).await;
                }
                entry
            })
        })
        .flatten()
        .boxed()
    }
}

impl fmt::Display for LatencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LatencyStore({:?}, {})", self.latency, self.inner)
    }
}

#[async_trait]
impl ObjectStore for LatencyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        sleep(self.latency).await;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        sleep(self.latency).await;
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(LatencyUpload {
            upload,
            latency: self.latency,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        sleep(self.latency).await;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        sleep(self.latency).await;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        let latency = self.latency;
        locations
            .chunks(PAGE)
            .then(move |bulk| {
                let inner = Arc::clone(&inner);
                async move {
                    sleep(latency).await;
                    inner.delete_stream(stream::iter(bulk).boxed())
                }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        self.delay_listing(move || inner.list(prefix.as_ref()))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let prefix = prefix.cloned();
        let offset = offset.clone();
        self.delay_listing(move || inner.list_with_offset(prefix.as_ref(), &offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        sleep(self.latency).await;
        let listed = self.inner.list_with_delimiter(prefix).await?;
        for _ in 1..pages(listed.objects.len() + listed.common_prefixes.len()) {
            sleep(self.latency).await;
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        sleep(self.latency).await;
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        sleep(self.latency).await;
        self.inner.rename_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct LatencyUpload {
    upload: Box<dyn MultipartUpload>,
    latency: Duration,
}

#[async_trait]
impl MultipartUpload for LatencyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        sleep(self.latency).await;
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        sleep(self.latency).await;
        self.upload.abort().await
    }
}
