//! Failures that users of Lance, LanceDB and neighbouring catalogs reported, each a test named after its report.
//!
//! A report stands for a kind of fault: the tests cover the kind, on local disk and in memory where both make sense.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::path::Path as FsPath;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt, future};
use lancekeep::arrow::array::{AsArray, RecordBatch, RecordBatchIterator};
use lancekeep::arrow::datatypes::{Int32Type, UInt64Type};
use lancekeep::arrow::error::ArrowError;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{Dataset, ProjectionRequest, ROW_ID, UpdateBuilder, WriteParams};
use lancekeep::lance::session::Session;
use lancekeep::lance_io::object_store::WrappingObjectStore;
use lancekeep::lifecycle::FindingKind;
use lancekeep::listing::TablePage;
use lancekeep::{Catalog, CreateMode, Error, ErrorKind, Purge, TableData, TableIdent, TableState};
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
};

use crate::common::{ids, local, rows, table_ids};
use crate::stores;
use crate::support::{Actor, Fault, Kind, Request, SharedMemory};

/// A catalog and the place that its root is in.
struct Home {
    catalog: Catalog,
    place: Place,
}

enum Place {
    Disk(tempfile::TempDir),
    Memory(SharedMemory),
    Server(stores::Place),
}

impl Home {
    async fn on_disk() -> Self {
        let (dir, catalog) = local().await;
        let place = Place::Disk(dir);
        Self { catalog, place }
    }

    async fn in_memory() -> Self {
        let memory = SharedMemory::new();
        let catalog = in_memory(&memory.actor()).await;
        let place = Place::Memory(memory);
        Self { catalog, place }
    }

    async fn on_server(store: stores::Store) -> Self {
        let place = stores::Place::new(store);
        let catalog = place.catalog().await;
        let place = Place::Server(place);
        Self { catalog, place }
    }

    /// A catalog of another process on the same root.
    async fn another(&self) -> Catalog {
        match &self.place {
            Place::Disk(dir) => Catalog::connect(utf8(dir.path())).await.unwrap(),
            Place::Memory(memory) => in_memory(&memory.actor()).await,
            Place::Server(place) => place.catalog().await,
        }
    }

    /// A session of another process that reaches the same root.
    fn session(&self) -> Arc<Session> {
        match &self.place {
            Place::Disk(_) => Arc::new(Session::default()),
            Place::Memory(memory) => memory.actor().session,
            Place::Server(place) => place.session(),
        }
    }

    /// All objects below the root.
    async fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        match &self.place {
            Place::Disk(dir) => {
                let mut files = tree(dir.path());
                files.retain(|name, _| !name.ends_with('/'));
                files
            }
            Place::Memory(memory) => objects(memory).await,
            Place::Server(place) => place.contents().await,
        }
    }

    async fn plant(&self, name: &str, content: &'static [u8]) {
        match &self.place {
            Place::Disk(dir) => {
                let path = dir.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            }
            Place::Memory(memory) => plant(memory, name, content).await,
            Place::Server(place) => place.plant(name, content).await,
        }
    }

    /// Removes a directory by hand.
    async fn remove(&self, name: &str) {
        match &self.place {
            Place::Disk(dir) => std::fs::remove_dir_all(dir.path().join(name)).unwrap(),
            Place::Memory(memory) => {
                let prefix = format!("root/{name}/");
                for path in memory.dump().await {
                    if path.starts_with(&prefix) {
                        let path = Path::parse(path).unwrap();
                        memory.raw().delete(&path).await.unwrap();
                    }
                }
            }
            Place::Server(place) => place.remove(name).await,
        }
    }
}

/// The same case on local disk and in memory.
macro_rules! on_both {
    ($body:ident: $on_disk:ident, $in_memory:ident) => {
        #[tokio::test]
        async fn $on_disk() {
            $body(&Home::on_disk().await).await;
        }

        #[tokio::test]
        async fn $in_memory() {
            $body(&Home::in_memory().await).await;
        }
    };
}

/// The same case on the servers too.
macro_rules! on_servers {
    ($body:ident: $on_s3:ident, $on_azure:ident) => {
        #[tokio::test]
        async fn $on_s3() {
            $body(&Home::on_server(stores::Store::S3).await).await;
        }

        #[tokio::test]
        async fn $on_azure() {
            $body(&Home::on_server(stores::Store::Azure).await).await;
        }
    };
}

/// A catalog with the default leases, so that a slow machine overruns none.
async fn in_memory(actor: &Actor) -> Catalog {
    let builder = Catalog::builder("memory://root").session(actor.session.clone());
    builder.build().await.unwrap()
}

async fn plant(memory: &SharedMemory, name: &str, content: &'static [u8]) {
    let path = Path::parse(format!("root/{name}")).unwrap();
    memory.raw().put(&path, content.into()).await.unwrap();
}

async fn objects(memory: &SharedMemory) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in memory.dump().await {
        let location = Path::parse(&path).unwrap();
        let content = memory.raw().get(&location).await.unwrap();
        let name = path.strip_prefix("root/").unwrap_or(&path).to_string();
        found.insert(name, content.bytes().await.unwrap().to_vec());
    }
    found
}

/// Everything below a directory; the names of directories end in a slash.
fn tree(root: &FsPath) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut pending) = (BTreeMap::new(), vec![root.to_path_buf()]);
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = utf8(path.strip_prefix(root).unwrap()).to_string();
            if path.is_dir() {
                found.insert(format!("{name}/"), Vec::new());
                pending.push(path);
            } else {
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn utf8(path: &FsPath) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn assert_kept(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) {
    for (name, content) in before {
        assert!(
            after.get(name) == Some(content),
            "{name} is gone or changed"
        );
    }
}

#[track_caller]
fn assert_kind<T: fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

async fn create_all(catalog: &Catalog, names: &[&str]) {
    for name in names {
        catalog.create_table(*name, rows(0..1)).await.unwrap();
    }
}

/// Rows whose source fails after the first batch.
fn failing_rows() -> TableData {
    let good = rows(0..5);
    let schema = good.schema();
    let bad = ArrowError::ComputeError("source failed".to_string());
    TableData::reader(RecordBatchIterator::new([Ok(good), Err(bad)], schema))
}

// Case 1: pages.

/// Names whose order differs from that of their keys, and names that look like others' records.
const NAMES: [&str; 15] = [
    "a",
    "a.b",
    "a-b",
    "a.e",
    "a.lance",
    "a.deleted",
    "a.deleted.x",
    "ab",
    "b",
    "b-1",
    "b.deleted",
    "c",
    "c.lance",
    "d_d",
    "z",
];

fn in_key_order<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(str::to_string).collect();
    names.sort_by_key(|name| format!("{name}.lance/"));
    names
}

async fn one_page(catalog: &Catalog, limit: usize, token: Option<String>) -> TablePage {
    let mut request = catalog.list_tables().limit(limit);
    if let Some(token) = token {
        request = request.page_token(token);
    }
    request.await.unwrap()
}

async fn pages_from(
    catalog: &Catalog,
    limit: usize,
    mut token: Option<String>,
) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    loop {
        let page = one_page(catalog, limit, token).await;
        pages.push(page.tables);
        assert!(pages.len() <= 100, "the listing does not end: {pages:?}");
        token = page.page_token;
        if token.is_none() {
            return pages;
        }
    }
}

async fn every_name_once(home: &Home) {
    let catalog = &home.catalog;
    assert_eq!(pages_from(catalog, 5, None).await, [Vec::<String>::new()]);

    create_all(catalog, &NAMES).await;
    let expected = in_key_order(NAMES);
    let mut sorted = expected.clone();
    sorted.sort();
    assert_ne!(expected, sorted, "the names are to have another key order");
    for limit in [1, 2, 3, 5, 7, 14, 15, 16, 100] {
        let pages = pages_from(catalog, limit, None).await;
        assert_eq!(pages.concat(), expected, "pages of {limit}");
        // So there is no token after the last name, and every page but the last one is full.
        assert_eq!(
            pages.len(),
            expected.len().div_ceil(limit),
            "pages of {limit}"
        );
    }
    let all = catalog.list_tables().await.unwrap();
    assert_eq!((all.tables, all.page_token), (expected.clone(), None));
    for stream in [
        catalog.list_tables().stream(),
        catalog.list_tables().limit(4).stream(),
    ] {
        let streamed: Vec<String> = stream.try_collect().await.unwrap();
        assert_eq!(streamed, expected);
    }
    assert_eq!(catalog.table_names().await.unwrap(), sorted);
}

on_both!(every_name_once:
    lancedb_3915_no_table_is_lost_at_a_page_boundary_on_local_disk,
    lancedb_3915_no_table_is_lost_at_a_page_boundary_in_memory);
on_servers!(every_name_once:
    lancedb_3915_no_table_is_lost_at_a_page_boundary_on_s3,
    lancedb_3915_no_table_is_lost_at_a_page_boundary_on_azure);

