//! A table's row is taken out of the manifest by one drop or deregistration, which knows that it was the one: the others
//! are told that there is no such table, and delete nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lance_namespace::LanceNamespace;
use lance_namespace::models::DeregisterTableRequest;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lifecycle::DropOutcome;
use lancekeep::{Catalog, Error, ErrorKind};
use tokio::sync::Barrier;

use super::stock::{create, id, stock};
use super::{
    Place, Stopped, assert_kind, batch_of, each_point, make, numbers, patiently, read, rows_of,
    tables,
};
use crate::common::catalog_of;
use crate::support::{Fault, Gate, Kind, Request, SharedMemory, When};

const T: [&str; 2] = ["a", "t"];
const ROUNDS: i32 = 12;

/// `a.t` and `a.u`.
async fn start() -> SharedMemory {
    let memory = SharedMemory::new();
    let catalog = catalog_of(&memory.actor()).await;
    make(&catalog, &[&["a"]]).await;
    catalog.create_table(T, batch_of(1)).await.unwrap();
    catalog.create_table(["a", "u"], batch_of(2)).await.unwrap();
    memory
}

fn is_commit(request: &Request) -> bool {
    request.kind == Kind::PutCreate && request.path.contains("__manifest/_versions/")
}

/// Lets the actor go on until its next request is such a one.
async fn until(gate: &Gate, wanted: impl Fn(&Request) -> bool) {
    loop {
        gate.wait_until_blocked(&[0]).await;
        let waiting = gate.waiting();
        let (_, next) = waiting.first().expect("it ended without the request");
        if wanted(next) {
            return;
        }
        gate.release(0);
    }
}

async fn two_drops(place: &Place) {
    let pair = [place.catalog().await, place.catalog().await];
    make(&pair[0], &[&["a"]]).await;
    pair[0].declare_table(["a", "beside"]).await.unwrap();
    for round in 0..ROUNDS {
        pair[0].create_table(T, batch_of(round)).await.unwrap();
        let start = Arc::new(Barrier::new(2));
        let drops = pair.clone().map(|catalog| {
            let start = Arc::clone(&start);
            tokio::spawn(async move {
                start.wait().await;
                catalog.drop_table(T).await.map(drop)
            })
        });
        let mut told = Vec::new();
        for drop in drops {
            told.push(drop.await.unwrap().map_err(|e| e.kind()));
        }
        told.sort_by_key(Result::is_err);
        assert_eq!(told, [Ok(()), Err(ErrorKind::TableNotFound)], "{round}");
        assert_eq!(place.assert_tidy(&[]).await.len(), 2);
    }
}

on_both!(two_drops: of_two_drops_one_takes_the_table_on_local_disk,
    of_two_drops_one_takes_the_table_in_memory);

/// What another process does while a drop of `a.t` is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Drop,
    Deregister,
    StockDeregister,
    Recreate,
    DropBeside,
}

impl Other {
    /// Whether it took the row that the drop may have seen.
    async fn run(self, catalog: &Catalog, place: &Place) -> Result<bool, Error> {
        match self {
            Self::Drop => catalog.drop_table(T).if_exists().await.map(|d| d.is_some()),
            Self::Deregister => match catalog.deregister_table(T).await {
                Err(Error::TableNotFound { .. }) => Ok(false),
                taken => taken.map(|_| true),
            },
            Self::StockDeregister => {
                let mut request = DeregisterTableRequest::new();
                request.id = id(&T);
                Ok(stock(place, true)
                    .await
                    .deregister_table(request)
                    .await
                    .is_ok())
            }
            Self::Recreate => {
                let dropped = catalog.drop_table(T).if_exists().await?;
                catalog.create_table(T, batch_of(3)).await?;
                Ok(dropped.is_some())
            }
            Self::DropBeside => catalog.drop_table(["a", "u"]).await.map(|_| false),
        }
    }
}

