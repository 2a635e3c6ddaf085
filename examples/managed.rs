//! Managed versioning: two writers of one table, a drop in the middle, the commit that it refuses, and the undrop.
//!
//! `cargo run --example managed [directory]`; without a directory a temporary one is used and removed.

#![allow(clippy::print_stdout)] // It is a program: printing is what it does.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lancekeep::Catalog;
use lancekeep::arrow::array::{Int32Array, RecordBatch, RecordBatchIterator};
use lancekeep::lance::dataset::Dataset;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let (root, temporary) = match std::env::args().nth(1) {
        Some(dir) => (PathBuf::from(dir), None),
        None => {
            let dir = tempfile::tempdir()?;
            (dir.path().to_path_buf(), Some(dir))
        }
    };
    run(&root).await?;
    if let Some(dir) = temporary {
        dir.close()?;
    }
    Ok(())
}

/// As two processes would: each has a catalog of its own.
async fn connect(root: &str) -> Result<Catalog> {
    Ok(Catalog::builder(root)
        .managed_versioning(true)
        .build()
        .await?)
}

async fn run(root: &Path) -> Result<()> {
    let root = root.to_str().ok_or("the directory's name is not UTF-8")?;
    let (alice, bob) = (connect(root).await?, connect(root).await?);

    let mut by_alice = alice.create_table("events", batch(0..3)?).await?;
    let mut by_bob = bob.open_table("events").await?;
    append(&mut by_alice, 3..5).await?;
    append(&mut by_bob, 5..8).await?;
    println!(
        "two writers: version {}, {} rows",
        by_bob.version().version,
        by_bob.count_rows(None).await?
    );

    // Bob has it open still. He can read on, and not write.
    alice.drop_table("events").reason("by mistake").await?;
    println!(
        "alice dropped it; bob still reads {} rows",
        by_bob.count_rows(None).await?
    );
    match append(&mut by_bob, 8..10).await {
        Ok(()) => return Err("a commit to a dropped table was accepted".into()),
        Err(refused) => println!("bob's commit is refused: {refused}"),
    }

    alice.undrop_table("events").await?;
    let restored = alice.open_table("events").await?;
    println!(
        "after the undrop: {} rows, as before",
        restored.count_rows(None).await?
    );
    append(&mut by_bob, 8..10).await?;
    println!("bob's next commit: version {}", by_bob.version().version);

    println!("history:");
    for version in bob.list_versions("events").await? {
        let created = version.created_at.map(|t| t.to_rfc3339());
        let name = version.path.rsplit('/').next().unwrap_or_default();
        println!(
            "  {}  {}  {name}",
            version.version,
            created.unwrap_or_default()
        );
    }

    // Plain Lance knows nothing of all this, and reads the same.
    let plain = Dataset::open(by_bob.uri()).await?;
    println!(
        "plain Lance opens version {} with {} rows",
        plain.version().version,
        plain.count_rows(None).await?
    );
    Ok(())
}

fn batch(ids: std::ops::Range<i32>) -> Result<RecordBatch> {
    let ids = Arc::new(Int32Array::from_iter_values(ids)) as _;
    Ok(RecordBatch::try_from_iter([("id", ids)])?)
}

async fn append(table: &mut Dataset, ids: std::ops::Range<i32>) -> Result<()> {
    let batch = batch(ids)?;
    let schema = batch.schema();
    let rows = RecordBatchIterator::new([Ok(batch)], schema);
    table.append(rows, None).await?;
    Ok(())
}
