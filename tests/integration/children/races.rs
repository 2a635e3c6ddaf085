//! Case 5: independent catalogs, each with a session of its own, on one root at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;

use lancekeep::{Catalog, CreateMode, Error, ErrorKind, NamespaceIdent};
use tokio::sync::Barrier;

use super::{
    MANIFEST, Place, assert_kind, batch_of, make, numbers, patiently, read, rows_of, tables,
};
use crate::common::ids;

const ROUNDS: usize = 10;
const EIGHT: usize = 8;

pub(super) type Outcome = Result<Vec<i32>, Error>;

async fn catalogs(place: &Place, n: usize) -> Vec<Catalog> {
    let mut catalogs = Vec::new();
    for _ in 0..n {
        catalogs.push(place.catalog().await);
    }
    catalogs
}

/// All at once; contestant `n` gives its own rows.
async fn contest(catalogs: &[Catalog], ident: [&str; 2], mode: CreateMode) -> Vec<Outcome> {
    let start = Arc::new(Barrier::new(catalogs.len()));
    let ident = ident.map(str::to_string).to_vec();
    let mut tasks = Vec::new();
    for (n, catalog) in (0..).zip(catalogs) {
        let create = catalog.create_table(ident.clone(), batch_of(n)).mode(mode);
        let start = Arc::clone(&start);
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            match create.await {
                Ok(created) => Ok(ids(&created).await),
                Err(error) => Err(error),
            }
        }));
    }
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

/// Exactly one wins, the others are told that the table exists, or to try again: then they are told.
pub(super) async fn assert_one_winner(
    catalogs: &[Catalog],
    ident: [&str; 2],
    outcomes: Vec<Outcome>,
) {
    let mut winner = None;
    for (n, outcome) in (0..).zip(outcomes) {
        let outcome = match outcome {
            Err(error) if error.is_retryable() => {
                let catalog = &catalogs[usize::try_from(n).unwrap()];
                let created = patiently(|| catalog.create_table(ident, batch_of(n))).await;
                match created {
                    Ok(created) => Ok(ids(&created).await),
                    Err(error) => Err(error),
                }
            }
            outcome => outcome,
        };
        match outcome {
            Ok(rows) => {
                assert_eq!(winner, None, "two winners");
                assert_eq!(rows, numbers(rows_of(n)));
                winner = Some(rows);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TableAlreadyExists, "{error:?}");
            }
        }
    }
    let rows = winner.expect("nobody won");
    for catalog in catalogs {
        assert_eq!(read(catalog, ident).await, rows);
    }
}

/// Nothing of the losers is left; as many tables as there should be.
async fn assert_only(place: &Place, catalogs: &[Catalog], expected: &BTreeSet<String>) {
    let rows = place.assert_tidy(&[]).await;
    let registered = rows.iter().filter(|row| row.kind == "table").count();
    assert_eq!(registered, expected.len());
    for catalog in catalogs {
        let listed = tables(catalog, &["a"]).await;
        assert_eq!(listed, expected.iter().cloned().collect::<Vec<_>>());
    }
}

async fn same_table(place: &Place) {
    let pair = catalogs(place, 2).await;
    make(&pair[0], &[&["a"]]).await;
    let mut expected = BTreeSet::new();
    for round in 0..ROUNDS {
        let name = format!("t{round}");
        let ident = ["a", name.as_str()];
        // Every other time the table was declared before.
        if round % 2 == 1 {
            pair[round / 2 % 2].declare_table(ident).await.unwrap();
        }
        let outcomes = contest(&pair, ident, CreateMode::Create).await;
        for (n, outcome) in outcomes.iter().enumerate() {
            let told = outcome.as_ref().map(Vec::len).map_err(Error::kind);
            println!("round {round}, catalog {n}: {told:?}");
        }
        assert_one_winner(&pair, ident, outcomes).await;
        expected.insert(name);
        assert_only(place, &pair, &expected).await;
    }
}

