//! Orders, clocks and pairs of faults in which one slip of the protocol would show, and which no other test made certain.
//! Each is the answer to a deliberate fault of tests/teeth that the other tests did not notice, or only by chance.

use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, DroppedTable, Error, ErrorKind};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::common::{StoreTime, ids, rows, table_ids};
use crate::interleavings::{
    LEASE, MARKER, OLD, Stage, Start, State, TOMBSTONE, Table, new_rows, timed,
};
use crate::support::{Fault, Kind, PAGE, Request, SharedMemory, StoreClock, When};

const TABLE: &str = "root/t.lance";

const LATER: Duration = LEASE.saturating_add(Duration::from_secs(1));

/// A store with a clock of its own, on which `t` was dropped.
async fn dropped_by_a_clock() -> (SharedMemory, DroppedTable) {
    let memory = by_a_clock();
    let catalog = timed(&memory, &memory.actor(), LEASE).await;
    catalog.create_table("t", rows(OLD)).await.unwrap();
    let dropped = catalog.drop_table("t").await.unwrap();
    (memory, dropped)
}

fn by_a_clock() -> SharedMemory {
    // Not a whole second: the store's clock must not look coarse.
    let now = DateTime::from_timestamp_millis(1_750_000_000_123).unwrap();
    SharedMemory::with_clock(StoreClock::new(now))
}

/// A process decides to restore `t` and stops.
async fn stop_an_undrop(memory: &SharedMemory) {
    let actor = memory.actor();
    let catalog = timed(memory, &actor, LEASE).await;
    let faults = &actor.faults;
    faults.fail_matching(|r| r.kind == Kind::Delete, Fault::PermissionDenied);
    let stopped = catalog.undrop_table("t").await.unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Storage, "{stopped:?}");
}

async fn plant(memory: &SharedMemory, path: &str) {
    let path = Path::parse(path).unwrap();
    let content = path.to_string().into();
    memory.base().put(&path, content).await.unwrap();
}

fn is_bulk(request: &Request) -> bool {
    request.kind == Kind::Delete && request.path.starts_with(TABLE)
}

/// Lets the actor go on until it waits with a bulk delete.
async fn until_bulk(stage: &Stage, actor: usize) {
    while let Some(next) = stage.next(actor).await {
        if is_bulk(&next) {
            return;
        }
        stage.gate.release(actor);
    }
    panic!("actor {actor} deleted nothing");
}

/// A purge that is cut off after its first batch, or taken over then, has left nothing whose name a later table uses.
#[tokio::test]
async fn the_first_batch_of_a_purge_takes_every_name_that_can_come_again() {
    let memory = Start::Live.memory().await;
    let catalog = timed_by_the_wall(&memory).await;
    let table = catalog.open_table("t").await.unwrap();
    table.tags().create("a", 1).await.unwrap();
    for name in ["_versions/latest_version_hint.json", ".lance-reserved"] {
        plant(&memory, &format!("{TABLE}/{name}")).await;
    }
    for n in 0..PAGE + 200 {
        plant(&memory, &format!("{TABLE}/data/{n:05}.lance")).await;
    }
    catalog.drop_table("t").await.unwrap();
    let reused = async |memory: &SharedMemory| {
        let mut found = memory.dump().await;
        found.retain(|path| {
            let Some(name) = path.strip_prefix("root/t.lance/") else {
                return false;
            };
            !["data/", "_transactions/"]
                .iter()
                .any(|dir| name.starts_with(dir))
        });
        found
    };
    // A manifest, a hint, a tag and two markers.
    assert_eq!(
        reused(&memory).await.len(),
        5,
        "{:?}",
        reused(&memory).await
    );

    let stage = Stage::new(memory);
    let purge = stage.start(0, stage.catalog(0).await.purge_table("t").into_future());
    until_bulk(&stage, 0).await;
    stage.gate.release(0);
    let next = stage.next(0).await.unwrap();
    assert_eq!(next, Request::new(Kind::Get, TOMBSTONE));
    let left = stage.memory.dump().await;
    assert!(left.iter().any(|path| path.contains("/data/")), "one batch");
    assert_eq!(reused(&stage.memory).await, Vec::<String>::new());
    stage.finish(0).await;
    purge.await.unwrap().unwrap();
    assert_eq!(stage.end("two batches").await, State::Absent);
}