/// Between two pages the table of the token and the one that would come next are dropped.
async fn drops_between_pages(home: &Home) {
    let catalog = &home.catalog;
    create_all(catalog, &NAMES).await;
    let all = in_key_order(NAMES);
    for limit in [1, 2, 4, 5] {
        let (mut listed, mut dropped) = (Vec::<String>::new(), BTreeSet::<String>::new());
        let mut token = None;
        loop {
            let page = one_page(catalog, limit, token).await;
            for name in &page.tables {
                assert!(!dropped.contains(name), "{name} was dropped before");
                assert!(!listed.contains(name), "{name} comes twice");
            }
            listed.extend(page.tables);
            token = page.page_token;
            if token.is_none() {
                break;
            }
            let last = listed.last().cloned();
            let next = all
                .iter()
                .find(|name| !listed.contains(*name) && !dropped.contains(*name))
                .cloned();
            for name in [last, next].into_iter().flatten() {
                catalog.drop_table(&name).await.unwrap();
                dropped.insert(name);
            }
        }
        assert!(dropped.len() >= 4, "pages of {limit} drop {dropped:?}");
        for name in &all {
            assert!(
                listed.contains(name) || dropped.contains(name),
                "pages of {limit} lose {name}"
            );
        }
        for name in &dropped {
            catalog.undrop_table(name).await.unwrap();
        }
    }
    assert_eq!(pages_from(catalog, 5, None).await.concat(), all);
}

on_both!(drops_between_pages:
    lancedb_3915_drops_between_pages_lose_and_repeat_nothing_on_local_disk,
    lancedb_3915_drops_between_pages_lose_and_repeat_nothing_in_memory);

/// `a.deleted` sorts before all of `a.e….lance/`, and `a.lance/` after them: pages of the store lie between.
async fn a_tombstone_pages_before_its_table(home: &Home) {
    let catalog = &home.catalog;
    let others: Vec<String> = (0..55).map(|n| format!("a.e{n:02}")).collect();
    for name in &others {
        catalog.create_table(name, rows(0..1)).await.unwrap();
    }
    create_all(catalog, &["a"]).await;
    catalog.drop_table("a").await.unwrap();
    for limit in (1..=12).chain([55]) {
        let pages = pages_from(catalog, limit, None).await;
        assert_eq!(pages.concat(), others, "pages of {limit}");
        assert_eq!(pages.len(), 55_usize.div_ceil(limit), "pages of {limit}");
    }

    for (limit, pages_before) in [(1, 30), (10, 2), (10, 3), (10, 5)] {
        catalog.undrop_table("a").await.unwrap();
        let mut listed = Vec::new();
        let mut token = None;
        for _ in 0..pages_before {
            let page = one_page(catalog, limit, token).await;
            listed.extend(page.tables);
            token = page.page_token;
        }
        catalog.drop_table("a").await.unwrap();
        let rest = pages_from(catalog, limit, token.clone()).await.concat();
        assert_eq!([listed.clone(), rest].concat(), others);
        // The same token after it came back.
        catalog.undrop_table("a").await.unwrap();
        let rest = pages_from(catalog, limit, token).await.concat();
        let with_it = [others.clone(), vec!["a".to_string()]].concat();
        assert_eq!([listed, rest].concat(), with_it);
        catalog.drop_table("a").await.unwrap();
    }
}

on_both!(a_tombstone_pages_before_its_table:
    lancedb_3915_a_tombstone_on_an_earlier_page_hides_its_table_on_local_disk,
    lancedb_3915_a_tombstone_on_an_earlier_page_hides_its_table_in_memory);
on_servers!(a_tombstone_pages_before_its_table:
    lancedb_3915_a_tombstone_on_an_earlier_page_hides_its_table_on_s3,
    lancedb_3915_a_tombstone_on_an_earlier_page_hides_its_table_on_azure);

async fn refused_pages(home: &Home) {
    let catalog = &home.catalog;
    create_all(catalog, &["a", "b"]).await;
    let token = one_page(catalog, 1, None).await.page_token.unwrap();
    let (cut, longer) = (&token[..token.len() - 2], format!("{token}00"));
    for bad in [
        "",
        "0",
        "zz",
        "7b7d",
        "äö",
        "a.lance/",
        &token[2..],
        cut,
        longer.as_str(),
    ] {
        let page = catalog.list_tables().limit(1).page_token(bad).await;
        assert_kind(page, ErrorKind::InvalidInput);
        let stream = catalog.list_tables().page_token(bad).stream();
        assert_kind(
            stream.try_collect::<Vec<_>>().await,
            ErrorKind::InvalidInput,
        );
    }
    let none = catalog.list_tables().limit(0);
    assert_kind(none.await, ErrorKind::InvalidInput);
    let none = catalog.list_tables().limit(0).page_token(&token);
    assert_kind(none.await, ErrorKind::InvalidInput);
    let none = catalog.list_tables().limit(0).stream();
    assert_kind(none.try_collect::<Vec<_>>().await, ErrorKind::InvalidInput);
    assert_eq!(one_page(catalog, 1, Some(token)).await.tables, ["b"]);
}

on_both!(refused_pages:
    lancedb_3915_bad_tokens_and_empty_pages_are_refused_on_local_disk,
    lancedb_3915_bad_tokens_and_empty_pages_are_refused_in_memory);

// Case 6: what a killed process left.

#[derive(Clone, Copy)]
enum Left {
    EmptyDir,
    Data,
}

async fn leave(home: &Home, left: Left) {
    match (left, &home.place) {
        (Left::Data, _) => home.plant("t.lance/data/left.lance", b"left").await,
        (Left::EmptyDir, Place::Disk(dir)) => {
            std::fs::create_dir(dir.path().join("t.lance")).unwrap();
        }
        (Left::EmptyDir, _) => panic!("only a disk has empty directories"),
    }
}

async fn assert_nothing_left(home: &Home) {
    let status = home.catalog.table_status("t").await.unwrap();
    assert_eq!(status, TableState::Absent);
    assert_eq!(home.contents().await, BTreeMap::new());
    if let Place::Disk(dir) = &home.place {
        assert_eq!(tree(dir.path()), BTreeMap::new());
    }
}

/// It does not open, and says why.
async fn incomplete_is_told(home: &Home, left: Left) {
    let catalog = &home.catalog;
    leave(home, left).await;
    let before = home.contents().await;
    let status = catalog.table_status("t").await.unwrap();
    assert_eq!(status, TableState::Incomplete);
    assert!(!catalog.table_exists("t").await.unwrap());
    let openable = catalog.list_tables().include_declared(false).await.unwrap();
    assert!(openable.tables.is_empty());
    for dry_run in [true, false] {
        let report = catalog.reconcile(dry_run).await.unwrap();
        let found: Vec<_> = report.of(FindingKind::IncompleteTable).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].ident, TableIdent::from("t"));
        assert!(!found[0].mended);
    }
    assert_eq!(home.contents().await, before);
    let error = assert_kind(catalog.open_table("t").await, ErrorKind::TableNotFound);
    assert!(error.to_string().contains("incomplete"), "{error}");
}

async fn incomplete_is_no_obstacle(home: &Home, left: Left) {
    let catalog = &home.catalog;
    leave(home, left).await;
    let created = catalog.create_table("t", rows(0..3)).await.unwrap();
    assert_eq!(created.version().version, 1);
    assert_eq!(table_ids(catalog, "t").await, [0, 1, 2]);
    assert!(catalog.reconcile(true).await.unwrap().is_clean());
    catalog.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    assert_nothing_left(home).await;
}

async fn incomplete_can_be_dropped(home: &Home, left: Left) {
    let catalog = &home.catalog;
    leave(home, left).await;
    let dropped = catalog.drop_table("t").await.unwrap();
    assert_eq!(dropped.version, None);
    let listed = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].drop_id, dropped.drop_id);
    catalog.undrop_table("t").await.unwrap();
    let status = catalog.table_status("t").await.unwrap();
    assert_eq!(status, TableState::Incomplete);

    let all = catalog.drop_all_tables().await.unwrap();
    assert_eq!(all.len(), 1);
    catalog.purge_table("t").await.unwrap();
    assert_nothing_left(home).await;

    // Dropped, then created over: nothing to restore, but no obstacle either.
    leave(home, left).await;
    catalog.drop_table("t").await.unwrap();
    let created = catalog.create_table("t", rows(7..9)).await.unwrap();
    assert_eq!(created.version().version, 1);
    assert_eq!(table_ids(catalog, "t").await, [7, 8]);
    assert!(catalog.list_dropped_tables().await.unwrap().is_empty());
}

#[tokio::test]
async fn lancedb_3127_an_empty_directory_is_told() {
    incomplete_is_told(&Home::on_disk().await, Left::EmptyDir).await;
}

#[tokio::test]
async fn lancedb_3127_an_empty_directory_is_no_obstacle() {
    incomplete_is_no_obstacle(&Home::on_disk().await, Left::EmptyDir).await;
}

