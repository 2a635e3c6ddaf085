//! What each operation costs in requests and in round trips (section 7 of the design), at two sizes each, so that a
//! cost that grows shows.
//!
//! Round trips are simulated time over the latency, under tokio's paused clock. Tables are made in real time before:
//! a paused clock would jump over the commit's time-out whenever Lance works on a thread of its own.

use std::time::Duration;

use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::{Catalog, CreateMode, TableState};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use tokio::time::{Instant, sleep};

use crate::common::rows;
use crate::support::{Actor, Kind, PAGE, Request, SharedMemory};

/// So long that rounding by the timer does not matter, and half a default lease is many of it.
const LATENCY: Duration = Duration::from_secs(1);

const TOMBSTONE: &str = "root/t.deleted";
const MARKER: &str = "root/t.lance/.lance-deregistered";
const TABLE: &str = "root/t.lance/";

/// A catalog with the default leases: simulated round trips must not use them up.
async fn catalog_of(actor: &Actor) -> Catalog {
    let catalog = Catalog::builder("memory://root")
        .session(actor.session.clone())
        .build()
        .await
        .unwrap();
    actor.counter.reset();
    catalog
}

/// The output, and the round trips made one after another.
async fn trips<T>(operation: impl Future<Output = T>) -> (T, u32) {
    tokio::time::pause();
    let start = Instant::now();
    let output = operation.await;
    let elapsed = start.elapsed();
    tokio::time::resume();
    let trips = (elapsed.as_secs_f64() / LATENCY.as_secs_f64()).round();
    (output, trips as u32)
}

/// A memory store with the table `t` in so many versions.
async fn with_versions(versions: i32) -> SharedMemory {
    let memory = SharedMemory::new();
    let catalog = catalog_of(&memory.actor()).await;
    catalog.create_table("t", rows(0..1)).await.unwrap();
    for version in 2..=versions {
        catalog
            .create_table("t", rows(0..version))
            .mode(CreateMode::Overwrite)
            .await
            .unwrap();
    }
    memory
}

/// A memory store with the table `t` in so many fragments.
async fn with_fragments(fragments: i32) -> SharedMemory {
    let memory = SharedMemory::new();
    let catalog = catalog_of(&memory.actor()).await;
    let params = WriteParams {
        max_rows_per_file: 1,
        ..Default::default()
    };
    let created = catalog
        .create_table("t", rows(0..fragments))
        .write_params(params)
        .await
        .unwrap();
    assert_eq!(
        created.count_fragments(),
        usize::try_from(fragments).unwrap()
    );
    memory
}

async fn plant(memory: &SharedMemory, path: String) {
    memory
        .raw()
        .put(&Path::from(path), PutPayload::from_static(b"x"))
        .await
        .unwrap();
}

/// A root with so many children, each a table as far as a listing can tell.
async fn with_tables(tables: usize) -> SharedMemory {
    let memory = SharedMemory::new();
    for table in 0..tables {
        plant(
            &memory,
            format!("root/t{table:05}.lance/_versions/x.manifest"),
        )
        .await;
    }
    memory
}

fn gets(log: &[Request], path: &str) -> usize {
    log.iter()
        .filter(|request| request.kind == Kind::Get && request.path == path)
        .count()
}

fn kinds(log: &[Request]) -> Vec<Kind> {
    log.iter().map(|request| request.kind).collect()
}

#[tokio::test]
async fn table_names_cost_one_list_for_each_thousand_children() {
    for tables in [30, 2_500] {
        let memory = with_tables(tables).await;
        let actor = memory.actor();
        let catalog = catalog_of(&actor).await;
        let names = catalog.table_names().await.unwrap();
        assert_eq!(names.len(), tables);
        let log = actor.counter.log();
        println!("table_names of {tables}: {} requests", log.len());
        assert!(
            log.iter()
                .all(|r| matches!(r.kind, Kind::List | Kind::ListDelimited) && r.path == "root"),
            "{log:?}"
        );
        assert_eq!(log.len(), tables.div_ceil(PAGE), "{tables} tables");
    }
}

/// Calls made to list the root, and all other requests. A store with pages of its own answers a call with one page.
/// Memory has none and lists the root in full each time, which counts as a request for each 1,000 children: so calls
/// are what can be compared here.
fn calls(actor: &Actor, children: usize) -> usize {
    let pages = children.div_ceil(PAGE);
    let lists = actor.counter.of(Kind::ListDelimited);
    assert_eq!(lists % pages, 0, "a listing of the root was not in full");
    lists / pages + actor.counter.total() - lists
}