on_both!(same_table: lance_6143_two_create_the_same_table_on_local_disk,
    lance_6143_two_create_the_same_table_in_memory);

async fn eight_same_table(place: &Place) {
    let eight = catalogs(place, EIGHT).await;
    make(&eight[0], &[&["a"]]).await;
    let mut expected = BTreeSet::new();
    for name in ["t0", "t1"] {
        let outcomes = contest(&eight, ["a", name], CreateMode::Create).await;
        assert_one_winner(&eight, ["a", name], outcomes).await;
        expected.insert(name.to_string());
        assert_only(place, &eight, &expected).await;
    }
}

on_both!(eight_same_table: lance_6143_eight_create_the_same_table_on_local_disk,
    lance_6143_eight_create_the_same_table_in_memory);
on_servers!(eight_same_table:
    lance_6143_eight_create_the_same_table_on_s3,
    lance_6143_eight_create_the_same_table_on_azure);

/// Who only wants a table to be there gets it, whoever made it; who overwrites overwrites, or is told to try again.
async fn other_modes(place: &Place) {
    let pair = catalogs(place, 2).await;
    make(&pair[0], &[&["a"]]).await;
    for round in 0..ROUNDS / 2 {
        let name = format!("e{round}");
        let ident = ["a", name.as_str()];
        for outcome in contest(&pair, ident, CreateMode::ExistOk).await {
            let rows = match outcome {
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    let again = || {
                        let create = pair[0].create_table(ident, batch_of(9));
                        create.mode(CreateMode::ExistOk)
                    };
                    ids(&patiently(again).await.unwrap()).await
                }
                Ok(rows) => rows,
            };
            assert_eq!(rows, read(&pair[1], ident).await);
            assert!([numbers(rows_of(0)), numbers(rows_of(1))].contains(&rows));
        }
        let name = format!("o{round}");
        let ident = ["a", name.as_str()];
        let outcomes = contest(&pair, ident, CreateMode::Overwrite).await;
        let mut wins = 0;
        for outcome in &outcomes {
            match outcome {
                Ok(_) => wins += 1,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
        assert!(wins >= 1, "{outcomes:?}");
        let rows = read(&pair[0], ident).await;
        assert!(outcomes.iter().flatten().any(|won| *won == rows));
    }
    place.assert_tidy(&[]).await;
}

on_both!(other_modes: lance_6143_two_create_in_other_modes_on_local_disk,
    lance_6143_two_create_in_other_modes_in_memory);

async fn different_tables(place: &Place) {
    let eight = catalogs(place, EIGHT).await;
    make(&eight[0], &[&["a"]]).await;
    let mut expected = BTreeSet::new();
    for (round, contestants) in [2, 2, 2, EIGHT].into_iter().enumerate() {
        let start = Arc::new(Barrier::new(contestants));
        let mut tasks = Vec::new();
        for (n, catalog) in (0..).zip(eight[..contestants].iter().cloned()) {
            let name = format!("t{round}_{n}");
            expected.insert(name.clone());
            let start = Arc::clone(&start);
            tasks.push(tokio::spawn(async move {
                start.wait().await;
                let ident = ["a", name.as_str()];
                let mut refused = 0;
                let created = patiently(|| {
                    refused += 1;
                    catalog.create_table(ident, batch_of(n))
                });
                let created = created.await.unwrap();
                assert_eq!(ids(&created).await, numbers(rows_of(n)));
                (name, n, refused - 1)
            }));
        }
        for task in tasks {
            let (name, n, refused) = task.await.unwrap();
            println!("round {round}: {name} was told {refused} times to try again");
            assert_eq!(
                read(&eight[7], ["a", name.as_str()]).await,
                numbers(rows_of(n))
            );
        }
        assert_only(place, &eight[..2], &expected).await;
    }
}

on_both!(different_tables: lance_5983_different_tables_in_one_namespace_on_local_disk,
    lance_5983_different_tables_in_one_namespace_in_memory);

/// The very first use of a root, by all at once.
async fn first_use(place: &Place, contestants: usize) {
    let all = catalogs(place, contestants).await;
    let start = Arc::new(Barrier::new(contestants));
    let mut tasks = Vec::new();
    for (n, catalog) in all.iter().cloned().enumerate() {
        let start = Arc::clone(&start);
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            let name = format!("n{n}");
            let made = patiently(|| {
                let create = catalog.create_namespace(name.as_str());
                create.property("made by", n.to_string())
            });
            made.await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let names: Vec<String> = (0..contestants).map(|n| format!("n{n}")).collect();
    let rows = place.assert_tidy(&[]).await;
    let found: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(found, names);
    for catalog in &all {
        let listed = catalog.list_namespaces(NamespaceIdent::root()).await;
        assert_eq!(listed.unwrap(), names);
        for (n, name) in names.iter().enumerate() {
            let described = catalog.describe_namespace(name).await.unwrap();
            assert_eq!(described.properties["made by"], n.to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_5909_first_use_by_two_on_local_disk() {
    for _ in 0..ROUNDS {
        first_use(&Place::on_disk(), 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_5909_first_use_by_two_in_memory() {
    for _ in 0..ROUNDS {
        first_use(&Place::in_memory(), 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_5909_first_use_by_eight_on_local_disk() {
    for _ in 0..2 {
        first_use(&Place::on_disk(), EIGHT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_5909_first_use_by_eight_in_memory() {
    for _ in 0..2 {
        first_use(&Place::in_memory(), EIGHT).await;
    }
}

/// The same namespace by all at once on a fresh root: one makes it, the others are told.
async fn first_use_same_name(place: &Place) {
    let all = catalogs(place, 4).await;
    let start = Arc::new(Barrier::new(all.len()));
    let mut tasks = Vec::new();
    for (n, catalog) in all.iter().cloned().enumerate() {
        let start = Arc::clone(&start);
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            patiently(|| {
                let create = catalog.create_namespace("a");
                create.property("made by", n.to_string())
            })
            .await
        }));
    }
    let mut winner = None;
    for (n, task) in tasks.into_iter().enumerate() {
        match task.await.unwrap() {
            Ok(_) => assert_eq!(winner.replace(n.to_string()), None, "two winners"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NamespaceAlreadyExists),
        }
    }
    let described = all[0].describe_namespace("a").await.unwrap();
    assert_eq!(Some(&described.properties["made by"]), winner.as_ref());
    assert_eq!(place.assert_tidy(&[]).await.len(), 1);
}

on_both!(first_use_same_name: lance_5909_first_use_for_the_same_name_on_local_disk,
    lance_5909_first_use_for_the_same_name_in_memory);
on_servers!(first_use_same_name:
    lance_5909_first_use_for_the_same_name_on_s3,
    lance_5909_first_use_for_the_same_name_on_azure);

/// A drop of a table that another catalog reads, creates again, and drops again.
async fn drops_and_creates(place: &Place) {
    let pair = catalogs(place, 2).await;
    make(&pair[0], &[&["a"]]).await;
    let t = ["a", "t"];
    for round in 0..ROUNDS {
        pair[round % 2].create_table(t, batch_of(0)).await.unwrap();
        let start = Arc::new(Barrier::new(2));
        let tasks = [0, 1].map(|n| {
            let (catalog, start) = (pair[n].clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                patiently(|| catalog.drop_table(t)).await
            })
        });
        let mut dropped = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => dropped += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::TableNotFound, "{error}"),
            }
        }
        // Two of them take away the same row: at least one has done it.
        assert!(dropped >= 1);
        for catalog in &pair {
            assert_kind(catalog.open_table(t).await, ErrorKind::TableNotFound);
        }
        place.assert_tidy(&[]).await;
        assert!(place.entries().await.contains(MANIFEST));
    }
}

on_both!(drops_and_creates: two_drop_the_same_child_on_local_disk,
    two_drop_the_same_child_in_memory);
on_servers!(drops_and_creates: two_drop_the_same_child_on_s3, two_drop_the_same_child_on_azure);
