//! Namespaces: any depth, their properties, what is in them, and how they go.

use std::collections::HashMap;

use lancekeep::Catalog;

use super::calls::*;
use super::{NamespaceRules, TableRules};

/// The root is a namespace that is always there, whoever keeps it.
pub(crate) async fn the_root(ns: Namespace<'_>) {
    expect("exists", there(ns, &[]).await, Answer::Done);
    assert_eq!(describe_namespace(ns, &[]).await.unwrap(), HashMap::new());
    assert!(children(ns, &[], None).await.unwrap().is_empty());
    expect("create", make(ns, &[]).await, NAMESPACE_EXISTS);
    expect("drop", remove(ns, &[]).await, INVALID);
}

/// A directory without a manifest has no namespaces, and no tables in them.
pub(crate) async fn none_but_the_root(ns: Namespace<'_>) {
    expect("create", make(ns, &["a"]).await, UNSUPPORTED);
    expect("drop", remove(ns, &["a"]).await, UNSUPPORTED);
    expect("exists", there(ns, &["a"]).await, UNSUPPORTED);
    let described = describe_namespace(ns, &["a"]).await;
    expect("describe", described, UNSUPPORTED);
    expect("list", children(ns, &["a"], None).await, UNSUPPORTED);
    let t = &["a", "t"];
    expect("create a table", create(ns, t, 0..1).await, UNSUPPORTED);
    expect("declare", declare(ns, t).await, UNSUPPORTED);
    expect("describe", describe(ns, t).await, UNSUPPORTED);
    expect("table exists", exists(ns, t).await, UNSUPPORTED);
    expect("count", count(ns, t).await, UNSUPPORTED);
    expect("drop a table", drop_table(ns, t).await, UNSUPPORTED);
    expect("deregister", deregister(ns, t).await, UNSUPPORTED);
}

/// Create, describe, list and drop, three deep.
pub(crate) async fn nested(ns: Namespace<'_>, rules: &NamespaceRules) {
    expect("drop", remove(ns, &["a"]).await, NO_NAMESPACE);
    expect("no parent", make(ns, &["a", "b"]).await, NO_NAMESPACE);
    expect("exists", there(ns, &["a"]).await, NO_NAMESPACE);
    let described = describe_namespace(ns, &["a"]).await;
    expect("describe", described, NO_NAMESPACE);

    let long = "x'\"$#% ä\n".repeat(11 << 10);
    assert!(long.len() > 100 << 10);
    let deep = properties(&[
        ("owner", "it's \"me\""),
        ("a$b#c%2f d", "ä\n\t\\ %24"),
        ("empty", ""),
        ("long", &long),
    ]);
    let given = [
        (vec!["a"], properties(&[("depth", "1")])),
        (vec!["a", "b"], HashMap::new()),
        (vec!["a", "b", "c"], deep),
    ];
    for (path, properties) in &given {
        let made = make_with(ns, path, None, properties.clone()).await.unwrap();
        assert_eq!(made.properties.unwrap_or_default(), *properties);
        expect("again", make(ns, path).await, NAMESPACE_EXISTS);
    }
    for (path, properties) in &given {
        expect("exists", there(ns, path).await, Answer::Done);
        assert_eq!(describe_namespace(ns, path).await.unwrap(), *properties);
    }
    let below = ["a", "b", "c", "d", "e"];
    expect("no parent", make(ns, &below).await, NO_NAMESPACE);
    expect("exists", there(ns, &below[..4]).await, NO_NAMESPACE);

    for name in ["z", "b-1", "b.2", "_"] {
        make(ns, &["a", name]).await.unwrap();
    }
    let sorted = ["_", "b", "b-1", "b.2", "z"];
    for page in [None, Some(1), Some(2), Some(5), Some(7)] {
        assert_eq!(children(ns, &["a"], page).await.unwrap(), sorted);
    }
    assert_eq!(children(ns, &[], Some(1)).await.unwrap(), ["a"]);
    assert_eq!(children(ns, &["a", "b"], None).await.unwrap(), ["c"]);
    let leaf = &["a", "b", "c"];
    assert!(children(ns, leaf, None).await.unwrap().is_empty());

    modes(ns, rules).await;

    expect("drop", remove(ns, &["a"]).await, NOT_EMPTY);
    expect("drop", remove(ns, &["a", "b"]).await, NOT_EMPTY);
    for path in [&["a", "b", "c"][..], &["a", "b"]] {
        expect("drop", remove(ns, path).await, Answer::Done);
        expect("again", remove(ns, path).await, NO_NAMESPACE);
    }
    for name in ["z", "b-1", "b.2", "_"] {
        remove(ns, &["a", name]).await.unwrap();
    }
    expect("drop", remove(ns, &["a"]).await, Answer::Done);
    assert!(children(ns, &[], None).await.unwrap().is_empty());
    // A name that was dropped starts anew.
    make(ns, &["a"]).await.unwrap();
    assert_eq!(
        describe_namespace(ns, &["a"]).await.unwrap(),
        HashMap::new()
    );
}

