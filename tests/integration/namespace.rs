//! The catalog as a `LanceNamespace`: the same expectations directly and over REST, with the same error codes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use lance_namespace::models::*;
use lance_namespace::{ErrorCode, LanceNamespace, NamespaceError};
use lance_namespace_impls::{RestAdapter, RestAdapterConfig, RestNamespaceBuilder};
use lancekeep::arrow::array::RecordBatch;
use lancekeep::arrow::ipc::writer::StreamWriter;
use lancekeep::{Catalog, TableState};

use crate::common::{catalog_of, local, rows, table_ids};
use crate::support::SharedMemory;

fn id(parts: &[&str]) -> Option<Vec<String>> {
    Some(parts.iter().map(ToString::to_string).collect())
}

fn ipc(batch: &RecordBatch) -> Bytes {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

/// The code that an answer carries; `None` for a success.
fn code<T>(answer: Result<T, lance_namespace::Error>) -> Option<ErrorCode> {
    let error = answer.err()?;
    let lance_namespace::Error::Namespace { source, .. } = &error else {
        panic!("no namespace error: {error:?}");
    };
    let inner = source.downcast_ref::<NamespaceError>();
    Some(inner.unwrap_or_else(|| panic!("no code: {error:?}")).code())
}

async fn create(
    ns: &dyn LanceNamespace,
    parts: &[&str],
    ids: std::ops::Range<i32>,
) -> Result<CreateTableResponse, lance_namespace::Error> {
    let mut request = CreateTableRequest::new();
    request.id = id(parts);
    ns.create_table(request, ipc(&rows(ids))).await
}

async fn count(ns: &dyn LanceNamespace, parts: &[&str]) -> Result<i64, lance_namespace::Error> {
    let mut request = CountTableRowsRequest::new();
    request.id = id(parts);
    ns.count_table_rows(request).await
}

async fn describe(
    ns: &dyn LanceNamespace,
    parts: &[&str],
) -> Result<DescribeTableResponse, lance_namespace::Error> {
    let mut request = DescribeTableRequest::new();
    request.id = id(parts);
    ns.describe_table(request).await
}

async fn exists(ns: &dyn LanceNamespace, parts: &[&str]) -> Option<ErrorCode> {
    let mut request = TableExistsRequest::new();
    request.id = id(parts);
    code(ns.table_exists(request).await)
}

async fn drop_table(ns: &dyn LanceNamespace, parts: &[&str]) -> Option<ErrorCode> {
    let mut request = DropTableRequest::new();
    request.id = id(parts);
    code(ns.drop_table(request).await)
}

async fn declare(ns: &dyn LanceNamespace, parts: &[&str]) -> Option<ErrorCode> {
    let mut request = DeclareTableRequest::new();
    request.id = id(parts);
    code(ns.declare_table(request).await)
}

async fn register(ns: &dyn LanceNamespace, parts: &[&str], location: &str) -> Option<ErrorCode> {
    let mut request = RegisterTableRequest::new(location.to_string());
    request.id = id(parts);
    code(ns.register_table(request).await)
}

async fn names(ns: &dyn LanceNamespace, parts: &[&str], page: i32) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), None);
    loop {
        let mut request = ListTablesRequest::new();
        request.id = id(parts);
        request.limit = Some(page);
        request.page_token = token;
        let mut answer = ns.list_tables(request).await.unwrap();
        assert!(answer.tables.len() <= page as usize);
        names.append(&mut answer.tables);
        token = answer.page_token.filter(|t| !t.is_empty());
        if token.is_none() {
            names.sort();
            return names;
        }
    }
}

async fn make(ns: &dyn LanceNamespace, parts: &[&str]) -> Option<ErrorCode> {
    let mut request = CreateNamespaceRequest::new();
    request.id = id(parts);
    request.properties = Some(HashMap::from([(
        "owner".to_string(),
        "it's \"me\"".to_string(),
    )]));
    code(ns.create_namespace(request).await)
}

async fn remove(ns: &dyn LanceNamespace, parts: &[&str]) -> Option<ErrorCode> {
    let mut request = DropNamespaceRequest::new();
    request.id = id(parts);
    code(ns.drop_namespace(request).await)
}

