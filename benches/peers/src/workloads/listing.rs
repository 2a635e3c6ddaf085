//! All names, and a page of them.
//!
//! Lance lists a store that it does not know in full for each page, and cannot be told otherwise from outside: so on the
//! latency store a page costs what a listing costs, for everybody, and the pages of a real store are measured on the S3
//! server.

use std::fs;
use std::sync::Arc;

use lance_io::object_store::ObjectStore as LanceStore;
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::ListTablesRequest;
use object_store::ObjectStore;
use object_store::path::Path;

use crate::contestants::{
    DIRECTORY, FLOOR, FLOOR_ASIDE, LANCEDB, MANIFEST, OURS, catalog, directory, lancedb,
};
use crate::measure::{Contestant, Group, Place, Root, compare, store_params, timed};
use crate::roots;
use crate::sizes::Sizes;
use crate::support::servers::{Protocol, Server};

pub(crate) const ALL: &str = "list all";
pub(crate) const ALL_DROPPED: &str = "list all, a tenth dropped";
pub(crate) const PAGE: &str = "page of 100";
pub(crate) const PAGE_DROPPED: &str = "page of 100, a tenth dropped";

const LIMIT: usize = 100;

fn ours() -> Contestant {
    Contestant::new(OURS, |root| async move {
        let catalog = catalog(&root).await;
        timed(async move { drop(catalog.table_names().await.unwrap()) })
    })
}

fn stock(name: &str, manifest: bool, limit: Option<i32>) -> Contestant {
    Contestant::new(name, move |root| async move {
        let namespace = directory(&root, manifest).await;
        let request = ListTablesRequest {
            id: Some(Vec::new()),
            limit,
            ..Default::default()
        };
        timed(async move { drop(namespace.list_tables(request).await.unwrap()) })
    })
}

fn connection(limit: Option<u32>) -> Contestant {
    Contestant::new(LANCEDB, move |root| async move {
        let connection = lancedb(&root).await;
        let mut names = connection.table_names();
        if let Some(limit) = limit {
            names = names.limit(limit);
        }
        timed(async move { drop(names.execute().await.unwrap()) })
    })
}

/// Opens the store of a server for one bare listing.
async fn on_server(root: &Root) -> (Arc<dyn ObjectStore>, Path) {
    let registry = root.session.store_registry();
    let params = store_params(&root.options).unwrap();
    let opened = LanceStore::from_uri_and_params(registry, &root.uri, &params).await;
    let (store, base) = opened.unwrap();
    (store.inner.clone(), base)
}

fn names_of(directory: &std::path::Path) -> Vec<std::ffi::OsString> {
    let names = fs::read_dir(directory).unwrap();
    names.map(|entry| entry.unwrap().file_name()).collect()
}

/// The names of the directory, read where nothing else waits for it.
fn floor_aside() -> Contestant {
    Contestant::new(FLOOR_ASIDE, |root| async move {
        let directory = root.directory.unwrap();
        timed(async move {
            let names = tokio::task::spawn_blocking(move || names_of(&directory));
            drop(names.await.unwrap());
        })
    })
}

/// The names of the directory, or the children of the prefix.
fn floor() -> Contestant {
    Contestant::new(FLOOR, |root| async move {
        if let Some(directory) = root.directory {
            return timed(async move { drop(names_of(&directory)) });
        }
        let (store, base) = match root.store.clone() {
            Some(store) => (store, Path::from("root")),
            None => on_server(&root).await,
        };
        timed(async move { drop(store.list_with_delimiter(Some(&base)).await.unwrap()) })
    })
}

fn page_of_ours() -> Contestant {
    Contestant::new(OURS, |root| async move {
        let catalog = catalog(&root).await;
        timed(async move { drop(catalog.list_tables().limit(LIMIT).await.unwrap()) })
    })
}

/// Who lists; some look at each table, and the one with a manifest may write.
fn contestants(paged: bool, looks: bool, writes: bool) -> Vec<Contestant> {
    let mut all = match paged {
        true => vec![page_of_ours(), connection(Some(LIMIT as u32)), floor()],
        false => vec![ours(), connection(None), floor()],
    };
    let limit = paged.then_some(LIMIT as i32);
    if looks {
        all.push(stock(DIRECTORY, false, limit));
    }
    if looks && writes {
        all.push(stock(MANIFEST, true, limit));
    }
    all
}

async fn whole_and_paged(
    groups: &mut Vec<Group>,
    place: &Place,
    (tables, dropped): (usize, bool),
    sizes: &Sizes,
) {
    let looks = tables <= sizes.looked_at;
    let writes = matches!(place, Place::Slow(_));
    for paged in [false, true] {
        let workload = match (paged, dropped) {
            (false, false) => ALL,
            (false, true) => ALL_DROPPED,
            (true, false) => PAGE,
            (true, true) => PAGE_DROPPED,
        };
        let mut all = contestants(paged, looks, writes);
        if let Place::Disk(_) = place {
            all.push(floor_aside());
        }
        let title = (workload, tables, "tables");
        let mut group = compare(title, place, sizes.repetitions, all).await;
        if !looks {
            let why = format!("not run: a request for each of {tables} tables, and more");
            group.not_run(DIRECTORY, why);
        }
        groups.push(group);
    }
}

/// In the memory store, and on local disk.
pub(crate) async fn all_and_pages(sizes: &Sizes) -> Vec<Group> {
    let mut groups = Vec::new();
    for tables in sizes.tables.iter().copied() {
        for dropped in [false, true] {
            let (count, groups) = ((tables, dropped), &mut groups);
            let memory = roots::tables_in_memory(tables, dropped).await;
            whole_and_paged(groups, &Place::Slow(memory), count, sizes).await;
            let disk = tempfile::tempdir().unwrap();
            roots::tables_on_disk(disk.path(), tables, dropped).await;
            let place = Place::Disk(disk.path().to_path_buf());
            whole_and_paged(groups, &place, count, sizes).await;
        }
    }
    groups
}

pub(crate) async fn pages_on_server(sizes: &Sizes) -> Vec<Group> {
    let server = Server::shared(Protocol::S3);
    let mut groups = Vec::new();
    for tables in sizes.tables_on_server.iter().copied() {
        for dropped in [false, true] {
            let uri = roots::tables_on_server(server, tables, dropped).await;
            let workload = if dropped { PAGE_DROPPED } else { PAGE };
            // That of DirectoryNamespace looks at each, one after another: moto answers one request at a time.
            let all = contestants(true, tables <= sizes.looked_at / 10, false);
            let place = Place::Server(server, uri);
            let title = (workload, tables, "tables");
            groups.push(compare(title, &place, sizes.repetitions.min(3), all).await);
        }
    }
    groups
}