#[tokio::test]
async fn lancedb_3127_an_empty_directory_can_be_dropped() {
    incomplete_can_be_dropped(&Home::on_disk().await, Left::EmptyDir).await;
}

#[tokio::test]
async fn lancedb_3919_data_without_a_version_is_told() {
    incomplete_is_told(&Home::on_disk().await, Left::Data).await;
    incomplete_is_told(&Home::in_memory().await, Left::Data).await;
}

#[tokio::test]
async fn lancedb_3919_data_without_a_version_is_no_obstacle() {
    incomplete_is_no_obstacle(&Home::on_disk().await, Left::Data).await;
    incomplete_is_no_obstacle(&Home::in_memory().await, Left::Data).await;
}

#[tokio::test]
async fn lancedb_3919_data_without_a_version_can_be_dropped() {
    incomplete_can_be_dropped(&Home::on_disk().await, Left::Data).await;
    incomplete_can_be_dropped(&Home::in_memory().await, Left::Data).await;
}

// Case 7: a loose object among tables.

async fn a_loose_object_is_left_alone(home: &Home) {
    let catalog = &home.catalog;
    home.plant("foo.lance", b"loose").await;
    create_all(catalog, &["b", "d", "g"]).await;
    assert_eq!(catalog.table_names().await.unwrap(), ["b", "d", "g"]);
    let pages = pages_from(catalog, 1, None).await;
    assert_eq!(pages.concat(), ["b", "d", "g"]);
    let openable = catalog.list_tables().include_declared(false).await.unwrap();
    assert_eq!(openable.tables, ["b", "d", "g"]);
    assert!(catalog.reconcile(false).await.unwrap().is_clean());

    let dropped = catalog.drop_all_tables().await.unwrap();
    let idents: Vec<_> = dropped.iter().map(|d| d.ident.name()).collect();
    assert_eq!(idents, ["b", "d", "g"]);
    assert!(catalog.drop_all_tables().await.unwrap().is_empty());
    assert!(catalog.table_names().await.unwrap().is_empty());

    let report = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert!(report.failures.is_empty());
    assert_eq!(report.tables.len(), 3);
    let loose = BTreeMap::from([("foo.lance".to_string(), b"loose".to_vec())]);
    assert_eq!(home.contents().await, loose);
}

on_both!(a_loose_object_is_left_alone:
    lancedb_4203_a_loose_object_is_left_alone_on_local_disk,
    lancedb_4203_a_loose_object_is_left_alone_in_memory);
on_servers!(a_loose_object_is_left_alone:
    lancedb_4203_a_loose_object_is_left_alone_on_s3,
    lancedb_4203_a_loose_object_is_left_alone_on_azure);

async fn a_loose_object_is_no_table(home: &Home) {
    let catalog = &home.catalog;
    home.plant("foo.lance", b"loose").await;
    let status = catalog.table_status("foo").await.unwrap();
    assert_eq!(status, TableState::Absent);
    assert_kind(catalog.open_table("foo").await, ErrorKind::TableNotFound);
    assert_kind(catalog.drop_table("foo").await, ErrorKind::TableNotFound);
    let dropped = catalog.drop_table("foo").if_exists().await.unwrap();
    assert_eq!(dropped, None);
    assert_kind(catalog.undrop_table("foo").await, ErrorKind::TableNotFound);
    assert_kind(catalog.purge_table("foo").await, ErrorKind::TableNotFound);
    let loose = BTreeMap::from([("foo.lance".to_string(), b"loose".to_vec())]);
    assert_eq!(home.contents().await, loose);
}

on_both!(a_loose_object_is_no_table:
    lancedb_4203_a_loose_object_is_no_table_on_local_disk,
    lancedb_4203_a_loose_object_is_no_table_in_memory);

#[tokio::test]
async fn lancedb_4203_drop_all_tries_every_table_and_tells_the_first_error() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = in_memory(&actor).await;
    create_all(&catalog, &["a", "b", "c", "d", "e"]).await;
    plant(&memory, "foo.lance", b"loose").await;
    actor.faults.fail_matching(
        |r| {
            let refused = ["root/b.deleted", "root/d.deleted"];
            r.kind == Kind::PutCreate && refused.iter().any(|path| r.path == *path)
        },
        Fault::PermissionDenied,
    );
    let error = assert_kind(catalog.drop_all_tables().await, ErrorKind::Storage);
    assert!(
        matches!(&error, Error::Storage { path, .. } if path == "root/b.deleted"),
        "{error}"
    );
    assert_eq!(catalog.table_names().await.unwrap(), ["b", "d"]);
    let dropped = catalog.list_dropped_tables().await.unwrap();
    let mut names: Vec<_> = dropped.iter().map(|d| d.ident.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "c", "e"]);

    actor.faults.clear();
    let dropped = catalog.drop_all_tables().await.unwrap();
    let names: Vec<_> = dropped.iter().map(|d| d.ident.name()).collect();
    assert_eq!(names, ["b", "d"]);
    assert!(catalog.drop_all_tables().await.unwrap().is_empty());
}

// Case 8: generations of one name in one session.

async fn create_stable(catalog: &Catalog, range: Range<i32>) -> Vec<i32> {
    let params = WriteParams {
        enable_stable_row_ids: true,
        max_rows_per_file: 16,
        ..Default::default()
    };
    let created = catalog
        .create_table("t", rows(range.clone()))
        .write_params(params)
        .await
        .unwrap();
    assert!(created.manifest().uses_stable_row_ids());
    assert_eq!(created.count_rows(None).await.unwrap(), range.len());
    range.collect()
}

fn ids_of(batch: &RecordBatch) -> Vec<i32> {
    let column = batch.column_by_name("id").unwrap();
    column.as_primitive::<Int32Type>().values().to_vec()
}

fn row_ids_of(batch: &RecordBatch) -> Vec<u64> {
    let column = batch.column_by_name(ROW_ID).unwrap();
    column.as_primitive::<UInt64Type>().values().to_vec()
}

/// By scan, by count, by row id and by filter.
async fn assert_holds(catalog: &Catalog, expected: &[i32]) {
    let dataset = catalog.open_table("t").await.unwrap();
    assert_eq!(ids(&dataset).await, expected);
    assert_eq!(dataset.count_rows(None).await.unwrap(), expected.len());

    let mut scan = dataset.scan();
    scan.with_row_id();
    let scanned = scan.try_into_batch().await.unwrap();
    let row_ids = row_ids_of(&scanned);
    let unique: BTreeSet<_> = row_ids.iter().collect();
    assert_eq!(unique.len(), expected.len(), "row ids repeat");
    let projection = ProjectionRequest::from_columns(["id"], dataset.schema());
    let taken = dataset.take_rows(&row_ids, projection).await.unwrap();
    assert_eq!(ids_of(&taken), ids_of(&scanned));

    let last = *expected.last().unwrap();
    let mut scan = dataset.scan();
    scan.with_row_id();
    scan.filter(&format!("id = {last}")).unwrap();
    let filtered = scan.try_into_batch().await.unwrap();
    assert_eq!(ids_of(&filtered), [last]);
    let at = ids_of(&scanned).iter().position(|id| *id == last).unwrap();
    assert_eq!(row_ids_of(&filtered), [row_ids[at]]);
}

/// Deletes the first row and changes the last one.
async fn delete_and_update(catalog: &Catalog, expected: &mut Vec<i32>) {
    assert_holds(catalog, expected).await;
    let mut dataset = catalog.open_table("t").await.unwrap();
    let first = expected.remove(0);
    let deleted = dataset.delete(&format!("id = {first}")).await.unwrap();
    assert_eq!(deleted.num_deleted_rows, 1);
    assert_holds(catalog, expected).await;

    let last = expected.pop().unwrap();
    expected.push(last + 10_000);
    let updated = UpdateBuilder::new(Arc::new(dataset))
        .update_where(&format!("id = {last}"))
        .unwrap()
        .set("id", &format!("{}", last + 10_000))
        .unwrap()
        .build()
        .unwrap()
        .execute()
        .await
        .unwrap();
    assert_eq!(updated.rows_updated, 1);
    assert_holds(catalog, expected).await;
}

async fn generations_after_purge(home: &Home) {
    let catalog = &home.catalog;
    for range in [0..50, 100..107, 200..280, 300..350] {
        let mut expected = create_stable(catalog, range).await;
        delete_and_update(catalog, &mut expected).await;
        catalog.drop_table("t").await.unwrap();
        catalog.purge_table("t").await.unwrap();
    }
    let expected = create_stable(catalog, 400..405).await;
    assert_holds(catalog, &expected).await;
    let status = catalog.table_status("t").await.unwrap();
    assert_eq!(status, TableState::Live { version: 1 });
}

on_both!(generations_after_purge:
    lancedb_3626_a_recreated_table_shows_only_its_own_rows_on_local_disk,
    lancedb_3626_a_recreated_table_shows_only_its_own_rows_in_memory);
