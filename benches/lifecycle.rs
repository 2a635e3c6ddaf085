//! Drop, undrop and purge of tables of several sizes, in memory.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use lancekeep::Catalog;
use tokio::runtime::Runtime;

use crate::common::{TABLE, catalog, of_files, runtime};
use crate::support::SharedMemory;

mod common;
#[path = "../tests/support/mod.rs"]
mod support;

const FILES: [usize; 3] = [1, 100, 5_000];

/// A catalog on a copy, with the table dropped if asked for.
fn ready(runtime: &Runtime, memory: &SharedMemory, dropped: bool) -> Catalog {
    runtime.block_on(async {
        let catalog = catalog(&memory.fork().await, false).await;
        if dropped {
            catalog.drop_table(TABLE).await.unwrap();
        }
        catalog
    })
}

fn lifecycle(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("lifecycle");
    for files in FILES {
        let memory = runtime.block_on(of_files(files));
        group.bench_function(BenchmarkId::new("drop", files), |b| {
            b.iter_batched(
                || ready(&runtime, &memory, false),
                |catalog| runtime.block_on(async { catalog.drop_table(TABLE).await.unwrap() }),
                BatchSize::PerIteration,
            );
        });
        group.bench_function(BenchmarkId::new("undrop", files), |b| {
            b.iter_batched(
                || ready(&runtime, &memory, true),
                |catalog| runtime.block_on(async { catalog.undrop_table(TABLE).await.unwrap() }),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
    let mut group = c.benchmark_group("purge");
    for files in FILES {
        let memory = runtime.block_on(of_files(files));
        group.throughput(Throughput::Elements(files as u64));
        group.bench_function(BenchmarkId::new("purge", files), |b| {
            b.iter_batched(
                || ready(&runtime, &memory, true),
                |catalog| runtime.block_on(async { catalog.purge_table(TABLE).await.unwrap() }),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = lifecycle
}
criterion_main!(benches);
