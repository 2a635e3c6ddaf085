//! Namespaces: depth, properties, and when they can be dropped.

use std::collections::BTreeMap;

use lance_namespace::LanceNamespace;
use lance_namespace::models::DescribeNamespaceRequest;
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lancekeep::{Catalog, Error, ErrorKind, NamespaceIdent};

use super::{Place, assert_kind, make, read, tables};
use crate::common::rows;

type Properties = BTreeMap<String, String>;

async fn properties_of(catalog: &Catalog, ident: &[&str]) -> Properties {
    let ident: Vec<String> = ident.iter().map(ToString::to_string).collect();
    catalog.describe_namespace(ident).await.unwrap().properties
}

async fn depth(place: &Place) {
    let catalog = place.catalog().await;
    let root = NamespaceIdent::root();
    assert!(catalog.list_namespaces(&root).await.unwrap().is_empty());
    assert!(catalog.namespace_exists(&root).await.unwrap());
    let described = catalog.describe_namespace(&root).await.unwrap();
    assert!(described.properties.is_empty());
    assert!(!place.has_manifest().await);

    let parts = ["a", "b", "c", "d"];
    let levels: Vec<Vec<String>> = (1..=parts.len())
        .map(|n| parts[..n].iter().map(ToString::to_string).collect())
        .collect();
    // None without its parent.
    for level in &levels[1..] {
        let made = catalog.create_namespace(level.clone()).await;
        assert_kind(made, ErrorKind::NamespaceNotFound);
        let described = catalog.describe_namespace(level.clone()).await;
        assert_kind(described, ErrorKind::NamespaceNotFound);
        assert!(!catalog.namespace_exists(level.clone()).await.unwrap());
    }
    assert!(!place.has_manifest().await);
    for (n, level) in levels.iter().enumerate() {
        let made = catalog
            .create_namespace(level.clone())
            .property("level", n.to_string())
            .await
            .unwrap();
        assert_eq!(made.ident.parts(), level.as_slice());
        assert_eq!(made.properties["level"], n.to_string());
        let again = catalog.create_namespace(level.clone()).await;
        let error = assert_kind(again, ErrorKind::NamespaceAlreadyExists);
        assert!(
            matches!(&error, Error::NamespaceAlreadyExists { ident } if ident.parts() == level)
        );
        let table: Vec<String> = [level.as_slice(), &["t".to_string()]].concat();
        let n = i32::try_from(n).unwrap();
        catalog.create_table(table, rows(n..n + 2)).await.unwrap();
    }
    // More children than one at a level.
    make(&catalog, &[&["z"], &["a", "z"], &["a", "b", "z"], &["m"]]).await;
    let other = place.catalog().await;
    for catalog in [&catalog, &other] {
        let listed = catalog.list_namespaces(&root).await.unwrap();
        assert_eq!(listed, ["a", "m", "z"]);
        assert_eq!(catalog.list_namespaces(["a"]).await.unwrap(), ["b", "z"]);
        let listed = catalog.list_namespaces(["a", "b"]).await.unwrap();
        assert_eq!(listed, ["c", "z"]);
        let listed = catalog.list_namespaces(levels[3].clone()).await.unwrap();
        assert!(listed.is_empty());
        for (n, level) in levels.iter().enumerate() {
            assert!(catalog.namespace_exists(level.clone()).await.unwrap());
            let described = catalog.describe_namespace(level.clone()).await.unwrap();
            assert_eq!(described.ident.parts(), level.as_slice());
            assert_eq!(described.properties["level"], n.to_string());
            let level: Vec<&str> = level.iter().map(String::as_str).collect();
            assert_eq!(tables(catalog, &level).await, ["t"]);
        }
        let deepest = ["a", "b", "c", "d", "t"];
        assert_eq!(read(catalog, deepest).await, [3, 4]);
    }
    for missing in [&["x"][..], &["a", "x"], &["x", "b"]] {
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let listed = catalog.list_namespaces(missing.clone()).await;
        assert_kind(listed, ErrorKind::NamespaceNotFound);
        let listed = catalog.list_tables().namespace(missing.clone()).await;
        assert_kind(listed, ErrorKind::NamespaceNotFound);
        let described = catalog.describe_namespace(missing.clone()).await;
        assert_kind(described, ErrorKind::NamespaceNotFound);
        let dropped = catalog.drop_namespace(missing.clone()).await;
        assert_kind(dropped, ErrorKind::NamespaceNotFound);
        let dropped = catalog.drop_namespace(missing).if_exists().await;
        assert!(!dropped.unwrap());
    }
    let dropped = catalog.drop_namespace(["a", "z"]).if_exists().await;
    assert!(dropped.unwrap());
    assert!(!other.namespace_exists(["a", "z"]).await.unwrap());
    place.assert_tidy(&[]).await;
}

