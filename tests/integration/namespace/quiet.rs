//! What looking costs and gives away: no write, no directory, no secret; and the race of two creates.

use std::sync::Arc;

use lance_namespace::LanceNamespace;
use lance_namespace::models::{CreateTableRequest, DeclareTableRequest};
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lancekeep::Catalog;

use super::calls::*;
use super::operations::{Of, operations};
use crate::common::{catalog_of, local, rows};
use crate::support::{Fault, SharedMemory};

/// Case 9: whatever is asked of tables that are not there writes nothing, and makes no manifest.
#[tokio::test]
async fn lance_7684_looking_writes_nothing() {
    let actor = SharedMemory::new().actor();
    let catalog = catalog_of(&actor).await;
    create(&catalog, &["t"], 0..1).await.unwrap();
    actor.counter.reset();
    let described = describe(&catalog, &["a", "t"]).await;
    expect("describe", described, NO_TABLE);
    expect("exists", exists(&catalog, &["a", "t"]).await, NO_TABLE);
    expect("drop", drop_table(&catalog, &["a", "t"]).await, NO_TABLE);
    expect("drop", remove(&catalog, &["a"]).await, NO_NAMESPACE);
    let created = create(&catalog, &["a", "t"], 0..1).await;
    expect("create", created, NO_NAMESPACE);
    assert_eq!(count(&catalog, &["t"]).await.unwrap(), 1);
    assert_eq!(listed(&catalog, &[], 5).await, ["t"]);
    assert!(children(&catalog, &[], None).await.unwrap().is_empty());
    assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());

    let mut wrote = Vec::new();
    for operation in operations() {
        let ids: Vec<&[&str]> = match operation.of {
            Of::Table | Of::Transaction => vec![&["nobody"], &["a", "nobody"], &["a", "b", "c"]],
            Of::NewTable => vec![&["a", "nobody"]],
            Of::NewNamespace => vec![&["a", "b"]],
            Of::Namespace => vec![&["a"], &["a", "b"], &[]],
            Of::Nothing => vec![&["nobody"]],
        };
        for id in ids {
            actor.counter.reset();
            let result = operation.on(&catalog, id).await;
            if actor.counter.writes() > 0 || answer(&result) == Answer::Uncoded {
                wrote.push((operation.name, id, answer(&result), actor.counter.log()));
            }
        }
    }
    assert!(wrote.is_empty(), "{wrote:#?}");
}

/// Case 9: a store that rejects writes can be looked at, at every level.
#[tokio::test]
async fn lance_7687_a_store_that_rejects_writes_is_read() {
    let memory = SharedMemory::new();
    let writer = catalog_of(&memory.actor()).await;
    make(&writer, &["a"]).await.unwrap();
    make(&writer, &["a", "b"]).await.unwrap();
    for table in [&["t"][..], &["a", "t"], &["a", "b", "t"]] {
        create(&writer, table, 0..3).await.unwrap();
    }
    create(&writer, &["gone"], 0..1).await.unwrap();
    drop_table(&writer, &["gone"]).await.unwrap();

    let reader = memory.actor();
    let refused = Fault::PermissionDenied;
    reader
        .faults
        .fail_matching(|request| request.kind.is_write(), refused);
    let catalog = catalog_of(&reader).await;
    for (table, namespace) in [
        (&["t"][..], &[][..]),
        (&["a", "t"], &["a"]),
        (&["a", "b", "t"], &["a", "b"]),
    ] {
        expect("exists", exists(&catalog, table).await, Answer::Done);
        assert_eq!(count(&catalog, table).await.unwrap(), 3);
        assert_eq!(query(&catalog, table, "id = 1").await.unwrap(), [1]);
        let shown = describe_in_detail(&catalog, table).await.unwrap();
        assert_eq!(shown.version, Some(1));
        assert_eq!(listed(&catalog, namespace, 7).await, ["t"]);
    }
    assert_eq!(children(&catalog, &[], None).await.unwrap(), ["a"]);
    assert_eq!(children(&catalog, &["a"], None).await.unwrap(), ["b"]);
    let all = all_tables(&catalog, None, None).await.tables;
    assert_eq!(all, ["a$b$t", "a$t", "t"]);
    expect("gone", count(&catalog, &["gone"]).await, NO_TABLE);
    let no_table = count(&catalog, &["a", "nobody"]).await;
    expect("nobody", no_table, NO_TABLE);
    let no_namespace = there(&catalog, &["a", "no"]).await;
    expect("no namespace", no_namespace, NO_NAMESPACE);
    assert_eq!(reader.counter.writes(), 0, "{:?}", reader.counter.log());
    // And what would write says that it could not.
    for table in [&["new"][..], &["a", "new"]] {
        let created = create(&catalog, table, 0..1).await;
        assert_ne!(answer(&created), Answer::Done);
        assert_ne!(answer(&created), NO_TABLE);
    }
}