/// Root tables: drop, deregister and register are drop, drop until purged and undrop.
async fn root_tables(ns: &dyn LanceNamespace, catalog: &Catalog) {
    let made = create(ns, &["t"], 0..5).await.unwrap();
    assert_eq!(made.version, Some(1));
    assert_eq!(
        code(create(ns, &["t"], 0..1).await),
        Some(ErrorCode::TableAlreadyExists)
    );
    assert_eq!(exists(ns, &["t"]).await, None);
    assert_eq!(count(ns, &["t"]).await.unwrap(), 5);
    let mut insert = InsertIntoTableRequest::new();
    insert.id = id(&["t"]);
    ns.insert_into_table(insert, ipc(&rows(5..7)))
        .await
        .unwrap();
    assert_eq!(count(ns, &["t"]).await.unwrap(), 7);
    let location = describe(ns, &["t"]).await.unwrap().location.unwrap();
    assert!(location.ends_with("/t.lance"), "{location}");
    assert_eq!(
        register(ns, &["t"], "t.lance").await,
        Some(ErrorCode::TableAlreadyExists)
    );

    assert_eq!(drop_table(ns, &["t"]).await, None);
    let missing = Some(ErrorCode::TableNotFound);
    assert_eq!(drop_table(ns, &["t"]).await, missing);
    assert_eq!(exists(ns, &["t"]).await, missing);
    assert_eq!(code(describe(ns, &["t"]).await), missing);
    assert_eq!(code(count(ns, &["t"]).await), missing);
    assert!(names(ns, &[], 3).await.is_empty());
    let dropped = catalog.list_dropped_tables().await.unwrap();
    assert!(dropped[0].expires_at.is_some());
    // Declaring would bury it: refused, and nothing is changed.
    assert_eq!(
        declare(ns, &["t"]).await,
        Some(ErrorCode::InvalidTableState)
    );
    assert_eq!(catalog.list_dropped_tables().await.unwrap(), dropped);
    for elsewhere in ["../out", "u.lance", "/t.lance", "s3://other/t.lance"] {
        assert_eq!(
            register(ns, &["t"], elsewhere).await,
            Some(ErrorCode::InvalidInput),
            "{elsewhere}"
        );
    }
    assert_eq!(register(ns, &["t"], "t.lance").await, None);
    assert_eq!(count(ns, &["t"]).await.unwrap(), 7);
    assert_eq!(table_ids(catalog, "t").await, (0..7).collect::<Vec<_>>());

    let mut request = DeregisterTableRequest::new();
    request.id = id(&["t"]);
    ns.deregister_table(request.clone()).await.unwrap();
    assert_eq!(code(ns.deregister_table(request).await), missing);
    let dropped = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(dropped[0].expires_at, None);
    // By its whole location, as a client has it from a describe.
    assert_eq!(register(ns, &["t"], &location).await, None);
    assert_eq!(count(ns, &["t"]).await.unwrap(), 7);

    assert_eq!(drop_table(ns, &["t"]).await, None);
    let revived = create(ns, &["t"], 50..52).await.unwrap();
    assert!(revived.version > Some(2), "{revived:?}");
    assert_eq!(table_ids(catalog, "t").await, [50, 51]);

    assert_eq!(declare(ns, &["d"]).await, None);
    assert_eq!(
        declare(ns, &["d"]).await,
        Some(ErrorCode::TableAlreadyExists)
    );
    assert_eq!(
        catalog.table_status("d").await.unwrap(),
        TableState::Declared
    );
    create(ns, &["d"], 0..1).await.unwrap();
    assert_eq!(count(ns, &["d"]).await.unwrap(), 1);
    assert_eq!(names(ns, &[], 1).await, ["d", "t"]);
}

/// Child namespaces and tables are the base's; root and children do not show each other's.
async fn children(ns: &dyn LanceNamespace, catalog: &Catalog) {
    let no_namespace = Some(ErrorCode::NamespaceNotFound);
    assert_eq!(remove(ns, &["a"]).await, no_namespace);
    assert_eq!(make(ns, &["a", "b"]).await, no_namespace);
    assert_eq!(code(create(ns, &["a", "t"], 0..1).await), no_namespace);
    assert_eq!(
        drop_table(ns, &["a", "t"]).await,
        Some(ErrorCode::TableNotFound)
    );

    assert_eq!(make(ns, &["a"]).await, None);
    assert_eq!(
        make(ns, &["a"]).await,
        Some(ErrorCode::NamespaceAlreadyExists)
    );
    assert_eq!(make(ns, &["a", "b"]).await, None);
    let mut request = DescribeNamespaceRequest::new();
    request.id = id(&["a", "b"]);
    let properties = ns
        .describe_namespace(request)
        .await
        .unwrap()
        .properties
        .unwrap();
    assert_eq!(properties["owner"], "it's \"me\"");

    create(ns, &["a", "b", "t"], 0..3).await.unwrap();
    create(ns, &["t"], 0..2).await.unwrap();
    assert_eq!(count(ns, &["a", "b", "t"]).await.unwrap(), 3);
    assert_eq!(count(ns, &["t"]).await.unwrap(), 2);
    assert_eq!(names(ns, &["a", "b"], 2).await, ["t"]);
    assert_eq!(names(ns, &[], 2).await, ["t"]);
    assert_eq!(catalog.table_names().await.unwrap(), ["t"]);
    let mut request = ListTablesRequest::new();
    request.id = id(&[]);
    let all = ns.list_all_tables(request).await.unwrap().tables;
    assert_eq!(all, ["a$b$t", "t"]);

    let not_empty = Some(ErrorCode::NamespaceNotEmpty);
    assert_eq!(remove(ns, &["a"]).await, not_empty);
    assert_eq!(remove(ns, &["a", "b"]).await, not_empty);
    assert_eq!(count(ns, &["a", "b", "t"]).await.unwrap(), 3);
    assert_eq!(drop_table(ns, &["a", "b", "t"]).await, None);
    assert_eq!(
        exists(ns, &["a", "b", "t"]).await,
        Some(ErrorCode::TableNotFound)
    );
    assert_eq!(remove(ns, &["a", "b"]).await, None);
    assert_eq!(remove(ns, &["a"]).await, None);
    assert_eq!(remove(ns, &["a"]).await, no_namespace);
}

