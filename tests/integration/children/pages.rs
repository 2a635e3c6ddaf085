//! Many tables at both levels, in pages.

use std::collections::BTreeSet;

use futures::TryStreamExt;
use lancekeep::{Catalog, ErrorKind, NamespaceIdent};

use super::{Place, assert_kind, make};
use crate::common::rows;

const TABLES: usize = 200;
const PAGE: usize = 7;

fn names(prefix: &str) -> Vec<String> {
    (0..TABLES).map(|n| format!("{prefix}{n:03}")).collect()
}

/// All pages, each of them full but the last.
async fn in_pages(catalog: &Catalog, namespace: &NamespaceIdent, declared: bool) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), None::<String>);
    loop {
        let mut listing = catalog
            .list_tables()
            .namespace(namespace)
            .include_declared(declared)
            .limit(PAGE);
        if let Some(token) = token {
            listing = listing.page_token(token);
        }
        let mut page = listing.await.unwrap();
        assert!(page.tables.len() <= PAGE);
        if page.page_token.is_some() {
            assert_eq!(page.tables.len(), PAGE);
        }
        names.append(&mut page.tables);
        token = page.page_token;
        if token.is_none() {
            return names;
        }
    }
}

/// Declared, not created: a declaration is listed like a table.
async fn two_hundred(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"], &["a", "b"], &["ab"]]).await;
    let (root, child) = (names("r"), names("c"));
    let mut declared = 0;
    for (root, child) in root.iter().zip(&child) {
        catalog.declare_table(root).await.unwrap();
        catalog.declare_table(["a", child]).await.unwrap();
        declared += 2;
    }
    assert_eq!(declared, 2 * TABLES);
    // In both, of the same name; and neighbours that share a beginning.
    catalog.create_table("both", rows(0..1)).await.unwrap();
    catalog
        .create_table(["a", "both"], rows(0..1))
        .await
        .unwrap();
    catalog
        .create_table(["a", "b", "deep"], rows(0..1))
        .await
        .unwrap();
    catalog
        .create_table(["ab", "beside"], rows(0..1))
        .await
        .unwrap();
    let with = |names: &[String]| -> Vec<String> {
        let mut names = names.to_vec();
        names.push("both".to_string());
        names.sort();
        names
    };

    let other = place.catalog().await;
    let (top, a) = (NamespaceIdent::root(), NamespaceIdent::from("a"));
    let mut listed = in_pages(&other, &top, true).await;
    listed.sort();
    assert_eq!(listed, with(&root));
    assert_eq!(in_pages(&other, &a, true).await, with(&child));
    assert_eq!(in_pages(&other, &top, false).await, ["both"]);
    assert_eq!(in_pages(&other, &a, false).await, ["both"]);
    assert_eq!(other.table_names().await.unwrap(), with(&root));
    let unlimited = other.list_tables().namespace("a").await.unwrap();
    assert_eq!(
        (unlimited.tables, unlimited.page_token),
        (with(&child), None)
    );
    let listing = other.list_tables().namespace("a").limit(PAGE).stream();
    let streamed: Vec<String> = listing.try_collect().await.unwrap();
    assert_eq!(streamed, with(&child));
    for much in [
        TABLES + 1,
        i32::MAX as usize,
        i32::MAX as usize + 1,
        usize::MAX,
    ] {
        let page = other.list_tables().namespace("a").limit(much);
        assert_eq!(page.await.unwrap().tables, with(&child), "{much}");
    }
    // Without a namespace it is the root's.
    let mut streamed: Vec<String> = other.list_tables().stream().try_collect().await.unwrap();
    streamed.sort();
    assert_eq!(streamed, with(&root));
    let deep = NamespaceIdent::from(["a", "b"]);
    assert_eq!(in_pages(&other, &deep, true).await, ["deep"]);
}

on_both!(two_hundred:
    lancedb_3915_two_hundred_tables_at_both_levels_on_local_disk,
    lancedb_3915_two_hundred_tables_at_both_levels_in_memory);

/// Sizes around a multiple of the page, and tables that come and go between the pages.
async fn boundaries(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    let a = NamespaceIdent::from("a");
    assert!(in_pages(&catalog, &a, true).await.is_empty());
    let mut there = BTreeSet::new();
    for n in 0..2 * PAGE + 1 {
        // Made in an order that is not that of the names.
        let name = format!("t{:02}", n * 5 % 17);
        catalog.declare_table(["a", &name]).await.unwrap();
        there.insert(name);
        if matches!(there.len() % PAGE, 0 | 1) {
            let expected: Vec<String> = there.iter().cloned().collect();
            assert_eq!(in_pages(&catalog, &a, true).await, expected);
        }
    }
    let all: Vec<String> = there.into_iter().collect();
    let page = |token: Option<String>| {
        let listing = catalog.list_tables().namespace("a").limit(PAGE);
        match token {
            Some(token) => listing.page_token(token),
            None => listing,
        }
    };
    let first = page(None).await.unwrap();
    assert_eq!(first.tables, all[..PAGE]);
    // The last one of the page and the next one go, one comes before and one behind.
    for name in &all[PAGE - 1..=PAGE] {
        catalog.drop_table(["a", name.as_str()]).await.unwrap();
    }
    catalog.declare_table(["a", "a_before"]).await.unwrap();
    catalog.declare_table(["a", "z_behind"]).await.unwrap();
    let second = page(first.page_token.clone()).await.unwrap();
    assert_eq!(second.tables, all[PAGE + 1..2 * PAGE + 1]);
    let third = page(second.page_token).await.unwrap();
    assert_eq!(third.tables, ["z_behind"]);
    assert_eq!(third.page_token, None);

    assert_kind(page(None).limit(0).await, ErrorKind::InvalidInput);
    // A token of a namespace is none of the root's.
    let elsewhere = catalog.list_tables().page_token(first.page_token.unwrap());
    assert_kind(elsewhere.await, ErrorKind::InvalidInput);
}

on_both!(boundaries: lancedb_3915_page_boundaries_of_children_on_local_disk,
    lancedb_3915_page_boundaries_of_children_in_memory);
on_servers!(boundaries:
    lancedb_3915_page_boundaries_of_children_on_s3,
    lancedb_3915_page_boundaries_of_children_on_azure);