on_servers!(generations_after_purge:
    lancedb_3626_a_recreated_table_shows_only_its_own_rows_on_s3,
    lancedb_3626_a_recreated_table_shows_only_its_own_rows_on_azure);

async fn generations_in_one_lineage(home: &Home) {
    let catalog = &home.catalog;
    let mut expected = create_stable(catalog, 0..50).await;
    delete_and_update(catalog, &mut expected).await;
    let old = catalog.open_table("t").await.unwrap();
    catalog.drop_table("t").await.unwrap();
    assert_eq!(ids(&old).await, expected);
    catalog.undrop_table("t").await.unwrap();
    delete_and_update(catalog, &mut expected).await;

    for range in [100..107, 200..280] {
        catalog.drop_table("t").await.unwrap();
        expected = create_stable(catalog, range).await;
        delete_and_update(catalog, &mut expected).await;
    }
    // A revive whose rows come in after it was dropped and restored again.
    catalog.drop_table("t").await.unwrap();
    catalog.undrop_table("t").await.unwrap();
    delete_and_update(catalog, &mut expected).await;

    catalog.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    expected = create_stable(catalog, 300..320).await;
    delete_and_update(catalog, &mut expected).await;
}

on_both!(generations_in_one_lineage:
    lancedb_3626_undrop_and_revive_show_only_the_newest_rows_on_local_disk,
    lancedb_3626_undrop_and_revive_show_only_the_newest_rows_in_memory);
on_servers!(generations_in_one_lineage:
    lancedb_3626_undrop_and_revive_show_only_the_newest_rows_on_s3,
    lancedb_3626_undrop_and_revive_show_only_the_newest_rows_on_azure);

// Case 10: declared tables.

async fn openable(catalog: &Catalog) -> Vec<String> {
    let page = catalog.list_tables().include_declared(false).await.unwrap();
    page.tables
}

async fn assert_declared(catalog: &Catalog, name: &str) {
    let status = catalog.table_status(name).await.unwrap();
    assert_eq!(status, TableState::Declared);
    assert!(!catalog.table_exists(name).await.unwrap());
    assert_eq!(catalog.table_names().await.unwrap(), [name]);
    let all = catalog.list_tables().include_declared(true).await.unwrap();
    assert_eq!(all.tables, [name]);
    assert!(openable(catalog).await.is_empty());
    let error = assert_kind(catalog.open_table(name).await, ErrorKind::TableNotFound);
    assert!(error.to_string().contains("declared"), "{error}");
}

async fn a_retry_materializes(home: &Home) {
    let catalog = &home.catalog;
    let uri = catalog.declare_table("d").await.unwrap();
    assert_eq!(uri, format!("{}/d.lance", catalog.root_uri()));
    assert_declared(catalog, "d").await;
    let again = catalog.declare_table("d").await;
    assert_kind(again, ErrorKind::TableAlreadyExists);

    let error = catalog.create_table("d", failing_rows()).await.unwrap_err();
    assert!(error.to_string().contains("source failed"), "{error}");
    assert_declared(catalog, "d").await;

    let created = catalog.create_table("d", rows(0..3)).await.unwrap();
    assert_eq!(created.version().version, 1);
    assert_eq!(table_ids(catalog, "d").await, [0, 1, 2]);
    let status = catalog.table_status("d").await.unwrap();
    assert_eq!(status, TableState::Live { version: 1 });
    assert_eq!(openable(catalog).await, ["d"]);
    let before = home.contents().await;
    let again = catalog.declare_table("d").await;
    assert_kind(again, ErrorKind::TableAlreadyExists);
    assert_eq!(home.contents().await, before);
    catalog.drop_table("d").await.unwrap();
    catalog.purge_table("d").await.unwrap();
    assert_eq!(home.contents().await, BTreeMap::new());

    // The same without a declaration, and in the modes that ask for less.
    let failed = catalog.create_table("f", failing_rows()).await;
    assert!(failed.is_err());
    catalog.create_table("f", rows(0..2)).await.unwrap();
    assert_eq!(table_ids(catalog, "f").await, [0, 1]);
    for (name, mode) in [
        ("o", CreateMode::Overwrite),
        ("x", CreateMode::ExistOk),
        ("y", CreateMode::Create),
    ] {
        catalog.declare_table(name).await.unwrap();
        let create = catalog.create_table(name, rows(5..7)).mode(mode);
        create.await.unwrap();
        assert_eq!(table_ids(catalog, name).await, [5, 6]);
    }
}

on_both!(a_retry_materializes:
    lancedb_3288_a_declared_table_is_materialized_by_a_retry_on_local_disk,
    lancedb_3288_a_declared_table_is_materialized_by_a_retry_in_memory);
on_servers!(a_retry_materializes:
    lancedb_3288_a_declared_table_is_materialized_by_a_retry_on_s3,
    lancedb_3288_a_declared_table_is_materialized_by_a_retry_on_azure);

async fn declaring_and_dropping(home: &Home) {
    let catalog = &home.catalog;
    catalog.declare_table("d").await.unwrap();
    let dropped = catalog.drop_table("d").await.unwrap();
    assert_eq!(dropped.version, None);
    assert!(catalog.table_names().await.unwrap().is_empty());
    assert_over_dropped(home, "d").await;
    catalog.undrop_table("d").await.unwrap();
    assert_declared(catalog, "d").await;
    catalog.drop_table("d").await.unwrap();
    catalog.purge_table("d").await.unwrap();
    assert_eq!(home.contents().await, BTreeMap::new());

    catalog.create_table("t", rows(0..3)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    assert_over_dropped(home, "t").await;
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(catalog, "t").await, [0, 1, 2]);
}

/// A declaration over a dropped name is refused and changes nothing.
async fn assert_over_dropped(home: &Home, name: &str) {
    let before = home.contents().await;
    let drop_id = home.catalog.list_dropped_tables().await.unwrap()[0].drop_id;
    let error = home.catalog.declare_table(name).await.unwrap_err();
    assert!(
        matches!(&error, Error::TableDropped { dropped } if dropped.drop_id == drop_id),
        "{error}"
    );
    assert_eq!(home.contents().await, before);
}

on_both!(declaring_and_dropping:
    lance_6608_declaring_over_a_dropped_name_changes_nothing_on_local_disk,
    lance_6608_declaring_over_a_dropped_name_changes_nothing_in_memory);

// Case 16: bad names.

fn bad_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        ".",
        "..",
        "a/b",
        "a/",
        "../evil",
        "../root/live",
        "..\\evil",
        "/abs",
        "a%2fb",
        "a%2Fb",
        "%2e%2e",
        "a\0b",
        "a\nb",
        "__manifest",
    ]
    .map(str::to_string)
    .to_vec();
    names.push("x".repeat(300));
    names
}

/// What every operation that takes a name says to this one.
async fn refusals(catalog: &Catalog, name: &str) -> Vec<(&'static str, Error)> {
    let create = || catalog.create_table(name, rows(0..1));
    vec![
        ("create", create().await.unwrap_err()),
        (
            "overwrite",
            create().mode(CreateMode::Overwrite).await.unwrap_err(),
        ),
        (
            "create, exist ok",
            create().mode(CreateMode::ExistOk).await.unwrap_err(),
        ),
        ("declare", catalog.declare_table(name).await.unwrap_err()),
        ("open", catalog.open_table(name).await.unwrap_err()),
        (
            "open a version",
            catalog.open_table(name).version(1).await.unwrap_err(),
        ),
        (
            "open a tag",
            catalog.open_table(name).tag("v").await.unwrap_err(),
        ),
        ("status", catalog.table_status(name).await.unwrap_err()),
        ("exists", catalog.table_exists(name).await.unwrap_err()),
        ("drop", catalog.drop_table(name).await.unwrap_err()),
        (
            "drop if exists",
            catalog.drop_table(name).if_exists().await.unwrap_err(),
        ),
        ("undrop", catalog.undrop_table(name).await.unwrap_err()),
        ("purge", catalog.purge_table(name).await.unwrap_err()),
        (
            "measure",
            catalog.purge_table(name).dry_run().await.unwrap_err(),
        ),
    ]
}

