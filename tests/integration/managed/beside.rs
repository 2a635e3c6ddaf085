//! The look for a drop that a commit makes beside Lance's own listing: what it may rest on, and what not.

use std::sync::Arc;
use std::time::Duration;

use lance_namespace::ErrorCode;
use lancekeep::lance::dataset::{
    CommitBuilder, Dataset, InsertBuilder, WriteDestination, WriteMode, WriteParams,
};

use super::{LanceResult, NO_HURRY, append, code_of, managed_in};
use crate::common::{rows, table_ids, write_plainly};
use crate::support::{Actor, Fault, Gate, Kind, Request, SharedMemory, StoreClock};

/// What a handle does after an append of it has stopped.
#[derive(Debug, Clone, Copy)]
enum Then {
    Append,
    /// Without a listing by Lance, which it makes for whatever can be built on another version.
    StrictOverwrite,
    Overwrite,
}

async fn act(table: &mut Dataset, then: Then, id: i32) -> LanceResult<()> {
    let attempts = match then {
        Then::Append => return append(table, [id]).await,
        Then::StrictOverwrite => 0,
        Then::Overwrite => 3,
    };
    let to = || WriteDestination::Dataset(Arc::new(table.clone()));
    let params = WriteParams {
        mode: WriteMode::Overwrite,
        ..Default::default()
    };
    let written = InsertBuilder::new(to())
        .with_params(&params)
        .execute_uncommitted(vec![rows([id])])
        .await?;
    let commit = CommitBuilder::new(to()).with_max_retries(attempts);
    commit.execute(written).await.map(drop)
}

async fn versions(memory: &SharedMemory) -> Vec<String> {
    let mut found = memory.dump().await;
    found.retain(|path| path.ends_with(".manifest"));
    found
}

/// Makes an append of the handle stop after its look, before it comes to its commit.
async fn stop_after_the_look(table: &mut Dataset, actor: &Actor) {
    actor.counter.reset();
    let of_transaction = |r: &Request| r.path.contains("_transactions/") && r.kind != Kind::Get;
    actor
        .faults
        .fail_matching(of_transaction, Fault::PermissionDenied);
    append(table, [7]).await.unwrap_err();
    actor.faults.clear();
    let log = actor.counter.log();
    assert!(log.iter().any(|r| r.path.ends_with(".deleted")), "{log:?}");
    assert!(
        !log.iter()
            .any(|r| r.path.ends_with(".manifest") && r.kind == Kind::PutCreate)
    );
}

/// A look is that of one attempt: whatever the handle does next looks itself, however little time has passed.
#[tokio::test]
async fn a_look_serves_no_later_commit() {
    for then in [Then::Append, Then::StrictOverwrite, Then::Overwrite] {
        let memory = SharedMemory::new();
        let others = managed_in(&memory.actor(), NO_HURRY).await;
        others.create_table("t", rows([0])).await.unwrap();
        let actor = memory.actor();
        let catalog = managed_in(&actor, NO_HURRY).await;
        let mut table = catalog.open_table("t").await.unwrap();
        stop_after_the_look(&mut table, &actor).await;
        let before = versions(&memory).await;
        others.drop_table("t").await.unwrap();
        let refused = act(&mut table, then, 8).await;
        let refused = refused.expect_err("a commit to a dropped table");
        let code = code_of(&refused);
        assert_eq!(
            code,
            Some(ErrorCode::InvalidTableState),
            "{then:?}: {refused}"
        );
        assert_eq!(versions(&memory).await, before, "{then:?}");
        others.undrop_table("t").await.unwrap();
        act(&mut table, then, 9).await.unwrap();
        let expected: &[i32] = match then {
            Then::Append => &[0, 9],
            Then::StrictOverwrite | Then::Overwrite => &[9],
        };
        assert_eq!(table_ids(&others, "t").await, expected, "{then:?}");
    }
}

/// Nor one whose listing has no look beside it, as that of a handle which began hundreds of versions ago.
#[tokio::test]
async fn a_listing_without_a_look_leaves_none() {
    let memory = SharedMemory::new();
    let others = managed_in(&memory.actor(), NO_HURRY).await;
    let mut theirs = others.create_table("t", rows([0])).await.unwrap();
    let actor = memory.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    let mut table = catalog.open_table("t").await.unwrap();
    for n in 0..510 {
        let config = [("n".to_string(), Some(n.to_string()))];
        theirs.update_config(config).await.unwrap();
    }
    stop_after_the_look(&mut table, &actor).await;
    table.checkout_latest().await.unwrap();
    assert_eq!(table.version().version, 511);
    let before = versions(&memory).await;
    others.drop_table("t").await.unwrap();
    let refused = append(&mut table, [8]).await;
    let refused = refused.expect_err("a commit to a dropped table");
    let code = code_of(&refused);
    assert_eq!(code, Some(ErrorCode::InvalidTableState), "{refused}");
    assert_eq!(versions(&memory).await, before);
    others.undrop_table("t").await.unwrap();
    append(&mut table, [9]).await.unwrap();
    assert_eq!(table_ids(&others, "t").await, [0, 9]);
}

