//! Commits and clean-ups that are slow, so that what they saw of the table no longer holds when they come to write; and
//! commits whose answer never comes.

use std::time::Duration;

use lance_namespace::models::CreateTableVersionRequest;
use lance_namespace::{ErrorCode, LanceNamespace};
use lancekeep::{Catalog, ErrorKind};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::time::{sleep, timeout};

use super::{append, code_of, id, managed_in, overwrite};
use crate::common::{rows, table_ids};
use crate::support::{Fault, Gate, Kind, Request, SharedMemory, StoreClock, When};

const WINDOW: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_secs(60);
const TABLE: &str = "root/t.lance";

/// A managed catalog whose requests wait, and the gate at which they do.
async fn gated(memory: &SharedMemory) -> (Gate, Catalog) {
    let gate = Gate::new();
    let catalog = managed_in(&memory.actor_at_gate(&gate, 0), WINDOW).await;
    (gate, catalog)
}

/// Lets the actor go on until its next request is such a one.
async fn until(gate: &Gate, wanted: impl Fn(&Request) -> bool) {
    let actors = [0];
    loop {
        let blocked = gate.wait_until_blocked(&actors);
        timeout(STALL, blocked).await.expect("it is stuck");
        let waiting = gate.waiting();
        let (_, next) = waiting.first().expect("it ended without the request");
        if wanted(next) {
            return;
        }
        gate.release(0);
    }
}

async fn manifests(memory: &SharedMemory) -> Vec<String> {
    let mut found = memory.dump().await;
    found.retain(|path| path.starts_with(TABLE) && path.ends_with(".manifest"));
    found
}

/// Version 2 of `t`, staged: the content of version 1, which names no file that is not there.
async fn staged(catalog: &Catalog, memory: &SharedMemory) -> (String, CreateTableVersionRequest) {
    let first = catalog.describe_version("t", 1).await.unwrap().path;
    let number = |version: u64| format!("{:020}.manifest", u64::MAX - version);
    let target = first.replace(&number(1), &number(2));
    assert_ne!(target, first);
    let store = memory.raw();
    let content = store.get(&Path::parse(&first).unwrap()).await.unwrap();
    let content = content.bytes().await.unwrap();
    let staged = format!("{target}-one");
    let path = Path::parse(&staged).unwrap();
    store.put(&path, content.into()).await.unwrap();
    let mut request = CreateTableVersionRequest::new(2, staged);
    request.id = Some(id(&["t"]));
    (first, request)
}

/// A drop comes between a commit's look at the tombstone and its PUT, and more than half the commit window passes: the
/// commit looks again. When the PUT itself takes longer than the window, the commit does not wait for it.
#[tokio::test]
async fn a_commit_that_is_slow_looks_again() {
    let memory = SharedMemory::new();
    let others = managed_in(&memory.actor(), WINDOW).await;
    others.create_table("t", rows(0..2)).await.unwrap();
    let (first, request) = staged(&others, &memory).await;
    let before = manifests(&memory).await;

    let (gate, slow) = gated(&memory).await;
    let sent = request.clone();
    let commit = gate.run(0, async move { slow.create_table_version(sent).await });
    let commit = tokio::spawn(commit);
    // The fence reads the version before, after the look at the tombstone.
    until(&gate, |r| r.kind == Kind::Get && r.path == first).await;
    others.drop_table("t").await.unwrap();
    sleep(WINDOW / 2 + Duration::from_millis(100)).await;
    gate.open();
    let refused = commit
        .await
        .unwrap()
        .expect_err("a commit to a dropped table");
    assert_eq!(
        code_of(&refused),
        Some(ErrorCode::InvalidTableState),
        "{refused}"
    );
    assert_eq!(manifests(&memory).await, before);

    others.undrop_table("t").await.unwrap();
    let (gate, slow) = gated(&memory).await;
    let sent = request.clone();
    let commit = gate.run(0, async move { slow.create_table_version(sent).await });
    let commit = tokio::spawn(commit);
    until(&gate, |r| r.kind == Kind::PutCreate).await;
    let given_up = timeout(WINDOW * 5, commit).await;
    let error = given_up
        .expect("it waits for its PUT")
        .unwrap()
        .unwrap_err();
    assert_eq!(
        code_of(&error),
        Some(ErrorCode::ServiceUnavailable),
        "{error}"
    );
    assert_eq!(manifests(&memory).await, before);
    // And in time it is created.
    others.create_table_version(request).await.unwrap();
    assert_eq!(manifests(&memory).await.len(), 2);
}

/// A handle saw no drop a while ago, so its commit lists versions beside its own look. Its window has been open since then,
/// not since the commit began: a drop in between, and the commit looks again. An overwrite makes that look when it comes to
/// put its manifest, anything else when Lance looks for newer versions.
#[tokio::test]
async fn a_commit_counts_from_the_earlier_look() {
    for overwrites in [false, true] {
        a_commit_after_an_earlier_look(overwrites).await;
    }
}