async fn timed_by_the_wall(memory: &SharedMemory) -> Catalog {
    Stage::new(memory.clone()).others().await
}

/// The owner of a purge stops before any request, and the store's clock jumps: by it the lease is over, by the owner's
/// own clock it has hardly begun. The purge is taken over, the name is used again and dropped again. What saves the next
/// drop is that the owner reads the tombstone before it deletes. (A deletion that is sent already nothing calls back.)
#[tokio::test]
async fn a_purge_looks_at_the_drop_before_it_deletes() {
    let (start, first) = dropped_by_a_clock().await;
    let mut points = 0;
    let mut overtaken = 0;
    loop {
        let stage = Stage::new(start.fork().await);
        let slow = timed(&stage.memory, &stage.actor(0), LEASE).await;
        let purge = slow.purge_table("t").drop_id(first.drop_id);
        let purge = stage.start(0, purge.into_future());
        let Some(request) = stage.skip(0, points).await else {
            purge.await.unwrap().unwrap();
            break;
        };
        points += 1;
        if request.kind == Kind::Delete {
            stage.finish(0).await;
            purge.await.unwrap().unwrap();
            continue;
        }
        overtaken += 1;
        let at = format!("stopped before {request:?}");
        // Else no time passes, so that the next drop has the time of the first.
        let dump = stage.memory.dump().await;
        if dump.iter().any(|path| path.contains(".claim")) {
            stage.memory.clock().unwrap().advance(LATER);
        }
        let others = timed(&stage.memory, &stage.memory.actor(), LEASE).await;
        let unfinished = stage.has(TOMBSTONE).await;
        if unfinished {
            let purged = others.purge_table("t").await;
            let purged = purged.unwrap_or_else(|e| panic!("{at}: {e}"));
            assert_eq!(purged.drop_id, first.drop_id, "{at}");
        }
        let created = others.create_table("t", rows(new_rows(1))).await;
        created.unwrap_or_else(|e| panic!("{at}: {e}"));
        let second = others.drop_table("t").await.unwrap();

        stage.finish(0).await;
        match purge.await.unwrap() {
            Err(Error::Conflict { .. } | Error::TableNotFound { .. }) if unfinished => {}
            Ok(purged) if !unfinished => assert_eq!(purged.drop_id, first.drop_id, "{at}"),
            other => panic!("{at}: {other:?}"),
        }
        let drops = others.list_dropped_tables().await.unwrap();
        assert_eq!(drops.len(), 1, "{at}: {drops:?}");
        assert_eq!(drops[0].drop_id, second.drop_id, "{at}");
        assert_eq!(stage.end(&at).await, State::Dropped(Table::of(1, 1)));
    }
    println!("a purge overtaken before {overtaken} of {points} requests");
    assert!(overtaken >= 5, "{overtaken}");
}

/// Two processes find the same dead owner. The second one is slow: by the time it takes over, the first one has finished
/// the drop and deleted its claims, so the generation that it wants is free. It must not restore the drop that came next.
#[tokio::test]
async fn a_takeover_that_comes_late_leaves_the_next_drop_alone() {
    let (memory, first) = dropped_by_a_clock().await;
    stop_an_undrop(&memory).await;
    memory.clock().unwrap().advance(LATER);
    let stage = Stage::new(memory);
    let late = timed(&stage.memory, &stage.actor(0), LEASE).await;
    let late = stage.start(0, late.undrop_table("t").into_future());
    let next = format!("{TOMBSTONE}.{}.claim.1", first.drop_id);
    stage.until(0, Kind::PutCreate, &next).await;

    let others = timed(&stage.memory, &stage.memory.actor(), LEASE).await;
    others.undrop_table("t").await.unwrap();
    let second = others.drop_table("t").await.unwrap();
    stage.finish(0).await;
    let error = late.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RestoreInProgress, "{error:?}");
    let drops = others.list_dropped_tables().await.unwrap();
    assert_eq!(drops.len(), 1, "{drops:?}");
    assert_eq!(drops[0].drop_id, second.drop_id);
    let end = stage.end("late takeover").await;
    assert_eq!(end, State::Dropped(Table::old()));
}