on_both!(depth: namespaces_four_deep_on_local_disk, namespaces_four_deep_in_memory);
on_servers!(depth: namespaces_four_deep_on_s3, namespaces_four_deep_on_azure);

/// What JSON, SQL, URLs or paths treat in a way of their own.
fn awkward() -> Properties {
    let mut properties: Properties = [
        ("single", "it's"),
        ("double", "say \"hi\""),
        ("both", "'\"'\"''\"\""),
        ("dollar", "$a$b$"),
        ("hash", "#a#"),
        ("percent", "100% %2f %24 %"),
        ("lines", "a\nb\r\nc\ttab"),
        ("unicode", "ä 日本語 🦀 \u{200d} e\u{301}"),
        ("control", "\u{1}\u{7f}\u{0}nul"),
        ("backslash", "\\ \\n \\u0041 \\\\"),
        ("empty", ""),
        ("space", "  a  "),
        ("json", "{\"a\":[1,null]}"),
        ("sql", "' OR '1'='1'; --"),
        ("", "an empty key"),
        ("key 'with' \"all\" $#%\n ä", "value"),
        ("location", "not the location"),
    ]
    .map(|(k, v)| (k.to_string(), v.to_string()))
    .into();
    let text = "100 KiB of 'text' with \"quotes\", $ # % and ä\n";
    let long: String = text.chars().cycle().take(100 << 10).collect();
    properties.insert("long".to_string(), long);
    properties
}

async fn round_trip(place: &Place) {
    let catalog = place.catalog().await;
    let many: Properties = (0..1_000)
        .map(|n| (format!("key {n:04} '$'"), format!("value \"{n}\"")))
        .collect();
    let awkward = awkward();
    let made = catalog
        .create_namespace("awkward")
        .properties(awkward.clone())
        .await
        .unwrap();
    assert_eq!(made.properties, awkward);
    let mut builder = catalog.create_namespace("single");
    for (key, value) in &awkward {
        builder = builder.property(key, value);
    }
    builder.await.unwrap();
    catalog
        .create_namespace(["awkward", "many"])
        .properties(many.clone())
        .await
        .unwrap();
    catalog.create_namespace("none").await.unwrap();
    // Others rewrite the manifest meanwhile.
    catalog.create_namespace("later").await.unwrap();
    catalog
        .create_table(["awkward", "t"], rows(0..1))
        .await
        .unwrap();

    let other = place.catalog().await;
    for catalog in [&catalog, &other] {
        assert_eq!(properties_of(catalog, &["awkward"]).await, awkward);
        assert_eq!(properties_of(catalog, &["single"]).await, awkward);
        assert_eq!(properties_of(catalog, &["awkward", "many"]).await, many);
        assert!(properties_of(catalog, &["none"]).await.is_empty());
    }
    // And as a stock client reads them.
    let stock = DirectoryNamespaceBuilder::new(place.uri())
        .session(place.session())
        .storage_options(place.options())
        .build()
        .await
        .unwrap();
    let mut request = DescribeNamespaceRequest::new();
    request.id = Some(vec!["awkward".to_string()]);
    let theirs = stock.describe_namespace(request).await.unwrap().properties;
    let theirs: Properties = theirs.unwrap().into_iter().collect();
    assert_eq!(theirs, awkward);
}

on_both!(round_trip: properties_come_back_exactly_on_local_disk, properties_come_back_exactly_in_memory);
on_servers!(round_trip: properties_come_back_exactly_on_s3, properties_come_back_exactly_on_azure);

async fn exist_ok(place: &Place) {
    let catalog = place.catalog().await;
    let other = place.catalog().await;
    let made = catalog
        .create_namespace("a")
        .property("owner", "first")
        .exist_ok()
        .await
        .unwrap();
    assert_eq!(made.properties["owner"], "first");
    // What is there is told, and not changed.
    let same = other
        .create_namespace("a")
        .property("owner", "second")
        .property("more", "x")
        .exist_ok()
        .await
        .unwrap();
    let first = Properties::from([("owner".to_string(), "first".to_string())]);
    assert_eq!(same.properties, first);
    assert_eq!(properties_of(&catalog, &["a"]).await, first);
    let made = other.create_namespace(["x", "y"]).exist_ok().await;
    assert_kind(made, ErrorKind::NamespaceNotFound);
    // A table of the id is not what was asked for.
    catalog.create_table(["a", "t"], rows(0..1)).await.unwrap();
    let made = other.create_namespace(["a", "t"]).exist_ok().await;
    assert_kind(made, ErrorKind::NamespaceAlreadyExists);
    assert_eq!(place.assert_tidy(&[]).await.len(), 2);
}