/// The first version of a branch comes without a listing: it does not rest on the look of an earlier branch of the name.
#[tokio::test]
async fn a_look_serves_no_later_branch() {
    let memory = SharedMemory::new();
    let others = managed_in(&memory.actor(), NO_HURRY).await;
    let mut theirs = others.create_table("t", rows([0])).await.unwrap();
    let actor = memory.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    let mut table = catalog.open_table("t").await.unwrap();
    let mut branch = table.create_branch("b", 1, None).await.unwrap();
    append(&mut branch, [1]).await.unwrap();
    stop_after_the_look(&mut branch, &actor).await;
    for n in 0..2 {
        append(&mut theirs, [10 + n]).await.unwrap();
    }
    theirs.delete_branch("b").await.unwrap();
    table.checkout_latest().await.unwrap();
    let before = versions(&memory).await;
    others.drop_table("t").await.unwrap();
    table.create_branch("b", 3, None).await.unwrap_err();
    assert_eq!(versions(&memory).await, before);
}

/// Before a handle has looked lately, the listing waits for the look: what is listed of a dropped table may be one that a
/// purge takes away while the look comes.
#[tokio::test]
async fn the_listing_waits_for_a_first_look() {
    let memory = SharedMemory::new();
    let window = Duration::from_secs(8);
    let others = managed_in(&memory.actor(), window).await;
    others.create_table("t", rows([0])).await.unwrap();
    let gate = Gate::new();
    let slow = managed_in(&memory.actor_at_gate(&gate, 0), window).await;
    gate.open();
    let mut table = slow.open_table("t").await.unwrap();
    gate.close();
    for (pause, beside) in [(window / 2, false), (Duration::ZERO, true)] {
        tokio::time::pause();
        tokio::time::advance(pause).await;
        tokio::time::resume();
        let mut same = table.clone();
        let commit = gate.run(0, async move {
            append(&mut same, [1]).await.unwrap();
            same
        });
        let commit = tokio::spawn(commit);
        loop {
            gate.wait_until_blocked(&[0]).await;
            let waiting = gate.waiting();
            if waiting.iter().any(|(_, r)| r.path.ends_with(".deleted")) {
                let lists = waiting.iter().any(|(_, r)| r.kind == Kind::List);
                assert_eq!(lists, beside, "{waiting:?}");
                break;
            }
            gate.release(0);
        }
        gate.open();
        table = commit.await.unwrap();
        gate.close();
    }
    assert_eq!(table_ids(&others, "t").await, [0, 1, 1]);
}

/// A table as a catalog or a stock client makes it, in so many versions of a row each.
async fn build(memory: &SharedMemory, stock: bool, ids: std::ops::Range<i32>) {
    let actor = memory.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    let mut ids = ids;
    let first = ids.next().unwrap();
    let mut table = match stock {
        true => {
            let params = WriteParams {
                session: Some(actor.session.clone()),
                ..Default::default()
            };
            write_plainly("memory://root/t.lance", [first], params).await;
            catalog.open_table("t").await.unwrap()
        }
        false => catalog.create_table("t", rows([first])).await.unwrap(),
    };
    for id in ids {
        append(&mut table, [id]).await.unwrap();
    }
}

/// The listing shows the versions of another table of the name: its tags are others, however often the handle looks.
#[tokio::test]
async fn a_handle_of_an_earlier_table_sees_that_in_the_listing() {
    for stock in [false, true] {
        for versions_now in 1..5 {
            let clock = StoreClock::default();
            let memory = SharedMemory::with_clock(clock.clone());
            build(&memory, stock, 0..3).await;
            let actor = memory.actor();
            let mut table = managed_in(&actor, NO_HURRY)
                .await
                .open_table("t")
                .await
                .unwrap();
            let others = managed_in(&memory.actor(), NO_HURRY).await;
            others.drop_table("t").await.unwrap();
            clock.advance(NO_HURRY * 2);
            others.purge_table("t").await.unwrap();
            build(&memory, stock, 100..100 + versions_now).await;
            let before = versions(&memory).await;
            for id in [7, 8] {
                actor.counter.reset();
                append(&mut table, [id]).await.unwrap_err();
                assert_eq!(
                    actor.counter.of(Kind::PutCreate),
                    0,
                    "{versions_now}, {stock}"
                );
            }
            assert_eq!(versions(&memory).await, before);
            let kept: Vec<i32> = (100..100 + versions_now).collect();
            assert_eq!(table_ids(&others, "t").await, kept);
        }
    }
}

/// Commits of clones of one handle take each other's looks, and lose nothing for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_of_a_handle_commit_side_by_side() {
    let memory = SharedMemory::new();
    build(&memory, false, 0..1).await;
    let actor = memory.actor_with_latency(Duration::from_millis(5));
    let catalog = managed_in(&actor, NO_HURRY).await;
    let table = catalog.open_table("t").await.unwrap();
    let appends = (1..=4).map(|writer| {
        let mut table = table.clone();
        async move {
            for n in 0..5 {
                append(&mut table, [writer * 10 + n]).await.unwrap();
            }
        }
    });
    futures::future::join_all(appends).await;
    let mut expected: Vec<i32> = (1..=4)
        .flat_map(|w| (0..5).map(move |n| w * 10 + n))
        .collect();
    expected.insert(0, 0);
    assert_eq!(table_ids(&catalog, "t").await, expected);
    assert_eq!(versions(&memory).await.len(), 21);
}
