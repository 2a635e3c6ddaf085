//! Case 9: looking writes nothing, and neither does what is refused.

use futures::TryStreamExt;
use lance_namespace::LanceNamespace;
use lance_namespace::models::{DescribeTableRequest, ListNamespacesRequest, ListTablesRequest};
use lancekeep::{Catalog, ErrorKind, NamespaceIdent, TableState};

use super::{MANIFEST, Place, assert_kind, make, read, tables};
use crate::common::{catalog_of, rows};
use crate::support::{Actor, Fault, SharedMemory};

/// An actor whose store refuses every write.
fn reader(memory: &SharedMemory) -> Actor {
    let actor = memory.actor();
    actor
        .faults
        .fail_matching(|request| request.kind.is_write(), Fault::PermissionDenied);
    actor
}

/// All the ways to look at what is not there.
async fn look_for_nothing(catalog: &Catalog) {
    let not_found = ErrorKind::TableNotFound;
    let no_namespace = ErrorKind::NamespaceNotFound;
    for parts in [&["a"][..], &["a", "b"]] {
        let ident: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert!(!catalog.namespace_exists(ident.clone()).await.unwrap());
        let described = catalog.describe_namespace(ident.clone()).await;
        assert_kind(described, no_namespace);
        let listed = catalog.list_namespaces(ident.clone()).await;
        assert_kind(listed, no_namespace);
        let listing = || catalog.list_tables().namespace(ident.clone());
        assert_kind(listing().await, no_namespace);
        assert_kind(listing().limit(3).await, no_namespace);
        let strict = listing().include_declared(false).await;
        assert_kind(strict, no_namespace);
        let streamed: Result<Vec<String>, _> = listing().stream().try_collect().await;
        assert_kind(streamed, no_namespace);
    }
    let t = ["a", "t"];
    assert_eq!(catalog.table_status(t).await.unwrap(), TableState::Absent);
    assert!(!catalog.table_exists(t).await.unwrap());
    assert_kind(catalog.open_table(t).await, not_found);
    assert_kind(catalog.open_table(t).version(1).await, not_found);
    let root = NamespaceIdent::root();
    assert!(catalog.list_namespaces(&root).await.unwrap().is_empty());
    assert!(catalog.namespace_exists(&root).await.unwrap());
    catalog.describe_namespace(&root).await.unwrap();

    let id = |parts: &[&str]| Some(parts.iter().map(ToString::to_string).collect());
    let mut request = DescribeTableRequest::new();
    request.id = id(&t);
    assert!(
        LanceNamespace::describe_table(catalog, request)
            .await
            .is_err()
    );
    let mut request = ListNamespacesRequest::new();
    request.id = id(&[]);
    let listed = LanceNamespace::list_namespaces(catalog, request).await;
    assert!(listed.unwrap().namespaces.is_empty());
    let mut request = ListTablesRequest::new();
    request.id = id(&[]);
    catalog.list_all_tables(request).await.unwrap();
}

/// What is refused, because what it needs is not there.
async fn change_nothing(catalog: &Catalog) {
    let no_namespace = ErrorKind::NamespaceNotFound;
    let t = ["a", "t"];
    assert_kind(catalog.create_table(t, rows(0..1)).await, no_namespace);
    assert_kind(catalog.declare_table(t).await, no_namespace);
    assert_kind(catalog.register_table(t, "x").await, no_namespace);
    assert_kind(catalog.create_namespace(["a", "b"]).await, no_namespace);
    let exist_ok = catalog.create_namespace(["a", "b"]).exist_ok().await;
    assert_kind(exist_ok, no_namespace);
    assert_kind(catalog.drop_namespace("a").await, no_namespace);
    assert!(!catalog.drop_namespace("a").if_exists().await.unwrap());
    assert_kind(catalog.drop_table(t).await, ErrorKind::TableNotFound);
    assert_eq!(catalog.drop_table(t).if_exists().await.unwrap(), None);
    let deregistered = catalog.deregister_table(t).await;
    assert_kind(deregistered, ErrorKind::TableNotFound);
    assert_kind(catalog.undrop_table(t).await, ErrorKind::Unsupported);
    assert_kind(catalog.purge_table(t).await, ErrorKind::Unsupported);
}