fn assert_refused(bad: &str, errors: Vec<(&'static str, Error)>) {
    for (operation, error) in errors {
        assert!(
            matches!(&error, Error::InvalidIdent { name, .. } if name == bad),
            "{operation} {bad:?}: {error}"
        );
        assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
    }
}

#[tokio::test]
async fn lancedb_4191_bad_names_are_refused_without_a_request() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = in_memory(&actor).await;
    assert_eq!(actor.counter.total(), 0, "connecting");
    for bad in bad_names() {
        assert_refused(&bad, refusals(&catalog, &bad).await);
    }
    // New names are held to a stricter rule than those that others made.
    for bad in ["a b", "ä", "a$b", "#", "a:b", "100%"] {
        let errors = vec![
            (
                "create",
                catalog.create_table(bad, rows(0..1)).await.unwrap_err(),
            ),
            ("declare", catalog.declare_table(bad).await.unwrap_err()),
        ];
        assert_refused(bad, errors);
    }
    let no_parts = TableIdent::new(Vec::<String>::new());
    assert_kind(catalog.open_table(&no_parts).await, ErrorKind::InvalidIdent);
    let created = catalog.create_table(&no_parts, rows(0..1)).await;
    assert_kind(created, ErrorKind::InvalidIdent);
    for parts in [["..", "evil"], ["a", "../evil"]] {
        let error = catalog.drop_table(parts).await.unwrap_err();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::InvalidIdent | ErrorKind::Unsupported
            ),
            "{error}"
        );
    }
    let log = actor.counter.log();
    assert!(log.is_empty(), "{log:?}");
    assert_eq!(memory.dump().await, Vec::<String>::new());
}

#[tokio::test]
async fn lancedb_1129_nothing_outside_a_local_root_is_touched() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    let catalog = Catalog::connect(utf8(&root)).await.unwrap();
    catalog.create_table("live", rows(0..3)).await.unwrap();
    // What "../evil" would mean, as a table and as its tombstone.
    for sentinel in ["evil.lance/data", "evil.lance/_versions", "evil", "abs"] {
        let dir = outer.path().join(sentinel);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("sentinel"), b"untouched").unwrap();
    }
    std::fs::write(outer.path().join("evil.deleted"), b"{\"deleted_at_ms\":1}").unwrap();
    let before = tree(outer.path());
    for bad in bad_names() {
        assert_refused(&bad, refusals(&catalog, &bad).await);
    }
    assert_eq!(tree(outer.path()), before);
    assert_eq!(table_ids(&catalog, "live").await, [0, 1, 2]);
}

// Case 17: only purge deletes, and a missing location is tolerated.

async fn only_purge_deletes(home: &Home) {
    let catalog = &home.catalog;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let mut live = home.contents().await;
    catalog.drop_table("t").await.unwrap();
    let dropped = home.contents().await;
    assert_kept(&live, &dropped);
    assert_kind(catalog.drop_table("t").await, ErrorKind::TableNotFound);
    assert_eq!(catalog.drop_table("t").if_exists().await.unwrap(), None);
    assert!(catalog.drop_all_tables().await.unwrap().is_empty());
    assert!(catalog.reconcile(false).await.unwrap().is_clean());
    let expired = catalog.purge_dropped(Purge::expired()).await.unwrap();
    assert!(expired.tables.is_empty() && expired.failures.is_empty());
    let would = catalog.purge_table("t").dry_run().await.unwrap();
    assert!(would.objects > 0);
    let would = catalog.purge_dropped(Purge::all().dry_run()).await.unwrap();
    assert_eq!(would.tables.len(), 1);
    assert_eq!(home.contents().await, dropped);

    catalog.undrop_table("t").await.unwrap();
    assert_eq!(home.contents().await, live, "undrop leaves no trace");
    catalog.drop_table("t").await.unwrap();
    catalog.create_table("t", rows(9..10)).await.unwrap();
    // Lance's hint names the newest version, and is no part of any.
    live.remove("t.lance/_versions/latest_version_hint.json");
    assert_kept(&live, &home.contents().await);

    catalog.drop_table("t").await.unwrap();
    let purged = catalog.purge_table("t").await.unwrap();
    assert!(purged.objects > 0 && purged.bytes > 0);
    assert_nothing_left(home).await;
    assert_kind(catalog.purge_table("t").await, ErrorKind::TableNotFound);
    assert_kind(catalog.undrop_table("t").await, ErrorKind::TableNotFound);
    assert_kind(catalog.drop_table("t").await, ErrorKind::TableNotFound);
    assert_nothing_left(home).await;
}

on_both!(only_purge_deletes:
    lakekeeper_1735_only_purge_deletes_data_on_local_disk,
    lakekeeper_1735_only_purge_deletes_data_in_memory);
on_servers!(only_purge_deletes:
    lakekeeper_1735_only_purge_deletes_data_on_s3,
    lakekeeper_1735_only_purge_deletes_data_on_azure);

/// A dropped table whose directory somebody removed.
async fn dropped_and_removed(home: &Home) {
    let catalog = &home.catalog;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    home.remove("t.lance").await;
    let status = catalog.table_status("t").await.unwrap();
    assert!(matches!(status, TableState::Dropped(_)), "{status:?}");
}

async fn assert_cleared(home: &Home) {
    assert!(home.catalog.list_dropped_tables().await.unwrap().is_empty());
    assert_nothing_left(home).await;
}

async fn a_missing_location_is_tolerated(home: &Home) {
    let catalog = &home.catalog;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    home.remove("t.lance").await;
    assert_kind(catalog.drop_table("t").await, ErrorKind::TableNotFound);
    assert_cleared(home).await;

    dropped_and_removed(home).await;
    let report = catalog.reconcile(false).await.unwrap();
    assert_eq!(report.of(FindingKind::MissingLocation).count(), 1);
    let purged = catalog.purge_table("t").await.unwrap();
    assert_eq!(purged.objects, 0);
    assert_cleared(home).await;
    assert_kind(catalog.purge_table("t").await, ErrorKind::TableNotFound);

    dropped_and_removed(home).await;
    let report = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(report.tables.len(), 1);
    assert_cleared(home).await;

    dropped_and_removed(home).await;
    assert_kind(catalog.undrop_table("t").await, ErrorKind::TableNotFound);
    assert_cleared(home).await;
    assert_kind(catalog.open_table("t").await, ErrorKind::TableNotFound);

    dropped_and_removed(home).await;
    let created = catalog.create_table("t", rows(7..9)).await.unwrap();
    assert_eq!(created.version().version, 1);
    assert_eq!(table_ids(catalog, "t").await, [7, 8]);
    assert!(catalog.list_dropped_tables().await.unwrap().is_empty());
}

on_both!(a_missing_location_is_tolerated:
    lakekeeper_1517_a_location_removed_by_hand_is_tolerated_on_local_disk,
    lakekeeper_1517_a_location_removed_by_hand_is_tolerated_in_memory);
on_servers!(a_missing_location_is_tolerated:
    lakekeeper_1517_a_location_removed_by_hand_is_tolerated_on_s3,
    lakekeeper_1517_a_location_removed_by_hand_is_tolerated_on_azure);

/// Only the manifests were removed: what is left is no table any more, but nobody may count it as one.
async fn missing_manifests_are_tolerated(home: &Home) {
    let catalog = &home.catalog;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    home.remove("t.lance/_versions").await;
    let left = home.contents().await;
    assert!(left.keys().any(|name| name.starts_with("t.lance/data/")));
    assert_kind(catalog.undrop_table("t").await, ErrorKind::TableNotFound);
    assert!(catalog.list_dropped_tables().await.unwrap().is_empty());
    let status = catalog.table_status("t").await.unwrap();
    assert_eq!(status, TableState::Incomplete);
    catalog.create_table("t", rows(7..9)).await.unwrap();
    assert_eq!(table_ids(catalog, "t").await, [7, 8]);
    catalog.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    assert_cleared(home).await;
}

on_both!(missing_manifests_are_tolerated:
    lance_namespace_73_manifests_removed_by_hand_are_tolerated_on_local_disk,
    lance_namespace_73_manifests_removed_by_hand_are_tolerated_in_memory);
on_servers!(missing_manifests_are_tolerated:
    lance_namespace_73_manifests_removed_by_hand_are_tolerated_on_s3,
    lance_namespace_73_manifests_removed_by_hand_are_tolerated_on_azure);

// Case 18: storage options.

const SECRET: &str = "sentinel-9f27-secret";
const TOKEN: &str = "sentinel-51ac-token";
const OPTIONS: [(&str, &str); 2] = [("secret_access_key", SECRET), ("session_token", TOKEN)];
const REDACTED: &str = "[storage option]";

/// Wraps a store: notes what goes through, and refuses what it is told to, with an error that holds the secrets.
#[derive(Clone, Debug, Default)]
struct Leak {
    state: Arc<Mutex<LeakState>>,
}

#[derive(Debug, Default)]
struct LeakState {
    /// Requests for a path that holds this are refused.
    refused: Option<String>,
    reads: Vec<String>,
    writes: Vec<String>,
}

impl Leak {
    fn refuse(&self, part: &str) {
        self.state.lock().unwrap().refused = Some(part.to_string());
    }

    fn stop(&self) {
        self.state.lock().unwrap().refused = None;
    }

    fn forget(&self) {
        let mut state = self.state.lock().unwrap();
        state.reads.clear();
        state.writes.clear();
    }

    /// Whether anything was read from, and written to, a path that holds this.
    fn saw(&self, part: &str) -> (bool, bool) {
        let state = self.state.lock().unwrap();
        let any = |log: &[String]| log.iter().any(|path| path.contains(part));
        (any(&state.reads), any(&state.writes))
    }

