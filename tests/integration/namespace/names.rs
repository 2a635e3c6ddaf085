//! Case 16: names and locations that point elsewhere are refused before the first request, whatever the operation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lance_namespace_impls::DirectoryNamespaceBuilder;
use lancekeep::Catalog;

use super::calls::*;
use super::operations::{Of, operations};
use super::registration::OUTSIDE;
use crate::common::{catalog_of, rows};
use crate::support::SharedMemory;

/// Names that no table and no namespace can have, whoever made it.
pub(crate) fn bad_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "", ".", "..", "a/b", "../evil", "..\\evil", "/abs", "a%2fb", "a%2Fb", "a\0b", "\0",
    ]
    .map(String::from)
    .to_vec();
    names.push("x".repeat(300));
    names
}

/// Every file below a directory with its length.
pub(crate) fn tree(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut files = BTreeMap::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let is_dir = entry.file_type().unwrap().is_dir();
            let length = if is_dir {
                0
            } else {
                entry.metadata().unwrap().len()
            };
            if is_dir {
                pending.push(entry.path());
            }
            files.insert(entry.path(), length);
        }
    }
    files
}

/// The ids of an operation that have the name in them, at every place where a name can be.
fn with_the_name(of: Of, bad: &str) -> Vec<Vec<&str>> {
    match of {
        Of::Nothing => Vec::new(),
        Of::Namespace | Of::NewNamespace => {
            vec![vec![bad], vec!["n", bad], vec![bad, "n"]]
        }
        Of::Table | Of::NewTable | Of::Transaction => {
            vec![
                vec![bad],
                vec!["n", bad],
                vec![bad, "t"],
                vec!["n", bad, "t"],
            ]
        }
    }
}

async fn refused_by_all(catalog: &Catalog, bad: &str, chosen: impl Fn(Of) -> bool) {
    for operation in operations().iter().filter(|o| chosen(o.of)) {
        for id in with_the_name(operation.of, bad) {
            let what = format!("{} {id:?}", operation.name);
            expect(&what, operation.on(catalog, &id).await, INVALID);
        }
    }
}

#[tokio::test]
async fn lancedb_4191_bad_names_reach_no_store() {
    let actor = SharedMemory::new().actor();
    let catalog = catalog_of(&actor).await;
    make(&catalog, &["n"]).await.unwrap();
    create(&catalog, &["n", "t"], 0..1).await.unwrap();
    actor.counter.reset();
    for bad in bad_names() {
        refused_by_all(&catalog, &bad, |_| true).await;
        assert_eq!(
            actor.counter.total(),
            0,
            "{bad:?} {:?}",
            actor.counter.log()
        );
    }
    // Names that another client may have made: not to be given.
    for odd in ["a b", "ä", "a#b", "it's", "a\"b", "100%", "*", ":"] {
        refused_by_all(&catalog, odd, |of| matches!(of, Of::NewNamespace)).await;
        for table in [&[odd][..], &["n", odd], &[odd, "t"]] {
            let what = format!("{table:?}");
            expect(&what, create(&catalog, table, 0..1).await, INVALID);
            expect(&what, declare(&catalog, table).await, INVALID);
        }
        assert_eq!(
            actor.counter.total(),
            0,
            "{odd:?} {:?}",
            actor.counter.log()
        );
    }
    // In a namespace the base's delimiter is in no name, old or new.
    for operation in operations() {
        let ids = match operation.of {
            Of::Nothing => vec![],
            Of::Namespace | Of::NewNamespace => vec![vec!["a$b"], vec!["n", "$"]],
            _ => vec![vec!["n", "a$b"], vec!["$n", "t"], vec!["n", "$", "t"]],
        };
        for id in ids {
            let what = format!("{} {id:?}", operation.name);
            expect(&what, operation.on(&catalog, &id).await, INVALID);
        }
        assert_eq!(actor.counter.total(), 0, "{:?}", actor.counter.log());
    }
    // No id, and a table without a name.
    for operation in operations() {
        if matches!(operation.of, Of::Table | Of::NewTable | Of::Transaction) {
            expect(operation.name, operation.on(&catalog, &[]).await, INVALID);
        }
        assert_eq!(actor.counter.total(), 0, "{:?}", actor.counter.log());
    }
    assert_eq!(count(&catalog, &["n", "t"]).await.unwrap(), 1);
}

#[tokio::test]
async fn lancedb_1129_locations_outside_reach_no_store() {
    let actor = SharedMemory::new().actor();
    let catalog = catalog_of(&actor).await;
    make(&catalog, &["n"]).await.unwrap();
    create(&catalog, &["t"], 0..1).await.unwrap();
    drop_table(&catalog, &["t"]).await.unwrap();
    actor.counter.reset();
    for outside in OUTSIDE {
        for table in [&["t"][..], &["u"], &["n", "u"]] {
            let what = format!("{table:?} at {outside}");
            let registered = register(&catalog, table, outside).await;
            expect(&what, registered, INVALID);
            let mut request = lance_namespace::models::DeclareTableRequest::new();
            request.id = id(&["u"]);
            request.location = Some(outside.to_string());
            let ns: Namespace<'_> = &catalog;
            let declared = ns.declare_table(request).await;
            expect(&what, declared, INVALID);
        }
        assert_eq!(
            actor.counter.total(),
            0,
            "{outside} {:?}",
            actor.counter.log()
        );
    }
}