#[tokio::test]
async fn lance_7684_a_root_that_cannot_be_written_is_read() {
    let memory = SharedMemory::new();
    let owner = catalog_of(&memory.actor()).await;
    owner.create_table("r", rows(0..3)).await.unwrap();
    let before = memory.dump().await;

    let actor = reader(&memory);
    let catalog = catalog_of(&actor).await;
    assert_eq!(catalog.table_names().await.unwrap(), ["r"]);
    assert_eq!(tables(&catalog, &[]).await, ["r"]);
    assert_eq!(read(&catalog, "r").await, [0, 1, 2]);
    look_for_nothing(&catalog).await;
    change_nothing(&catalog).await;
    assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());
    assert_eq!(memory.dump().await, before);
    assert_eq!(read(&catalog, "r").await, [0, 1, 2]);
}

/// Also where it could write: the manifest comes into being with the first namespace.
async fn no_manifest(place: &Place) {
    let catalog = place.catalog().await;
    look_for_nothing(&catalog).await;
    change_nothing(&catalog).await;
    catalog.create_table("r", rows(0..3)).await.unwrap();
    catalog.drop_table("r").await.unwrap();
    catalog.undrop_table("r").await.unwrap();
    look_for_nothing(&catalog).await;
    change_nothing(&catalog).await;
    catalog.reconcile(false).await.unwrap();
    let known = ["r.lance".to_string()].into();
    assert_eq!(place.entries().await, known);
    make(&catalog, &[&["a"]]).await;
    assert!(place.has_manifest().await);
    place.assert_tidy(&["r"]).await;
}

on_both!(no_manifest: lance_7687_looking_makes_no_manifest_on_local_disk,
    lance_7687_looking_makes_no_manifest_in_memory);

/// A filled root through a store that refuses writes: everything is read, and not one write is tried.
#[tokio::test]
async fn lance_7684_children_of_a_root_that_cannot_be_written_are_read() {
    let memory = SharedMemory::new();
    let owner = catalog_of(&memory.actor()).await;
    owner
        .create_namespace("a")
        .property("k", "v")
        .await
        .unwrap();
    make(&owner, &[&["a", "b"]]).await;
    let t = ["a", "t"];
    owner.create_table(t, rows(0..3)).await.unwrap();
    owner.declare_table(["a", "d"]).await.unwrap();
    let before = memory.dump().await;

    let actor = reader(&memory);
    let catalog = catalog_of(&actor).await;
    let described = catalog.describe_namespace("a").await.unwrap();
    assert_eq!(described.properties["k"], "v");
    assert_eq!(catalog.list_namespaces("a").await.unwrap(), ["b"]);
    assert_eq!(tables(&catalog, &["a"]).await, ["d", "t"]);
    let listing = catalog.list_tables().namespace("a");
    let strict = listing.include_declared(false).await.unwrap();
    assert_eq!(strict.tables, ["t"]);
    assert_eq!(read(&catalog, t).await, [0, 1, 2]);
    let status = catalog.table_status(["a", "d"]).await.unwrap();
    assert_eq!(status, TableState::Declared);
    let missing = catalog.open_table(["a", "none"]).await;
    assert_kind(missing, ErrorKind::TableNotFound);
    // Refused for what is there, and for what is not.
    let made = catalog.create_table(t, rows(0..1)).await;
    assert_kind(made, ErrorKind::TableAlreadyExists);
    let made = catalog.declare_table(["a", "d"]).await;
    assert_kind(made, ErrorKind::TableAlreadyExists);
    let made = catalog.create_namespace("a").exist_ok().await.unwrap();
    assert_eq!(made.properties["k"], "v");
    let made = catalog.create_namespace("a").await;
    assert_kind(made, ErrorKind::NamespaceAlreadyExists);
    let dropped = catalog.drop_namespace("a").await;
    assert_kind(dropped, ErrorKind::NamespaceNotEmpty);
    let dropped = catalog.drop_table(["a", "none"]).await;
    assert_kind(dropped, ErrorKind::TableNotFound);
    assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());

    // What would write says that it cannot: no "not found", and nothing half done.
    let errors = [
        (
            "create",
            catalog
                .create_table(["a", "new"], rows(0..1))
                .await
                .unwrap_err(),
        ),
        (
            "materialise",
            catalog
                .create_table(["a", "d"], rows(0..1))
                .await
                .unwrap_err(),
        ),
        (
            "declare",
            catalog.declare_table(["a", "new"]).await.unwrap_err(),
        ),
        ("drop", catalog.drop_table(t).await.unwrap_err()),
        ("deregister", catalog.deregister_table(t).await.unwrap_err()),
        (
            "create namespace",
            catalog.create_namespace("new").await.unwrap_err(),
        ),
        (
            "create namespace inside",
            catalog.create_namespace(["a", "new"]).await.unwrap_err(),
        ),
        (
            "drop namespace",
            catalog.drop_namespace(["a", "b"]).await.unwrap_err(),
        ),
    ];
    for (what, error) in &errors {
        assert_eq!(error.kind(), ErrorKind::Storage, "{what}: {error:?}");
        assert!(!error.is_retryable(), "{what}: {error:?}");
    }
    assert_eq!(memory.dump().await, before);
    assert_eq!(read(&catalog, t).await, [0, 1, 2]);
}