    fn read(&self, location: &Path) -> object_store::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.reads.push(location.to_string());
        state.check(location)
    }

    fn write(&self, location: &Path) -> object_store::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.writes.push(location.to_string());
        state.check(location)
    }

    fn list(&self, prefix: Option<&Path>) -> object_store::Result<()> {
        let state = self.state.lock().unwrap();
        let path = prefix.map(Path::to_string).unwrap_or_default();
        if !state.refuses(&path) {
            return Ok(());
        }
        // Of a kind that Lance's listing does not retry.
        let source = leaking(&path).into();
        Err(object_store::Error::NotSupported { source })
    }
}

impl LeakState {
    fn refuses(&self, path: &str) -> bool {
        self.refused
            .as_ref()
            .is_some_and(|part| path.contains(part.as_str()))
    }

    fn check(&self, location: &Path) -> object_store::Result<()> {
        if !self.refuses(location.as_ref()) {
            return Ok(());
        }
        Err(object_store::Error::PermissionDenied {
            path: location.to_string(),
            source: leaking(location.as_ref()).into(),
        })
    }
}

fn leaking(path: &str) -> String {
    format!("403 Forbidden: {path} with key {SECRET} and token {TOKEN}")
}

impl WrappingObjectStore for Leak {
    fn wrap(&self, _prefix: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(LeakyStore {
            inner: original,
            leak: self.clone(),
        })
    }

    fn wrap_paginated(
        &self,
        _prefix: &str,
        _original: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        None
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

#[async_trait]
impl ObjectStore for LeakyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.leak.write(location)?;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.leak.write(location)?;
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.leak.read(location)?;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        self.leak.read(location)?;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match self.leak.list(prefix) {
            Ok(()) => self.inner.list(prefix),
            Err(error) => stream::once(future::ready(Err(error))).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.leak.list(prefix)?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.leak.write(to)?;
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(
        &self,
        from: &Path,
        to: &Path,
        options: RenameOptions,
    ) -> object_store::Result<()> {
        self.leak.write(to)?;
        self.inner.rename_opts(from, to, options).await
    }
}

/// A catalog in memory with secret options, over a store that leaks them when told to.
async fn leaky_catalog(memory: &SharedMemory, leak: &Leak) -> Catalog {
    Catalog::builder("memory://root")
        .session(memory.actor().session)
        .storage_options(OPTIONS)
        .object_store_wrapper(Arc::new(leak.clone()))
        .build()
        .await
        .unwrap()
}

/// All that an error says, with its causes.
fn texts(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text += &format!(" {cause} {cause:?}");
        next = cause.source();
    }
    text
}

#[track_caller]
fn assert_no_secret(what: &str, text: &str) {
    assert!(!text.contains("sentinel"), "{what}: {text}");
}

#[track_caller]
fn assert_redacted(what: &str, error: &Error) {
    assert_no_secret(what, &texts(error));
    // The store's words did get through.
    assert!(error.to_string().contains(REDACTED), "{what}: {error}");
}

#[tokio::test]
async fn lancedb_353_storage_options_reach_every_table() {
    let (memory, leak) = (SharedMemory::new(), Leak::default());
    let catalog = leaky_catalog(&memory, &leak).await;
    let created = catalog.create_table("t", rows(0..3)).await.unwrap();
    let data = "root/t.lance/data/";
    assert!(
        leak.saw(data).1,
        "the data was not written through the wrapper"
    );
    assert!(leak.saw("root/t.lance/_versions/").1);
    leak.forget();
    let opened = catalog.open_table("t").await.unwrap();
    assert_eq!(ids(&opened).await, [0, 1, 2]);
    assert!(
        leak.saw(data).0,
        "the data was not read through the wrapper"
    );
    let dropped = catalog.drop_table("t").await.unwrap();
    assert!(dropped.hidden_from_stock_clients);
    assert!(leak.saw("root/t.deleted").1);
    let revived = catalog.create_table("t", rows(3..5)).await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let on_disk = Catalog::builder(utf8(dir.path())).storage_options(OPTIONS);
    let on_disk = on_disk.build().await.unwrap();
    let local_created = on_disk.create_table("t", rows(0..3)).await.unwrap();
    let local_opened = on_disk.open_table("t").await.unwrap();
    for dataset in [created, opened, revived, local_created, local_opened] {
        let options = dataset.initial_storage_options().unwrap();
        for (key, value) in OPTIONS {
            assert_eq!(options.get(key).map(String::as_str), Some(value));
        }
    }
    for (name, content) in objects(&memory).await.into_iter().chain(tree(dir.path())) {
        assert_no_secret(&name, &String::from_utf8_lossy(&content));
    }
}

#[tokio::test]
async fn lance_5996_no_storage_option_is_in_debug_output() {
    let builder = Catalog::builder("memory://root").storage_options(OPTIONS);
    let text = format!("{builder:?} {builder:#?}");
    assert_no_secret("builder", &text);
    assert!(text.contains("secret_access_key"), "{text}");

    let (memory, leak) = (SharedMemory::new(), Leak::default());
    let catalog = leaky_catalog(&memory, &leak).await;
    for (what, text) in [
        ("catalog", format!("{catalog:?} {catalog:#?}")),
        ("list", format!("{:?}", catalog.list_tables())),
        ("open", format!("{:?}", catalog.open_table("t"))),
        ("drop", format!("{:?}", catalog.drop_table("t"))),
        ("purge", format!("{:?}", catalog.purge_table("t"))),
        (
            "create",
            format!("{:?}", catalog.create_table("t", rows(0..1))),
        ),
    ] {
        assert_no_secret(what, &text);
        assert!(text.contains("memory://root"), "{what}: {text}");
    }
}

#[tokio::test]
async fn lance_5996_no_storage_option_is_in_errors() {
    // Lance puts the value of this one into its own error.
    let builder = Catalog::builder("memory://root").storage_option("block_size", SECRET);
    let error = assert_kind(builder.build().await, ErrorKind::InvalidInput);
    assert_redacted("a bad option", &error);
    let builder = Catalog::builder(format!("nosuch://{SECRET}/x")).storage_options(OPTIONS);
    assert_redacted("a bad root", &builder.build().await.unwrap_err());

    let (memory, leak) = (SharedMemory::new(), Leak::default());
    let catalog = leaky_catalog(&memory, &leak).await;
    create_all(&catalog, &["live", "dropped"]).await;
    catalog.drop_table("dropped").await.unwrap();
    leak.refuse("");
    let errors = [
        ("names", catalog.table_names().await.unwrap_err()),
        ("list", catalog.list_tables().limit(2).await.unwrap_err()),
        ("status", catalog.table_status("live").await.unwrap_err()),
        ("open", catalog.open_table("live").await.unwrap_err()),
        (
            "create",
            catalog.create_table("new", rows(0..1)).await.unwrap_err(),
        ),
        ("declare", catalog.declare_table("new").await.unwrap_err()),
        ("drop", catalog.drop_table("live").await.unwrap_err()),
        ("drop all", catalog.drop_all_tables().await.unwrap_err()),
        ("undrop", catalog.undrop_table("dropped").await.unwrap_err()),
        ("purge", catalog.purge_table("dropped").await.unwrap_err()),
        (
            "list dropped",
            catalog.list_dropped_tables().await.unwrap_err(),
        ),
        (
            "purge all",
            catalog.purge_dropped(Purge::all()).await.unwrap_err(),
        ),
        ("reconcile", catalog.reconcile(true).await.unwrap_err()),
    ];
    for (what, error) in &errors {
        assert_eq!(error.kind(), ErrorKind::Storage, "{what}: {error}");
        assert_redacted(what, error);
    }

    // Errors that come by way of Lance, and single requests of ours.
    leak.refuse("live.deleted");
    let error = catalog.drop_table("live").await.unwrap_err();
    assert_redacted("the tombstone", &error);
    leak.refuse(".claim");
    let error = catalog.undrop_table("dropped").await.unwrap_err();
    assert_redacted("the claim", &error);
    leak.refuse("new.lance/data/");
    let error = catalog.create_table("new", rows(0..1)).await.unwrap_err();
    assert_no_secret("writing data", &texts(&error));
    leak.refuse("new.lance/_versions/");
    let error = catalog.create_table("new", rows(0..1)).await.unwrap_err();
    assert_no_secret("committing", &texts(&error));
    leak.refuse(".manifest");
    // By version, since the latest manifest is in the session's cache.
    let error = catalog.open_table("live").version(1).await.unwrap_err();
    assert_no_secret("reading a manifest", &texts(&error));

    leak.stop();
    assert_eq!(table_ids(&catalog, "live").await, [0]);
    let status = catalog.table_status("dropped").await.unwrap();
    assert!(matches!(status, TableState::Dropped(_)), "{status:?}");
}

/// Log lines of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn lance_5996_no_storage_option_is_in_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::FmtSubscriber::builder()
        .with_env_filter(tracing_subscriber::EnvFilter::new("lancekeep=trace"))
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let (memory, leak) = (SharedMemory::new(), Leak::default());
    let catalog = leaky_catalog(&memory, &leak).await;
    create_all(&catalog, &["t"]).await;
    // Both go on without what was refused, and warn of it.
    leak.refuse("t.lance/.lance-deregistered");
    let dropped = catalog.drop_table("t").await.unwrap();
    assert!(!dropped.hidden_from_stock_clients);
    leak.refuse(".manifest");
    catalog.purge_table("t").await.unwrap();
    leak.refuse("");
    assert!(catalog.table_names().await.is_err());

    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_no_secret("the log", &text);
    let warnings = text.lines().filter(|line| line.contains(REDACTED)).count();
    assert!(warnings >= 2, "{text}");
}