/// On local disk, with something to hit beside the root.
#[tokio::test]
async fn lancedb_4191_nothing_outside_the_root_is_touched() {
    let outer = tempfile::tempdir().unwrap();
    let at = |name: &str| outer.path().join(name).to_str().unwrap().to_string();
    let beside = Catalog::connect(at("")).await.unwrap();
    for name in ["evil", "out"] {
        create(&beside, &[name], 0..3).await.unwrap();
    }
    std::fs::create_dir(at("root")).unwrap();
    let catalog = Catalog::connect(at("root")).await.unwrap();
    make(&catalog, &["n"]).await.unwrap();
    let before = tree(outer.path());
    let names = bad_names().into_iter().chain(
        [
            "../evil.lance",
            "n/../../evil",
            "%2e%2e/evil",
            "..%2fevil",
            "../root",
        ]
        .map(String::from),
    );
    for bad in names {
        refused_by_all(&catalog, &bad, |_| true).await;
    }
    for outside in OUTSIDE
        .map(String::from)
        .into_iter()
        .chain([at("out.lance"), format!("file://{}", at("out.lance"))])
    {
        for table in [&["out"][..], &["n", "out"]] {
            let registered = register(&catalog, table, &outside).await;
            expect(&outside, registered, INVALID);
        }
    }
    assert_eq!(tree(outer.path()), before);
}

/// Whose check it is: the base without a manifest joins a name to the root as it is.
#[tokio::test]
async fn the_stock_directory_writes_beside_its_root() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let stock = DirectoryNamespaceBuilder::new(root.to_str().unwrap())
        .manifest_enabled(false)
        .build()
        .await
        .unwrap();
    create(&stock, &["../evil"], 0..1).await.unwrap();
    assert!(outer.path().join("evil.lance").is_dir());
}

/// Tables that a stock client gave other names are there for reading and dropping, and no new ones beside them.
#[tokio::test]
async fn odd_names_of_a_stock_client_are_read_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let stock = DirectoryNamespaceBuilder::new(root).build().await.unwrap();
    let odd = "my space";
    make(&stock, &[odd]).await.unwrap();
    make(&stock, &[odd, "ä#"]).await.unwrap();
    let tables = [&[odd, "t 1"][..], &[odd, "ä#", "100%"], &["r 1"]];
    for table in tables {
        create(&stock, table, 0..4).await.unwrap();
    }
    let catalog = Catalog::connect(root).await.unwrap();
    let ns: Arc<dyn lance_namespace::LanceNamespace> = Arc::new(catalog);
    let ns = ns.as_ref();
    assert_eq!(children(ns, &[], None).await.unwrap(), [odd]);
    assert_eq!(children(ns, &[odd], None).await.unwrap(), ["ä#"]);
    assert_eq!(listed(ns, &[odd], 2).await, ["t 1"]);
    // The base's own filter counts bytes as characters, and takes a quote for its own.
    make(&stock, &["it's"]).await.unwrap();
    make(&stock, &["it's", "so"]).await.unwrap();
    for (namespace, spaces, tables) in [
        (&[odd, "ä#"][..], &[][..], &["100%"][..]),
        (&["it's"], &["so"], &[]),
    ] {
        expect("exists", there(ns, namespace).await, Answer::Done);
        assert_eq!(children(ns, namespace, None).await.unwrap(), spaces);
        assert_eq!(listed(ns, namespace, 2).await, tables);
    }
    remove(ns, &["it's", "so"]).await.unwrap();
    remove(ns, &["it's"]).await.unwrap();
    for table in tables {
        let what = format!("{table:?}");
        expect(&what, exists(ns, table).await, Answer::Done);
        assert_eq!(count(ns, table).await.unwrap(), 4, "{what}");
        insert(ns, table, 4..6).await.unwrap();
        assert_eq!(query(ns, table, "id > 4").await.unwrap(), [5]);
        let again = create_from(ns, table, ipc(&rows(0..1))).await;
        expect(&what, again, INVALID);
    }
    let new = &[odd, "new"];
    expect("in an odd one", create(ns, new, 0..1).await, INVALID);
    expect("in an odd one", make(ns, new).await, INVALID);
    for table in tables {
        drop_table(ns, table).await.unwrap();
        expect("dropped", exists(ns, table).await, NO_TABLE);
    }
    remove(ns, &[odd, "ä#"]).await.unwrap();
    remove(ns, &[odd]).await.unwrap();
    assert!(children(ns, &[], None).await.unwrap().is_empty());
}