/// A store that fails is never an empty one.
#[tokio::test]
async fn a_store_that_refuses_everything_is_no_empty_one() {
    let memory = SharedMemory::new();
    let owner = catalog_of(&memory.actor()).await;
    make(&owner, &[&["a"]]).await;
    owner.create_table(["a", "t"], rows(0..3)).await.unwrap();
    let before = memory.dump().await;
    // From the first request on, and after the manifest was read once.
    for warm in [false, true] {
        let actor = memory.actor();
        let catalog = catalog_of(&actor).await;
        if warm {
            assert_eq!(read(&catalog, ["a", "t"]).await, [0, 1, 2]);
        }
        actor
            .faults
            .fail_matching(|_| true, Fault::PermissionDenied);
        let t = ["a", "t"];
        let root = NamespaceIdent::root();
        let list = catalog.list_tables().namespace("a").await;
        let errors = [
            ("status", catalog.table_status(t).await.map(drop)),
            ("exists", catalog.table_exists(t).await.map(drop)),
            ("open", catalog.open_table(t).await.map(drop)),
            ("list", list.map(drop)),
            ("namespaces", catalog.list_namespaces(&root).await.map(drop)),
            ("inside", catalog.list_namespaces("a").await.map(drop)),
            ("describe", catalog.describe_namespace("a").await.map(drop)),
            ("there", catalog.namespace_exists("a").await.map(drop)),
            (
                "create",
                catalog.create_table(t, rows(0..1)).await.map(drop),
            ),
            ("declare", catalog.declare_table(t).await.map(drop)),
            ("register", catalog.register_table(t, "x").await.map(drop)),
            ("drop", catalog.drop_table(t).await.map(drop)),
            (
                "drop if there",
                catalog.drop_table(t).if_exists().await.map(drop),
            ),
            ("deregister", catalog.deregister_table(t).await.map(drop)),
            ("make", catalog.create_namespace("n").await.map(drop)),
            ("unmake", catalog.drop_namespace("a").await.map(drop)),
            (
                "unmake if there",
                catalog.drop_namespace("a").if_exists().await.map(drop),
            ),
        ];
        for (what, outcome) in errors {
            let error = outcome.expect_err(what);
            assert_eq!(
                error.kind(),
                ErrorKind::Storage,
                "{what}, warm: {warm}: {error:?}"
            );
        }
        assert_eq!(memory.dump().await, before);
    }
    assert!(before.iter().any(|path| path.contains(MANIFEST)));
}