/// By one machine's clock every lease is over; by the store's none is.
#[tokio::test]
async fn a_clock_that_is_ahead_takes_over_from_nobody() {
    let (memory, _) = dropped_by_a_clock().await;
    stop_an_undrop(&memory).await;
    let ahead = StoreClock::new(memory.clock().unwrap().now());
    ahead.advance(LATER * 100);
    let catalog = Catalog::builder("memory://root")
        .session(memory.actor().session)
        .clock(Arc::new(StoreTime(ahead)))
        .leases(LEASE, LEASE)
        .build()
        .await
        .unwrap();
    let before = memory.dump().await;
    for outcome in [
        catalog.undrop_table("t").await.map(drop),
        catalog.purge_table("t").await.map(drop),
        catalog.create_table("t", rows(new_rows(0))).await.map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RestoreInProgress, "{error:?}");
    }
    let report = catalog.reconcile(false).await.unwrap();
    let found: Vec<_> = report.findings.iter().map(|f| (f.kind, f.mended)).collect();
    assert_eq!(found, [(FindingKind::UnfinishedRestore, false)]);
    assert_eq!(memory.dump().await, before);

    memory.clock().unwrap().advance(LATER);
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, OLD.collect::<Vec<_>>());
}

/// The table is dropped and purged between a drop's look at it and its tombstone, which then hides nothing.
#[tokio::test]
async fn a_drop_of_what_was_purged_meanwhile_is_taken_back() {
    let stage = Stage::new(Start::Live.memory().await);
    let late = stage.start(0, stage.catalog(0).await.drop_table("t").into_future());
    stage.until(0, Kind::PutCreate, TOMBSTONE).await;
    let others = stage.others().await;
    others.drop_table("t").await.unwrap();
    others.purge_table("t").await.unwrap();
    stage.finish(0).await;
    let error = late.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TableNotFound, "{error:?}");
    assert_eq!(stage.end("purged meanwhile").await, State::Absent);
}

/// A stock client writes into the table after the purge has listed it.
#[tokio::test]
async fn a_purge_takes_what_was_written_while_it_deleted() {
    let stage = Stage::new(dropped_by_a_clock().await.0);
    let purge = stage.start(0, stage.catalog(0).await.purge_table("t").into_future());
    until_bulk(&stage, 0).await;
    let listed = stage.memory.dump().await;
    let listed = listed.iter().filter(|path| path.starts_with(TABLE)).count();
    plant(&stage.memory, &format!("{TABLE}/data/late.lance")).await;
    plant(&stage.memory, &format!("{TABLE}/_versions/2.manifest")).await;
    stage.finish(0).await;
    let purged = purge.await.unwrap().unwrap();
    assert_eq!(purged.objects, u64::try_from(listed + 2).unwrap());
    assert_eq!(stage.end("written meanwhile").await, State::Absent);
}

/// The drop that is to be purged, or undone, is undone by somebody else, and the table is dropped again, before the claim
/// is there. The claim on a drop that is over decides nothing.
#[tokio::test]
async fn a_claim_that_comes_late_leaves_the_next_drop_alone() {
    for undrop in [false, true] {
        let (memory, first) = dropped_by_a_clock().await;
        let stage = Stage::new(memory);
        let late = timed(&stage.memory, &stage.actor(0), LEASE).await;
        let work = async move {
            match undrop {
                false => late.purge_table("t").drop_id(first.drop_id).await.map(drop),
                true => late
                    .undrop_table("t")
                    .drop_id(first.drop_id)
                    .await
                    .map(drop),
            }
        };
        let late = stage.start(0, work);
        let claim = format!("{TOMBSTONE}.{}.claim", first.drop_id);
        stage.until(0, Kind::PutCreate, &claim).await;
        let others = timed(&stage.memory, &stage.memory.actor(), LEASE).await;
        others.undrop_table("t").await.unwrap();
        stage
            .memory
            .clock()
            .unwrap()
            .advance(Duration::from_secs(1));
        let second = others.drop_table("t").await.unwrap();
        stage.finish(0).await;
        let at = format!("undrop: {undrop}");
        let error = late.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TableNotFound, "{at}: {error:?}");
        let drops = others.list_dropped_tables().await.unwrap();
        assert_eq!(drops.len(), 1, "{at}: {drops:?}");
        assert_eq!(drops[0].drop_id, second.drop_id, "{at}");
        let end = stage.end(&at).await;
        assert_eq!(end, State::Dropped(Table::old()), "{at}");
    }
}

