//! What is deleted may be of any size: a few pages of its objects are held at a time, and of a large table too the names
//! go first that a later table could use again.
//!
//! The store lists in pages, as S3 does: each is read when it is asked for, from what is there then.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use lancekeep::lifecycle::PurgedTable;
use lancekeep::{Catalog, ErrorKind};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::common::rows;
use crate::interleavings::{OLD, Stage, Start, State, TOMBSTONE};
use crate::stores::{Place, Store};
use crate::support::{Actor, Fault, Kind, PAGE, PagedStore, Pages, Request, SharedMemory};

const TABLE: &str = "root/t.lance";

/// More than a purge sorts in memory.
const LARGE: usize = 6 * PAGE;

/// A process whose listings come in pages.
fn paged(memory: &SharedMemory) -> (Actor, Pages) {
    let store = PagedStore::new(memory.base());
    let pages = store.pages();
    (Actor::over(Arc::new(store), true), pages)
}

/// With the default leases.
async fn catalog_of(actor: &Actor) -> Catalog {
    let catalog = Catalog::builder("memory://root")
        .session(actor.session.clone())
        .build()
        .await
        .unwrap();
    actor.counter.reset();
    catalog
}

async fn plant(memory: &SharedMemory, path: &str) {
    let path = Path::parse(path).unwrap();
    let content = PutPayload::from_static(b"x");
    memory.base().put(&path, content).await.unwrap();
}

async fn plant_many(memory: &SharedMemory, dir: &str, objects: usize) {
    for n in 0..objects {
        plant(memory, &format!("{dir}/x{n:06}.lance")).await;
    }
}

async fn below(memory: &SharedMemory, dir: &str) -> Vec<String> {
    let mut found = memory.dump().await;
    found.retain(|path| path.starts_with(&format!("{dir}/")));
    found
}

