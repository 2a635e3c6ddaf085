//! What REST does to ids and sizes: how parts travel between delimiters, and what the base's client and adapter cannot
//! carry.

use super::calls::*;
use super::http::{self, ARROW};
use super::subjects::{Kind, Served, Subject};
use crate::common::rows;
use crate::support::SharedMemory;
use lancekeep::Catalog;
use lancekeep::arrow::array::{Int32Array, RecordBatch};
use std::sync::Arc;

async fn served() -> (Catalog, Served) {
    let catalog = crate::common::catalog_of(&SharedMemory::new().actor()).await;
    let served = Served::of(Arc::new(catalog.clone())).await;
    (catalog, served)
}

/// Case 15: the parts of an id arrive as they were sent, where the delimiter is not in them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_duckdb_226_parts_round_trip() {
    for delimiter in ["$", "::", ".", "/", "%", "|", "~~"] {
        let (catalog, served) = served().await;
        let client = served.client(delimiter);
        let ns = client.as_ref();
        println!("delimiter {delimiter}");
        make(ns, &["ns"]).await.unwrap();
        make(ns, &["ns", "inner"]).await.unwrap();
        create(ns, &["ns", "t"], 0..2).await.unwrap();
        create(ns, &["ns", "inner", "t"], 0..3).await.unwrap();
        create(ns, &["t"], 0..4).await.unwrap();
        for (table, rows) in [
            (&["ns", "t"][..], 2),
            (&["ns", "inner", "t"], 3),
            (&["t"], 4),
        ] {
            assert_eq!(count(ns, table).await.unwrap(), rows);
            assert_eq!(count(&catalog, table).await.unwrap(), rows);
            let shown = describe_in_detail(ns, table).await.unwrap();
            let (namespace, name) = table.split_at(table.len() - 1);
            assert_eq!(shown.namespace, id(namespace));
            assert_eq!(shown.table.as_deref(), Some(name[0]));
        }
        assert_eq!(children(ns, &["ns"], None).await.unwrap(), ["inner"]);
        assert_eq!(listed(ns, &["ns"], 1).await, ["t"]);
        if delimiter == "." {
            continue;
        }
        assert_eq!(listed(ns, &[], 1).await, ["t"]);
        // A name with dots is one part, as a table's and as a namespace's.
        make(ns, &["a.b"]).await.unwrap();
        for table in [&["v1.2.x"][..], &["a.b", "v1.2.x"], &["ns", "..."]] {
            create(ns, table, 0..5).await.unwrap();
            assert_eq!(count(&catalog, table).await.unwrap(), 5, "{table:?}");
        }
        assert_eq!(listed(ns, &["a.b"], 1).await, ["v1.2.x"]);
        assert_eq!(children(ns, &[], None).await.unwrap(), ["a.b", "ns"]);
        drop_table(ns, &["v1.2.x"]).await.unwrap();
        register(ns, &["v1.2.x"], "v1.2.x.lance").await.unwrap();
        assert_eq!(count(&catalog, &["v1.2.x"]).await.unwrap(), 5);
    }
}

/// The base joins the parts and splits them again, so the delimiter must not be in a name. The adapter notices where
/// the body has the id too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_namespace_210_a_delimiter_in_a_name_splits_it() {
    let (catalog, served) = served().await;
    let dots = served.client(".");
    let dots = dots.as_ref();
    create(&catalog, &["a.b"], 0..2).await.unwrap();
    expect("body", describe(dots, &["a.b"]).await, INVALID);
    expect("body", count(dots, &["a.b"]).await, INVALID);
    // No body: the table `b` in the namespace `a`.
    let create = create(dots, &["a.b"], 0..1).await;
    expect("no body", create, NO_NAMESPACE);
    expect("no body", drop_table(dots, &["a.b"]).await, NO_TABLE);
    assert_eq!(count(&catalog, &["a.b"]).await.unwrap(), 2);

    let dollars = served.client("$");
    let dollars = dollars.as_ref();
    expect("body", count(dollars, &["a$b"]).await, INVALID);
    let create = create_from(dollars, &["a$b"], ipc(&rows(0..1))).await;
    expect("no body", create, NO_NAMESPACE);
    let colons = served.client("::");
    for bad in ["a$b", "a#b"] {
        let ns = colons.as_ref();
        for table in [&[bad][..], &["n", bad], &[bad, "t"]] {
            let what = format!("{table:?}");
            let created = create_from(ns, table, ipc(&rows(0..1))).await;
            expect(&what, created, INVALID);
            expect(&what, declare(ns, table).await, INVALID);
        }
    }
    assert!(children(&catalog, &[], None).await.unwrap().is_empty());
}

