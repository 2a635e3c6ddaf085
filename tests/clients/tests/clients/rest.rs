//! Clients of the catalog's REST form, from Rust: the base's `RestNamespace`, alone and under LanceDB.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use lance_namespace_impls::RestNamespaceBuilder;
use lancedb::Connection;
use lancedb::connection::NamespaceClientPushdownOperation as Pushdown;
use lancekeep::Catalog;
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{
    CreateTableRequest, DescribeTableRequest, DropTableRequest, InsertIntoTableRequest,
};

use crate::common::{Served, id, ipc, local, make_table, rows};
use crate::lancedb::{Application, connection, life_at_the_root, life_in_a_namespace};

fn client(served: &Served) -> Arc<dyn LanceNamespace> {
    Arc::new(RestNamespaceBuilder::new(&served.uri).build())
}

/// Both lives of a LanceDB application, each on a root of its own.
async fn lives<F: AsyncFn(&Served) -> Connection>(connect: F, pushed: bool) {
    for namespace in [&[][..], &["a", "b"]] {
        let (_dir, catalog) = local().await;
        let served = Served::start(&catalog).await;
        let db = connect(&served).await;
        let app = Application {
            db: &db,
            namespace,
            pushed,
        };
        if namespace.is_empty() {
            life_at_the_root(&app, &catalog).await;
        } else {
            life_in_a_namespace(&app, &catalog).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_over_a_rest_client() {
    lives(async |served| connection(client(served), []), false).await;
}

/// As LanceDB's users write it, with the properties of a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_connected_to_a_served_catalog() {
    let connect = async |served: &Served| {
        let properties = HashMap::from([("uri".to_string(), served.uri.clone())]);
        let connect = lancedb::connect_namespace("rest", properties);
        connect.execute().await.unwrap()
    };
    lives(connect, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_with_its_queries_pushed_down_over_rest() {
    lives(
        async |served| connection(client(served), [Pushdown::QueryTable]),
        true,
    )
    .await;
}

/// A limit of the base's REST server (`rest_adapter.rs` sets no limit of its own, so its web framework's 2 MiB
/// applies): larger rows are refused, and nothing of them is kept. LanceDB and pylance are not touched by it, they
/// write rows to the table's location themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_over_two_mebibytes_do_not_fit_into_a_request() {
    let (_dir, catalog) = local().await;
    let served = Served::start(&catalog).await;
    let client = client(&served);
    let count = async |catalog: &Catalog, name: &str| {
        let table = catalog.open_table(name).await.unwrap();
        table.count_rows(None).await.unwrap()
    };
    make_table(client.as_ref(), &["t"], &rows(0..10_000)).await;
    assert_eq!(count(&catalog, "t").await, 10_000);

    let large = ipc(&rows(0..100_000));
    assert!(large.len() > 2 << 20);
    // The server answers without reading on, which a client that is still sending may see as a broken connection.
    let refused = |error: lancekeep::lance_namespace::Error| {
        let error = error.to_string();
        let known = ["length limit exceeded", "Failed to execute request"];
        assert!(known.iter().any(|k| error.contains(k)), "{error}");
    };
    let mut insert = InsertIntoTableRequest::new();
    insert.id = id(&["t"]);
    let answer = client.insert_into_table(insert, large.clone().into()).await;
    refused(answer.unwrap_err());
    let mut create = CreateTableRequest::new();
    create.id = id(&["u"]);
    refused(client.create_table(create, large.into()).await.unwrap_err());
    assert_eq!(count(&catalog, "t").await, 10_000);
    assert_eq!(catalog.table_names().await.unwrap(), ["t"]);
}

/// A fault of the base's REST client (`lance-namespace-reqwest-client` 0.13.0, `apis::urlencode`, which also pylance
/// uses): a space in an id travels as a plus sign, which in a path means a plus sign. The catalog refuses both in new
/// names, but tables of plain Lance can have them. Where the request's body has the id too, the base's server notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_space_in_a_name_arrives_as_a_plus_sign() {
    let (dir, catalog) = local().await;
    catalog.create_table("t", rows(0..1)).await.unwrap();
    for name in ["a b.lance", "a+b.lance"] {
        copy(&dir.path().join("t.lance"), &dir.path().join(name));
    }
    assert_eq!(catalog.table_names().await.unwrap(), ["a b", "a+b", "t"]);
    let served = Served::start(&catalog).await;
    let client = client(&served);

    let mut describe = DescribeTableRequest::new();
    describe.id = id(&["a b"]);
    let error = client
        .describe_table(describe)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("the route names [\"a+b\"]"), "{error}");
    let mut drop = DropTableRequest::new();
    drop.id = id(&["a b"]);
    client.drop_table(drop).await.unwrap();
    assert_eq!(catalog.table_names().await.unwrap(), ["a b", "t"]);
    catalog.undrop_table("a+b").await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