/// Case 14: the same code for the same mistake, whatever the path; case 16: bad names are refused.
async fn codes(ns: &dyn LanceNamespace) {
    let missing = Some(ErrorCode::TableNotFound);
    assert_eq!(exists(ns, &["nobody"]).await, missing);
    assert_eq!(code(describe(ns, &["nobody"]).await), missing);
    assert_eq!(code(count(ns, &["nobody"]).await), missing);
    assert_eq!(drop_table(ns, &["nobody"]).await, missing);
    assert_eq!(register(ns, &["nobody"], "nobody.lance").await, missing);
    let invalid = Some(ErrorCode::InvalidInput);
    for bad in ["a b", "ä", "a#b"] {
        assert_eq!(code(create(ns, &[bad], 0..1).await), invalid, "{bad}");
        assert_eq!(declare(ns, &[bad]).await, invalid, "{bad}");
        assert_eq!(make(ns, &[bad]).await, invalid, "{bad}");
    }
    let mut request = CreateTableRequest::new();
    request.id = id(&["x"]);
    let not_ipc = ns.create_table(request, Bytes::from_static(b"junk")).await;
    assert_eq!(code(not_ipc), invalid);
    create(ns, &["x"], 0..1).await.unwrap();
    let mut request = RenameTableRequest::new("y".to_string());
    request.id = id(&["x"]);
    assert_eq!(
        code(ns.rename_table(request).await),
        Some(ErrorCode::Unsupported)
    );
}

async fn conformance(ns: &dyn LanceNamespace, catalog: &Catalog, suite: &str) {
    match suite {
        "root" => root_tables(ns, catalog).await,
        "children" => children(ns, catalog).await,
        "codes" => codes(ns).await,
        other => panic!("no suite {other}"),
    }
}

const SUITES: [&str; 3] = ["root", "children", "codes"];

#[tokio::test]
async fn the_trait_on_local_disk() {
    for suite in SUITES {
        let (_dir, catalog) = local().await;
        conformance(&catalog, &catalog, suite).await;
    }
}

#[tokio::test]
async fn the_trait_in_memory() {
    for suite in SUITES {
        let catalog = catalog_of(&SharedMemory::new().actor()).await;
        conformance(&catalog, &catalog, suite).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trait_over_rest() {
    for suite in SUITES {
        let (_dir, catalog) = local().await;
        let config = RestAdapterConfig {
            port: 0,
            ..Default::default()
        };
        let served = RestAdapter::new(Arc::new(catalog.clone()), config);
        let server = served.start().await.unwrap();
        let client = RestNamespaceBuilder::new(format!("http://127.0.0.1:{}", server.port()))
            .delimiter("$")
            .build();
        conformance(&client, &catalog, suite).await;
        server.shutdown();
    }
}

/// Case 9: a store that rejects writes. Nothing is written by looking, also for what is not there.
#[tokio::test]
async fn lance_7684_looking_writes_nothing() {
    let actor = SharedMemory::new().actor();
    let catalog = catalog_of(&actor).await;
    create(&catalog, &["t"], 0..1).await.unwrap();
    actor.counter.reset();
    assert_eq!(
        code(describe(&catalog, &["a", "t"]).await),
        Some(ErrorCode::NamespaceNotFound)
    );
    assert!(exists(&catalog, &["a", "t"]).await.is_some());
    assert_eq!(
        drop_table(&catalog, &["a", "t"]).await,
        Some(ErrorCode::TableNotFound)
    );
    assert_eq!(
        remove(&catalog, &["a"]).await,
        Some(ErrorCode::NamespaceNotFound)
    );
    assert!(code(create(&catalog, &["a", "t"], 0..1).await).is_some());
    assert_eq!(count(&catalog, &["t"]).await.unwrap(), 1);
    assert_eq!(names(&catalog, &[], 5).await, ["t"]);
    let mut request = ListNamespacesRequest::new();
    request.id = id(&[]);
    let listed = LanceNamespace::list_namespaces(&catalog, request).await;
    assert!(listed.unwrap().namespaces.is_empty());
    assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());
}

/// Case 18: no value of a storage option in an error of the base, nor in what a describe answers.
#[tokio::test]
async fn lance_5996_no_storage_option_leaves_through_the_trait() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::builder(dir.path().to_str().unwrap())
        .storage_option("aws_secret_access_key", "SENTINEL-SECRET")
        .build()
        .await
        .unwrap();
    create(&catalog, &["t"], 0..1).await.unwrap();
    let described = describe(&catalog, &["t"]).await.unwrap();
    assert!(!format!("{described:?} {catalog:?} {}", catalog.namespace_id()).contains("SENTINEL"));
    let error = describe(&catalog, &["SENTINEL-SECRET"]).await.unwrap_err();
    assert!(!error.to_string().contains("SENTINEL"), "{error}");
}