// Case 19: a store without conditional puts.

async fn without_conditional_puts(memory: &SharedMemory) -> Catalog {
    let actor = memory.actor();
    actor
        .faults
        .fail_matching(|r| r.kind == Kind::PutCreate, Fault::NotImplemented);
    in_memory(&actor).await
}

#[tokio::test]
async fn lance_6524_a_store_without_conditional_put_is_told_and_left_as_it_was() {
    let memory = SharedMemory::new();
    let good = in_memory(&memory.actor()).await;
    good.create_table("live", rows(0..3)).await.unwrap();
    create_all(&good, &["dropped", "gone"]).await;
    good.drop_table("dropped").await.unwrap();
    plant(&memory, "gone.lance/.lance-deregistered", b"reserved").await;
    let before = objects(&memory).await;

    let weak = without_conditional_puts(&memory).await;
    assert_eq!(weak.table_names().await.unwrap(), ["gone", "live"]);
    assert_eq!(table_ids(&weak, "live").await, [0, 1, 2]);
    assert_eq!(weak.list_dropped_tables().await.unwrap().len(), 1);
    let errors = [
        (
            "create",
            weak.create_table("new", rows(0..2)).await.unwrap_err(),
        ),
        (
            "create over a drop",
            weak.create_table("dropped", rows(0..2)).await.unwrap_err(),
        ),
        ("declare", weak.declare_table("new").await.unwrap_err()),
        ("drop", weak.drop_table("live").await.unwrap_err()),
        ("drop all", weak.drop_all_tables().await.unwrap_err()),
        ("undrop", weak.undrop_table("dropped").await.unwrap_err()),
        ("purge", weak.purge_table("dropped").await.unwrap_err()),
        (
            "undrop of a deregistration",
            weak.undrop_table("gone").await.unwrap_err(),
        ),
        (
            "purge of a deregistration",
            weak.purge_table("gone").await.unwrap_err(),
        ),
    ];
    for (what, error) in &errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error}");
        assert!(!error.is_retryable(), "{what}");
        let text = error.to_string();
        assert!(text.contains("create-if-absent"), "{what}: {text}");
        assert!(text.contains("conditional put"), "{what}: {text}");
    }
    let report = weak.purge_dropped(Purge::all()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.failures[0].1.kind(), ErrorKind::Unsupported);

    let after = objects(&memory).await;
    let (old, new): (Vec<_>, Vec<_>) = (before.keys().collect(), after.keys().collect());
    assert_eq!(new, old);
    assert_kept(&before, &after);
    assert_eq!(table_ids(&good, "live").await, [0, 1, 2]);
    good.undrop_table("dropped").await.unwrap();
}

#[tokio::test]
async fn lance_6524_an_overwrite_without_conditional_put_commits_nothing() {
    let memory = SharedMemory::new();
    let good = in_memory(&memory.actor()).await;
    good.create_table("live", rows(0..3)).await.unwrap();
    let before = objects(&memory).await;
    let weak = without_conditional_puts(&memory).await;
    let over = weak.create_table("live", rows(5..9));
    let over = over.mode(CreateMode::Overwrite).await;
    let error = assert_kind(over, ErrorKind::Unsupported);
    assert!(error.to_string().contains("conditional put"), "{error}");

    // Nothing is left half-written.
    let after = objects(&memory).await;
    assert_kept(&before, &after);
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
    let reader = in_memory(&memory.actor()).await;
    let status = reader.table_status("live").await.unwrap();
    assert_eq!(status, TableState::Live { version: 1 });
    assert_eq!(table_ids(&reader, "live").await, [0, 1, 2]);
}

// Case 20: looking creates nothing.

async fn look_for_a_missing_table(catalog: &Catalog) {
    let status = catalog.table_status("missing").await.unwrap();
    assert_eq!(status, TableState::Absent);
    assert!(!catalog.table_exists("missing").await.unwrap());
    let opens = [
        catalog.open_table("missing").await,
        catalog.open_table("missing").version(1).await,
        catalog.open_table("missing").tag("v").await,
    ];
    for opened in opens {
        assert_kind(opened, ErrorKind::TableNotFound);
    }
    let not_found = ErrorKind::TableNotFound;
    assert_kind(catalog.drop_table("missing").await, not_found);
    let dropped = catalog.drop_table("missing").if_exists().await.unwrap();
    assert_eq!(dropped, None);
    assert_kind(catalog.undrop_table("missing").await, not_found);
    assert_kind(catalog.purge_table("missing").await, not_found);
    assert_kind(catalog.purge_table("missing").dry_run().await, not_found);
    assert!(catalog.list_dropped_tables().await.unwrap().is_empty());
    let report = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert!(report.tables.is_empty() && report.failures.is_empty());
    assert!(catalog.reconcile(false).await.unwrap().is_clean());
}

#[tokio::test]
async fn lancedb_1223_looking_for_a_missing_table_creates_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("not").join("there");
    let catalog = Catalog::connect(utf8(&root)).await.unwrap();
    look_for_a_missing_table(&catalog).await;
    assert!(catalog.table_names().await.unwrap().is_empty());
    let page = catalog.list_tables().limit(5).await.unwrap();
    assert!(page.tables.is_empty() && page.page_token.is_none());
    assert!(catalog.drop_all_tables().await.unwrap().is_empty());
    assert_eq!(tree(dir.path()), BTreeMap::new());

    catalog.create_table("t", rows(0..3)).await.unwrap();
    let before = tree(dir.path());
    assert!(before.contains_key("not/there/t.lance/"));
    look_for_a_missing_table(&catalog).await;
    assert_eq!(tree(dir.path()), before);
}

#[tokio::test]
async fn lancedb_1223_looking_for_a_missing_table_writes_no_object() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = in_memory(&actor).await;
    look_for_a_missing_table(&catalog).await;
    assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());
}

// Case 22: spellings of one root.

/// The path from the current directory.
fn relative(dir: &FsPath) -> String {
    let here = std::env::current_dir().unwrap().canonicalize().unwrap();
    let ups = here.components().count() - 1;
    let down = dir.strip_prefix("/").unwrap();
    "../".repeat(ups) + utf8(down)
}

fn file_url(dir: &FsPath) -> String {
    let path = utf8(dir).replace('%', "%25").replace(' ', "%20");
    format!("file://{path}")
}

fn spellings(dir: &FsPath) -> Vec<String> {
    let (plain, url) = (utf8(dir), file_url(dir));
    let (parent, name) = (utf8(dir.parent().unwrap()), dir.file_name().unwrap());
    let name = name.to_str().unwrap();
    vec![
        plain.to_string(),
        format!("{plain}/"),
        format!("{plain}//"),
        format!("{parent}//{name}"),
        format!("{parent}/./{name}"),
        format!("{parent}/other/../{name}"),
        url.clone(),
        format!("{url}/"),
        format!("{url}//"),
        relative(dir),
        format!("{}/", relative(dir)),
    ]
}

async fn connect_all(uris: &[String]) -> Vec<Catalog> {
    let mut catalogs = Vec::new();
    for uri in uris {
        catalogs.push(Catalog::connect(uri).await.unwrap());
    }
    catalogs
}

/// All see each other's tables, drops and restores.
async fn assert_one_catalog(catalogs: &[Catalog]) {
    catalogs[0].create_table("t", rows(0..3)).await.unwrap();
    for (n, catalog) in catalogs.iter().enumerate() {
        assert_eq!(catalog.root_uri(), catalogs[0].root_uri(), "spelling {n}");
        let dropped = catalog.drop_table("t").await.unwrap();
        for other in catalogs {
            let error = other.open_table("t").await.unwrap_err();
            assert!(
                matches!(&error, Error::TableDropped { dropped: d } if d.drop_id == dropped.drop_id),
                "spelling {n}: {error}"
            );
            assert!(other.table_names().await.unwrap().is_empty());
        }
        let next = &catalogs[(n + 1) % catalogs.len()];
        next.undrop_table("t").await.unwrap();
        for other in catalogs {
            assert_eq!(other.table_names().await.unwrap(), ["t"], "spelling {n}");
            assert_eq!(table_ids(other, "t").await, [0, 1, 2], "spelling {n}");
        }
    }
    let last = catalogs.last().unwrap();
    last.create_table("u", rows(0..1)).await.unwrap();
    for catalog in catalogs {
        assert_eq!(catalog.table_names().await.unwrap(), ["t", "u"]);
    }
    last.drop_all_tables().await.unwrap();
    let report = catalogs[0].purge_dropped(Purge::all()).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(report.tables.len(), 2);
}

