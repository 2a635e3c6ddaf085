//! Case 14: one mistake has one code, whether it is made through the catalog's own calls, the trait, or REST, and over
//! REST the status that belongs to it.

use lance_namespace::models::{
    AlterTableDropColumnsRequest, AnalyzeTableQueryPlanRequest, QueryTableRequest,
    QueryTableRequestVector, RestoreTableRequest, UpdateTableRequest,
};
use lance_namespace::{ErrorCode, NamespaceError};
use lancekeep::{Catalog, Error, NamespaceIdent, TableIdent};

use super::calls::*;
use super::http::{self, ARROW, Reply};
use super::subjects::{Kind, Subject};
use crate::common::rows;

/// The three paths to one served catalog that holds the root table `t` and the child table `n.t`.
struct Paths {
    catalog: Catalog,
    rest: Subject,
}

impl Paths {
    async fn new() -> Self {
        let rest = Subject::of(Kind::OverRest("$")).await;
        let catalog = rest.catalog.clone().unwrap();
        make(&catalog, &["n"]).await.unwrap();
        for table in [&["t"][..], &["n", "t"]] {
            create(&catalog, table, 0..3).await.unwrap();
        }
        Self { catalog, rest }
    }

    fn both(&self) -> [(&'static str, Namespace<'_>); 2] {
        [("trait", &self.catalog), ("REST", self.rest.ns())]
    }

    async fn post(&self, target: &str, body: &str) -> Reply {
        let port = self.rest.served.as_ref().unwrap().port();
        http::post(port, target, body).await
    }

    async fn send(&self, target: &str, data: &[u8]) -> Reply {
        let port = self.rest.served.as_ref().unwrap().port();
        http::ask(port, "POST", target, ARROW, data).await
    }
}

/// The code that an error of the catalog's own calls has for a namespace client.
fn own<T>(result: lancekeep::Result<T>) -> Option<ErrorCode> {
    result.err().map(|e| NamespaceError::from(e).code())
}