#[tokio::test]
async fn a_page_of_tables_costs_the_same_out_of_any_number() {
    const LIMIT: usize = 100;
    let mut first = Vec::new();
    for tables in [130, 2_500] {
        let memory = with_tables(tables).await;
        let actor = memory.actor();
        let catalog = catalog_of(&actor).await;
        let mut names = Vec::new();
        let mut costs = Vec::new();
        let mut token: Option<String> = None;
        loop {
            actor.counter.reset();
            let request = catalog.list_tables().limit(LIMIT);
            let request = match token {
                Some(token) => request.page_token(token),
                None => request,
            };
            let page = request.await.unwrap();
            costs.push(calls(&actor, tables));
            assert!(page.tables.len() <= LIMIT);
            names.extend(page.tables);
            token = page.page_token;
            if token.is_none() {
                break;
            }
        }
        println!("pages of {LIMIT} out of {tables}: {costs:?} calls");
        let expected: Vec<String> = (0..tables).map(|table| format!("t{table:05}")).collect();
        assert_eq!(names, expected);
        assert_eq!(costs.len(), tables.div_ceil(LIMIT));
        assert!(costs.iter().all(|cost| *cost <= 4), "{costs:?}");
        first.push(costs[0]);
    }
    assert_eq!(first[0], first[1]);
}

#[tokio::test]
async fn status_costs_at_most_three_requests_and_one_more_with_a_marker() {
    for versions in [1, 50] {
        let live = with_versions(versions).await;
        let dropped = live.fork().await;
        let catalog = catalog_of(&dropped.actor()).await;
        catalog.drop_table("t").await.unwrap();
        let deregistered = live.fork().await;
        plant(&deregistered, MARKER.to_string()).await;
        for (name, memory, requests, round_trips) in [
            ("live", &live, 3, 1),
            ("dropped", &dropped, 4, 2),
            ("deregistered", &deregistered, 4, 2),
        ] {
            let at = format!("{name}, {versions} versions");
            let actor = memory.actor();
            let catalog = catalog_of(&actor).await;
            let state = catalog.table_status("t").await.unwrap();
            let log = actor.counter.log();
            assert!(log.len() <= requests, "{at}: {log:?}");
            match (name, &state) {
                ("live", TableState::Live { version }) => {
                    assert_eq!(*version, u64::try_from(versions).unwrap());
                }
                ("dropped", TableState::Dropped(_))
                | ("deregistered", TableState::Deregistered) => {}
                _ => panic!("{at}: {state:?}"),
            }

            actor.counter.reset();
            let exists = catalog.table_exists("t").await.unwrap();
            assert_eq!(exists, name == "live");
            let log = actor.counter.log();
            assert!(log.len() <= requests, "{at}: {log:?}");

            let catalog = catalog_of(&memory.actor_with_latency(LATENCY)).await;
            let (state, taken) = trips(catalog.table_status("t")).await;
            state.unwrap();
            println!("table_status, {at}: {} requests, {taken} trips", log.len());
            assert!(taken <= round_trips, "{at}: {taken}");
        }
    }
}

async fn open_plain(actor: &Actor) -> Dataset {
    let root = catalog_of(actor).await;
    DatasetBuilder::from_uri(format!("{}/t.lance", root.root_uri()))
        .with_session(actor.session.clone())
        .load()
        .await
        .unwrap()
}

#[tokio::test]
async fn open_costs_three_requests_more_than_lances_own_and_no_round_trip() {
    for versions in [1, 50] {
        let memory = with_versions(versions).await;
        let plain = memory.actor();
        let theirs = open_plain(&plain).await;
        let actor = memory.actor();
        let catalog = catalog_of(&actor).await;
        let ours = catalog.open_table("t").await.unwrap();
        assert_eq!(ours.version().version, u64::try_from(versions).unwrap());
        assert_eq!(ours.version().version, theirs.version().version);
        let log = actor.counter.log();
        assert!(plain.counter.total() > 0);
        assert_eq!(log.len(), plain.counter.total() + 3, "{log:?}");
        // The tombstone, the marker, and the manifest resolved once more.
        assert_eq!(gets(&log, TOMBSTONE), 1, "{log:?}");
        assert_eq!(gets(&log, MARKER), 1, "{log:?}");
        let resolutions = |actor: &Actor| actor.counter.of(Kind::List);
        assert_eq!(resolutions(&actor), resolutions(&plain) + 1, "{log:?}");

        let slow = memory.actor_with_latency(LATENCY);
        let (_, theirs) = trips(open_plain(&slow)).await;
        let catalog = catalog_of(&memory.actor_with_latency(LATENCY)).await;
        let (opened, ours) = trips(catalog.open_table("t").into_future()).await;
        opened.unwrap();
        println!(
            "open, {versions} versions: {} requests (Lance alone {}), {ours} trips (Lance alone {theirs})",
            log.len(),
            plain.counter.total()
        );
        assert!(theirs > 0);
        assert_eq!(ours, theirs, "{versions} versions");
    }
}