on_both!(exist_ok: exist_ok_leaves_what_is_there_on_local_disk, exist_ok_leaves_what_is_there_in_memory);
on_servers!(exist_ok: exist_ok_leaves_what_is_there_on_s3, exist_ok_leaves_what_is_there_on_azure);

/// Case 12. Drops of root tables are in no namespace, so they keep none.
async fn not_empty(place: &Place) {
    let catalog = place.catalog().await;
    let other = place.catalog().await;
    catalog
        .create_namespace("n1")
        .property("k", "v")
        .await
        .unwrap();
    make(&catalog, &[&["n1", "n2"]]).await;
    let table = ["n1", "n2", "t"];
    catalog.create_table(table, rows(0..3)).await.unwrap();
    // Of the names of the namespaces, so that nothing could tell them apart but their place.
    for name in ["n1", "n2", "t"] {
        catalog.create_table(name, rows(0..1)).await.unwrap();
        catalog.drop_table(name).await.unwrap();
    }
    let drops = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(drops.len(), 3);

    let before = place.manifest().await;
    for catalog in [&catalog, &other] {
        for full in [&["n1"][..], &["n1", "n2"]] {
            let ident: Vec<String> = full.iter().map(ToString::to_string).collect();
            let dropped = catalog.drop_namespace(ident.clone()).await;
            let error = assert_kind(dropped, ErrorKind::NamespaceNotEmpty);
            assert!(matches!(&error, Error::NamespaceNotEmpty { ident } if ident.parts() == full));
            assert!(!error.is_retryable());
            let dropped = catalog.drop_namespace(ident).if_exists().await;
            assert_kind(dropped, ErrorKind::NamespaceNotEmpty);
        }
    }
    assert_eq!(place.manifest().await, before);
    assert_eq!(properties_of(&other, &["n1"]).await["k"], "v");
    assert_eq!(read(&other, table).await, [0, 1, 2]);

    // A declared table is a content too.
    other.drop_table(table).await.unwrap();
    other.declare_table(table).await.unwrap();
    let dropped = catalog.drop_namespace(["n1", "n2"]).await;
    assert_kind(dropped, ErrorKind::NamespaceNotEmpty);
    other.drop_table(table).await.unwrap();
    let dropped = catalog.drop_namespace("n1").await;
    assert_kind(dropped, ErrorKind::NamespaceNotEmpty);
    catalog.drop_namespace(["n1", "n2"]).await.unwrap();
    catalog.drop_namespace("n1").await.unwrap();
    for catalog in [&catalog, &other] {
        assert!(!catalog.namespace_exists("n1").await.unwrap());
        let again = catalog.drop_namespace("n1").await;
        assert_kind(again, ErrorKind::NamespaceNotFound);
        let missing = catalog.open_table(table).await;
        assert_kind(missing, ErrorKind::TableNotFound);
    }
    assert!(place.manifest().await.is_empty());

    // Case 25: the drops from before are as they were.
    assert_eq!(other.list_dropped_tables().await.unwrap(), drops);
    other.undrop_table("t").await.unwrap();
    assert_eq!(read(&catalog, "t").await, [0]);
    for name in ["n1", "n2"] {
        catalog.purge_table(name).await.unwrap();
    }
    // And the names are free again.
    catalog.create_namespace("n1").await.unwrap();
    assert!(properties_of(&other, &["n1"]).await.is_empty());
    assert!(tables(&other, &["n1"]).await.is_empty());
    place.assert_tidy(&["t"]).await;
}

on_both!(not_empty:
    iceberg_16060_only_an_empty_namespace_is_dropped_on_local_disk,
    lance_6290_only_an_empty_namespace_is_dropped_in_memory);
on_servers!(not_empty:
    iceberg_16060_only_an_empty_namespace_is_dropped_on_s3,
    iceberg_16060_only_an_empty_namespace_is_dropped_on_azure);

/// A deregistered table is in no namespace any more, and does not come back without one.
async fn deregistered(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    let location = catalog.deregister_table(["a", "t"]).await.unwrap();
    catalog.drop_namespace("a").await.unwrap();
    let registered = catalog.register_table(["a", "t"], location.as_str()).await;
    assert_kind(registered, ErrorKind::NamespaceNotFound);
    make(&catalog, &[&["b"]]).await;
    catalog
        .register_table(["b", "t"], location.as_str())
        .await
        .unwrap();
    assert_eq!(read(&catalog, ["b", "t"]).await, [0, 1, 2]);
    place.assert_tidy(&[]).await;
}

on_both!(deregistered:
    a_deregistered_table_keeps_no_namespace_on_local_disk,
    a_deregistered_table_keeps_no_namespace_in_memory);
on_servers!(deregistered:
    a_deregistered_table_keeps_no_namespace_on_s3,
    a_deregistered_table_keeps_no_namespace_on_azure);