#[track_caller]
fn on_the_wire(what: &str, reply: &Reply, status: u16, code: ErrorCode) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert_eq!(reply.code, Some(code.as_u32()), "{what}: {reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_6240_missing_is_not_found_on_every_path() {
    let paths = Paths::new().await;
    let code = ErrorCode::TableNotFound;
    let catalog = &paths.catalog;
    assert_eq!(own(catalog.undrop_table("nobody").await), Some(code));
    for table in [&["nobody"][..], &["n", "nobody"]] {
        let ident = || TableIdent::new(table.iter().copied());
        assert_eq!(own(catalog.open_table(ident()).await), Some(code));
        assert_eq!(own(catalog.drop_table(ident()).await), Some(code));
        assert_eq!(own(catalog.deregister_table(ident()).await), Some(code));
        for (path, ns) in paths.both() {
            expect(path, exists(ns, table).await, NO_TABLE);
            expect(path, describe(ns, table).await, NO_TABLE);
            expect(path, count(ns, table).await, NO_TABLE);
            expect(path, insert(ns, table, 0..1).await, NO_TABLE);
            expect(path, drop_table(ns, table).await, NO_TABLE);
            expect(path, deregister(ns, table).await, NO_TABLE);
        }
        let target = format!("/v1/table/{}", table.join("$"));
        for operation in ["describe", "exists", "count_rows", "drop", "deregister"] {
            let reply = paths.post(&format!("{target}/{operation}"), "{}").await;
            on_the_wire(operation, &reply, 404, code);
        }
    }
    for (path, ns) in paths.both() {
        let missing = register(ns, &["nobody"], "nobody.lance").await;
        expect(path, missing, NO_TABLE);
        for namespace in [&["no"][..], &["n", "no"]] {
            expect(path, there(ns, namespace).await, NO_NAMESPACE);
            let described = describe_namespace(ns, namespace).await;
            expect(path, described, NO_NAMESPACE);
            expect(path, remove(ns, namespace).await, NO_NAMESPACE);
            let below = within(namespace, "x");
            expect(path, make(ns, &below).await, NO_NAMESPACE);
            expect(path, create(ns, &below, 0..1).await, NO_NAMESPACE);
            expect(path, declare(ns, &below).await, NO_NAMESPACE);
            let listed = children(ns, namespace, None).await;
            expect(path, listed, NO_NAMESPACE);
        }
        expect(path, make(ns, &["no", "x"]).await, NO_NAMESPACE);
    }
    let code = ErrorCode::NamespaceNotFound;
    for namespace in [&["no"][..], &["n", "no"]] {
        let ident = || NamespaceIdent::new(namespace.iter().copied());
        let below = || TableIdent::new(namespace.iter().copied().chain(["x"]));
        for result in [
            own(catalog.describe_namespace(ident()).await),
            own(catalog.drop_namespace(ident()).await),
            own(catalog.list_namespaces(ident()).await),
            own(catalog.list_tables().namespace(ident()).await),
            own(catalog
                .create_namespace(NamespaceIdent::new(within(namespace, "x")))
                .await),
            own(catalog.create_table(below(), rows(0..1)).await),
            own(catalog.declare_table(below()).await),
            own(catalog.register_table(below(), "elsewhere").await),
        ] {
            assert_eq!(result, Some(code), "{namespace:?}");
        }
    }
    for operation in ["describe", "exists", "drop"] {
        let reply = paths
            .post(&format!("/v1/namespace/no/{operation}"), "{}")
            .await;
        on_the_wire(operation, &reply, 404, code);
    }
    let reply = paths.send("/v1/table/no$t/create", &ipc(&rows(0..1))).await;
    on_the_wire("create", &reply, 404, code);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_6575_duplicate_is_a_conflict_on_every_path() {
    let paths = Paths::new().await;
    let code = ErrorCode::TableAlreadyExists;
    let catalog = &paths.catalog;
    for (table, location) in [(&["t"][..], "t.lance"), (&["n", "t"], "")] {
        let own_location = describe(catalog, table).await.unwrap().location.unwrap();
        let location = match location {
            "" => last_segment(&own_location),
            given => given,
        };
        let ident = || TableIdent::new(table.iter().copied());
        let created = catalog.create_table(ident(), rows(0..1)).await;
        assert_eq!(own(created), Some(code));
        assert_eq!(own(catalog.declare_table(ident()).await), Some(code));
        let registered = catalog.register_table(ident(), location).await;
        assert_eq!(own(registered), Some(code));
        for (path, ns) in paths.both() {
            expect(path, create(ns, table, 0..1).await, TABLE_EXISTS);
            expect(path, declare(ns, table).await, TABLE_EXISTS);
            expect(path, register(ns, table, location).await, TABLE_EXISTS);
        }
        let target = format!("/v1/table/{}", table.join("$"));
        let reply = paths
            .send(&format!("{target}/create"), &ipc(&rows(0..1)))
            .await;
        on_the_wire("create", &reply, 409, code);
        let reply = paths.post(&format!("{target}/declare"), "{}").await;
        on_the_wire("declare", &reply, 409, code);
        let body = format!(r#"{{"location":"{location}"}}"#);
        let reply = paths.post(&format!("{target}/register"), &body).await;
        on_the_wire("register", &reply, 409, code);
        assert_eq!(count(catalog, table).await.unwrap(), 3);
    }
    let code = ErrorCode::NamespaceAlreadyExists;
    let root = NamespaceIdent::root();
    assert_eq!(own(catalog.create_namespace(["n"]).await), Some(code));
    assert_eq!(own(catalog.create_namespace(["n", "t"]).await), Some(code));
    assert_eq!(own(catalog.create_namespace(root).await), Some(code));
    for (path, ns) in paths.both() {
        expect(path, make(ns, &["n"]).await, NAMESPACE_EXISTS);
        expect(path, make(ns, &[]).await, NAMESPACE_EXISTS);
    }
    for namespace in ["n", "$"] {
        let reply = paths
            .post(&format!("/v1/namespace/{namespace}/create"), "{}")
            .await;
        on_the_wire(namespace, &reply, 409, code);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_3385_not_empty_is_a_conflict_on_every_path() {
    let paths = Paths::new().await;
    make(&paths.catalog, &["n", "inner"]).await.unwrap();
    make(&paths.catalog, &["m"]).await.unwrap();
    make(&paths.catalog, &["m", "inner"]).await.unwrap();
    for namespace in ["n", "m"] {
        let code = Some(ErrorCode::NamespaceNotEmpty);
        let dropped = paths.catalog.drop_namespace([namespace]).await;
        assert_eq!(own(dropped), code);
        for (path, ns) in paths.both() {
            expect(path, remove(ns, &[namespace]).await, NOT_EMPTY);
        }
        let target = format!("/v1/namespace/{namespace}/drop");
        let reply = paths.post(&target, "{}").await;
        on_the_wire("drop", &reply, 409, ErrorCode::NamespaceNotEmpty);
    }
    let inside = children(&paths.catalog, &["n"], None).await.unwrap();
    assert_eq!(inside, ["inner"]);
    assert_eq!(count(&paths.catalog, &["n", "t"]).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_4099_unsupported_is_not_acceptable_on_every_path() {
    let paths = Paths::new().await;
    let code = ErrorCode::Unsupported;
    let catalog = &paths.catalog;
    for result in [
        own(catalog.undrop_table(["n", "t"]).await),
        own(catalog.purge_table(["n", "t"]).await),
        own(catalog.drop_table(["n", "t"]).retention(None).await),
    ] {
        assert_eq!(result, Some(code));
    }
    for operation in super::operations::operations() {
        if operation.answer != UNSUPPORTED {
            continue;
        }
        for table in [&["t"][..], &["n", "t"]] {
            for (path, ns) in paths.both() {
                let what = format!("{} {path}", operation.name);
                expect(&what, operation.on(ns, table).await, UNSUPPORTED);
            }
        }
    }
    let overwrite = r#"{"mode":"overwrite"}"#;
    let cascade = r#"{"behavior":"cascade"}"#;
    for (target, body) in [
        ("/v1/table/t/rename", r#"{"new_table_name":"u"}"#),
        ("/v1/table/n$t/rename", r#"{"new_table_name":"u"}"#),
        ("/v1/table/batch-commit", r#"{"operations":[]}"#),
        ("/v1/table/version/batch-create", r#"{"entries":[]}"#),
        ("/v1/namespace/n/create", overwrite),
        ("/v1/namespace/n/drop", cascade),
    ] {
        on_the_wire(target, &paths.post(target, body).await, 406, code);
    }
    for (path, ns) in paths.both() {
        let none = std::collections::HashMap::new;
        let overwrite = make_with(ns, &["n"], Some("overwrite"), none()).await;
        expect(path, overwrite, UNSUPPORTED);
        let cascade = remove_with(ns, &["n"], None, Some("cascade")).await;
        expect(path, cascade, UNSUPPORTED);
    }
    assert_eq!(count(catalog, &["n", "t"]).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_6240_invalid_is_a_bad_request_on_every_path() {
    let paths = Paths::new().await;
    let code = ErrorCode::InvalidInput;
    let catalog = &paths.catalog;
    for bad in ["a b", "ä", "a#b", "a/b", "..", ""] {
        for table in [vec![bad], vec!["n", bad], vec![bad, "t"]] {
            let ident = || TableIdent::new(table.clone());
            for result in [
                own(catalog.create_table(ident(), rows(0..1)).await),
                own(catalog.declare_table(ident()).await),
                own(catalog
                    .create_namespace(NamespaceIdent::new(table.clone()))
                    .await),
            ] {
                assert_eq!(result, Some(code), "{table:?}");
            }
        }
    }
    for result in [
        own(catalog.register_table("t", "../out").await),
        own(catalog.register_table(["n", "x"], "../out").await),
        own(catalog.drop_namespace(NamespaceIdent::root()).await),
        own(catalog.open_table(["n", "a$b"]).await),
    ] {
        assert_eq!(result, Some(code));
    }
    for bad in ["a b", "ä", "a#b"] {
        for (path, ns) in paths.both() {
            for table in [&[bad][..], &["n", bad], &[bad, "t"]] {
                let what = format!("{path} {table:?}");
                expect(&what, create(ns, table, 0..1).await, INVALID);
                expect(&what, declare(ns, table).await, INVALID);
            }
            expect(path, make(ns, &[bad]).await, INVALID);
            expect(path, make(ns, &["n", bad]).await, INVALID);
        }
    }
    // Arguments other than names.
    for (path, ns) in paths.both() {
        for table in [&["x"][..], &["n", "x"]] {
            let junk = create_from(ns, table, junk()).await;
            expect(path, junk, INVALID);
        }
        for table in [&["t"][..], &["n", "t"]] {
            let mode = create_in_mode(ns, table, 0..1, Some("replace")).await;
            expect(path, mode, INVALID);
            let mut nothing = UpdateTableRequest::new(Vec::new());
            nothing.id = id(table);
            expect(path, ns.update_table(nothing).await, INVALID);
        }
        expect(path, register(ns, &["t"], "../out").await, INVALID);
        expect(path, register(ns, &["n", "x"], "../out").await, INVALID);
        let mode = remove_with(ns, &["n"], Some("force"), None).await;
        expect(path, mode, INVALID);
        expect(path, remove(ns, &[]).await, INVALID);
    }
    for target in [
        "/v1/table/a%20b/create",
        "/v1/table/a%23b/create",
        "/v1/table/n$a%23b/create",
        "/v1/table/x/create?mode=replace",
        "/v1/table/$/create",
    ] {
        let reply = paths.send(target, &ipc(&rows(0..1))).await;
        on_the_wire(target, &reply, 400, code);
    }
    for (target, body) in [
        ("/v1/table/t/register", r#"{"location":"../out"}"#),
        ("/v1/table/n$x/register", r#"{"location":"../out"}"#),
        ("/v1/table/t/describe", r#"{"id":["u"]}"#),
        ("/v1/table/t/describe", "no JSON"),
        ("/v1/table/a%2Fb/declare", "{}"),
        ("/v1/namespace/a%23b/create", "{}"),
        ("/v1/namespace/$/drop", "{}"),
        ("/v1/namespace/n/drop", r#"{"mode":"force"}"#),
    ] {
        on_the_wire(target, &paths.post(target, body).await, 400, code);
    }
    assert_eq!(listed(catalog, &[], 5).await, ["t"]);
    assert_eq!(listed(catalog, &["n"], 5).await, ["t"]);
}

/// A dropped table is not there, and its name is not free for a declare.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_is_not_found_or_a_conflict_on_every_path() {
    let paths = Paths::new().await;
    let catalog = &paths.catalog;
    catalog.drop_table("t").await.unwrap();
    let opened = catalog.open_table("t").await;
    assert!(matches!(opened, Err(Error::TableDropped { .. })));
    assert_eq!(own(opened), Some(ErrorCode::TableNotFound));
    for (path, ns) in paths.both() {
        expect(path, count(ns, &["t"]).await, NO_TABLE);
        let state = Answer::Refused(ErrorCode::InvalidTableState);
        expect(path, declare(ns, &["t"]).await, state);
    }
    let reply = paths.post("/v1/table/t/count_rows", "{}").await;
    on_the_wire("count", &reply, 404, ErrorCode::TableNotFound);
    assert!(reply.body.contains("undrop_table"), "{reply:?}");
    let reply = paths.post("/v1/table/t/declare", "{}").await;
    on_the_wire("declare", &reply, 409, ErrorCode::InvalidTableState);
    let register = r#"{"location":"t.lance"}"#;
    let reply = paths.post("/v1/table/t/register", register).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let reply = paths.post("/v1/table/t/count_rows", "{}").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "3"));
}

/// What the base refuses without a code is no internal error of the catalog's, and the same over REST.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_6240_every_refusal_has_a_code() {
    let paths = Paths::new().await;
    for table in [&["t"][..], &["n", "t"]] {
        let mut found = Vec::new();
        for (_, ns) in paths.both() {
            let mut negative = RestoreTableRequest::new(-1);
            negative.id = id(table);
            let mut missing = RestoreTableRequest::new(99);
            missing.id = id(table);
            let mut column = AlterTableDropColumnsRequest::new(vec!["nobody".to_string()]);
            column.id = id(table);
            let mut plan = AnalyzeTableQueryPlanRequest::new(0, QueryTableRequestVector::new());
            plan.id = id(table);
            plan.filter = Some("no such column >".to_string());
            let mut probes = QueryTableRequestVector::new();
            probes.single_vector = Some(vec![0.5]);
            let mut probes = QueryTableRequest::new(1, probes);
            probes.id = id(table);
            probes.vector_column = Some("id".to_string());
            probes.nprobes = Some(-1);
            found.push([
                ("restore -1", answer(&ns.restore_table(negative).await)),
                ("restore 99", answer(&ns.restore_table(missing).await)),
                (
                    "drop columns",
                    answer(&ns.alter_table_drop_columns(column).await),
                ),
                ("plan", answer(&ns.analyze_table_query_plan(plan).await)),
                ("probes", answer(&ns.query_table(probes).await)),
            ]);
        }
        assert_eq!(found[0], found[1], "{table:?}: not the same over REST");
        for (what, found) in found[0] {
            assert!(matches!(found, Answer::Refused(_)), "{table:?} {what}");
        }
        assert_eq!(found[0][0].1, INVALID, "{table:?}");
    }
}