/// A table `t` that was dropped, with so many objects in all.
async fn dropped_with(objects: usize) -> SharedMemory {
    let memory = SharedMemory::new();
    let catalog = catalog_of(&memory.actor()).await;
    catalog.create_table("t", rows(OLD)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    let own = below(&memory, TABLE).await.len();
    plant_many(&memory, &format!("{TABLE}/data"), objects - own).await;
    memory
}

fn manifest_name(version: u64) -> String {
    format!("{:020}.manifest", u64::MAX - version)
}

#[tokio::test]
async fn a_purge_holds_a_few_pages_of_any_table() {
    println!("purge of K objects: K, most held, LIST, requests, allowed");
    for objects in [500, 2_500, 4_000, 4_001, 25_000] {
        let memory = dropped_with(objects).await;
        let (actor, pages) = paged(&memory);
        let catalog = catalog_of(&actor).await;
        let would = catalog.purge_table("t").dry_run().await.unwrap();
        let counted = actor.counter.total();
        assert!(counted <= objects.div_ceil(PAGE) + 3, "{counted}");
        pages.reset();
        actor.counter.reset();
        let purged = catalog.purge_table("t").await.unwrap();
        assert_eq!(purged.objects, u64::try_from(objects).unwrap());
        let measured = |of: &PurgedTable| (of.objects, of.bytes, of.drop_id, of.left.clone());
        assert_eq!(measured(&purged), measured(&would));
        assert_eq!(memory.dump().await, Vec::<String>::new());

        let log = actor.counter.log();
        let lists = |log: &[Request]| {
            let is_list = |r: &&Request| matches!(r.kind, Kind::List | Kind::ListDelimited);
            log.iter().filter(is_list).count()
        };
        // The two places where names are that come again, beside what a small table costs.
        let more = if objects > 4 * PAGE { 2 } else { 0 };
        let allowed = 3 * objects.div_ceil(PAGE) + 8 + more;
        println!(
            "purge: {objects}, {}, {}, {}, {allowed}",
            pages.most(),
            lists(&log),
            log.len()
        );
        assert!(log.len() <= allowed, "{objects}: {log:?}");
        assert!(pages.most() <= 6 * PAGE, "{objects}: {}", pages.most());
    }
}

#[tokio::test]
async fn of_a_large_table_the_names_that_can_come_again_go_first() {
    let memory = dropped_with(LARGE).await;
    for version in 2..1_700 {
        plant(
            &memory,
            &format!("{TABLE}/_versions/{}", manifest_name(version)),
        )
        .await;
    }
    for name in [
        ".lance-reserved",
        "loose",
        "zz",
        "_versions/latest_version_hint.json",
        "_refs/tags/a.json",
        "_refs/branches/b.json",
        "tree/b/.lance-reserved",
        "tree/b/_refs/tags/a.json",
        "tree/b/_versions/1.manifest",
        "tree/of/many/_versions/1.manifest",
        "tree/of/many/_versions/latest_version_hint.json",
    ] {
        plant(&memory, &format!("{TABLE}/{name}")).await;
    }
    for dir in [
        "_deletions",
        "_indices/u",
        "_transactions",
        "tree/b/data",
        "tree/of/many/data",
    ] {
        plant_many(&memory, &format!("{TABLE}/{dir}"), PAGE + 100).await;
    }
    let is_unique = |path: &String| {
        [
            "/data/",
            "/_deletions/",
            "/_indices/",
            "/_transactions/",
            "/b/.lance",
        ]
        .iter()
        .any(|part| path.contains(part))
    };
    let all = below(&memory, TABLE).await;
    let reusable = all.iter().filter(|path| !is_unique(path)).count();
    // More than one batch of them, so that others wait behind it.
    assert!(reusable > PAGE && reusable < 2 * PAGE, "{reusable}");

    let (actor, pages) = paged(&memory);
    let catalog = catalog_of(&actor).await;
    let purged = catalog.purge_table("t").await.unwrap();
    assert_eq!(purged.objects, u64::try_from(all.len()).unwrap());
    assert_eq!(memory.dump().await, Vec::<String>::new());
    let mut deleted = pages.deleted();
    deleted.retain(|path| path.starts_with(&format!("{TABLE}/")));
    assert_eq!(deleted.len(), all.len(), "an object was deleted twice");
    let first = deleted.iter().position(is_unique).unwrap();
    assert_eq!(first, reusable, "{:?}", &deleted[first - 3..first + 3]);
    assert!(!deleted[first..].iter().any(|path| !is_unique(path)));
}

/// Where it is known only once all are seen: the old names of manifests sort as text.
#[tokio::test]
async fn of_a_large_table_the_newest_version_tells_what_is_left() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    catalog.create_table("source", rows(OLD)).await.unwrap();
    let mut source = catalog.open_table("source").await.unwrap();
    source
        .shallow_clone("memory://root/t.lance", 1_u64, None)
        .await
        .unwrap();
    catalog.drop_table("t").await.unwrap();
    // The clone's manifest as version 3,000: behind all that begin with 1 or 2, so in the second batch.
    let versions = format!("{TABLE}/_versions");
    let own = below(&memory, &versions).await;
    assert_eq!(own.len(), 1, "{own:?}");
    let own = Path::parse(&own[0]).unwrap();
    for version in 2..2_200 {
        plant(&memory, &format!("{versions}/{version}.manifest")).await;
    }
    let newest = Path::parse(format!("{versions}/3000.manifest")).unwrap();
    memory.raw().rename(&own, &newest).await.unwrap();
    plant_many(&memory, &format!("{TABLE}/data"), LARGE).await;

    let (actor, _) = paged(&memory);
    let catalog = catalog_of(&actor).await;
    let would = catalog.purge_table("t").dry_run().await.unwrap();
    let purged = catalog.purge_table("t").await.unwrap();
    assert_eq!(purged, would);
    assert_eq!(purged.left.len(), 1, "{:?}", purged.left);
    assert!(purged.left[0].contains("source.lance"), "{:?}", purged.left);
}