/// The root's id is the delimiter alone, and URLs take the path segment `.` away: what arrives is another request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_cannot_name_the_root_with_dots() {
    let (catalog, served) = served().await;
    create(&catalog, &["t"], 0..2).await.unwrap();
    let dots = served.client(".");
    let mut request = lance_namespace::models::ListTablesRequest::new();
    request.id = id(&[]);
    // `/v1/namespace/./table/list` lists the namespaces in `table`.
    let listed = dots.list_tables(request).await;
    expect("list", listed, NO_NAMESPACE);
    // The server takes it as it was meant.
    let target = "/v1/namespace/./table/list?delimiter=.";
    let reply = http::ask(served.port(), "GET", target, http::JSON, b"").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.body.contains(r#""tables":["t"]"#), "{reply:?}");
}

/// The adapter drops empty parts before the catalog sees them: a request with an empty part is one for another id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_adapter_drops_empty_parts() {
    let (catalog, served) = served().await;
    let client = served.client("$");
    let ns = client.as_ref();
    expect("body", describe(ns, &["x", ""]).await, INVALID);
    expect("body", declare(ns, &["", "x"]).await, INVALID);
    create(ns, &["x", ""], 0..2).await.unwrap();
    assert_eq!(catalog.table_names().await.unwrap(), ["x"]);
    expect("directly", drop_table(&catalog, &["x", ""]).await, INVALID);
    drop_table(ns, &["", "x"]).await.unwrap();
    // The root table that the other id named, and with us it can be taken back.
    assert!(catalog.table_names().await.unwrap().is_empty());
    catalog.undrop_table("x").await.unwrap();
    assert_eq!(count(&catalog, &["x"]).await.unwrap(), 2);
}

/// Case 16 over REST: what the client can send is refused as directly; what its URLs swallow has no route.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_4191_bad_names_over_rest() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let catalog = Catalog::connect(root.to_str().unwrap()).await.unwrap();
    make(&catalog, &["n"]).await.unwrap();
    let before = super::names::tree(outer.path());
    let served = Served::of(Arc::new(catalog)).await;
    let client = served.client("$");
    let ns = client.as_ref();
    for bad in super::names::bad_names() {
        for table in [vec![bad.as_str()], vec!["n", &bad], vec![&bad, "t"]] {
            if bad.is_empty() && table.len() > 1 {
                continue; // the_adapter_drops_empty_parts
            }
            // URLs take these segments away: no route, so no code.
            let unsent = table.len() == 1 && matches!(bad.as_str(), "." | "..");
            let refusal = if unsent { INTERNAL } else { INVALID };
            let what = format!("{table:?}");
            let created = create(ns, &table, 0..1).await;
            expect(&what, created, refusal);
            expect(&what, declare(ns, &table).await, refusal);
            expect(&what, drop_table(ns, &table).await, refusal);
            expect(&what, describe(ns, &table).await, refusal);
            expect(&what, register(ns, &table, "t.lance").await, refusal);
            expect(&what, make(ns, &table).await, refusal);
        }
    }
    // As a client without such URLs sends them.
    let port = served.port();
    for name in ["%2E", "%2E%2E", ".", "..", "%2e%2e%2Fevil", "a%00b"] {
        let target = format!("/v1/table/{name}/create");
        let reply = http::ask(port, "POST", &target, ARROW, &ipc(&rows(0..1))).await;
        assert_eq!((reply.status, reply.code), (400, Some(13)), "{name}");
    }
    for target in ["/v1/table//declare", "/v1/table/$/declare"] {
        let reply = http::post(port, target, "{}").await;
        assert_eq!((reply.status, reply.code), (400, Some(13)), "{target}");
    }
    assert_eq!(super::names::tree(outer.path()), before);
}

/// The adapter takes bodies of up to 2 MiB, the default of the HTTP library that it is made with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_adapter_limits_a_body_to_two_megabytes() {
    let subject = Subject::of(Kind::OverRest("$")).await;
    let ns = subject.ns();
    let batch = |megabytes: i32| {
        let ids = Int32Array::from_iter_values(0..megabytes << 18);
        let column = Arc::new(ids) as _;
        ipc(&RecordBatch::try_from_iter([("id", column)]).unwrap())
    };
    let big = create_from(ns, &["big"], batch(3)).await;
    let text = big
        .as_ref()
        .err()
        .map(ToString::to_string)
        .unwrap_or_default();
    // The adapter answers without reading on, and closes: a client that still sends may see only that, and so may its
    // next request on the same connection.
    let broken = "Failed to execute request";
    assert!(text.contains("413") || text.contains(broken), "{text}");
    expect("3 MiB", big, INTERNAL);
    let mut found = exists(ns, &["big"]).await;
    for _ in 0..10 {
        match &found {
            Err(e) if e.to_string().contains(broken) => found = exists(ns, &["big"]).await,
            _ => break,
        }
    }
    expect("exists", found, NO_TABLE);
    // In pieces it goes.
    create_from(ns, &["big"], batch(1)).await.unwrap();
    for _ in 0..2 {
        let mut request = lance_namespace::models::InsertIntoTableRequest::new();
        request.id = id(&["big"]);
        ns.insert_into_table(request, batch(1)).await.unwrap();
    }
    assert_eq!(count(ns, &["big"]).await.unwrap(), 3 << 18);
}