async fn one_catalog_however_spelled(name: &str) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join(name);
    std::fs::create_dir(&dir).unwrap();
    let catalogs = connect_all(&spellings(&dir)).await;
    assert_eq!(catalogs[0].root_uri(), utf8(&dir));
    assert_one_catalog(&catalogs).await;
    // No other directory appeared, and everything in this one was purged.
    let left: Vec<_> = tree(parent.path()).into_keys().collect();
    assert_eq!(left, [format!("{name}/")]);
}

#[tokio::test]
async fn delta_rs_62_a_root_is_the_same_however_it_is_spelled() {
    one_catalog_however_spelled("plain").await;
}

#[tokio::test]
async fn lancedb_2623_a_root_with_spaces_is_the_same_however_it_is_spelled() {
    one_catalog_however_spelled("with two spaces").await;
}

#[tokio::test]
async fn lancedb_2623_a_root_with_percent_signs_is_the_same_however_it_is_spelled() {
    one_catalog_however_spelled("50% off dir").await;
}

#[tokio::test]
async fn lancedb_2623_a_root_that_looks_encoded_is_not_decoded() {
    one_catalog_however_spelled("a%20b").await;

    let parent = tempfile::tempdir().unwrap();
    let (encoded, decoded) = (parent.path().join("a%20b"), parent.path().join("a b"));
    let one = Catalog::connect(utf8(&encoded)).await.unwrap();
    let other = Catalog::connect(utf8(&decoded)).await.unwrap();
    one.create_table("t", rows(0..3)).await.unwrap();
    assert!(other.table_names().await.unwrap().is_empty());
    other.create_table("t", rows(5..6)).await.unwrap();
    assert_eq!(table_ids(&one, "t").await, [0, 1, 2]);
    assert!(encoded.join("t.lance").is_dir() && decoded.join("t.lance").is_dir());
}

#[tokio::test]
async fn delta_rs_62_a_url_with_a_doubled_slash_is_the_same_root() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("root");
    std::fs::create_dir(&dir).unwrap();
    let uris = [
        utf8(&dir).to_string(),
        format!("file://{}//root", utf8(parent.path())),
    ];
    assert_one_catalog(&connect_all(&uris).await).await;
}

#[tokio::test]
async fn delta_rs_62_a_memory_root_is_the_same_however_it_is_spelled() {
    let memory = SharedMemory::new();
    let mut catalogs = Vec::new();
    for uri in ["memory://root", "memory://root/", "memory://root//"] {
        let builder = Catalog::builder(uri).session(memory.actor().session);
        catalogs.push(builder.build().await.unwrap());
    }
    assert_one_catalog(&catalogs).await;
    assert_eq!(memory.dump().await, Vec::<String>::new());
}

// Case 23: another engine writes while the table is dropped.

async fn append(dataset: &mut Dataset, range: Range<i32>) {
    let batch = rows(range);
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    dataset.append(reader, None).await.unwrap();
}

async fn plain_lance(home: &Home) -> Dataset {
    let uri = format!("{}/t.lance", home.catalog.root_uri());
    let builder = DatasetBuilder::from_uri(&uri).with_session(home.session());
    builder.load().await.unwrap()
}

async fn appends_are_kept(home: &Home) {
    let a = &home.catalog;
    a.create_table("t", rows(0..10)).await.unwrap();
    let engines = [
        plain_lance(home).await,
        home.another().await.open_table("t").await.unwrap(),
    ];
    let mut expected: Vec<i32> = (0..10).collect();
    for (n, mut engine) in engines.into_iter().enumerate() {
        engine.checkout_latest().await.unwrap();
        let version = engine.version().version;
        let dropped = a.drop_table("t").await.unwrap();
        assert_eq!(dropped.version, Some(version));
        assert_eq!(ids(&engine).await, expected, "engine {n} reads on");
        let new = 10 + 5 * i32::try_from(n).unwrap();
        append(&mut engine, new..new + 5).await;
        expected.extend(new..new + 5);
        assert_eq!(ids(&engine).await, expected, "engine {n}");

        // The append does not bring it back.
        let error = a.open_table("t").await.unwrap_err();
        assert!(
            matches!(&error, Error::TableDropped { dropped: d } if d.drop_id == dropped.drop_id),
            "{error}"
        );
        assert!(a.table_names().await.unwrap().is_empty());
        let status = a.table_status("t").await.unwrap();
        assert!(matches!(status, TableState::Dropped(_)), "{status:?}");

        a.undrop_table("t").await.unwrap();
        assert_eq!(table_ids(a, "t").await, expected);
        let version = version + 1;
        let status = a.table_status("t").await.unwrap();
        assert_eq!(status, TableState::Live { version });
    }
}

on_both!(appends_are_kept:
    infino_468_an_append_to_a_dropped_table_is_there_after_undrop_on_local_disk,
    infino_468_an_append_to_a_dropped_table_is_there_after_undrop_in_memory);

/// A create over the drop shows its own rows only, and keeps what the other engine appended in the history.
async fn appends_stay_behind_a_revive(home: &Home) {
    let a = &home.catalog;
    a.create_table("t", rows(0..10)).await.unwrap();
    let mut b = plain_lance(home).await;
    a.drop_table("t").await.unwrap();
    append(&mut b, 10..13).await;
    b.delete("id = 0").await.unwrap();
    let revived = a.create_table("t", rows(50..52)).await.unwrap();
    assert_eq!(ids(&revived).await, [50, 51]);
    assert_eq!(table_ids(a, "t").await, [50, 51]);
    let appended = a.open_table("t").version(2).await.unwrap();
    assert_eq!(ids(&appended).await, (0..13).collect::<Vec<_>>());
    let deleted = a.open_table("t").version(3).await.unwrap();
    assert_eq!(ids(&deleted).await, (1..13).collect::<Vec<_>>());
    assert_eq!(ids(&b).await, (1..13).collect::<Vec<_>>());
}

on_both!(appends_stay_behind_a_revive:
    infino_468_an_append_to_a_dropped_table_stays_behind_a_revive_on_local_disk,
    infino_468_an_append_to_a_dropped_table_stays_behind_a_revive_in_memory);

// Case 26: a long scan.

/// Takes one batch, lets the other catalog drop the table, and takes the rest. `reads` counts those of data files,
/// where they can be counted.
async fn scan_over_a_drop(reader: &Catalog, dropper: &Catalog, reads: impl Fn() -> Option<usize>) {
    let params = WriteParams {
        max_rows_per_file: 4,
        max_rows_per_group: 4,
        ..Default::default()
    };
    let create = dropper.create_table("t", rows(0..160)).write_params(params);
    create.await.unwrap();
    let dataset = reader.open_table("t").await.unwrap();
    assert_eq!(dataset.count_fragments(), 40);
    let mut scan = dataset.scan();
    scan.batch_size(4).batch_readahead(1).fragment_readahead(1);
    let mut stream = scan.try_into_stream().await.unwrap().boxed();
    let first = stream.try_next().await.unwrap().unwrap();
    let mut found = ids_of(&first);
    assert!(!found.is_empty() && found.len() < 160);

    dropper.drop_table("t").await.unwrap();
    assert_kind(reader.open_table("t").await, ErrorKind::TableDropped);
    let before = reads();
    while let Some(batch) = stream.try_next().await.unwrap() {
        found.extend(ids_of(&batch));
    }
    found.sort_unstable();
    assert_eq!(found, (0..160).collect::<Vec<_>>());
    if let (Some(before), Some(after)) = (before, reads()) {
        assert!(after > before, "the scan was over before the drop");
    }
    // And a new scan of the old handle.
    assert_eq!(ids(&dataset).await, (0..160).collect::<Vec<_>>());
}

#[tokio::test]
async fn lance_7539_a_scan_goes_on_over_a_drop_on_local_disk() {
    let home = Home::on_disk().await;
    scan_over_a_drop(&home.catalog, &home.another().await, || None).await;
}

#[tokio::test]
async fn lance_7539_a_scan_goes_on_over_a_drop_in_memory() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let reader = in_memory(&actor).await;
    let dropper = in_memory(&memory.actor()).await;
    let is_data = |r: &Request| r.kind == Kind::Get && r.path.starts_with("root/t.lance/data/");
    let reads = || Some(actor.counter.log().iter().filter(|r| is_data(r)).count());
    scan_over_a_drop(&reader, &dropper, reads).await;
}