/// A drop is stopped before each of its requests in turn, while another process goes through the whole of its own.
async fn overtaken(other: Other) {
    let start = &start().await;
    let points = each_point(|n| async move {
        let memory = start.fork().await;
        let place = Place::Memory(memory.clone());
        let rows = place.manifest().await;
        let location = rows.iter().find(|row| row.id == "a$t").unwrap();
        let location = location.location.clone().unwrap();
        let gate = Gate::new();
        let actor = memory.actor_at_gate(&gate, 0);
        let slow = catalog_of(&actor).await;
        let work = async move { slow.drop_table(T).await.map(drop) };
        let stopped = Stopped::after(gate.clone(), n, work).await?;
        let at_commit = gate.waiting().iter().any(|(_, request)| is_commit(request));
        let fast = catalog_of(&memory.actor()).await;
        let taken = other.run(&fast, &place).await.unwrap();
        let outcome = stopped.go_on().await;
        let at = format!("{other:?}, stopped before request {n}, taken: {taken}, {outcome:?}");
        let told = outcome.map_err(|e| e.kind());
        let catalog = catalog_of(&memory.actor()).await;
        let kept = place.entries().await.contains(&location);
        match other {
            Other::Drop => {
                let expected = if taken {
                    Err(ErrorKind::TableNotFound)
                } else {
                    Ok(())
                };
                assert_eq!(told, expected, "{at}");
                assert!(!kept, "{at}");
            }
            Other::Deregister | Other::StockDeregister => {
                let expected = if taken {
                    Err(ErrorKind::TableNotFound)
                } else {
                    Ok(())
                };
                assert_eq!(told, expected, "{at}");
                assert_eq!(kept, taken, "{at}");
                if taken {
                    catalog.register_table(T, &location).await.unwrap();
                    assert_eq!(read(&catalog, T).await, numbers(rows_of(1)), "{at}");
                }
            }
            // The one that it saw, or the new one.
            Other::Recreate => {
                assert_eq!(told, Ok(()), "{at}");
                assert!(!kept, "{at}");
                assert_eq!(catalog.table_exists(T).await.unwrap(), !taken, "{at}");
                if !taken {
                    assert_eq!(read(&catalog, T).await, numbers(rows_of(3)), "{at}");
                }
            }
            Other::DropBeside => {
                assert_eq!(told, Ok(()), "{at}");
                assert!(tables(&catalog, &["a"]).await.is_empty(), "{at}");
            }
        }
        if other != Other::DropBeside {
            assert_eq!(
                read(&catalog, ["a", "u"]).await,
                numbers(rows_of(2)),
                "{at}"
            );
        }
        place.assert_tidy(&[]).await;
        Some((at_commit, taken))
    })
    .await;
    println!("{other:?}: {points:?}");
    let before: Vec<_> = points
        .iter()
        .take_while(|(at_commit, _)| !at_commit)
        .collect();
    assert!(before.len() + 1 < points.len(), "no commit: {points:?}");
    if other != Other::DropBeside {
        // Whoever comes first takes it, up to the commit itself.
        let taken = points.iter().filter(|(_, taken)| *taken).count();
        assert_eq!(taken, before.len() + 1, "{points:?}");
    }
}

#[tokio::test]
async fn a_drop_that_another_drop_overtakes_finds_no_table() {
    overtaken(Other::Drop).await;
}

#[tokio::test]
async fn a_drop_deletes_nothing_that_was_deregistered_meanwhile() {
    overtaken(Other::Deregister).await;
}

#[tokio::test]
async fn a_drop_deletes_nothing_that_a_stock_client_deregistered_meanwhile() {
    overtaken(Other::StockDeregister).await;
}

#[tokio::test]
async fn a_drop_takes_the_table_that_was_created_anew_meanwhile() {
    overtaken(Other::Recreate).await;
}

#[tokio::test]
async fn a_drop_is_overtaken_by_a_drop_of_another_table() {
    overtaken(Other::DropBeside).await;
}