async fn modes(ns: Namespace<'_>, rules: &NamespaceRules) {
    let other = || properties(&[("depth", "another")]);
    let again = |mode| make_with(ns, &["a"], Some(mode), other());
    let gone = |mode, behavior| remove_with(ns, &["gone"], mode, behavior);
    if rules.modes {
        let there = again("exist_ok").await.unwrap();
        assert_eq!(there.properties, Some(properties(&[("depth", "1")])));
        expect("overwrite", again("overwrite").await, UNSUPPORTED);
        expect("unknown", again("replace").await, INVALID);
        expect("skip", gone(Some("skip"), None).await, Answer::Done);
        expect("unknown", gone(Some("force"), None).await, INVALID);
        let cascade = remove_with(ns, &["a"], None, Some("cascade")).await;
        expect("cascade", cascade, UNSUPPORTED);
        expect("unknown", gone(None, Some("hope")).await, INVALID);
    } else {
        for mode in ["exist_ok", "overwrite", "replace"] {
            expect(mode, again(mode).await, NAMESPACE_EXISTS);
        }
        expect("skip", gone(Some("skip"), None).await, NO_NAMESPACE);
        let cascade = remove_with(ns, &["a"], None, Some("cascade")).await;
        expect("cascade", cascade, NOT_EMPTY);
    }
    expect("fail", gone(Some("Fail"), None).await, NO_NAMESPACE);
    let restrict = gone(None, Some("Restrict")).await;
    expect("restrict", restrict, NO_NAMESPACE);
    let kept = describe_namespace(ns, &["a"]).await.unwrap();
    assert_eq!(kept, properties(&[("depth", "1")]));
}

/// Case 12: a namespace goes when it is empty, and a refusal changes nothing.
pub(crate) async fn dropped_when_empty(ns: Namespace<'_>, rules: &TableRules) {
    make(ns, &["n1"]).await.unwrap();
    make(ns, &["n1", "n2"]).await.unwrap();
    let t = &["n1", "n2", "t"];
    create(ns, t, 0..3).await.unwrap();
    expect("drop", remove(ns, &["n1"]).await, NOT_EMPTY);
    expect("drop", remove(ns, &["n1", "n2"]).await, NOT_EMPTY);
    assert_eq!(count(ns, t).await.unwrap(), 3);
    assert_eq!(children(ns, &["n1"], None).await.unwrap(), ["n2"]);

    // Declared tables count, dropped ones and deregistered ones do not.
    let d = &["n1", "n2", "d"];
    declare(ns, d).await.unwrap();
    drop_table(ns, t).await.unwrap();
    expect("drop", remove(ns, &["n1", "n2"]).await, NOT_EMPTY);
    create(ns, d, 0..4).await.unwrap();
    let location = deregister(ns, d).await.unwrap().location.unwrap();
    expect("drop", remove(ns, &["n1", "n2"]).await, Answer::Done);
    expect("drop", remove(ns, &["n1"]).await, Answer::Done);
    expect("create", create(ns, t, 0..1).await, rules.no_parent);
    let u = &["n1", "n2", "u"];
    expect("declare", declare(ns, u).await, rules.no_parent);

    // What was deregistered is kept, and comes back where there is a namespace for it.
    let name = last_segment(&location);
    expect("register", register(ns, d, name).await, NO_NAMESPACE);
    make(ns, &["m"]).await.unwrap();
    register(ns, &["m", "d"], name).await.unwrap();
    assert_eq!(count(ns, &["m", "d"]).await.unwrap(), 4);
    expect("drop", remove(ns, &["m"]).await, NOT_EMPTY);
}

