//! Reported failures of managed tables.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use lance_namespace::{LanceNamespace, models};
use lance_table::io::commit::CommitHandler;
use lance_table::io::commit::ManifestNamingScheme::{self, V1, V2};
use lance_table::io::commit::external_manifest::ExternalManifestCommitHandler;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::uuid::Uuid;
use lancekeep::{Catalog, CreateMode, ErrorKind, NamespaceExternalManifestStore, Purge};
use object_store::ObjectStoreExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;

use super::{
    LanceResult, NO_HURRY, WINDOW, append, id, managed, managed_in, names, plainly, staged,
};
use crate::common::{ids, rows, table_ids};
use crate::support::{Fault, Kind, SharedMemory, When};

/// A catalog whose records of some versions are out of date, as those of an external index can be.
#[derive(Debug, Clone)]
struct Records {
    catalog: Catalog,
    old: Vec<models::TableVersion>,
}

#[async_trait]
impl LanceNamespace for Records {
    fn namespace_id(&self) -> String {
        self.catalog.namespace_id()
    }

    async fn list_table_versions(
        &self,
        request: models::ListTableVersionsRequest,
    ) -> LanceResult<models::ListTableVersionsResponse> {
        let mut found = self.catalog.list_table_versions(request).await?;
        let old: Vec<i64> = self.old.iter().map(|v| v.version).collect();
        found.versions.retain(|v| !old.contains(&v.version));
        found.versions.extend(self.old.iter().cloned());
        found.versions.sort_by_key(|v| Reverse(v.version));
        Ok(found)
    }

    async fn describe_table_version(
        &self,
        request: models::DescribeTableVersionRequest,
    ) -> LanceResult<models::DescribeTableVersionResponse> {
        // One that told no size is up to date when it is asked again.
        let mut old = self.old.iter().filter(|v| v.manifest_size.is_some());
        match old.find(|v| Some(v.version) == request.version) {
            Some(found) => Ok(models::DescribeTableVersionResponse::new(found.clone())),
            None => self.catalog.describe_table_version(request).await,
        }
    }

    async fn create_table_version(
        &self,
        request: models::CreateTableVersionRequest,
    ) -> LanceResult<models::CreateTableVersionResponse> {
        self.catalog.create_table_version(request).await
    }
}

impl Records {
    fn of(catalog: &Catalog) -> Self {
        Self {
            catalog: catalog.clone(),
            old: Vec::new(),
        }
    }

    /// Lance's own handler over our store.
    fn handler(&self, table: &Path) -> Arc<dyn CommitHandler> {
        let namespace = Arc::new(self.clone());
        let store = NamespaceExternalManifestStore::new(namespace, id(&["t"]), table.clone());
        Arc::new(ExternalManifestCommitHandler {
            external_manifest_store: Arc::new(store),
        })
    }

    async fn open(&self, table: &Dataset, version: Option<u64>) -> Dataset {
        let builder = DatasetBuilder::from_uri(table.uri())
            .with_session(table.session())
            .with_commit_handler(self.handler(&table.branch_location().path));
        let opened = match version {
            Some(version) => builder.with_version(version).load().await,
            None => builder.load().await,
        };
        opened.unwrap()
    }

    /// Either version of [`two_versions`] by its number.
    async fn opens(&self, table: &Dataset, version: u64) {
        let opened = self.open(table, Some(version)).await;
        assert_eq!(opened.version().version, version);
        let end = if version == 1 { 2 } else { 4 };
        assert!(ids(&opened).await.into_iter().eq(0..end));
    }
}

/// The version as it is, but recorded at this path.
async fn recorded_at(catalog: &Catalog, version: u64, path: &Path) -> models::TableVersion {
    let found = catalog.describe_version("t", version).await.unwrap();
    let mut record = models::TableVersion::new(version.cast_signed(), path.to_string());
    record.manifest_size = found.size.map(u64::cast_signed);
    record
}

/// The table `t` of the versions [0, 1] and [0, 1, 2, 3].
async fn two_versions(catalog: &Catalog, scheme: ManifestNamingScheme) -> Dataset {
    let params = WriteParams {
        enable_v2_manifest_paths: scheme == V2,
        ..Default::default()
    };
    let create = catalog.create_table("t", rows(0..2)).write_params(params);
    let mut table = create.await.unwrap();
    append(&mut table, 2..4).await.unwrap();
    table
}

async fn state(catalog: &Catalog) -> (Vec<i32>, u64) {
    let table = catalog.open_table("t").await.unwrap();
    (ids(&table).await, table.version().version)
}