/// A stock client creates tables all the time: whole rewrites of the manifest, each of which a deletion loses to.
async fn beside_creates(place: &Place) {
    const TABLES: i32 = 6;
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    for n in 0..TABLES {
        let name = format!("old{n}");
        catalog
            .create_table(["a", &name], batch_of(n))
            .await
            .unwrap();
    }
    let theirs = stock(place, false).await;
    let creating = async {
        for n in 0..TABLES {
            create(&theirs, &["a", &format!("new{n}")], n).await;
        }
    };
    let dropping = async {
        for n in 0..TABLES {
            let name = format!("old{n}");
            catalog.drop_table(["a", &name]).await.unwrap();
        }
    };
    tokio::join!(creating, dropping);
    let expected: Vec<_> = (0..TABLES).map(|n| format!("new{n}")).collect();
    for catalog in [&catalog, &place.catalog().await] {
        assert_eq!(tables(catalog, &["a"]).await, expected);
    }
    for n in 0..TABLES {
        let name = format!("new{n}");
        assert_eq!(read(&catalog, ["a", &name]).await, numbers(n..n + 3));
    }
    let rows = place.assert_tidy(&[]).await;
    assert_eq!(rows.len(), expected.len() + 1);
}

on_both!(beside_creates: drops_beside_creates_of_a_stock_client_on_local_disk,
    drops_beside_creates_of_a_stock_client_in_memory);

