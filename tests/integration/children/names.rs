//! Cases 15 and 16 below the root: which names are refused, and when.

use lancekeep::lifecycle::DropOutcome;
use lancekeep::{
    Catalog, CreateMode, Error, ErrorKind, NamespaceIdent, Purge, TableIdent, TableState,
};

use super::stock::{self, stock};
use super::{Place, assert_kind, make, read, tables};
use crate::common::{catalog_of, local, rows};
use crate::support::SharedMemory;

/// Refused wherever they are given.
fn impossible() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        ".",
        "..",
        "__manifest",
        "a/b",
        "a/",
        "../evil",
        "..\\evil",
        "/abs",
        "a%2fb",
        "%2e%2e",
        "a\0b",
        "a\nb",
        "a$b",
        "$",
        "a$",
        "$a",
    ]
    .map(str::to_string)
    .to_vec();
    names.push("x".repeat(300));
    names
}

/// Refused for what is new.
const UNUSUAL: [&str; 10] = [
    "a#b",
    "a%b",
    "100%",
    "it's",
    "say \"hi\"",
    "my name",
    " ",
    "ä",
    "a:b",
    "a*",
];

type Refusals = Vec<(&'static str, Error)>;

/// What making something of this id says.
async fn makings(catalog: &Catalog, table: &TableIdent) -> Refusals {
    let create = || catalog.create_table(table, rows(0..1));
    let namespace = NamespaceIdent::from(table.parts());
    let exist_ok = catalog.create_namespace(&namespace).exist_ok().await;
    vec![
        ("create", create().await.unwrap_err()),
        (
            "overwrite",
            create().mode(CreateMode::Overwrite).await.unwrap_err(),
        ),
        (
            "create, exist ok",
            create().mode(CreateMode::ExistOk).await.unwrap_err(),
        ),
        ("declare", catalog.declare_table(table).await.unwrap_err()),
        (
            "register",
            catalog.register_table(table, "x").await.unwrap_err(),
        ),
        (
            "create namespace",
            catalog.create_namespace(&namespace).await.unwrap_err(),
        ),
        ("create namespace, exist ok", exist_ok.unwrap_err()),
    ]
}

/// What looking for something of this id, and taking it away, say.
async fn lookings(catalog: &Catalog, table: &TableIdent) -> Refusals {
    let namespace = NamespaceIdent::from(table.parts());
    let list = || catalog.list_tables().namespace(&namespace);
    let drop_if = catalog.drop_namespace(&namespace).if_exists().await;
    vec![
        ("open", catalog.open_table(table).await.unwrap_err()),
        (
            "open a version",
            catalog.open_table(table).version(1).await.unwrap_err(),
        ),
        ("status", catalog.table_status(table).await.unwrap_err()),
        ("exists", catalog.table_exists(table).await.unwrap_err()),
        ("drop", catalog.drop_table(table).await.unwrap_err()),
        (
            "drop if exists",
            catalog.drop_table(table).if_exists().await.unwrap_err(),
        ),
        (
            "deregister",
            catalog.deregister_table(table).await.unwrap_err(),
        ),
        (
            "describe namespace",
            catalog.describe_namespace(&namespace).await.unwrap_err(),
        ),
        (
            "namespace exists",
            catalog.namespace_exists(&namespace).await.unwrap_err(),
        ),
        (
            "list namespaces",
            catalog.list_namespaces(&namespace).await.unwrap_err(),
        ),
        ("list tables", list().await.unwrap_err()),
        ("list a page", list().limit(2).await.unwrap_err()),
        (
            "drop namespace",
            catalog.drop_namespace(&namespace).await.unwrap_err(),
        ),
        ("drop namespace if exists", drop_if.unwrap_err()),
    ]
}

fn assert_refused(bad: &str, refusals: Refusals) {
    for (operation, error) in refusals {
        assert!(
            matches!(&error, Error::InvalidIdent { name, .. } if name == bad),
            "{operation} {bad:?}: {error}"
        );
        assert!(!error.is_retryable());
        assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
    }
}

/// At each level of the id.
fn at_each_level(bad: &str) -> [TableIdent; 3] {
    [
        TableIdent::from([bad, "t"]),
        TableIdent::from(["a", bad]),
        TableIdent::from(["a", bad, "t"]),
    ]
}

#[tokio::test]
async fn lancedb_4191_bad_parts_are_refused_without_a_request() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    for bad in impossible() {
        for ident in at_each_level(&bad) {
            assert_refused(&bad, makings(&catalog, &ident).await);
            assert_refused(&bad, lookings(&catalog, &ident).await);
        }
    }
    for bad in UNUSUAL {
        for ident in at_each_level(bad) {
            assert_refused(bad, makings(&catalog, &ident).await);
        }
        // At the root too, where a namespace is made like any other.
        let namespace = catalog.create_namespace(bad).await.unwrap_err();
        assert_refused(bad, vec![("create namespace", namespace)]);
    }
    let root = NamespaceIdent::root();
    let created = catalog.create_namespace(&root).await;
    assert_kind(created, ErrorKind::NamespaceAlreadyExists);
    let dropped = catalog.drop_namespace(&root).await.unwrap_err();
    assert!(
        matches!(
            dropped.kind(),
            ErrorKind::InvalidInput | ErrorKind::InvalidIdent
        ),
        "{dropped}"
    );
    let log = actor.counter.log();
    assert!(log.is_empty(), "{log:?}");
    assert!(memory.dump().await.is_empty());
}

