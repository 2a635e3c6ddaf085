//! Appends of one row: alone, and by several writers at once, each with a session and a handle of its own.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use lancekeep::arrow::array::RecordBatchIterator;
use lancekeep::lance::Dataset;
use object_store::path::Path;
use object_store::{PutMode, PutOptions, PutPayload};
use tokio::task::JoinSet;

use crate::contestants::{DATASET, FLOOR, OURS, STORE, STORE_OVER_OURS, dataset, managed, stored};
use crate::measure::{Contestant, Group, Place, Root, compare, take_turns, timed};
use crate::roots::{self, TABLE, rows};
use crate::sizes::Sizes;

pub(crate) const ALONE: &str = "one managed commit";
pub(crate) const TOGETHER: &str = "managed commits of several writers";
pub(crate) const CROWD: &str = "managed commits of a crowd";

/// How often a writer begins anew where Lance gave up.
const ATTEMPTS: usize = 50;

/// Gives a handle, as a process of its own.
type Open = Arc<dyn Fn(Root) -> BoxFuture<'static, Dataset> + Send + Sync>;

fn open<F>(how: impl Fn(Root) -> F + Send + Sync + 'static) -> Open
where
    F: Future<Output = Dataset> + Send + 'static,
{
    Arc::new(move |root| how(root).boxed())
}

fn handles() -> Vec<(&'static str, Open)> {
    let ours = |root: Root| async move {
        let catalog = managed(&root).await;
        catalog.open_table(TABLE).await.unwrap()
    };
    vec![
        (OURS, open(ours)),
        (
            STORE,
            open(|root| async move { stored(&root, TABLE, false).await }),
        ),
        (
            STORE_OVER_OURS,
            open(|root| async move { stored(&root, TABLE, true).await }),
        ),
        (
            DATASET,
            open(|root| async move { dataset(&root, TABLE).await }),
        ),
    ]
}

fn is_conflict(error: &lance_core::Error) -> bool {
    use lance_core::Error as E;
    matches!(
        error,
        E::CommitConflict { .. }
            | E::RetryableCommitConflict { .. }
            | E::TooMuchWriteContention { .. }
            | E::IncompatibleTransaction { .. }
    )
}

async fn append(dataset: &mut Dataset) -> lance_core::Result<()> {
    let batch = rows(1);
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    dataset.append(reader, None).await
}

async fn append_stubbornly(dataset: &mut Dataset, open: &Open, root: &Root) {
    for _ in 0..ATTEMPTS {
        match append(dataset).await {
            Ok(()) => return,
            Err(error) if is_conflict(&error) => *dataset = open(root.clone()).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{ATTEMPTS} conflicts");
}

fn alone(name: &str, open: Open) -> Contestant {
    Contestant::new(name, move |root| {
        let open = open.clone();
        async move {
            let mut dataset = open(root).await;
            timed(async move { append(&mut dataset).await.unwrap() })
        }
    })
}

/// One object, put where none is, which is the least that a commit is.
fn one_put() -> Contestant {
    Contestant::new(FLOOR, |root| async move {
        let store = root.bare();
        timed(async move {
            let (path, content) = (Path::from("root/new"), PutPayload::from_static(b"x"));
            let create = PutOptions::from(PutMode::Create);
            drop(store.put_opts(&path, content, create).await.unwrap());
        })
    })
}

fn together(name: &str, open: Open, writers: usize, appends: usize) -> Contestant {
    Contestant::new(name, move |root| {
        let open = open.clone();
        async move {
            let mut ready = Vec::new();
            for _ in 0..writers {
                let root = root.another();
                ready.push((open(root.clone()).await, root));
            }
            timed(async move {
                let mut tasks = JoinSet::new();
                for (mut dataset, root) in ready {
                    let open = open.clone();
                    tasks.spawn(async move {
                        for _ in 0..appends {
                            append_stubbornly(&mut dataset, &open, &root).await;
                        }
                    });
                }
                tasks.join_all().await;
            })
        }
    })
}

pub(crate) async fn all(sizes: &Sizes) -> Vec<Group> {
    let mut groups = Vec::new();
    let disk = tempfile::tempdir().unwrap();
    roots::table_on_disk(disk.path(), 1).await;
    let places = [
        Place::Slow(roots::table_in_memory(1).await),
        Place::Copies(disk.path().to_path_buf()),
    ];
    for place in &places {
        let mut contestants: Vec<Contestant> = handles()
            .into_iter()
            .map(|(name, open)| alone(name, open))
            .collect();
        if let Place::Slow(_) = place {
            contestants.push(one_put());
        }
        let title = (ALONE, 1, "writer");
        groups.push(compare(title, place, sizes.repetitions, contestants).await);
    }
    let (writers, appends) = sizes.crowd;
    let crowds = sizes.writers.iter().map(|w| (TOGETHER, *w, sizes.appends));
    for (workload, writers, appends) in crowds.chain([(CROWD, writers, appends)]) {
        for place in &places {
            let contestants: Vec<Contestant> = handles()
                .into_iter()
                .map(|(name, open)| together(name, open, writers, appends))
                .collect();
            let title = (workload, writers, "writers");
            // Chance decides who wins, so there are many turns where they are short.
            let turns = sizes.repetitions * 4;
            let mut group = take_turns(title, place, turns, &contestants).await;
            group.each_second(writers * appends, "commits");
            groups.push(group);
        }
    }
    groups
}