/// Many drops by one process at once, beside its own creates: they take turns, and none is told to try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drops_of_one_process_take_turns_with_its_creates() {
    const MANY: i32 = 24;
    let place = Place::in_memory();
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    for n in 0..MANY {
        catalog
            .declare_table(["a", &format!("old{n}")])
            .await
            .unwrap();
    }
    let mut tasks = Vec::new();
    for n in 0..MANY {
        let (dropper, creator) = (catalog.clone(), catalog.clone());
        tasks.push(tokio::spawn(async move {
            dropper
                .drop_table(["a", &format!("old{n}")])
                .await
                .map(drop)
        }));
        tasks.push(tokio::spawn(async move {
            let new = format!("new{n}");
            patiently(|| creator.declare_table(["a", &new]))
                .await
                .map(drop)
        }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let listed = tables(&catalog, &["a"]).await;
    assert_eq!(listed.len(), usize::try_from(MANY).unwrap());
    assert!(
        listed.iter().all(|name| name.starts_with("new")),
        "{listed:?}"
    );
    place.assert_tidy(&[]).await;
}

/// Which of a drop's requests commits.
async fn commit_of_a_drop(start: &SharedMemory) -> usize {
    let actor = start.fork().await.actor();
    let catalog = catalog_of(&actor).await;
    actor.counter.reset();
    catalog.drop_table(T).await.unwrap();
    let log = actor.counter.log();
    log.iter().position(is_commit).unwrap()
}

/// The commit is told that its place is taken, finds nothing there, and takes effect after that, as a repetition of a PUT
/// can on S3: then it was the drop itself that took the row.
#[tokio::test]
async fn a_deletion_that_takes_effect_late_is_the_drops_own() {
    let start = start().await;
    let commit = commit_of_a_drop(&start).await;
    let others = catalog_of(&start.actor()).await;
    let location = others.open_table(T).await.unwrap().uri().to_string();
    let actor = start.actor();
    let catalog = catalog_of(&actor).await;
    actor.faults.reset();
    actor
        .faults
        .fail_at(commit, When::Late, Fault::AlreadyExists);
    let dropped = catalog.drop_table(T).await.unwrap();
    assert_eq!(actor.faults.pending(), 0);
    assert_eq!(dropped.outcome, DropOutcome::Deleted);
    assert_kind(catalog.drop_table(T).await, ErrorKind::TableNotFound);
    let dir = location.rsplit('/').next().unwrap();
    let left = start.dump().await;
    assert!(!left.iter().any(|path| path.contains(dir)), "{left:?}");
    assert_eq!(read(&catalog, ["a", "u"]).await, numbers(rows_of(2)));
}

/// The answer to the commit is lost, and Lance cannot look what became of it: then nobody knows whose commit took the row,
/// so nothing is deleted and nothing is said about others.
#[tokio::test]
async fn an_unclear_deletion_is_nobody_elses() {
    let start = start().await;
    let commit = commit_of_a_drop(&start).await;
    for when in [When::Before, When::After] {
        let memory = start.fork().await;
        let before = memory.dump().await;
        let actor = memory.actor();
        let catalog = catalog_of(&actor).await;
        actor.faults.reset();
        actor.faults.fail_at(commit, when, Fault::Timeout);
        // And nothing answers from there on.
        let sent = AtomicUsize::new(0);
        let later = move |_: &Request| sent.fetch_add(1, Ordering::Relaxed) >= commit;
        actor.faults.fail_matching(later, Fault::Timeout);
        let error = catalog.drop_table(T).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{when:?}: {error}");
        assert!(error.to_string().contains("unknown"), "{when:?}: {error}");
        let catalog = catalog_of(&memory.actor()).await;
        let there = catalog.table_exists(T).await.unwrap();
        assert_eq!(there, matches!(when, When::Before), "{when:?}");
        let after = memory.dump().await;
        let lost = before.iter().find(|path| !after.contains(path));
        assert_eq!(lost, None, "{when:?}");
    }
}

/// A later format of the manifest, which this build does not know how to write.
#[tokio::test]
async fn a_manifest_that_is_not_ours_to_write_keeps_its_rows() {
    use lance_namespace_impls::dir::manifest_feature_flags::WRITER_FEATURE_FLAGS_KEY;
    let memory = start().await;
    let actor = memory.actor();
    let opened = DatasetBuilder::from_uri("memory://root/__manifest").with_session(actor.session);
    let mut manifest = opened.load().await.unwrap();
    let flags = [(WRITER_FEATURE_FLAGS_KEY, "1")];
    manifest.update_metadata(flags).await.unwrap();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    assert_eq!(tables(&catalog, &["a"]).await, ["t", "u"]);
    actor.counter.reset();
    assert_kind(catalog.drop_table(T).await, ErrorKind::Unsupported);
    assert_kind(catalog.deregister_table(T).await, ErrorKind::Unsupported);
    assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());
    assert_eq!(read(&catalog, T).await, numbers(rows_of(1)));
}

/// It becomes one while a drop is under way: Lance by itself would take the deletion over onto it.
#[tokio::test]
async fn a_manifest_that_is_no_longer_ours_to_write_keeps_its_rows() {
    use lance_namespace_impls::dir::manifest_feature_flags::WRITER_FEATURE_FLAGS_KEY;
    let memory = start().await;
    let gate = Gate::new();
    let catalog = catalog_of(&memory.actor_at_gate(&gate, 0)).await;
    let drop = gate.run(0, async move { catalog.drop_table(T).await });
    let drop = tokio::spawn(drop);
    until(&gate, |r| r.path.contains("__manifest/_deletions")).await;
    let session = memory.actor().session;
    let opened = DatasetBuilder::from_uri("memory://root/__manifest").with_session(session);
    let mut manifest = opened.load().await.unwrap();
    let flags = [(WRITER_FEATURE_FLAGS_KEY, "1")];
    manifest.update_metadata(flags).await.unwrap();
    let version = manifest.version().version;
    gate.open();
    assert_kind(drop.await.unwrap(), ErrorKind::Unsupported);
    manifest.checkout_latest().await.unwrap();
    assert_eq!(manifest.version().version, version);
    let catalog = catalog_of(&memory.actor()).await;
    assert_eq!(read(&catalog, T).await, numbers(rows_of(1)));
}

/// A create finds its namespace gone after it has registered, and its row too: who took that out keeps the data.
#[tokio::test]
async fn a_create_deletes_nothing_that_was_deregistered_meanwhile() {
    let memory = start().await;
    let gate = Gate::new();
    let catalog = catalog_of(&memory.actor_at_gate(&gate, 0)).await;
    let create = gate.run(0, async move {
        catalog.create_table(["a", "new"], batch_of(3)).await
    });
    let create = tokio::spawn(create);
    until(&gate, is_commit).await;
    gate.release(0);
    gate.wait_until_blocked(&[0]).await;
    let actor = memory.actor();
    let others = catalog_of(&actor).await;
    assert_eq!(tables(&others, &["a"]).await, ["new", "t", "u"]);
    let manifest = super::costs::manifest_of(&actor).await;
    manifest.delete_from_manifest("a").await.unwrap();
    others.deregister_table(["a", "new"]).await.unwrap();
    let kept = memory.dump().await;
    assert!(kept.iter().any(|path| path.contains("a$new/data/")));
    gate.open();
    assert_kind(create.await.unwrap(), ErrorKind::NamespaceNotFound);
    let left = memory.dump().await;
    let lost = kept
        .iter()
        .find(|path| path.contains("a$new/") && !left.contains(path));
    assert_eq!(lost, None);
}