/// The same with a manifest that others have filled: nothing is asked of it.
#[tokio::test]
async fn lance_namespace_210_bad_parts_are_refused_without_a_request_beside_good_ones() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    make(&catalog, &[&["a"]]).await;
    catalog.create_table(["a", "b"], rows(0..3)).await.unwrap();
    let before = memory.dump().await;
    actor.counter.reset();
    // `["a$b"]` and `["a", "b"]` are the same row of the manifest.
    for bad in ["a$b", "a$", "$b", "$"] {
        for ident in at_each_level(bad) {
            assert_refused(bad, makings(&catalog, &ident).await);
            assert_refused(bad, lookings(&catalog, &ident).await);
        }
        let namespace = NamespaceIdent::from(bad);
        let described = catalog.describe_namespace(&namespace).await.unwrap_err();
        let dropped = catalog.drop_namespace(&namespace).await.unwrap_err();
        assert_refused(bad, vec![("describe", described), ("drop", dropped)]);
    }
    assert_eq!(actor.counter.total(), 0, "{:?}", actor.counter.log());
    assert_eq!(memory.dump().await, before);
    assert_eq!(read(&catalog, ["a", "b"]).await, [0, 1, 2]);
}

/// Parts with dots stay what they are.
#[tokio::test]
async fn lance_duckdb_226_dots_are_no_separators() {
    let (_dir, catalog) = local().await;
    make(&catalog, &[&["a"], &["a.b"], &["a", "b.c"]]).await;
    catalog
        .create_table(["a.b", "c"], rows(0..1))
        .await
        .unwrap();
    catalog
        .create_table(["a", "b.c"], rows(0..1))
        .await
        .unwrap_err();
    catalog
        .create_table(["a", "b.d"], rows(1..3))
        .await
        .unwrap();
    catalog.create_table("a.b.d", rows(5..6)).await.unwrap();
    assert_eq!(read(&catalog, ["a.b", "c"]).await, [0]);
    assert_eq!(read(&catalog, ["a", "b.d"]).await, [1, 2]);
    assert_eq!(read(&catalog, "a.b.d").await, [5]);
    let root = NamespaceIdent::root();
    assert_eq!(catalog.list_namespaces(root).await.unwrap(), ["a", "a.b"]);
    assert_eq!(catalog.list_namespaces("a").await.unwrap(), ["b.c"]);
    assert_eq!(tables(&catalog, &["a"]).await, ["b.d"]);
    let missing = catalog.open_table(["a", "b", "d"]).await;
    assert_kind(missing, ErrorKind::TableNotFound);
}

/// The name is the end of the directory's name: it must not turn that into something of the root's.
async fn endings(place: &Place) {
    let catalog = place.catalog().await;
    let names = [
        "x.lance",
        "x.deleted",
        "x.lance.deleted",
        "x.claim",
        "x.deleted.6f3b2a54-7a6b-4f27-9a39-0f6a4d1f0b11.claim",
        "x.deleted.6f3b2a54-7a6b-4f27-9a39-0f6a4d1f0b11.purge.0",
        "_x",
        "0123abcd_x",
        "-",
    ];
    make(&catalog, &[&["a"], &["a", "n.lance"], &["b.lance"]]).await;
    catalog.create_table("x", rows(0..1)).await.unwrap();
    let ids: Vec<Vec<String>> = names
        .iter()
        .flat_map(|name| {
            [
                vec!["a", name],
                vec!["a", "n.lance", name],
                vec!["b.lance", name],
            ]
        })
        .map(|parts| parts.into_iter().map(str::to_string).collect())
        .collect();
    for id in &ids {
        catalog.create_table(id.clone(), rows(0..3)).await.unwrap();
    }
    let mut sorted = names.map(str::to_string);
    sorted.sort();
    assert_eq!(tables(&catalog, &["a"]).await, sorted);
    // The root has its own table, and nothing else.
    assert_eq!(catalog.table_names().await.unwrap(), ["x"]);
    assert_eq!(tables(&catalog, &[]).await, ["x"]);
    assert!(catalog.list_dropped_tables().await.unwrap().is_empty());
    let report = catalog.reconcile(false).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(catalog.drop_all_tables().await.unwrap().len(), 1);
    let purged = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert_eq!((purged.tables.len(), purged.failures.len()), (1, 0));
    for id in &ids {
        assert_eq!(read(&catalog, id.clone()).await, [0, 1, 2], "{id:?}");
        let dropped = catalog.drop_table(id.clone()).await.unwrap();
        assert_eq!(dropped.outcome, DropOutcome::Deleted, "{id:?}");
    }
    place.assert_tidy(&[]).await;
}

