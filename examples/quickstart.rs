//! The main job on real tables: three tables written by plain Lance, kept by a catalog.
//!
//! `cargo run --example quickstart [directory]`; without a directory a temporary one is used and removed.

#![allow(clippy::print_stdout)] // It is a program: printing is what it does.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use lance_namespace::LanceNamespace;
use lance_namespace::models::ListTablesRequest;
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lancekeep::arrow::array::{Int32Array, RecordBatch, RecordBatchIterator, StringArray};
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::{Catalog, Error as CatalogError, TableState};

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

async fn run(root: &Path) -> Result<()> {
    let uri = root.to_str().ok_or("the directory's name is not UTF-8")?;

    // An application that knows only Lance.
    for (name, rows) in [("users", 20_000), ("orders", 5_000), ("events", 1_000)] {
        write(&format!("{uri}/{name}.lance"), name, 0..rows).await?;
    }
    println!("plain Lance wrote users, orders and events");

    // The directory is a catalog already.
    let catalog = Catalog::connect(uri).await?;
    println!("the catalog lists {:?}", catalog.table_names().await?);

    // Drop one in the middle of a scan: the scan goes on.
    let users = catalog.open_table("users").await?;
    let mut scan = Box::pin(users.scan().batch_size(1_000).try_into_stream().await?);
    let first = scan.try_next().await?.ok_or("the scan is empty")?;
    let dropped = catalog.drop_table("users").reason("by mistake").await?;
    let rest: usize = scan
        .map_ok(|batch| batch.num_rows())
        .try_fold(0, |sum, rows| async move { Ok(sum + rows) })
        .await?;
    let scanned = first.num_rows() + rest;
    check(scanned == 20_000, "the scan lost rows")?;
    println!(
        "dropped users after {} rows of a scan, which went on to {scanned} rows; kept until {}",
        first.num_rows(),
        dropped
            .expires_at
            .map_or("purged by name".to_string(), |t| t.to_rfc3339())
    );

    // Gone for us, and for a stock directory namespace.
    match catalog.open_table("users").await {
        Err(CatalogError::TableDropped { .. }) => {}
        other => return Err(format!("users opens: {other:?}").into()),
    }
    check(
        stock_names(uri).await? == ["events", "orders"],
        "the stock namespace still lists users",
    )?;
    println!(
        "gone: the catalog lists {:?}, a stock namespace {:?}",
        catalog.table_names().await?,
        stock_names(uri).await?
    );

    // Back, as it was.
    catalog.undrop_table("users").await?;
    let users = catalog.open_table("users").await?;
    check(users.count_rows(None).await? == 20_000, "undrop lost rows")?;
    check(
        users.count_rows(Some("id >= 19990".to_string())).await? == 10,
        "undrop changed rows",
    )?;
    println!(
        "undropped users: {} rows, version {}",
        users.count_rows(None).await?,
        users.version().version
    );

    // Drop another one and create over it: a new version, and the history is kept.
    catalog.drop_table("orders").await?;
    let orders = catalog
        .create_table("orders", batch("new orders", 0..10)?)
        .await?;
    check(
        orders.count_rows(None).await? == 10,
        "the revived table has other rows",
    )?;
    let before = catalog.open_table("orders").version(1).await?;
    println!(
        "dropped and revived orders: version {} has {} rows, version 1 still has {}",
        orders.version().version,
        orders.count_rows(None).await?,
        before.count_rows(None).await?
    );

    // Drop the third one and take the space back.
    catalog.drop_table("events").await?;
    let kept = size_of(&root.join("events.lance"))?;
    let purged = catalog.purge_table("events").await?;
    check(
        catalog.table_status("events").await? == TableState::Absent && purged.bytes == kept,
        "the purge left something",
    )?;
    println!(
        "dropped and purged events: {} objects, {} bytes reclaimed",
        purged.objects, purged.bytes
    );

    let report = catalog.reconcile(false).await?;
    check(report.is_clean(), "something was left half-done")?;
    println!(
        "reconcile looked at {} names and found nothing to mend",
        report.names
    );
    Ok(())
}

fn check(ok: bool, message: &str) -> Result<()> {
    if ok { Ok(()) } else { Err(message.into()) }
}

fn batch(name: &str, ids: std::ops::Range<i32>) -> Result<RecordBatch> {
    let names = StringArray::from_iter_values(ids.clone().map(|id| format!("{name} {id}")));
    Ok(RecordBatch::try_from_iter([
        ("id", Arc::new(Int32Array::from_iter_values(ids)) as _),
        ("name", Arc::new(names) as _),
    ])?)
}

async fn write(uri: &str, name: &str, ids: std::ops::Range<i32>) -> Result<()> {
    let batch = batch(name, ids)?;
    let schema = batch.schema();
    let params = WriteParams {
        max_rows_per_file: 4_000,
        ..Default::default()
    };
    Dataset::write(
        RecordBatchIterator::new([Ok(batch)], schema),
        uri,
        Some(params),
    )
    .await?;
    Ok(())
}

async fn stock_names(uri: &str) -> Result<Vec<String>> {
    let stock = DirectoryNamespaceBuilder::new(uri)
        .manifest_enabled(false)
        .build()
        .await?;
    let request = ListTablesRequest {
        id: Some(Vec::new()),
        ..Default::default()
    };
    Ok(stock.list_tables(request).await?.tables)
}

fn size_of(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.metadata()? {
            m if m.is_dir() => size_of(&entry.path())?,
            m => m.len(),
        };
    }
    Ok(bytes)
}
