//! Python clients over a served catalog: pylance, LanceDB's package and the generated REST client.
//!
//! The scripts and their pinned packages are in `python/`; the virtual environment that they run in is made on first
//! use, in the build directory. Where there is no `python3`, or no way to install the packages, the tests fail.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::{Catalog, TableState};

use crate::common::{Served, local, managed};

const REQUIREMENTS: &str = include_str!("python/requirements.txt");

/// Runs a command of the set-up to its end.
fn run(command: &mut Command, purpose: &str) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot {purpose}: {command:?}: {e}"));
    assert!(
        output.status.success(),
        "cannot {purpose}: {command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// The interpreter of the virtual environment, made when it is not there with just these packages.
fn interpreter() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(dir).unwrap();
    // One at a time, also of several processes that share the build directory.
    let lock = File::create(dir.join("clients-python.lock")).unwrap();
    lock.lock().unwrap();

    let environment = dir.join("clients-python");
    let python = environment.join("bin").join("python");
    let installed = environment.join("installed-requirements.txt");
    // Written last: without it the environment is half made.
    if fs::read_to_string(&installed).is_ok_and(|i| i == REQUIREMENTS) && python.exists() {
        return python;
    }
    run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment),
        "make a virtual environment (Debian has it in the package python3-venv)",
    );
    let wanted = environment.join("requirements.txt");
    fs::write(&wanted, REQUIREMENTS).unwrap();
    run(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--no-input"])
            .args([
                "--disable-pip-version-check",
                "--only-binary",
                ":all:",
                "-r",
            ])
            .arg(&wanted),
        "install the Python clients from the package index",
    );
    fs::rename(&wanted, &installed).unwrap();
    python
}

/// Runs one part of a script against the server, and lets it answer meanwhile.
async fn script(served: &Served, name: &str, part: &str) {
    let python = tokio::task::spawn_blocking(interpreter).await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients/python")
        .join(name);
    let mut command = tokio::process::Command::new(python);
    // No modules but the environment's, and no byte code left in the sources.
    command
        .args(["-E", "-s", "-B"])
        .arg(path)
        .args([part, &served.uri]);
    command
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(300), command.output())
        .await
        .unwrap_or_else(|_| panic!("{name} {part} does not end"))
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.trim_end().ends_with(&format!("{part} done")),
        "{name} {part}: {}\n{printed}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
}

/// The drop that a script left, and its undrop by the catalog.
async fn undrop(catalog: &Catalog, name: &str) {
    let status = catalog.table_status(name).await.unwrap();
    let TableState::Dropped(dropped) = status else {
        panic!("{name} is not dropped: {status:?}");
    };
    assert!(dropped.expires_at.is_some());
    catalog
        .undrop_table(name)
        .drop_id(dropped.drop_id)
        .await
        .unwrap();
}

/// A script's two parts, with the undrop of `t` by the Rust side in between.
async fn life(name: &str) {
    let (_dir, catalog) = local().await;
    life_over(name, catalog).await;
}

async fn life_over(name: &str, catalog: Catalog) {
    let served = Served::start(&catalog).await;
    script(&served, name, "first").await;
    undrop(&catalog, "t").await;
    script(&served, name, "second").await;
    // The catalog's own view of what the script did last.
    assert_eq!(catalog.table_names().await.unwrap(), ["t"]);
    let table = catalog.open_table("t").await.unwrap();
    assert_eq!(table.count_rows(None).await.unwrap(), 8);
    // One table that the script deregistered, until purged by name.
    let dropped = catalog.list_dropped_tables().await.unwrap();
    let held = dropped.iter().find(|d| d.ident.name() == "held").unwrap();
    assert_eq!(held.expires_at, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pylance_drops_and_undrops() {
    life("pylance_client.py").await;
}

/// pylance follows the flag: its commits go through the catalog, and it reads what plain Lance reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pylance_with_managed_versions() {
    let (dir, catalog) = managed().await;
    life_over("pylance_client.py", catalog.clone()).await;
    let plain = DatasetBuilder::from_uri(dir.path().join("t.lance").to_str().unwrap());
    let plain = plain.load().await.unwrap();
    let latest = catalog.latest_version("t").await.unwrap();
    assert_eq!(plain.version().version, latest.version);
    assert_eq!(plain.count_rows(None).await.unwrap(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_from_python_drops_and_undrops() {
    life("lancedb_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_generated_rest_client_drops_and_undrops() {
    life("rest_client.py").await;
}