async fn a_commit_after_an_earlier_look(overwrites: bool) {
    let window = Duration::from_secs(10);
    let pass = async |time| {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    };
    let memory = SharedMemory::new();
    let others = managed_in(&memory.actor(), window).await;
    others.create_table("t", rows(0..2)).await.unwrap();
    let gate = Gate::new();
    let slow = managed_in(&memory.actor_at_gate(&gate, 0), window).await;
    gate.open();
    let mut table = slow.open_table("t").await.unwrap();
    // Recent enough for the commit to rest on it.
    pass(window * 15 / 100).await;
    gate.close();
    let commit = gate.run(0, async move {
        match overwrites {
            false => append(&mut table, [7]).await,
            true => overwrite(&table, [7]).await.map(drop),
        }
    });
    let commit = tokio::spawn(commit);
    if overwrites {
        // Its transaction is written after Lance's look.
        until(&gate, |r| r.path.contains("_transactions")).await;
        pass(window * 15 / 100).await;
    }
    until(&gate, |r| r.path.ends_with(".deleted")).await;
    let waiting = gate.waiting();
    let beside = waiting.iter().any(|(_, r)| r.kind == Kind::List);
    assert!(beside, "it looks at one after the other: {waiting:?}");
    until(&gate, |r| r.kind == Kind::List).await;
    others.drop_table("t").await.unwrap();
    // Half a window since the earlier look, and less than that since the commit began.
    pass(window * 40 / 100).await;
    let before = manifests(&memory).await;
    gate.open();
    let refused = commit
        .await
        .unwrap()
        .expect_err("a commit to a dropped table");
    assert_eq!(
        code_of(&refused),
        Some(ErrorCode::InvalidTableState),
        "{refused}"
    );
    assert_eq!(manifests(&memory).await, before);
}

/// The table is dropped, or another one takes its name, between a clean-up's look at the versions and their deletion.
#[tokio::test]
async fn a_clean_up_that_is_slow_deletes_nothing_of_what_came_meanwhile() {
    for replaced in [false, true] {
        let clock = StoreClock::default();
        let memory = SharedMemory::with_clock(clock.clone());
        let others = managed_in(&memory.actor(), WINDOW).await;
        let make = async || {
            let mut table = others.create_table("t", rows([0])).await.unwrap();
            for id in 1..4 {
                append(&mut table, [id]).await.unwrap();
            }
            // None of them is too young for a clean-up.
            clock.advance(WINDOW * 2);
        };
        make().await;
        let (gate, slow) = gated(&memory).await;
        let clean_up = gate.run(0, async move { slow.delete_versions("t", 1..4).await });
        let clean_up = tokio::spawn(clean_up);
        // It has listed the versions by the time when it asks for the store's.
        until(&gate, |r| r.path.contains(".clock.")).await;
        others.drop_table("t").await.unwrap();
        if replaced {
            clock.advance(WINDOW * 2);
            others.purge_table("t").await.unwrap();
            make().await;
        }
        let before = manifests(&memory).await;
        assert_eq!(before.len(), 4, "{before:?}");
        gate.open();
        let error = clean_up.await.unwrap().unwrap_err();
        let expected = match replaced {
            false => ErrorKind::TableDropped,
            true => ErrorKind::Conflict,
        };
        assert_eq!(error.kind(), expected, "{error:?}");
        assert_eq!(manifests(&memory).await, before);

        if !replaced {
            others.undrop_table("t").await.unwrap();
        }
        let deleted = others.delete_versions("t", 1..4).await.unwrap();
        assert_eq!(deleted, [1, 2, 3]);
    }
}

/// Sent once, by a client that does not look for itself as Lance does: the answer is lost, the version is its own.
#[tokio::test]
async fn a_version_whose_answer_was_lost_is_no_conflict() {
    let memory = SharedMemory::new();
    let others = managed_in(&memory.actor(), WINDOW).await;
    others.create_table("t", rows(0..2)).await.unwrap();
    let (_, request) = staged(&others, &memory).await;
    let actor = memory.actor();
    let catalog = managed_in(&actor, WINDOW).await;
    let trial = memory.fork().await.actor();
    let clean = managed_in(&trial, WINDOW).await;
    trial.counter.reset();
    clean.create_table_version(request.clone()).await.unwrap();
    let is_put = |r: &Request| r.kind == Kind::PutCreate;
    let put = trial.counter.log().iter().position(is_put).unwrap();

    actor.faults.reset();
    actor.faults.fail_at(put, When::After, Fault::Timeout);
    let created = catalog.create_table_version(request.clone()).await.unwrap();
    assert_eq!(actor.faults.pending(), 0);
    assert_eq!(created.version.unwrap().version, 2);
    assert_eq!(manifests(&memory).await.len(), 2);
    let dump = memory.dump().await;
    assert!(!dump.contains(&request.manifest_path), "{dump:?}");
}

/// The answer to a PUT is lost, and by the time when the writer looks, others have built on its version and cleaned that up.
/// So nothing tells whether it was committed: it must not be called a conflict, after which Lance would commit it again.
#[tokio::test]
async fn a_version_that_was_cleaned_up_is_not_committed_again() {
    let clock = StoreClock::default();
    let memory = SharedMemory::with_clock(clock.clone());
    let others = managed_in(&memory.actor(), WINDOW).await;
    others.create_table("t", rows([0])).await.unwrap();
    let gate = Gate::new();
    let actor = memory.actor_at_gate_before_faults(&gate, 0);
    let slow = managed_in(&actor, WINDOW).await;
    gate.open();
    let mut table = slow.open_table("t").await.unwrap();
    gate.close();
    let commit = gate.run(0, async move { append(&mut table, [7]).await });
    let commit = tokio::spawn(commit);
    let of_manifest = |r: &Request, kind| r.kind == kind && r.path.ends_with(".manifest");
    until(&gate, |r| of_manifest(r, Kind::PutCreate)).await;
    let put = actor.faults.issued();
    actor.faults.fail_at(put, When::After, Fault::Timeout);
    gate.release(0);
    until(&gate, |r| of_manifest(r, Kind::Get)).await;
    let mut built_on = others.open_table("t").await.unwrap();
    append(&mut built_on, [8]).await.unwrap();
    clock.advance(WINDOW * 2);
    assert_eq!(others.delete_versions("t", 2..3).await.unwrap(), [2]);
    gate.open();
    commit.await.unwrap().unwrap_err();
    assert_eq!(table_ids(&others, "t").await, [0, 7, 8]);
}
