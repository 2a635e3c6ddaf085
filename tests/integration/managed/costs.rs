//! What a managed commit costs, beside a commit through Lance's own manifest store and one that nobody manages.
//!
//! Round trips are simulated time over the latency, under tokio's paused clock. The latency is small beside the commit
//! window, as that of a real store is: half of it must hold a whole commit.

use std::sync::Arc;
use std::time::Duration;

use lance::io::commit::namespace_manifest::LanceNamespaceExternalManifestStore;
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lance_table::io::commit::external_manifest::ExternalManifestCommitHandler;
use lancekeep::Catalog;
use lancekeep::lance;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{Dataset, WriteParams};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance};

use super::{append, id};
use crate::common::{rows, table_ids, write_plainly};
use crate::support::{Actor, SharedMemory};

const LATENCY: Duration = Duration::from_millis(100);
const URI: &str = "memory://root/t.lance";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Us,
    /// `LanceNamespaceExternalManifestStore` over the stock directory namespace.
    LancesStore,
    Nobody,
}

async fn catalog_of(actor: &Actor) -> Catalog {
    let builder = Catalog::builder("memory://root").session(actor.session.clone());
    builder.managed_versioning(true).build().await.unwrap()
}

fn plain(actor: &Actor) -> DatasetBuilder {
    DatasetBuilder::from_uri(URI).with_session(actor.session.clone())
}

/// The table, as one process opens it.
async fn open(by: By, actor: &Actor) -> Dataset {
    match by {
        By::Us => catalog_of(actor).await.open_table("t").await.unwrap(),
        By::Nobody => plain(actor).load().await.unwrap(),
        By::LancesStore => {
            let namespace = DirectoryNamespaceBuilder::new("memory://root")
                .session(actor.session.clone())
                .manifest_enabled(false)
                .table_version_tracking_enabled(true)
                .build()
                .await
                .unwrap();
            let table = plain(actor).load().await.unwrap();
            let path = table.branch_location().path;
            let store =
                LanceNamespaceExternalManifestStore::new(Arc::new(namespace), id(&["t"]), path);
            let handler = ExternalManifestCommitHandler {
                external_manifest_store: Arc::new(store),
            };
            let builder = plain(actor).with_commit_handler(Arc::new(handler));
            builder.load().await.unwrap()
        }
    }
}

/// A table that a catalog created, or a stock client: that one carries no incarnation.
async fn table(stock: bool) -> SharedMemory {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    if stock {
        let params = WriteParams {
            session: Some(actor.session.clone()),
            ..Default::default()
        };
        write_plainly(URI, [-1], params).await;
    } else {
        let catalog = catalog_of(&actor).await;
        catalog.create_table("t", rows([-1])).await.unwrap();
    }
    memory
}

/// Requests, and round trips made one after another.
type Cost = (usize, u32);

async fn cost_of_append(table: &mut Dataset, actor: &Actor) -> Cost {
    actor.counter.reset();
    let began = Instant::now();
    append(table, [1]).await.unwrap();
    let trips = (began.elapsed().as_secs_f64() / LATENCY.as_secs_f64()).round();
    (actor.counter.total(), trips as u32)
}

/// Of the first append after an open, of the next one, and of one after a pause.
async fn costs(by: By, stock: bool) -> [Cost; 3] {
    let memory = table(stock).await;
    let actor = memory.actor_with_latency(LATENCY);
    let mut opened = open(by, &actor).await;
    tokio::time::pause();
    let first = cost_of_append(&mut opened, &actor).await;
    let next = cost_of_append(&mut opened, &actor).await;
    advance(Duration::from_secs(100)).await;
    let later = cost_of_append(&mut opened, &actor).await;
    tokio::time::resume();
    println!("append by {by:?}, stock table {stock}: {first:?} {next:?} {later:?}");
    [first, next, later]
}

/// The data file, Lance's look for newer versions, the transaction, and the manifest: that is a commit that nobody manages.
/// Ours asks for the tombstone and the marker beside that look, and after a pause before it.
#[tokio::test]
async fn a_commit_costs_less_than_through_lances_own_store() {
    for stock in [false, true] {
        assert_eq!(costs(By::Nobody, stock).await, [(4, 4); 3]);
        let ours = costs(By::Us, stock).await;
        assert_eq!(ours, [(6, 4), (6, 4), (6, 5)]);
        for theirs in costs(By::LancesStore, stock).await {
            assert!(theirs.0 >= 10 && theirs.1 >= 10, "{theirs:?}");
        }
    }
}

/// Of an append to what somebody else appended to after this handle was opened.
async fn cost_behind(by: By, stock: bool) -> Cost {
    let memory = table(stock).await;
    let actor = memory.actor_with_latency(LATENCY);
    let mut behind = open(by, &actor).await;
    let mut other = open(by, &memory.actor()).await;
    append(&mut other, [0]).await.unwrap();
    tokio::time::pause();
    let cost = cost_of_append(&mut behind, &actor).await;
    tokio::time::resume();
    println!("append behind another by {by:?}, stock table {stock}: {cost:?}");
    cost
}

/// Whether the version is still there with which the handle began is seen in Lance's own listing.
#[tokio::test]
async fn a_commit_behind_another_one_costs_no_round_trip_more() {
    for stock in [false, true] {
        let unmanaged = cost_behind(By::Nobody, stock).await;
        let ours = cost_behind(By::Us, stock).await;
        let theirs = cost_behind(By::LancesStore, stock).await;
        assert_eq!(ours, (unmanaged.0 + 2, unmanaged.1));
        assert!(
            ours.0 <= theirs.0 && ours.1 < theirs.1,
            "{ours:?} {theirs:?}"
        );
    }
}

/// The requests of two appends of which one must lose, since they begin together.
async fn requests_of_a_pair(by: By) -> usize {
    let memory = table(false).await;
    let actors = [(); 2].map(|()| memory.actor_with_latency(LATENCY));
    let mut tables = Vec::new();
    for actor in &actors {
        tables.push(open(by, actor).await);
        actor.counter.reset();
    }
    tokio::time::pause();
    let mut tasks = JoinSet::new();
    for mut table in tables {
        tasks.spawn(async move { append(&mut table, [1]).await.unwrap() });
    }
    tasks.join_all().await;
    tokio::time::resume();
    let catalog = catalog_of(&memory.actor()).await;
    assert_eq!(table_ids(&catalog, "t").await, [-1, 1, 1]);
    let requests = actors.iter().map(|actor| actor.counter.total()).sum();
    println!("two appends together by {by:?}: {requests} requests");
    requests
}

/// The most of a few times: while the clock is paused, now and then one is over before the other has begun.
async fn most_of_a_pair(by: By) -> usize {
    let mut most = 0;
    for _ in 0..4 {
        most = most.max(requests_of_a_pair(by).await);
    }
    most
}

/// Who loses looks at nothing that Lance does not look at itself: 2 requests more for each of the three attempts.
#[tokio::test]
async fn a_lost_race_costs_less_than_through_lances_own_store() {
    let unmanaged = most_of_a_pair(By::Nobody).await;
    let ours = most_of_a_pair(By::Us).await;
    let theirs = most_of_a_pair(By::LancesStore).await;
    assert!(ours <= unmanaged + 6, "{ours} {unmanaged}");
    assert!(ours < theirs, "{ours} {theirs}");
}