/// Two drops have both found the table live. The second one must not put its record in the place of the first.
#[tokio::test]
async fn a_drop_that_comes_second_is_told_so() {
    let stage = Stage::new(Start::Live.memory().await);
    let late = stage.start(0, stage.catalog(0).await.drop_table("t").into_future());
    stage.until(0, Kind::PutCreate, TOMBSTONE).await;
    let others = stage.others().await;
    let first = others.drop_table("t").await.unwrap();
    stage.finish(0).await;
    let error = late.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TableNotFound, "{error:?}");
    let drops = others.list_dropped_tables().await.unwrap();
    assert_eq!(drops.len(), 1, "{drops:?}");
    assert_eq!(drops[0].drop_id, first.drop_id);
    let end = stage.end("two drops").await;
    assert_eq!(end, State::Dropped(Table::old()));
}

/// A reconcile that found no marker beside a tombstone writes it when a purge has already seen that nothing is left.
#[tokio::test]
async fn a_marker_that_comes_late_goes_with_the_purge() {
    let memory = dropped_by_a_clock().await.0;
    let marker = Path::parse(MARKER).unwrap();
    memory.raw().delete(&marker).await.unwrap();
    let stage = Stage::new(memory);
    let late = stage.catalog(0).await;
    let late = stage.start(0, async move { late.reconcile(false).await });
    stage.until(0, Kind::Put, MARKER).await;
    let purge = stage.start(1, stage.catalog(1).await.purge_table("t").into_future());
    stage.until(1, Kind::Delete, TOMBSTONE).await;
    stage.finish(0).await;
    late.await.unwrap().unwrap();
    assert!(stage.has(MARKER).await, "it was not late");
    stage.finish(1).await;
    purge.await.unwrap().unwrap();
    assert_eq!(stage.end("late marker").await, State::Absent);
}

/// The answer to a commit is lost, and the store refuses every look at the versions after it. The commit took effect:
/// the caller cannot be told so, but the rows are there in the end, and whole.
#[tokio::test]
async fn a_commit_that_nobody_saw_is_found() {
    let is_commit = |r: &Request| r.kind == Kind::PutCreate && r.path.contains("/_versions/");
    for over_a_drop in [false, true] {
        let start = match over_a_drop {
            false => by_a_clock(),
            true => dropped_by_a_clock().await.0,
        };
        let new = rows(new_rows(0));
        let trial = start.fork().await;
        let actor = trial.actor();
        let catalog = timed(&trial, &actor, LEASE).await;
        actor.counter.reset();
        catalog.create_table("t", new.clone()).await.unwrap();
        let commit = actor.counter.log().iter().position(is_commit).unwrap();
        for lost in [Fault::Timeout, Fault::PermissionDenied] {
            let memory = start.fork().await;
            let actor = memory.actor();
            let catalog = timed(&memory, &actor, LEASE).await;
            actor.counter.reset();
            actor.faults.reset();
            actor.faults.fail_at(commit, When::After, lost);
            let counter = actor.counter.clone();
            let look = move |r: &Request| {
                let sent = counter.log().iter().any(is_commit);
                sent && !r.kind.is_write() && r.path.contains("/_versions")
            };
            actor.faults.fail_matching(look, Fault::PermissionDenied);
            let answer = catalog.create_table("t", new.clone()).await;
            let at = format!("over a drop: {over_a_drop}, {lost:?}");
            assert!(is_commit(&actor.counter.log()[commit]), "{at}");
            let error = answer.expect_err(&at);
            assert_eq!(error.kind(), ErrorKind::Storage, "{at}: {error:?}");

            memory.clock().unwrap().advance(LATER);
            let others = timed(&memory, &memory.actor(), LEASE).await;
            others.reconcile(false).await.unwrap();
            let version = 1 + u64::from(over_a_drop);
            let end = Stage::new(memory).end(&at).await;
            assert_eq!(end, State::Live(Table::of(0, version)), "{at}");
        }
    }
}