on_both!(endings: names_that_end_like_records_of_the_root_on_local_disk,
    names_that_end_like_records_of_the_root_in_memory);

async fn purge_of_the_root(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    let x = ["a", "x.lance"];
    catalog.create_table(x, rows(0..3)).await.unwrap();
    let dropped = catalog.drop_all_tables().await.unwrap();
    let purged = catalog.purge_dropped(Purge::all()).await.unwrap();
    assert_eq!(read(&catalog, x).await, [0, 1, 2]);
    assert!(dropped.is_empty() && purged.tables.is_empty(), "{purged:?}");
}

on_both!(purge_of_the_root: a_purge_of_the_root_spares_children_on_local_disk,
    a_purge_of_the_root_spares_children_in_memory);
on_servers!(purge_of_the_root:
    a_purge_of_the_root_spares_children_on_s3,
    a_purge_of_the_root_spares_children_on_azure);

/// Two dots in a name lead nowhere, but the base takes them for a path: the name works, or it is refused at once.
#[tokio::test]
async fn dots_in_a_name_work_or_are_refused_without_a_request() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    make(&catalog, &[&["a"]]).await;
    for id in [["a", "..."], ["a", "x..y"], ["a", "x.."], ["a", "..x"]] {
        let before = memory.dump().await;
        actor.counter.reset();
        match catalog.create_table(id, rows(0..3)).await {
            Ok(_) => assert_eq!(read(&catalog, id).await, [0, 1, 2], "{id:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidIdent, "{id:?}: {error}");
                assert_eq!(actor.counter.total(), 0, "{id:?}");
                assert_eq!(memory.dump().await, before, "{id:?}");
            }
        }
    }
    // The same where it is a namespace's.
    let made = catalog.create_namespace("n..n").await;
    match made {
        Ok(_) => {
            let id = ["n..n", "t"];
            catalog.create_table(id, rows(0..3)).await.unwrap();
            assert_eq!(read(&catalog, id).await, [0, 1, 2]);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidIdent, "{error}"),
    }
}

/// A namespace whose id begins another's is not its parent, and listings do not mix them.
#[tokio::test]
async fn a_prefix_is_no_parent() {
    let (_dir, catalog) = local().await;
    make(
        &catalog,
        &[&["a"], &["ab"], &["ab", "c"], &["a_"], &["a-b"]],
    )
    .await;
    for parent in ["ab", "a_", "a-b"] {
        catalog
            .create_table([parent, "t"], rows(0..1))
            .await
            .unwrap();
    }
    assert!(tables(&catalog, &["a"]).await.is_empty());
    assert!(catalog.list_namespaces("a").await.unwrap().is_empty());
    catalog.drop_namespace("a").await.unwrap();
    assert_eq!(tables(&catalog, &["ab"]).await, ["t"]);
    assert_eq!(catalog.list_namespaces("ab").await.unwrap(), ["c"]);
    let dropped = catalog.drop_namespace("ab").await;
    assert_kind(dropped, ErrorKind::NamespaceNotEmpty);
}

