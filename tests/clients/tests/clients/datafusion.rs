//! DataFusion: SQL over root and child tables, through `lance-namespace-datafusion`.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use lance_namespace_datafusion::{
    LanceCatalogProvider, LanceSchemaProvider, NamespaceLevel, SessionBuilder,
};
use lance_namespace_impls::RestNamespaceBuilder;
use lancekeep::Catalog;
use lancekeep::arrow::array::{AsArray, Int32Array, RecordBatch, StringArray};
use lancekeep::arrow::datatypes::Int64Type;
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::DropTableRequest;

use crate::common::{Served, deregister, id, local, make_namespace, make_table, register};

/// Root tables are in the default schema, the tables of a namespace `a` in `keep.a`, those of `a.b` in `a.b`.
async fn session(catalog: &Catalog) -> SessionContext {
    session_over(Arc::new(catalog.clone())).await
}

async fn session_over(client: Arc<dyn LanceNamespace>) -> SessionContext {
    let root = NamespaceLevel::from_root(client);
    let schemas = LanceCatalogProvider::try_new(root.clone()).await.unwrap();
    let tables = LanceSchemaProvider::try_new(root.clone()).await.unwrap();
    SessionBuilder::new()
        .with_root(root)
        .with_default_catalog("keep", Some(Arc::new(schemas)))
        .with_default_schema("root", Some(Arc::new(tables)))
        .build()
        .await
        .unwrap()
}

/// Name and sum, a line each.
async fn ask(session: &SessionContext, sql: &str) -> Vec<(String, i64)> {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    let mut found = Vec::new();
    for batch in &batches {
        let names = batch.column(0).as_string::<i32>().iter();
        let sums = batch.column(1).as_primitive::<Int64Type>().values();
        found.extend(
            names
                .map(|n| n.unwrap().to_string())
                .zip(sums.iter().copied()),
        );
    }
    found
}

/// What the planner says of a statement that it cannot plan.
async fn refusal(session: &SessionContext, sql: &str) -> String {
    session
        .sql(sql)
        .await
        .map(|_| ())
        .expect_err("it was planned")
        .to_string()
}

fn users(names: &[&str]) -> RecordBatch {
    let ids = Int32Array::from_iter_values(0..names.len() as i32);
    let names = StringArray::from_iter_values(names);
    RecordBatch::try_from_iter([("id", Arc::new(ids) as _), ("name", Arc::new(names) as _)])
        .unwrap()
}

fn orders(of: &[(i32, i32)]) -> RecordBatch {
    let users = Int32Array::from_iter_values(of.iter().map(|o| o.0));
    let amounts = Int32Array::from_iter_values(of.iter().map(|o| o.1));
    RecordBatch::try_from_iter([
        ("user_id", Arc::new(users) as _),
        ("amount", Arc::new(amounts) as _),
    ])
    .unwrap()
}

const JOIN_DEEP: &str = "SELECT u.name, sum(o.amount) AS total FROM users u \
     JOIN a.b.orders o ON o.user_id = u.id GROUP BY u.name ORDER BY u.name";
const JOIN_CHILD: &str = "SELECT u.name, sum(o.amount) AS total FROM keep.root.users u \
     JOIN keep.a.orders o ON o.user_id = u.id GROUP BY u.name ORDER BY u.name";

fn totals(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter()
        .map(|(name, total)| (name.to_string(), *total))
        .collect()
}

async fn joined() -> (tempfile::TempDir, Catalog) {
    let (dir, catalog) = local().await;
    let client: &dyn LanceNamespace = &catalog;
    catalog
        .create_table("users", users(&["ann", "bob", "cid"]))
        .await
        .unwrap();
    make_namespace(client, &["a"]).await;
    make_namespace(client, &["a", "b"]).await;
    make_table(
        client,
        &["a", "b", "orders"],
        &orders(&[(0, 5), (0, 6), (2, 7)]),
    )
    .await;
    make_table(client, &["a", "orders"], &orders(&[(1, 100)])).await;
    (dir, catalog)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_joins_root_and_child_tables() {
    let (_dir, catalog) = joined().await;
    let session = session(&catalog).await;
    assert_eq!(
        ask(&session, JOIN_DEEP).await,
        totals(&[("ann", 11), ("cid", 7)])
    );
    assert_eq!(ask(&session, JOIN_CHILD).await, totals(&[("bob", 100)]));

    // Another session sees what was committed meanwhile (for the same one see below).
    let client: &dyn LanceNamespace = &catalog;
    let mut table = catalog.open_table("users").await.unwrap();
    table.delete("name = 'cid'").await.unwrap();
    let session = self::session(&catalog).await;
    assert_eq!(ask(&session, JOIN_DEEP).await, totals(&[("ann", 11)]));
    let location = deregister(client, &["a", "orders"]).await;
    register(client, &["a", "orders"], &location).await;
    assert_eq!(ask(&session, JOIN_CHILD).await, totals(&[("bob", 100)]));
}

/// The same over REST.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_over_a_served_catalog() {
    let (_dir, catalog) = joined().await;
    let served = Served::start(&catalog).await;
    let session = async || {
        let client = RestNamespaceBuilder::new(&served.uri).build();
        session_over(Arc::new(client)).await
    };
    assert_eq!(
        ask(&session().await, JOIN_DEEP).await,
        totals(&[("ann", 11), ("cid", 7)])
    );
    catalog.drop_table("users").await.unwrap();
    let error = refusal(&session().await, JOIN_DEEP).await;
    assert!(error.contains("was dropped at"), "{error}");
    catalog.undrop_table("users").await.unwrap();
    assert_eq!(
        ask(&session().await, JOIN_CHILD).await,
        totals(&[("bob", 100)])
    );
}