/// An open finds the latest version of a dropped table; then somebody creates over it; then the open reads the tombstone,
/// which is gone. What it found first was never visible.
#[tokio::test]
async fn an_open_that_found_a_version_while_it_was_hidden_looks_again() {
    let stage = Stage::new(dropped_by_a_clock().await.0);
    let catalog = stage.catalog(0).await;
    let open = stage.start(0, catalog.open_table("t").into_future());
    assert!(stage.next(0).await.is_some());
    let waiting = stage.gate.waiting();
    let lists = waiting.iter().position(|(_, r)| r.kind == Kind::List);
    let lists = lists.unwrap_or_else(|| panic!("it does not list beside: {waiting:?}"));
    assert!(waiting.contains(&(0, Request::new(Kind::Get, TOMBSTONE))));
    stage.gate.release_nth(0, lists);
    assert!(stage.next(0).await.is_some());

    let created = stage.others().await.create_table("t", rows(new_rows(1)));
    created.await.unwrap();
    stage.finish(0).await;
    stage.gate.open();
    let opened = open.await.unwrap().unwrap();
    assert_eq!(opened.version().version, 2);
    assert_eq!(ids(&opened).await, new_rows(1).collect::<Vec<_>>());
}

/// Stock clients go by the marker. However a drop or an undrop stops, a table that is live for us is live for them.
#[tokio::test]
async fn a_live_table_has_no_marker_wherever_a_drop_or_an_undrop_stops() {
    for undrop in [false, true] {
        let (start, _) = dropped_by_a_clock().await;
        if !undrop {
            let catalog = timed(&start, &start.actor(), LEASE).await;
            catalog.undrop_table("t").await.unwrap();
        }
        let (mut points, mut live) = (0, 0);
        'stopped: for n in 0.. {
            for when in [When::Before, When::After] {
                let memory = start.fork().await;
                let actor = memory.actor();
                let catalog = timed(&memory, &actor, LEASE).await;
                actor.faults.reset();
                actor.faults.crash_at(n, when);
                let outcome = match undrop {
                    false => catalog.drop_table("t").await,
                    true => catalog.undrop_table("t").await,
                };
                if !actor.faults.crashed() {
                    outcome.unwrap();
                    break 'stopped;
                }
                points += 1;
                let others = timed(&memory, &memory.actor(), LEASE).await;
                let status = others.table_status("t").await.unwrap();
                if status.is_live() {
                    live += 1;
                    let dump = memory.dump().await;
                    let at = format!("undrop: {undrop}, stopped {when:?} request {n}");
                    assert!(!dump.iter().any(|path| path == MARKER), "{at}");
                }
            }
        }
        println!("undrop: {undrop}: live at {live} of {points} points");
        assert!(live > 0 && live < points, "{live} of {points}");
    }
}

/// Also where nothing is to be kept, a drop deletes nothing: handles that were opened before go on until a purge.
#[tokio::test]
async fn a_drop_without_retention_takes_nothing_from_open_handles() {
    let memory = Start::Live.memory().await;
    let catalog = timed_by_the_wall(&memory).await;
    let opened = catalog.open_table("t").await.unwrap();
    let before = memory.dump().await;
    let drop = catalog.drop_table("t").retention(Duration::ZERO);
    drop.await.unwrap();
    assert_eq!(ids(&opened).await, OLD.collect::<Vec<_>>());
    let after = memory.dump().await;
    assert!(before.iter().all(|path| after.contains(path)), "{after:?}");
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, OLD.collect::<Vec<_>>());
}