/// The id is part of a directory's name on local disk: its length is limited in all.
#[tokio::test]
async fn ids_have_a_length_on_local_disk() {
    let (dir, catalog) = local().await;
    let long = "n".repeat(89);
    catalog.create_namespace(long.as_str()).await.unwrap();
    let fits = "t".repeat(90);
    let id = [long.as_str(), fits.as_str()];
    catalog.create_table(id, rows(0..2)).await.unwrap();
    assert_eq!(read(&catalog, id).await, [0, 1]);
    catalog.drop_table(id).await.unwrap();
    catalog.declare_table(id).await.unwrap();
    catalog.create_table(id, rows(2..3)).await.unwrap();
    assert_eq!(read(&catalog, id).await, [2]);

    let before: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    let longer = "t".repeat(91);
    let id = [long.as_str(), longer.as_str()];
    let created = catalog.create_table(id, rows(0..1)).await;
    assert_kind(created, ErrorKind::InvalidIdent);
    assert_kind(catalog.declare_table(id).await, ErrorKind::InvalidIdent);
    let registered = catalog.register_table(id, "x").await;
    assert_kind(registered, ErrorKind::InvalidIdent);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before.len());
    // Asking for it is no mistake.
    let status = catalog.table_status(id).await.unwrap();
    assert_eq!(status, TableState::Absent);
}

#[tokio::test]
async fn ids_may_be_longer_on_object_stores() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    let long = "n".repeat(255);
    catalog.create_namespace(long.as_str()).await.unwrap();
    let id = [long.as_str(), long.as_str()];
    catalog.create_table(id, rows(0..2)).await.unwrap();
    assert_eq!(read(&catalog, id).await, [0, 1]);
    actor.counter.reset();
    let longer = [long.as_str(), "n", long.as_str()];
    let created = catalog.create_table(longer, rows(0..1)).await;
    assert_kind(created, ErrorKind::InvalidIdent);
    assert_eq!(actor.counter.total(), 0);
}

/// Names that only a stock client makes: what is there can be used and taken away.
async fn odd_names(place: &Place, odd: &[&str]) {
    let theirs = stock(place, true).await;
    for name in odd {
        stock::make(&theirs, &[name]).await;
        stock::create(&theirs, &[name, "t"], 0).await;
    }
    let catalog = place.catalog().await;
    let mut sorted: Vec<String> = odd.iter().map(ToString::to_string).collect();
    sorted.sort();
    let listed = catalog.list_namespaces(NamespaceIdent::root()).await;
    assert_eq!(listed.unwrap(), sorted);
    for name in odd.iter().copied() {
        assert!(catalog.namespace_exists(name).await.unwrap());
        let described = catalog.describe_namespace(name).await.unwrap();
        assert_eq!(described.ident.parts(), [name]);
        assert_eq!(read(&catalog, [name, "t"]).await, [0, 1, 2], "{name:?}");
        let status = catalog.table_status([name, "t"]).await.unwrap();
        assert!(status.is_live(), "{name:?}: {status:?}");
        let dropped = catalog.drop_namespace(name).await;
        assert_kind(dropped, ErrorKind::NamespaceNotEmpty);
        let listed = catalog.list_tables().namespace(name).await;
        // The base puts the name into a filter as it is, and counts its bytes as characters.
        assert_eq!(listed.unwrap().tables, ["t"], "{name:?}");
        assert!(catalog.list_namespaces(name).await.unwrap().is_empty());
        catalog.drop_table([name, "t"]).await.unwrap();
        catalog.drop_namespace(name).await.unwrap();
        assert!(!catalog.namespace_exists(name).await.unwrap());
    }
    let rows = place.assert_tidy(&[]).await;
    assert!(rows.is_empty(), "{rows:?}");
}

#[tokio::test]
async fn odd_names_of_stock_clients_on_local_disk() {
    let odd = [
        "my name",
        "say hi",
        "ä",
        "a#b",
        "100%",
        "it's",
        "say \"hi\"",
    ];
    odd_names(&Place::on_disk(), &odd).await;
}

#[tokio::test]
async fn odd_names_of_stock_clients_in_memory() {
    odd_names(&Place::in_memory(), &["it's", "a*(b)", "a=b"]).await;
}

/// On stores where a URI is not decoded Lance stores such a table under another name than the base asks for. It is
/// told so, and nothing is changed.
#[tokio::test]
async fn odd_names_that_lance_cannot_address_are_told() {
    let place = Place::in_memory();
    let theirs = stock(&place, true).await;
    stock::make(&theirs, &["my name"]).await;
    stock::create(&theirs, &["my name", "t"], 0).await;
    let catalog = place.catalog().await;
    let before = (place.manifest().await, place.entries().await);
    assert!(catalog.namespace_exists("my name").await.unwrap());
    let t = ["my name", "t"];
    for refused in [
        catalog.open_table(t).await.map(drop),
        catalog.table_status(t).await.map(drop),
        catalog.drop_table(t).await.map(drop),
    ] {
        assert_kind(refused, ErrorKind::InvalidIdent);
    }
    assert_eq!((place.manifest().await, place.entries().await), before);
}
