//! Commits with and without managed versioning, and looking for versions, in memory.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

use lancekeep::arrow::array::RecordBatchIterator;
use lancekeep::lance::Dataset;

use crate::common::{TABLE, among, catalog, rows, runtime};
use crate::support::SharedMemory;

mod common;
#[path = "../tests/support/mod.rs"]
mod support;

const VERSIONS: [usize; 3] = [10, 100, 1_000];

async fn append(mut dataset: Dataset) -> Dataset {
    let batch = rows(1);
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    dataset.append(reader, None).await.unwrap();
    dataset
}

fn commit(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("append");
    let memory = runtime.block_on(among(0));
    for (name, managed) in [("managed", true), ("unmanaged", false)] {
        let open = || async {
            let catalog = catalog(&memory.fork().await, managed).await;
            catalog.open_table(TABLE).await.unwrap()
        };
        group.bench_function(name, |b| {
            b.iter_batched(
                || runtime.block_on(open()),
                |dataset| runtime.block_on(append(dataset)),
                BatchSize::PerIteration,
            );
        });
    }
}

/// The table of [`among`], in so many versions.
async fn with_versions(versions: usize) -> SharedMemory {
    let memory = among(0).await;
    let catalog = catalog(&memory, false).await;
    let mut dataset = catalog.open_table(TABLE).await.unwrap();
    for _ in 1..versions {
        dataset = append(dataset).await;
    }
    memory
}

fn versions(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("versions");
    for versions in VERSIONS {
        let memory = runtime.block_on(with_versions(versions));
        let catalog = runtime.block_on(catalog(&memory, true));
        group.bench_function(BenchmarkId::new("latest", versions), |b| {
            b.iter(|| runtime.block_on(catalog.latest_version(TABLE)).unwrap());
        });
        group.bench_function(BenchmarkId::new("describe", versions), |b| {
            b.iter(|| {
                runtime
                    .block_on(catalog.describe_version(TABLE, 2))
                    .unwrap()
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = commit, versions
}
criterion_main!(benches);