/// What is open is version 2, and the next commit follows it.
async fn goes_on(mut opened: Dataset, uri: &str) {
    assert_eq!(opened.version().version, 2);
    assert_eq!(ids(&opened).await, [0, 1, 2, 3]);
    append(&mut opened, [4]).await.unwrap();
    assert_eq!(plainly(uri).await, (vec![0, 1, 2, 3, 4], 3));
}

/// Case 2: the record still says where the manifest was staged; somebody else has put it in its place and deleted that, or
/// nobody has come to it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_5515_5512_a_staged_manifest_that_another_finalised() {
    let objects = LocalFileSystem::new();
    for (sized, finalised) in [(true, true), (false, true), (true, false)] {
        println!("sized: {sized}, finalised: {finalised}");
        let root = tempfile::tempdir().unwrap();
        let catalog = managed(root.path(), NO_HURRY).await;
        let table = two_versions(&catalog, V2).await;
        let chain = table.branch_location().path;
        let target = V2.manifest_path(&chain, 2);
        let staging = Path::parse(format!("{target}-{}", Uuid::new_v4())).unwrap();
        let mut records = Records::of(&catalog);
        let mut pointer = recorded_at(&catalog, 2, &staging).await;
        pointer.manifest_size = pointer.manifest_size.filter(|_| sized);
        records.old.push(pointer);
        if !finalised {
            objects.rename(&target, &staging).await.unwrap();
        }

        // A session of its own has not read the manifest before.
        let fresh = managed(root.path(), NO_HURRY).await;
        let handle = fresh.open_table("t").version(1).await.unwrap();
        let latest = records.open(&handle, None).await;
        assert!(objects.head(&target).await.is_ok());
        records.opens(&handle, 1).await;
        records.opens(&handle, 2).await;
        goes_on(latest, table.uri()).await;
    }
}

/// Case 3: the record names the manifest in the new way, and the file has its old name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_7578_a_record_of_a_new_name_and_a_file_of_an_old_one() {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), NO_HURRY).await;
    let table = two_versions(&catalog, V1).await;
    let chain = table.branch_location().path;
    let old = |version| V1.manifest_path(&chain, version);
    let new = |version| V2.manifest_path(&chain, version);
    let mut records = Records::of(&catalog);
    for version in [1, 2] {
        let record = recorded_at(&catalog, version, &new(version)).await;
        records.old.push(record);
        records.opens(&table, version).await;
        // The catalog itself knows either name.
        let described = catalog.describe_version("t", version).await.unwrap();
        assert_eq!(described.path, old(version).to_string());
    }
    let latest = catalog.latest_version("t").await.unwrap();
    assert_eq!((latest.version, latest.path), (2, old(2).to_string()));
    goes_on(records.open(&table, None).await, table.uri()).await;
    let names = names(&LocalFileSystem::new(), &chain).await;
    assert!(names.iter().any(|name| name == "3.manifest"), "{names:?}");
    assert_eq!(staged(&names), Vec::<&String>::new());
}

/// An append of the row 7 as version 3, with a failure at the n-th request; where the requests for the manifest's place
/// were.
async fn append_with_failure(
    origin: &SharedMemory,
    lances_handler: bool,
    failure: Option<(usize, When)>,
) -> Vec<usize> {
    let shared = origin.fork().await;
    let actor = shared.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    let mut table = catalog.open_table("t").await.unwrap();
    if lances_handler {
        table = Records::of(&catalog).open(&table, None).await;
    }
    let chain = table.branch_location().path;
    let target = V2.manifest_path(&chain, 3).to_string();
    actor.faults.reset();
    actor.counter.reset();
    if let Some((n, when)) = failure {
        actor.faults.fail_at(n, when, Fault::Unavailable503);
    }
    append(&mut table, [7]).await.unwrap();
    assert_eq!(actor.faults.pending(), 0);
    let log = actor.counter.log();
    let puts = (0..log.len())
        .filter(|n| log[*n].kind == Kind::PutCreate && log[*n].path == target)
        .collect();

    let fresh = managed_in(&shared.actor(), NO_HURRY).await;
    assert_eq!(table_ids(&fresh, "t").await, [0, 1, 2, 3, 7]);
    append(&mut table, [8]).await.unwrap();
    let mut next = fresh.open_table("t").await.unwrap();
    append(&mut next, [9]).await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2, 3, 7, 8, 9]);
    assert_eq!(fresh.latest_version("t").await.unwrap().version, 5);
    let names = names(shared.raw().as_ref(), &chain).await;
    assert_eq!(staged(&names), Vec::<&String>::new());
    puts
}

