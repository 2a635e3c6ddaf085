//! What keeps a writer out: of a dropped table, and of another table that took the name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lance_namespace::models::{
    CreateTableVersionRequest, DeclareTableRequest, DescribeTableRequest,
};
use lance_namespace::{ErrorCode, LanceNamespace};
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lance_table::io::commit::ManifestNamingScheme;
use lancekeep::arrow::array::RecordBatchIterator;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{
    CommitBuilder, Dataset, InsertBuilder, WriteDestination, WriteMode, WriteParams,
};
use lancekeep::{Catalog, CreateMode};
use object_store::ObjectStoreExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;

use super::{
    LanceResult, NO_HURRY, Served, WINDOW, append, code_of, commit, id, managed, managed_in, names,
    overwrite, plainly,
};
use crate::common::{ids, rows, table_ids};
use crate::support::{SharedMemory, StoreClock};

/// As a stock client opens a table that it knows by its id.
async fn stock(namespace: Arc<dyn LanceNamespace>, name: &str) -> Dataset {
    let builder = DatasetBuilder::from_namespace(namespace, id(&[name])).await;
    builder.unwrap().load().await.unwrap()
}

async fn write_into(
    namespace: Arc<dyn LanceNamespace>,
    name: &str,
    mode: WriteMode,
    ids: impl IntoIterator<Item = i32>,
) -> LanceResult<Dataset> {
    let batch = rows(ids);
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let params = WriteParams {
        mode,
        ..Default::default()
    };
    Dataset::write_into_namespace(reader, namespace, id(&[name]), Some(params)).await
}

#[track_caller]
fn says_dropped<T>(result: LanceResult<T>) {
    let error = result
        .err()
        .expect("a commit to a dropped table")
        .to_string();
    assert!(error.contains("was dropped"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_commits_are_what_everybody_reads() {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), NO_HURRY).await;
    let mut created = catalog.create_table("t", rows(0..2)).await.unwrap();
    append(&mut created, [2]).await.unwrap();
    let mut opened = catalog.open_table("t").await.unwrap();
    append(&mut opened, [3]).await.unwrap();
    append(&mut created, [4]).await.unwrap();
    assert_eq!(plainly(created.uri()).await, (vec![0, 1, 2, 3, 4], 4));
    let replaced = overwrite(&created, [9]).await.unwrap();
    assert_eq!(replaced.version().version, 5);
    assert_eq!(plainly(created.uri()).await, (vec![9], 5));
    // What plain Lance commits is seen as well, and built on.
    let mut plain = Dataset::open(created.uri()).await.unwrap();
    append(&mut plain, [10]).await.unwrap();
    opened.checkout_latest().await.unwrap();
    append(&mut opened, [11]).await.unwrap();
    assert_eq!(plainly(created.uri()).await, (vec![9, 10, 11], 7));
    let over = catalog
        .create_table("t", rows([20]))
        .mode(CreateMode::Overwrite);
    let mut over = over.await.unwrap();
    append(&mut over, [21]).await.unwrap();
    assert_eq!(plainly(created.uri()).await, (vec![20, 21], 9));

    let stock_root = DirectoryNamespaceBuilder::new(root.path().to_str().unwrap())
        .manifest_enabled(false)
        .build()
        .await
        .unwrap();
    let read = stock(Arc::new(stock_root), "t").await;
    assert_eq!(
        (ids(&read).await, read.version().version),
        (vec![20, 21], 9)
    );
}

/// Case 23: engine B opened before engine A dropped. Its reads go on, its appends are refused and leave no trace among
/// the versions, and after the undrop it goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn infino_468_a_writer_that_opened_before_the_drop() {
    let root = tempfile::tempdir().unwrap();
    let a = managed(root.path(), WINDOW).await;
    let b = managed(root.path(), WINDOW).await;
    let mut created = a.create_table("t", rows(0..2)).await.unwrap();
    append(&mut created, [2]).await.unwrap();
    let mut opened = b.open_table("t").await.unwrap();
    let mut behind = b.open_table("t").version(1).await.unwrap();
    let through_b = stock(Arc::new(b.clone()), "t").await;
    let table = opened.branch_location().path;
    let objects = LocalFileSystem::new();
    let before = names(&objects, &table).await;

    a.drop_table("t").await.unwrap();
    assert_eq!(ids(&opened).await, [0, 1, 2]);
    says_dropped(append(&mut opened, [3]).await);
    says_dropped(append(&mut behind, [3]).await);
    says_dropped(append(&mut created, [3]).await);
    says_dropped(overwrite(&opened, [3]).await);
    says_dropped(opened.delete("id = 0").await);
    assert_eq!(names(&objects, &table).await, before);
    assert_eq!(ids(&opened).await, [0, 1, 2]);
    // A stock client takes every refusal for a conflict whose outcome is unknown, and keeps what it staged.
    let refused = commit(&through_b, WriteMode::Append, [3]).await;
    assert!(refused.is_err());
    let refused = write_into(Arc::new(b.clone()), "t", WriteMode::Append, [3]).await;
    says_dropped(refused);

    a.undrop_table("t").await.unwrap();
    assert_eq!(plainly(opened.uri()).await, (vec![0, 1, 2], 2));
    append(&mut opened, [4]).await.unwrap();
    commit(&through_b, WriteMode::Append, [5]).await.unwrap();
    append(&mut behind, [6]).await.unwrap();
    assert_eq!(plainly(opened.uri()).await, (vec![0, 1, 2, 4, 5, 6], 5));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// The dataset that the catalog gave.
    Ours,
    /// A stock client that follows `managed_versioning` over the catalog.
    Stock,
    /// The same over REST.
    Rest,
}