/// Looking at what is not there makes no directory.
#[tokio::test]
async fn lancedb_1223_no_directory_appears() {
    let (dir, catalog) = local().await;
    for operation in operations() {
        if operation.needs_table() || operation.of == Of::Namespace {
            for id in [&["nobody"][..], &["a", "nobody"]] {
                let found = operation.on(&catalog, id).await;
                assert_ne!(answer(&found), Answer::Done, "{} {id:?}", operation.name);
            }
        }
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Case 5: of two creates of one child table one wins, and the other is told that the table exists.
#[tokio::test]
async fn lance_6143_a_lost_race_of_two_creates_says_already_exists() {
    let memory = SharedMemory::new();
    let one = catalog_of(&memory.actor()).await;
    let two = catalog_of(&memory.actor()).await;
    make(&one, &["n"]).await.unwrap();
    for round in 0..4 {
        let name = format!("t{round}");
        let table = ["n", name.as_str()];
        let (a, b) = tokio::join!(create(&one, &table, 0..1), create(&two, &table, 0..2));
        let rows = match (answer(&a), answer(&b)) {
            (Answer::Done, TABLE_EXISTS) => 1,
            (TABLE_EXISTS, Answer::Done) => 2,
            other => panic!("round {round}: {other:?} {a:?} {b:?}"),
        };
        for catalog in [&one, &two] {
            assert_eq!(count(catalog, &table).await.unwrap(), rows);
        }
    }
    let mut names = listed(&two, &["n"], 3).await;
    names.sort();
    let wanted: Vec<_> = (0..4).map(|round| format!("t{round}")).collect();
    assert_eq!(names, wanted);
    // The losers took away what they had written.
    let dirs: std::collections::BTreeSet<_> = memory
        .dump()
        .await
        .into_iter()
        .filter(|path| path.contains("n$t"))
        .filter_map(|path| {
            path.split('/')
                .find(|s| s.contains("n$t"))
                .map(String::from)
        })
        .collect();
    assert_eq!(dirs.len(), 4, "{dirs:?}");
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
    make(&catalog, &["n"]).await.unwrap();
    let shown = format!("{catalog:?} {}", catalog.namespace_id());
    assert!(!shown.contains("SENTINEL"), "{shown}");
    for level in [&[][..], &["n"]] {
        let table = within(level, "t");
        let made = create(&catalog, &table, 0..1).await.unwrap();
        let kept = create_in_mode(&catalog, &table, 0..1, Some("exist_ok")).await;
        let over = create_in_mode(&catalog, &table, 0..1, Some("overwrite")).await;
        let declared = declare(&catalog, &within(level, "d")).await.unwrap();
        let described = describe(&catalog, &table).await.unwrap();
        let detailed = describe_in_detail(&catalog, &table).await.unwrap();
        let shown = format!("{made:?} {kept:?} {over:?} {declared:?} {described:?} {detailed:?}");
        assert!(!shown.contains("SENTINEL"), "{shown}");
        let dropped = drop_table(&catalog, &table).await.unwrap();
        assert!(!format!("{dropped:?}").contains("SENTINEL"));
        let named = within(level, "SENTINEL-SECRET");
        let error = describe(&catalog, &named).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("SENTINEL"));
    }
    // With properties the base does more of it.
    let ns: Namespace<'_> = &catalog;
    let mut request = CreateTableRequest::new();
    request.id = id(&["n", "with"]);
    request.properties = Some(properties(&[("k", "v")]));
    let made = ns.create_table(request, ipc(&rows(0..1))).await.unwrap();
    assert!(!format!("{made:?}").contains("SENTINEL"), "{made:?}");
    let mut request = DeclareTableRequest::new();
    request.id = id(&["n", "declared"]);
    request.properties = Some(properties(&[("k", "v")]));
    let made = ns.declare_table(request).await.unwrap();
    assert!(!format!("{made:?}").contains("SENTINEL"), "{made:?}");
    let error = there(&catalog, &["SENTINEL-SECRET"]).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("SENTINEL"));
}

/// Whose answer it was: the base tells a client what it was built with.
#[tokio::test]
async fn the_stock_namespaces_answer_with_their_storage_options() {
    for manifest in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let stock = DirectoryNamespaceBuilder::new(dir.path().to_str().unwrap())
            .storage_option("aws_secret_access_key", "SENTINEL-SECRET")
            .manifest_enabled(manifest)
            .build()
            .await
            .unwrap();
        let made = create(&stock, &["t"], 0..1).await.unwrap();
        let told = made.storage_options.unwrap_or_default();
        assert_eq!(told["aws_secret_access_key"], "SENTINEL-SECRET");
    }
}

/// The trait object is what clients hold; clones and threads share it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_is_shared_as_a_trait_object() {
    let (_dir, catalog) = local().await;
    let shared: Arc<dyn LanceNamespace> = Arc::new(catalog.clone());
    let other = shared.clone();
    let created = tokio::spawn(async move { create(other.as_ref(), &["t"], 0..2).await }).await;
    created.unwrap().unwrap();
    assert_eq!(count(shared.as_ref(), &["t"]).await.unwrap(), 2);
    assert!(shared.namespace_id().contains(catalog.root_uri()));
}