/// Case 4: the request that puts the manifest in its place fails once, or its answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_8454_the_final_put_fails_once() {
    let shared = SharedMemory::new();
    let catalog = managed_in(&shared.actor(), NO_HURRY).await;
    two_versions(&catalog, V2).await;
    for lances_handler in [false, true] {
        let puts = append_with_failure(&shared, lances_handler, None).await;
        let &[n] = puts.as_slice() else {
            panic!("{puts:?}");
        };
        // Sent again where it did nothing, and only looked for where it did.
        for (when, sent) in [(When::Before, 2), (When::After, 1)] {
            println!("Lance's handler: {lances_handler}, {when:?}");
            let failure = Some((n, when));
            let puts = append_with_failure(&shared, lances_handler, failure).await;
            assert_eq!((puts[0], puts.len()), (n, sent));
        }
    }
}

/// While it fails for good, the commit is an error and no version, and sent again afterwards it counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_8454_the_final_put_fails_for_a_while() {
    let shared = SharedMemory::new();
    let actor = shared.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    let mut table = two_versions(&catalog, V2).await;
    actor.faults.fail_matching(
        |r| r.kind == Kind::PutCreate && r.path.ends_with(".manifest"),
        Fault::Unavailable503,
    );
    assert!(append(&mut table, [7]).await.is_err());
    actor.faults.clear();
    let fresh = managed_in(&shared.actor(), NO_HURRY).await;
    assert_eq!(state(&fresh).await, (vec![0, 1, 2, 3], 2));
    append(&mut table, [7]).await.unwrap();
    assert_eq!(state(&fresh).await, (vec![0, 1, 2, 3, 7], 3));
}

/// The name starts again at version 1.
async fn starts_anew(catalog: &Catalog) {
    let mut table = catalog.create_table("t", rows([100])).await.unwrap();
    assert_eq!(table.version().version, 1);
    let missing = catalog.describe_version("t", 2).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::VersionNotFound);
    assert_eq!(catalog.latest_version("t").await.unwrap().version, 1);
    append(&mut table, [101]).await.unwrap();
    let listed = catalog.list_versions("t").await.unwrap();
    assert!(listed.iter().map(|v| v.version).eq([1, 2]));
    assert_eq!(plainly(table.uri()).await, (vec![100, 101], 2));
}

/// Case 11: no version of a purged table is in the way of the next one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_1812_2143_2194_a_managed_table_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), WINDOW).await;
    let mut table = catalog.create_table("t", rows([0])).await.unwrap();
    for id in 1..30 {
        append(&mut table, [id]).await.unwrap();
    }
    assert_eq!(table.version().version, 30);
    catalog.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    starts_anew(&catalog).await;

    // A drop alone keeps the history, and the new table continues it.
    assert_eq!(catalog.drop_all_tables().await.unwrap().len(), 1);
    let revived = catalog.create_table("t", rows([200])).await.unwrap();
    assert_eq!(plainly(revived.uri()).await, (vec![200], 3));

    catalog.drop_all_tables().await.unwrap();
    let report = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert_eq!((report.tables.len(), report.failures.len()), (1, 0));
    starts_anew(&catalog).await;
}

/// Case 19: without conditional puts a managed write says so, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_6524_a_managed_write_without_conditional_put() {
    let shared = SharedMemory::new();
    let good = managed_in(&shared.actor(), NO_HURRY).await;
    let chain = two_versions(&good, V2).await.branch_location().path;
    let actor = shared.actor();
    let weak = managed_in(&actor, NO_HURRY).await;
    actor
        .faults
        .fail_matching(|r| r.kind == Kind::PutCreate, Fault::NotImplemented);

    let before = shared.dump().await;
    let over = weak
        .create_table("t", rows([9]))
        .mode(CreateMode::Overwrite);
    let errors = [
        weak.create_table("n", rows([9])).await.unwrap_err(),
        weak.declare_table("n").await.unwrap_err(),
        over.await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("create-if-absent"), "{error}");
    }
    assert_eq!(shared.dump().await, before);
    // The data of an append is written first, as always; a version is neither made nor left staged.
    let versions = names(shared.raw().as_ref(), &chain).await;
    let mut table = weak.open_table("t").await.unwrap();
    let error = append(&mut table, [9]).await.unwrap_err().to_string();
    assert!(error.contains("create-if-absent"), "{error}");
    assert_eq!(names(shared.raw().as_ref(), &chain).await, versions);
    assert_eq!(state(&good).await, (vec![0, 1, 2, 3], 2));
}
