//! Lists in pages, as S3 does, and tells how much of what was listed its reader has yet to delete.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use super::request::PAGE;

#[derive(Debug, Default)]
struct State {
    open: HashSet<Path>,
    most: usize,
    deleted: Vec<String>,
}

/// What a [`PagedStore`] has listed and deleted; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    state: Arc<Mutex<State>>,
}

impl Pages {
    /// The largest number of objects that were on listed pages and not deleted by then: as many a deletion that goes
    /// by listings can have had in memory.
    pub fn most(&self) -> usize {
        self.state.lock().unwrap().most
    }

    /// The objects deleted, in order.
    pub fn deleted(&self) -> Vec<String> {
        self.state.lock().unwrap().deleted.clone()
    }

    pub fn reset(&self) {
        *self.state.lock().unwrap() = State::default();
    }

    fn listed(&self, page: &[ObjectMeta]) {
        let mut state = self.state.lock().unwrap();
        state
            .open
            .extend(page.iter().map(|meta| meta.location.clone()));
        state.most = state.most.max(state.open.len());
    }

    fn gone(&self, location: &Path) {
        let mut state = self.state.lock().unwrap();
        state.open.remove(location);
        state.deleted.push(location.to_string());
    }
}

/// Reads each page of a listing when it is asked for, from what is there then, behind the last key of the page before.
#[derive(Debug)]
pub struct PagedStore {
    inner: Arc<dyn ObjectStore>,
    pages: Pages,
}

impl PagedStore {
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            pages: Pages::default(),
        }
    }

    pub fn pages(&self) -> Pages {
        self.pages.clone()
    }
}

impl fmt::Display for PagedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagedStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for PagedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let pages = self.pages();
        let deleted = self.inner.delete_stream(locations);
        deleted
            .inspect(move |answer| answer.iter().for_each(|path| pages.gone(path)))
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, pages) = (Arc::clone(&self.inner), self.pages());
        let prefix = prefix.cloned();
        let start: Option<Option<Path>> = Some(None);
        stream::try_unfold(start, move |at| {
            let (inner, pages, prefix) = (Arc::clone(&inner), pages.clone(), prefix.clone());
            async move {
                let Some(after) = at else {
                    return Ok::<_, object_store::Error>(None);
                };
                let found = match &after {
                    None => inner.list(prefix.as_ref()),
                    Some(after) => inner.list_with_offset(prefix.as_ref(), after),
                };
                let mut page: Vec<ObjectMeta> = found.try_collect().await?;
                page.sort_by(|a, b| a.location.cmp(&b.location));
                let next = (page.len() > PAGE).then(|| Some(page[PAGE - 1].location.clone()));
                page.truncate(PAGE);
                pages.listed(&page);
                Ok(Some((stream::iter(page).map(Ok), next)))
            }
        })
        .try_flatten()
        .boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