/// Somebody writes into a large table after its purge has listed it: names of both kinds.
#[tokio::test]
async fn a_purge_of_a_large_table_takes_what_was_written_while_it_deleted() {
    let memory = Start::Live.memory().await;
    let catalog = catalog_of(&memory.actor()).await;
    catalog.drop_table("t").await.unwrap();
    plant_many(&memory, &format!("{TABLE}/data"), LARGE).await;
    let objects = below(&memory, TABLE).await.len();
    let stage = Stage::new(memory);
    let purge = stage.start(0, stage.catalog(0).await.purge_table("t").into_future());
    let mut batches = 0;
    while let Some(next) = stage.next(0).await {
        if next.kind == Kind::Delete && next.path.starts_with(TABLE) {
            batches += 1;
            if batches == 2 {
                plant(&stage.memory, &format!("{TABLE}/data/late.lance")).await;
                let manifest = manifest_name(2);
                plant(&stage.memory, &format!("{TABLE}/_versions/{manifest}")).await;
            }
        }
        stage.gate.release(0);
    }
    let purged = purge.await.unwrap().unwrap();
    assert_eq!(purged.objects, u64::try_from(objects + 2).unwrap());
    assert_eq!(stage.end("written meanwhile").await, State::Absent);
}

/// A purge of a large table whose listing fails is resumed by the same process at once: nothing of it is under way.
#[tokio::test]
async fn a_purge_of_a_large_table_resumes_after_a_failed_listing() {
    for place in [
        Request::new(Kind::ListDelimited, TABLE),
        Request::new(Kind::List, format!("{TABLE}/_versions")),
    ] {
        let memory = dropped_with(LARGE).await;
        let (actor, _) = paged(&memory);
        let catalog = catalog_of(&actor).await;
        let failing = place.clone();
        actor
            .faults
            .fail_matching(move |r| *r == failing, Fault::Unavailable503);
        let error = catalog.purge_table("t").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{place:?}: {error:?}");
        assert!(memory.dump().await.iter().any(|path| path == TOMBSTONE));
        actor.faults.clear();
        let purged = catalog.purge_table("t").await.unwrap();
        assert_eq!(purged.objects, u64::try_from(LARGE).unwrap(), "{place:?}");
        assert_eq!(memory.dump().await, Vec::<String>::new());
    }
}

/// A real server's pages, and its own lister of directories: the listing goes on behind what is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_table_is_purged_on_s3() {
    let place = Place::new(Store::S3);
    let catalog = place.catalog().await;
    catalog.create_table("t", rows(OLD)).await.unwrap();
    catalog.create_table("t2", rows(OLD)).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    let (objects, base) = place.objects().await;
    let planted = (0..4 * PAGE + 100).map(|n| {
        let path = Path::parse(format!("{base}/t.lance/data/x{n:06}.lance")).unwrap();
        let objects = Arc::clone(&objects);
        async move { objects.put(&path, PutPayload::from_static(b"x")).await }
    });
    let planted = futures::stream::iter(planted).buffer_unordered(16);
    planted.try_for_each(|_| async { Ok(()) }).await.unwrap();
    let names = place.names().await;
    let own = names.iter().filter(|name| name.starts_with("t.lance/"));
    let own = u64::try_from(own.count()).unwrap();
    let would = catalog.purge_table("t").dry_run().await.unwrap();
    assert_eq!(would.objects, own);
    let purged = catalog.purge_table("t").await.unwrap();
    assert_eq!(purged, would);
    let left = place.names().await;
    assert!(left.iter().all(|n| n.starts_with("t2.lance/")), "{left:?}");
    assert!(!left.is_empty());
}

#[tokio::test]
async fn a_drop_in_a_namespace_holds_a_page_of_any_table() {
    let memory = SharedMemory::new();
    let catalog = catalog_of(&memory.actor()).await;
    catalog.create_namespace("ns").await.unwrap();
    catalog.create_table(["ns", "t"], rows(OLD)).await.unwrap();
    let dump = memory.dump().await;
    let data = dump.iter().find(|path| path.contains("_ns$t/data/"));
    let dir = data.unwrap().rsplit_once("/data/").unwrap().0;
    plant_many(&memory, &format!("{dir}/data"), 4 * PAGE).await;

    let (actor, pages) = paged(&memory);
    let catalog = catalog_of(&actor).await;
    catalog.drop_table(["ns", "t"]).await.unwrap();
    assert_eq!(below(&memory, dir).await, Vec::<String>::new());
    println!("drop in a namespace: {} held", pages.most());
    assert!(pages.most() < 2 * PAGE, "{}", pages.most());
}
