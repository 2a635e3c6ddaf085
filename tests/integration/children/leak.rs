//! A store that tells its secrets in its errors.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use lancekeep::lance_io::object_store::providers::memory::MemoryStoreProvider;
use lancekeep::lance_io::object_store::{
    ObjectStore as LanceStore, ObjectStoreParams, ObjectStoreProvider,
};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
};
use url::Url;

pub(super) const SECRET: &str = "sentinel-9f27-secret";
pub(super) const TOKEN: &str = "sentinel-51ac-token";

/// The URI that a store was made for, and its options.
type Made = (String, HashMap<String, String>);

/// Notes the options that stores are made with, and makes its stores refuse requests with an error that holds them.
#[derive(Clone, Debug, Default)]
pub(super) struct Leak {
    pub(super) made: Arc<Mutex<Vec<Made>>>,
    /// Requests for a path that holds this are refused.
    refused: Arc<Mutex<Option<String>>>,
}

impl Leak {
    pub(super) fn refuse(&self, part: &str) {
        *self.refused.lock().unwrap() = Some(part.to_string());
    }

    pub(super) fn stop(&self) {
        *self.refused.lock().unwrap() = None;
    }

    fn check(&self, path: impl fmt::Display) -> object_store::Result<()> {
        let path = path.to_string();
        let refused = self.refused.lock().unwrap();
        if !refused
            .as_ref()
            .is_some_and(|part| path.contains(part.as_str()))
        {
            return Ok(());
        }
        Err(object_store::Error::PermissionDenied {
            source: leaking(&path).into(),
            path,
        })
    }

    /// Of a kind that Lance's listing does not retry for seconds.
    fn check_listing(&self, prefix: Option<&Path>) -> object_store::Result<()> {
        let path = prefix.map(Path::to_string).unwrap_or_default();
        self.check(&path)
            .map_err(|_| object_store::Error::NotSupported {
                source: leaking(&path).into(),
            })
    }
}

fn leaking(path: &str) -> String {
    format!("403 Forbidden: {path} with key {SECRET} and token {TOKEN}")
}

#[derive(Debug)]
pub(super) struct LeakyProvider {
    pub(super) stack: Arc<dyn ObjectStore>,
    pub(super) leak: Leak,
}

#[async_trait]
impl ObjectStoreProvider for LeakyProvider {
    async fn new_store(
        &self,
        base_path: Url,
        params: &ObjectStoreParams,
    ) -> lance_core::Result<LanceStore> {
        let options = params.storage_options().cloned().unwrap_or_default();
        let made = (base_path.to_string(), options);
        self.leak.made.lock().unwrap().push(made);
        let stack: Arc<dyn ObjectStore> = Arc::new(LeakyStore {
            inner: Arc::clone(&self.stack),
            leak: self.leak.clone(),
        });
        let wrapper = None;
        Ok(LanceStore::new(
            stack,
            base_path,
            params.block_size,
            wrapper,
            false,
            true,
            8,
            3,
            params.storage_options(),
        ))
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

#[derive(Debug)]
struct LeakyStore {
    inner: Arc<dyn ObjectStore>,
    leak: Leak,
}

impl fmt::Display for LeakyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeakyStore")
    }
}

impl LeakyStore {
    async fn run<T>(
        &self,
        path: &Path,
        effect: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        self.leak.check(path)?;
        effect.await
    }
}

#[async_trait]
impl ObjectStore for LeakyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        let put = self.inner.put_opts(location, payload, opts);
        self.run(location, put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let put = self.inner.put_multipart_opts(location, opts);
        self.run(location, put).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let get = self.inner.get_opts(location, options);
        self.run(location, get).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        let get = self.inner.get_ranges(location, ranges);
        self.run(location, get).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let leak = self.leak.clone();
        let checked = locations.map(move |path| {
            let path = path?;
            leak.check(&path)?;
            Ok(path)
        });
        self.inner.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match self.leak.check_listing(prefix) {
            Ok(()) => self.inner.list(prefix),
            Err(error) => stream::once(future::ready(Err(error))).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.leak.check_listing(prefix)?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.run(to, self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(
        &self,
        from: &Path,
        to: &Path,
        options: RenameOptions,
    ) -> object_store::Result<()> {
        self.run(to, self.inner.rename_opts(from, to, options))
            .await
    }
}
