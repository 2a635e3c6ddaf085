//! Listing, looking, opening and creating, in memory and on local disk: what the catalog itself takes.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

use lancekeep::Catalog;

use crate::common::{TABLE, among, catalog, on_disk, rows, runtime};

mod common;
#[path = "../tests/support/mod.rs"]
mod support;

const TABLES: [usize; 3] = [100, 1_000, 10_000];
const PAGE: usize = 100;

fn list(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("list");
    for tables in TABLES {
        let memory = runtime.block_on(among(tables));
        let disk = tempfile::tempdir().unwrap();
        on_disk(disk.path(), tables);
        let root = disk.path().to_str().unwrap();
        let places = [
            ("memory", runtime.block_on(catalog(&memory, false))),
            ("disk", runtime.block_on(Catalog::connect(root)).unwrap()),
        ];
        for (place, catalog) in &places {
            group.bench_function(BenchmarkId::new(format!("all, {place}"), tables), |b| {
                b.iter(|| runtime.block_on(catalog.table_names()).unwrap());
            });
            group.bench_function(BenchmarkId::new(format!("page, {place}"), tables), |b| {
                let page = || async { catalog.list_tables().limit(PAGE).await.unwrap() };
                b.iter(|| runtime.block_on(page()));
            });
        }
    }
}

fn one(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("one table");
    for others in TABLES {
        let memory = runtime.block_on(among(others));
        let warm = runtime.block_on(catalog(&memory, false));
        group.bench_function(BenchmarkId::new("status", others), |b| {
            b.iter(|| runtime.block_on(warm.table_status(TABLE)).unwrap());
        });
        group.bench_function(BenchmarkId::new("exists", others), |b| {
            b.iter(|| runtime.block_on(warm.table_exists(TABLE)).unwrap());
        });
        // With empty caches, as a process does it the first time.
        group.bench_function(BenchmarkId::new("open", others), |b| {
            b.iter_batched(
                || runtime.block_on(catalog(&memory, false)),
                |catalog| runtime.block_on(async { catalog.open_table(TABLE).await.unwrap() }),
                BatchSize::PerIteration,
            );
        });
    }
}

fn create(c: &mut Criterion) {
    let runtime = runtime();
    let memory = runtime.block_on(among(0));
    c.bench_function("create", |b| {
        b.iter_batched(
            || runtime.block_on(async { catalog(&memory.fork().await, false).await }),
            |catalog| {
                runtime.block_on(async { catalog.create_table("new", rows(3)).await.unwrap() })
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = list, one, create
}
criterion_main!(benches);
