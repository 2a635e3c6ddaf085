//! Managed versioning: the manifest store, the version operations and the fences.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use lance_namespace::{ErrorCode, LanceNamespace, NamespaceError};
use lance_namespace_impls::{
    RestAdapter, RestAdapterConfig, RestAdapterHandle, RestNamespaceBuilder,
};
use lance_table::io::commit::VERSIONS_DIR;
use lancekeep::Catalog;
use lancekeep::arrow::array::RecordBatchIterator;
use lancekeep::lance::dataset::{
    CommitBuilder, Dataset, InsertBuilder, WriteDestination, WriteMode, WriteParams,
};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::common::{ids, rows};
use crate::support::Actor;

mod beside;
mod cases;
mod contention;
mod costs;
mod fences;
mod handles;
mod late;
mod processes;
mod store;
mod subject;
mod versions;

type LanceResult<T> = lance_core::Result<T>;

/// Short, because every purge waits for it; long enough for a commit on a busy machine to stay within half of it.
const WINDOW: Duration = Duration::from_millis(1500);

/// Where nothing is purged, so that no commit ever is too late.
const NO_HURRY: Duration = Duration::from_secs(60);

/// A managed catalog on local disk with a session of its own.
async fn managed(root: &FilePath, window: Duration) -> Catalog {
    Catalog::builder(root.to_str().unwrap())
        .managed_versioning(true)
        .commit_window(window)
        .build()
        .await
        .unwrap()
}

/// The same in memory, through this actor's requests.
async fn managed_in(actor: &Actor, window: Duration) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .managed_versioning(true)
        .commit_window(window)
        .build()
        .await
        .unwrap()
}

async fn append(dataset: &mut Dataset, ids: impl IntoIterator<Item = i32>) -> LanceResult<()> {
    let batch = rows(ids);
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    dataset.append(reader, None).await
}

/// Writes and commits, with two attempts where Lance would make twenty: a refusal that looks like a conflict to Lance
/// otherwise takes half a minute.
async fn commit(
    dataset: &Dataset,
    mode: WriteMode,
    ids: impl IntoIterator<Item = i32>,
) -> LanceResult<Dataset> {
    let dataset = Arc::new(dataset.clone());
    let params = WriteParams {
        mode,
        ..Default::default()
    };
    let transaction = InsertBuilder::new(WriteDestination::Dataset(dataset.clone()))
        .with_params(&params)
        .execute_uncommitted(vec![rows(ids)])
        .await?;
    CommitBuilder::new(WriteDestination::Dataset(dataset))
        .with_max_retries(2)
        .execute(transaction)
        .await
}

async fn overwrite(dataset: &Dataset, ids: impl IntoIterator<Item = i32>) -> LanceResult<Dataset> {
    let params = WriteParams {
        mode: WriteMode::Overwrite,
        ..Default::default()
    };
    InsertBuilder::new(WriteDestination::Dataset(Arc::new(dataset.clone())))
        .with_params(&params)
        .execute(vec![rows(ids)])
        .await
}

/// The ids and the latest version as an application without a catalog reads them.
async fn plainly(uri: &str) -> (Vec<i32>, u64) {
    let dataset = Dataset::open(uri).await.unwrap();
    (ids(&dataset).await, dataset.version().version)
}

/// The names in the directory of versions of a chain, sorted.
async fn names(objects: &dyn ObjectStore, chain: &Path) -> Vec<String> {
    let dir = chain.clone().join(VERSIONS_DIR);
    let metas: Vec<object_store::ObjectMeta> =
        objects.list(Some(&dir)).try_collect().await.unwrap();
    let name = |meta: &object_store::ObjectMeta| meta.location.filename().unwrap().to_string();
    let mut names: Vec<String> = metas.iter().map(name).collect();
    names.sort();
    names
}

/// Manifests that were staged and are no version.
fn staged(names: &[String]) -> Vec<&String> {
    let staged = |name: &&String| name.contains(".manifest-");
    names.iter().filter(staged).collect()
}

pub(crate) fn code_of(error: &lance_core::Error) -> Option<ErrorCode> {
    let lance_core::Error::Namespace { source, .. } = error else {
        return None;
    };
    source
        .downcast_ref::<NamespaceError>()
        .map(NamespaceError::code)
}

/// A running server; it ends with the runtime of its test at the latest.
struct Served {
    handle: RestAdapterHandle,
}

impl Served {
    async fn of(namespace: Arc<dyn LanceNamespace>) -> Self {
        let config = RestAdapterConfig {
            port: 0,
            ..Default::default()
        };
        let handle = RestAdapter::new(namespace, config).start().await.unwrap();
        Self { handle }
    }

    fn client(&self) -> Arc<dyn LanceNamespace> {
        let address = format!("http://127.0.0.1:{}", self.handle.port());
        Arc::new(RestNamespaceBuilder::new(address).delimiter("$").build())
    }
}

/// An id as the models want it.
fn id(parts: &[&str]) -> Vec<String> {
    parts.iter().map(ToString::to_string).collect()
}