/// Tables in namespaces and tables at the root do not show each other's.
pub(crate) async fn apart(ns: Namespace<'_>, rules: &NamespaceRules, lists_children: bool) {
    make(ns, &["a"]).await.unwrap();
    make(ns, &["a", "b"]).await.unwrap();
    create(ns, &["a", "b", "t"], 0..3).await.unwrap();
    create(ns, &["a", "t"], 0..4).await.unwrap();
    create(ns, &["t"], 0..2).await.unwrap();
    assert_eq!(count(ns, &["a", "b", "t"]).await.unwrap(), 3);
    assert_eq!(count(ns, &["a", "t"]).await.unwrap(), 4);
    assert_eq!(count(ns, &["t"]).await.unwrap(), 2);
    for namespace in [&["a", "b"][..], &["a"], &[]] {
        assert_eq!(listed(ns, namespace, 2).await, ["t"], "{namespace:?}");
    }
    let nowhere = {
        let mut request = lance_namespace::models::ListTablesRequest::new();
        request.id = id(&["no"]);
        ns.list_tables(request).await
    };
    expect("list in no namespace", nowhere, rules.list_missing);

    let all = all_tables(ns, None, None).await.tables;
    if lists_children {
        // Joined with `$`, whatever delimiter a REST client uses.
        assert_eq!(all, ["a$b$t", "a$t", "t"]);
        let first = all_tables(ns, Some(2), None).await;
        assert_eq!(first.tables, ["a$b$t", "a$t"]);
        let rest = all_tables(ns, Some(2), first.page_token).await;
        assert_eq!(
            (rest.tables, rest.page_token),
            (vec!["t".to_string()], None)
        );
    } else {
        assert_eq!(all, ["t"]);
    }

    // One id is a table or a namespace inside a namespace, and at the root where tables are rows too.
    expect(
        "a table's id",
        make(ns, &["a", "t"]).await,
        NAMESPACE_EXISTS,
    );
    expect(
        "a namespace's",
        create(ns, &["a", "b"], 0..1).await,
        TABLE_EXISTS,
    );
    expect(
        "a namespace's",
        declare(ns, &["a", "b"]).await,
        TABLE_EXISTS,
    );
    expect(
        "the root table's",
        make(ns, &["t"]).await,
        rules.beside_root_table,
    );
    let at_root = create(ns, &["a"], 0..1).await;
    let beside = match rules.beside_root_table {
        Answer::Done => Answer::Done,
        _ => TABLE_EXISTS,
    };
    expect("a namespace's", at_root, beside);
    expect("no namespace", there(ns, &["a", "t"]).await, NO_NAMESPACE);
    expect("no table", exists(ns, &["a", "b"]).await, NO_TABLE);
    expect("no namespace", remove(ns, &["a", "t"]).await, NO_NAMESPACE);
    expect("no table", drop_table(ns, &["a", "b"]).await, NO_TABLE);
    assert_eq!(count(ns, &["a", "b", "t"]).await.unwrap(), 3);
    assert_eq!(count(ns, &["a", "t"]).await.unwrap(), 4);
    assert_eq!(count(ns, &["t"]).await.unwrap(), 2);
}

/// The catalog's own calls see of the root what the trait sees.
pub(crate) async fn the_facade_sees_the_root_only(ns: Namespace<'_>, catalog: &Catalog) {
    make(ns, &["a"]).await.unwrap();
    create(ns, &["a", "t"], 0..3).await.unwrap();
    let at_root = listed(ns, &[], 2).await;
    assert_eq!(catalog.table_names().await.unwrap(), at_root);
    assert_eq!(catalog.list_tables().await.unwrap().tables, at_root);
    assert_eq!(
        catalog.drop_all_tables().await.unwrap().len(),
        at_root.len()
    );
    assert!(listed(ns, &[], 2).await.is_empty());
    assert_eq!(count(ns, &["a", "t"]).await.unwrap(), 3);
}