/// A session on a root without namespaces: only looking makes no manifest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_on_a_root_without_namespaces_writes_nothing() {
    let (dir, catalog) = local().await;
    catalog
        .create_table("users", users(&["ann"]))
        .await
        .unwrap();
    let session = session(&catalog).await;
    let count = "SELECT name, count(*) FROM users GROUP BY name";
    assert_eq!(ask(&session, count).await, totals(&[("ann", 1)]));
    refusal(&session, "SELECT * FROM a.b.orders").await;
    let there = std::fs::read_dir(dir.path()).unwrap();
    let there: Vec<_> = there.map(|e| e.unwrap().file_name()).collect();
    assert_eq!(there, ["users.lance"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_table_is_unknown_to_sql() {
    let (_dir, catalog) = joined().await;
    let client: &dyn LanceNamespace = &catalog;
    let expected = totals(&[("ann", 11), ("cid", 7)]);

    // The session is there before the drop, but has not read the table.
    let early = session(&catalog).await;
    catalog.drop_table("users").await.unwrap();
    for session in [early, session(&catalog).await] {
        for sql in [JOIN_DEEP, "SELECT name, 1 FROM users"] {
            let error = refusal(&session, sql).await;
            assert!(error.contains("was dropped at"), "{error}");
            assert!(error.contains("undrop_table restores it"), "{error}");
        }
        // What it does not touch is as it was.
        let others = ask(&session, "SELECT 'n', sum(amount) FROM a.b.orders").await;
        assert_eq!(others, totals(&[("n", 18)]));
    }

    catalog.undrop_table("users").await.unwrap();
    let session = session(&catalog).await;
    assert_eq!(ask(&session, JOIN_DEEP).await, expected);

    // A child table: out of its namespace and back, then gone for good.
    let location = deregister(client, &["a", "b", "orders"]).await;
    let fresh = self::session(&catalog).await;
    let error = refusal(&fresh, JOIN_DEEP).await;
    assert!(error.to_lowercase().contains("not found"), "{error}");
    register(client, &["a", "b", "orders"], &location).await;
    assert_eq!(ask(&fresh, JOIN_DEEP).await, expected);
    let mut request = DropTableRequest::new();
    request.id = id(&["a", "b", "orders"]);
    client.drop_table(request).await.unwrap();
    for session in [session, fresh, self::session(&catalog).await] {
        let error = refusal(&session, JOIN_DEEP).await;
        assert!(error.to_lowercase().contains("not found"), "{error}");
    }
}

/// A limit of `lance-namespace-datafusion` 14.0.2, not of the catalog: `LanceSchemaProvider::table` (`schema.rs`) keeps
/// what it once loaded, and looks only whether the table's own directory has a newer version, never whether the
/// namespace still has the table. A session that has read a root table goes on reading it after a drop; a new session
/// does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_read_a_table_does_not_notice_its_drop() {
    let (_dir, catalog) = joined().await;
    let old = session(&catalog).await;
    let expected = ask(&old, JOIN_DEEP).await;
    catalog.drop_table("users").await.unwrap();
    assert_eq!(ask(&old, JOIN_DEEP).await, expected);
    let error = refusal(&session(&catalog).await, JOIN_DEEP).await;
    assert!(error.contains("was dropped at"), "{error}");
}

/// A fault of `lance-namespace-datafusion` 14.0.2, whatever the namespace: when a table that a session has read gets a
/// new version, `LanceSchemaProvider::table` (`schema.rs`) removes it from its `DashMap` while it holds the reference
/// that `get` returned, and waits for itself for ever. So: a session for each piece of work.
#[test]
fn a_session_hangs_on_a_table_that_was_committed_to_since() {
    let (tell, told) = std::sync::mpsc::channel();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap().to_string();
    // A thread that nobody waits for: it does not come back.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let catalog = Catalog::connect(root).await.unwrap();
            let sql = "SELECT name, count(*) FROM users GROUP BY name";
            let mut table = catalog
                .create_table("users", users(&["ann", "bob"]))
                .await
                .unwrap();
            let session = session(&catalog).await;
            tell.send(ask(&session, sql).await.len()).unwrap();
            table.delete("name = 'bob'").await.unwrap();
            tell.send(ask(&self::session(&catalog).await, sql).await.len())
                .unwrap();
            tell.send(ask(&session, sql).await.len()).unwrap();
        });
    });
    let minute = Duration::from_secs(60);
    assert_eq!(told.recv_timeout(minute), Ok(2));
    assert_eq!(told.recv_timeout(minute), Ok(1));
    let again = told.recv_timeout(Duration::from_secs(5));
    assert_eq!(
        again,
        Err(RecvTimeoutError::Timeout),
        "mended: this limit is gone"
    );
}
