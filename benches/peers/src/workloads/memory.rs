//! The most memory that listing many tables and purging a large table take, each in a process of its own.
//!
//! What is told is how far the resident memory rose above what it was when everything was ready (Linux's `VmHWM`, which
//! is set back then). The listing is of local disk. The purge is of a memory store, whose own objects are resident before it
//! and whose listing makes a list of all of them, for everybody: the floor shows that.

use std::fs;
use std::path::Path as FilePath;
use std::process::Command;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;

use crate::contestants::{DIRECTORY, FLOOR, LANCEDB, OURS, catalog, directory, lancedb, parts};
use crate::measure::{Figure, Group, Place, Root, Timed, timed};
use crate::roots::{self, TABLE};
use crate::sizes::Sizes;
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{DropTableRequest, ListTablesRequest};

/// The argument with which this program is its own child.
pub(crate) const CHILD: &str = "--memory-of";

pub(crate) const LIST: &str = "memory of listing";
pub(crate) const PURGE: &str = "memory of a purge";
pub(crate) const STREAM: &str = "lancekeep, stream";

async fn listing(contestant: &str, root: Root) -> Timed {
    match contestant {
        OURS => {
            let catalog = catalog(&root).await;
            timed(async move { drop(catalog.table_names().await.unwrap()) })
        }
        STREAM => {
            let catalog = catalog(&root).await;
            timed(async move {
                let mut names = catalog.list_tables().stream();
                while let Some(name) = names.try_next().await.unwrap() {
                    drop(name);
                }
            })
        }
        DIRECTORY => {
            let namespace = directory(&root, false).await;
            let request = ListTablesRequest {
                id: Some(Vec::new()),
                ..Default::default()
            };
            timed(async move { drop(namespace.list_tables(request).await.unwrap()) })
        }
        LANCEDB => {
            let connection = lancedb(&root).await;
            timed(async move { drop(connection.table_names().execute().await.unwrap()) })
        }
        _ => timed(async move {
            let names = fs::read_dir(&root.uri).unwrap();
            drop(names.map(|e| e.unwrap().file_name()).collect::<Vec<_>>());
        }),
    }
}

async fn purge(contestant: &str, root: Root) -> Timed {
    match contestant {
        OURS => {
            let catalog = catalog(&root).await;
            catalog.drop_table(TABLE).await.unwrap();
            timed(async move { drop(catalog.purge_table(TABLE).await.unwrap()) })
        }
        DIRECTORY => {
            let namespace = directory(&root, false).await;
            let request = DropTableRequest {
                id: Some(parts(&[TABLE])),
                ..Default::default()
            };
            timed(async move { drop(namespace.drop_table(request).await.unwrap()) })
        }
        LANCEDB => {
            let connection = lancedb(&root).await;
            timed(async move { connection.drop_table(TABLE, &[]).await.unwrap() })
        }
        _ => {
            let store = root.bare();
            timed(async move {
                let table = Path::from(format!("root/{TABLE}.lance"));
                let all = store.list(Some(&table)).map_ok(|m| m.location).boxed();
                let mut deleted = store.delete_stream(all);
                while let Some(path) = deleted.try_next().await.unwrap() {
                    drop(path);
                }
            })
        }
    }
}

/// In KiB.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Does one job for the parent and prints what was resident before, and what at most.
pub(crate) async fn child(told: &[String]) {
    let [job, contestant, what] = told else {
        panic!("{CHILD} JOB CONTESTANT WHAT, not {told:?}");
    };
    let operation = match job.as_str() {
        "list" => {
            let place = Place::Disk(FilePath::new(what).to_path_buf());
            listing(contestant, place.root(Duration::ZERO).await).await
        }
        _ => {
            let memory = roots::table_in_memory(what.parse().unwrap()).await;
            purge(contestant, Root::in_memory(memory, Duration::ZERO)).await
        }
    };
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmHWM:");
    operation.await;
    println!("{before} {}", status("VmHWM:"));
}

/// What a child tells, in KiB: before, and at most.
fn ask(job: &str, contestant: &str, what: &str) -> (u64, u64) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args([CHILD, job, contestant, what])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let mut numbers = told.split_whitespace().map(|n| n.parse::<u64>().unwrap());
    match (numbers.next(), numbers.next()) {
        (Some(before), Some(most)) => (before, most),
        _ => panic!("{contestant}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn figure(job: &str, contestant: &str, what: &str) -> Figure {
    let (before, most) = ask(job, contestant, what);
    let mib = |kib: u64| kib as f64 / 1024.0;
    let (rise, before) = (mib(most.saturating_sub(before)), mib(before));
    Figure {
        peak: Some(rise),
        remark: Some(format!("peak {rise:.1} MiB above {before:.0} MiB")),
        ..Figure::of(contestant)
    }
}

pub(crate) async fn all(sizes: &Sizes) -> Vec<Group> {
    let count = sizes.in_memory;
    let disk = tempfile::tempdir().unwrap();
    roots::tables_on_disk(disk.path(), count, false).await;
    let root = disk.path().to_str().unwrap();
    let listings = [OURS, STREAM, LANCEDB, DIRECTORY, FLOOR];
    let purges = [OURS, LANCEDB, DIRECTORY, FLOOR];
    let objects = count.to_string();
    vec![
        Group {
            workload: LIST,
            size: count,
            of: "tables",
            place: "local disk",
            figures: listings.map(|c| figure("list", c, root)).to_vec(),
        },
        Group {
            workload: PURGE,
            size: count,
            of: "objects",
            place: "memory store",
            figures: purges.map(|c| figure("purge", c, &objects)).to_vec(),
        },
    ]
}