/// Drops and purges the table, and creates another one of `versions` versions: a row each, from 100 on.
async fn replace(catalog: &Catalog, name: &str, versions: i32) -> Vec<i32> {
    catalog.drop_table(name).await.unwrap();
    catalog.purge_table(name).await.unwrap();
    let mut table = catalog.create_table(name, rows([100])).await.unwrap();
    for id in 101..100 + versions {
        append(&mut table, [id]).await.unwrap();
    }
    (100..100 + versions).collect()
}

async fn build(catalog: &Catalog, name: &str, versions: i32) {
    let mut table = catalog.create_table(name, rows([0])).await.unwrap();
    for id in 1..versions {
        append(&mut table, [id]).await.unwrap();
    }
}

/// The table is whole, for the catalog and for everybody else.
async fn has_exactly(catalog: &Catalog, name: &str, wanted: &[i32]) {
    let table = catalog.open_table(name).await.unwrap();
    assert_eq!(ids(&table).await, wanted);
    assert_eq!(plainly(table.uri()).await.0, wanted);
}

/// The versions of the handle and of the new table: before, the same, and beyond.
const RELATIONS: [(i32, i32); 3] = [(1, 3), (2, 2), (3, 1)];

async fn an_old_handle(writer: Writer) {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), WINDOW).await;
    let served = Served::of(Arc::new(catalog.clone())).await;
    for (old, new) in RELATIONS {
        for mode in [WriteMode::Append, WriteMode::Overwrite] {
            let name = format!("t_{old}_{new}_{mode:?}");
            build(&catalog, &name, old).await;
            let handle = match writer {
                Writer::Ours => catalog.open_table(&name).await.unwrap(),
                Writer::Stock => stock(Arc::new(catalog.clone()), &name).await,
                Writer::Rest => stock(served.client(), &name).await,
            };
            let kept = replace(&catalog, &name, new).await;
            let written = commit(&handle, mode, [7]).await;
            let text = written.as_ref().err().map(ToString::to_string);
            println!("{writer:?} {name}: {text:?}");
            if writer == Writer::Ours || old >= new {
                assert!(written.is_err(), "{writer:?} {name}");
            }
            // What stays open: a stock client tells no anchor, and where the new table has a later version than the
            // handle, Lance reads on and builds on the new table's manifest. The files were written after the create,
            // so the table is whole, with a row that nobody meant for it.
            let wanted = match (written.is_ok(), mode) {
                (false, _) => kept.clone(),
                (true, WriteMode::Overwrite) => vec![7],
                (true, _) => [vec![7], kept].concat(),
            };
            has_exactly(&catalog, &name, &wanted).await;
            let mut again = catalog.open_table(&name).await.unwrap();
            append(&mut again, [1000]).await.unwrap();
            has_exactly(&catalog, &name, &[wanted.as_slice(), &[1000]].concat()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_of_an_earlier_table_commits_nothing() {
    an_old_handle(Writer::Ours).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_handle_of_an_earlier_table_breaks_nothing() {
    an_old_handle(Writer::Stock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_handle_of_an_earlier_table_breaks_nothing_over_rest() {
    an_old_handle(Writer::Rest).await;
}

/// Files that were written before the purge are gone, and no version may name them: on stock Lance the append is accepted
/// and the table cannot be opened any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_written_before_the_purge_are_never_named() {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), WINDOW).await;
    let served = Served::of(Arc::new(catalog.clone())).await;
    for writer in [Writer::Ours, Writer::Stock, Writer::Rest] {
        for (old, new) in RELATIONS {
            let name = format!("t_{old}_{new}_{writer:?}");
            build(&catalog, &name, old).await;
            let handle = Arc::new(match writer {
                Writer::Ours => catalog.open_table(&name).await.unwrap(),
                Writer::Stock => stock(Arc::new(catalog.clone()), &name).await,
                Writer::Rest => stock(served.client(), &name).await,
            });
            let params = WriteParams {
                mode: WriteMode::Append,
                ..Default::default()
            };
            let transaction = InsertBuilder::new(WriteDestination::Dataset(handle.clone()))
                .with_params(&params)
                .execute_uncommitted(vec![rows([7])])
                .await
                .unwrap();
            let kept = replace(&catalog, &name, new).await;
            let committed = CommitBuilder::new(WriteDestination::Dataset(handle))
                .with_max_retries(2)
                .execute(transaction)
                .await;
            assert!(committed.is_err(), "{name}");
            has_exactly(&catalog, &name, &kept).await;
        }
    }
}

/// A commit that saw no drop must have taken effect before the purge looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_waits_for_the_commit_window() {
    let window = Duration::from_millis(1500);
    // The times of a local file system lag a few milliseconds behind.
    let enough = window - Duration::from_millis(50);
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), window).await;
    catalog.create_table("t", rows(0..2)).await.unwrap();
    let began = Instant::now();
    catalog.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    assert!(began.elapsed() >= enough, "{:?}", began.elapsed());

    // An older drop has waited already, by the store's own clock.
    let clock = StoreClock::default();
    let shared = SharedMemory::with_clock(clock.clone());
    let long = Duration::from_secs(200);
    let catalog = managed_in(&shared.actor(), long).await;
    catalog.create_table("t", rows(0..2)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    clock.advance(long + Duration::from_secs(2));
    let purge = async { catalog.purge_table("t").await };
    let purged = tokio::time::timeout(Duration::from_secs(60), purge).await;
    purged.expect("it waited again").unwrap();
    assert!(catalog.table_names().await.unwrap().is_empty());
}

async fn flags(namespace: &dyn LanceNamespace) -> [Option<bool>; 2] {
    let mut declare = DeclareTableRequest::new();
    declare.id = Some(id(&["declared"]));
    let declared = namespace.declare_table(declare).await.unwrap();
    let mut describe = DescribeTableRequest::new();
    describe.id = Some(id(&["t"]));
    let described = namespace.describe_table(describe).await.unwrap();
    [declared.managed_versioning, described.managed_versioning]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describe_and_declare_say_that_versions_are_managed() {
    for over_rest in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let catalog = managed(root.path(), NO_HURRY).await;
        catalog.create_table("t", rows(0..2)).await.unwrap();
        let served = Served::of(Arc::new(catalog.clone())).await;
        let client = served.client();
        let namespace: &dyn LanceNamespace = match over_rest {
            true => client.as_ref(),
            false => &catalog,
        };
        assert_eq!(flags(namespace).await, [Some(true); 2]);
    }
    let (_root, catalog) = crate::common::local().await;
    catalog.create_table("t", rows(0..2)).await.unwrap();
    let flags = flags(&catalog).await;
    assert!(flags.iter().all(|flag| *flag != Some(true)), "{flags:?}");
}

/// A stock writer that knows only the namespace creates, appends and overwrites through the catalog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_into_namespace_goes_through_the_catalog() {
    for over_rest in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let catalog = managed(root.path(), NO_HURRY).await;
        let served = Served::of(Arc::new(catalog.clone())).await;
        let namespace: Arc<dyn LanceNamespace> = match over_rest {
            true => served.client(),
            false => Arc::new(catalog.clone()),
        };
        let write = |mode, ids: [i32; 1]| write_into(namespace.clone(), "t", mode, ids);
        let created = write(WriteMode::Create, [0]).await.unwrap();
        assert_eq!(table_ids(&catalog, "t").await, [0]);
        let again = write(WriteMode::Create, [1]).await;
        assert!(again.is_err());
        write(WriteMode::Append, [1]).await.unwrap();
        let mut ours = catalog.open_table("t").await.unwrap();
        append(&mut ours, [2]).await.unwrap();
        assert_eq!(plainly(created.uri()).await, (vec![0, 1, 2], 3));
        write(WriteMode::Overwrite, [5]).await.unwrap();
        assert_eq!(plainly(created.uri()).await, (vec![5], 4));

        catalog.drop_table("t").await.unwrap();
        for mode in [WriteMode::Create, WriteMode::Append, WriteMode::Overwrite] {
            says_dropped(write(mode, [6]).await);
        }
        catalog.undrop_table("t").await.unwrap();
        assert_eq!(plainly(created.uri()).await, (vec![5], 4));
    }
}

/// What a request to create version 2 of `t` names: the bytes of version 1, staged beside the place of version 2.
async fn staged_second(
    catalog: &Catalog,
    scheme: ManifestNamingScheme,
) -> CreateTableVersionRequest {
    let first = catalog.describe_version("t", 1).await.unwrap();
    let table = Path::parse(first.path.split_once("/_versions/").unwrap().0).unwrap();
    let target = scheme.manifest_path(&table, 2);
    let staged = format!("{target}-one");
    let disk = LocalFileSystem::new();
    let content = disk.get(&Path::parse(&first.path).unwrap()).await.unwrap();
    let content = content.bytes().await.unwrap();
    disk.put(&Path::parse(&staged).unwrap(), content.into())
        .await
        .unwrap();
    let mut request = CreateTableVersionRequest::new(2, staged);
    request.id = Some(id(&["t"]));
    request.naming_scheme = Some(match scheme {
        ManifestNamingScheme::V1 => "V1".to_string(),
        ManifestNamingScheme::V2 => "V2".to_string(),
    });
    request
}

/// Two naming schemes in one directory make a table that nobody can open.
#[tokio::test]
async fn a_version_is_named_as_the_one_before() {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), NO_HURRY).await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let other = staged_second(&catalog, ManifestNamingScheme::V1).await;
    let namespace: &dyn LanceNamespace = &catalog;
    let refused = namespace.create_table_version(other).await.unwrap_err();
    assert_eq!(code_of(&refused), Some(ErrorCode::InvalidInput));
    assert_eq!(catalog.latest_version("t").await.unwrap().version, 1);
    has_exactly(&catalog, "t", &[0, 1, 2]).await;
    let same = staged_second(&catalog, ManifestNamingScheme::V2).await;
    namespace.create_table_version(same).await.unwrap();
    has_exactly(&catalog, "t", &[0, 1, 2]).await;
}

/// A request that landed in what a purge has emptied is there when it is sent again, with just its content; it is no
/// success, since the files that it names are gone.
#[tokio::test]
async fn a_version_without_its_files_is_no_repetition() {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), NO_HURRY).await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let namespace: &dyn LanceNamespace = &catalog;
    let request = staged_second(&catalog, ManifestNamingScheme::V2).await;
    let staged = Path::parse(&request.manifest_path).unwrap();
    let target = Path::parse(request.manifest_path.strip_suffix("-one").unwrap()).unwrap();
    let disk = LocalFileSystem::new();
    disk.copy(&staged, &target).await.unwrap();
    // With its files it is one.
    namespace
        .create_table_version(request.clone())
        .await
        .unwrap();
    disk.copy(&target, &staged).await.unwrap();
    std::fs::remove_dir_all(root.path().join("t.lance/data")).unwrap();
    let refused = namespace.create_table_version(request).await.unwrap_err();
    assert_eq!(code_of(&refused), Some(ErrorCode::InvalidTableState));
}