#[tokio::test]
async fn drop_costs_five_requests_and_hides_after_the_second_round_trip() {
    for fragments in [1, 40] {
        let memory = with_fragments(fragments).await;
        let counted = memory.fork().await;
        let actor = counted.actor();
        let catalog = catalog_of(&actor).await;
        catalog.drop_table("t").await.unwrap();
        let log = actor.counter.log();
        assert!(log.len() <= 5, "{log:?}");

        let catalog = catalog_of(&memory.actor_with_latency(LATENCY)).await;
        let raw = memory.raw();
        let tombstone = Path::from(TOMBSTONE);
        let watch = async {
            sleep(LATENCY * 3 / 2).await;
            let early = raw.head(&tombstone).await.is_ok();
            sleep(LATENCY).await;
            (early, raw.head(&tombstone).await.is_ok())
        };
        let both = async { tokio::join!(catalog.drop_table("t").into_future(), watch) };
        let ((dropped, (early, hidden)), taken) = trips(both).await;
        dropped.unwrap();
        println!(
            "drop, {fragments} fragments: {} requests, {taken} trips, {:?}",
            log.len(),
            kinds(&log)
        );
        // The watch itself takes two and a half.
        assert!(taken <= 4, "{taken}");
        assert!(!early, "hidden before its second round trip");
        assert!(hidden, "not hidden after its second round trip");
    }
}

#[tokio::test]
async fn undrop_costs_at_most_eight_requests_and_six_round_trips() {
    for fragments in [1, 40] {
        let memory = with_fragments(fragments).await;
        let catalog = catalog_of(&memory.actor()).await;
        catalog.drop_table("t").await.unwrap();
        let counted = memory.fork().await;
        let actor = counted.actor();
        let catalog = catalog_of(&actor).await;
        catalog.undrop_table("t").await.unwrap();
        let log = actor.counter.log();
        assert!(log.len() <= 8, "{log:?}");

        let catalog = catalog_of(&memory.actor_with_latency(LATENCY)).await;
        let (restored, taken) = trips(catalog.undrop_table("t").into_future()).await;
        restored.unwrap();
        println!(
            "undrop, {fragments} fragments: {} requests, {taken} trips, {:?}",
            log.len(),
            kinds(&log)
        );
        assert!(taken <= 6, "{taken}");
    }
}

#[tokio::test]
async fn purge_costs_a_list_a_get_and_a_bulk_delete_for_each_thousand_objects_and_eight_more() {
    println!("purge of K objects: K, pages, LIST, GET tombstone, bulk delete, all, beside, trips");
    let mut beside = Vec::new();
    for objects in [0, 2_300] {
        let memory = with_versions(1).await;
        let catalog = catalog_of(&memory.actor()).await;
        catalog.drop_table("t").await.unwrap();
        let in_table = async || {
            let dump = memory.dump().await;
            dump.iter().filter(|path| path.starts_with(TABLE)).count()
        };
        for n in in_table().await..objects {
            plant(&memory, format!("{TABLE}data/x{n:05}.lance")).await;
        }
        let objects = in_table().await;
        let pages = objects.div_ceil(PAGE);
        let counted = memory.fork().await;
        let actor = counted.actor();
        let catalog = catalog_of(&actor).await;
        let purged = catalog.purge_table("t").await.unwrap();
        assert_eq!(purged.objects, u64::try_from(objects).unwrap());
        assert!(counted.dump().await.is_empty());

        let log = actor.counter.log();
        let bulks: Vec<usize> = (0..log.len())
            .filter(|at| log[*at].kind == Kind::Delete && log[*at].path.starts_with(TABLE))
            .collect();
        assert_eq!(bulks.len(), pages, "{log:?}");
        for at in &bulks {
            let before = &log[at - 1];
            assert_eq!(before, &Request::new(Kind::Get, TOMBSTONE), "{log:?}");
        }
        // Names that a later table could use again go first.
        assert!(!log[bulks[0]].path.contains("/data/"), "{log:?}");
        let other = log.len() - 3 * pages;
        beside.push(other);

        let catalog = catalog_of(&memory.actor_with_latency(LATENCY)).await;
        let (purged, taken) = trips(catalog.purge_table("t").into_future()).await;
        purged.unwrap();
        println!(
            "purge: {objects}, {pages}, {}, {}, {}, {}, {other}, {taken}",
            actor.counter.of(Kind::List),
            gets(&log, TOMBSTONE),
            bulks.len(),
            log.len()
        );
        assert!(other <= 8, "{log:?}");
    }
    assert_eq!(beside[0], beside[1], "what is beside grows with the table");
}

/// Most of it are Lance's own write and commit; the design has no budget, so this is what it came to.
#[tokio::test]
async fn create_costs() {
    let memory = SharedMemory::new();
    for (name, mode, most) in [
        ("absent", CreateMode::Create, 11),
        ("live, overwritten", CreateMode::Overwrite, 18),
        ("live, left alone", CreateMode::ExistOk, 9),
        ("dropped", CreateMode::Create, 18),
    ] {
        if name == "dropped" {
            let catalog = catalog_of(&memory.actor()).await;
            catalog.drop_table("t").await.unwrap();
        }
        let actor = memory.actor();
        let catalog = catalog_of(&actor).await;
        catalog
            .create_table("t", rows(0..3))
            .mode(mode)
            .await
            .unwrap();
        let log = actor.counter.log();
        println!(
            "create, {name}: {} requests, {} of them writes, {:?}",
            log.len(),
            actor.counter.writes(),
            kinds(&log)
        );
        assert!(log.len() <= most, "{name}: {log:?}");
    }
}
