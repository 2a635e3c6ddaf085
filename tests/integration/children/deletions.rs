//! What Lance deletes from the manifest for us is gone for a stock client too, which goes on from there.

use std::collections::BTreeSet;

use lance_io::object_store::{ObjectStore, ObjectStoreParams};
use lance_namespace::LanceNamespace;
use lance_namespace::models::{DropNamespaceRequest, DropTableRequest};
use lance_namespace_impls::DirectoryNamespace;
use lance_namespace_impls::dir::manifest::{ManifestEntry, ManifestNamespace, ObjectType};
use lancekeep::ErrorKind;

use super::stock::{create, finds, id, list, make, register, shown, stock, write_plain};
use super::{Place, assert_kind, numbers, read, tables};
use crate::common::rows;

/// Rows as of tables with nothing in their directories, in one commit.
async fn fill(place: &Place, ids: impl Iterator<Item = String>) {
    let (uri, session) = (place.uri(), place.session());
    let params = ObjectStoreParams::default();
    let opened = ObjectStore::from_uri_and_params(session.store_registry(), &uri, &params);
    let (store, path) = opened.await.unwrap();
    let manifest = ManifestNamespace::open_from_directory(
        uri,
        None,
        Some(session),
        store,
        path,
        false,
        false,
        None,
    );
    let rows = ids.map(|object_id| ManifestEntry {
        location: Some(ManifestNamespace::generate_dir_name(&object_id)),
        object_id,
        object_type: ObjectType::Table,
        metadata: None,
    });
    let manifest = manifest.await.unwrap();
    let filled = manifest.insert_into_manifest_with_metadata(rows.collect(), None);
    filled.await.unwrap();
}

async fn drop_by_stock(theirs: &DirectoryNamespace, parts: &[&str]) -> bool {
    let mut request = DropTableRequest::new();
    request.id = id(parts);
    theirs.drop_table(request).await.is_ok()
}

/// What Lance deletes for us is gone for a stock client too, which goes on from there; then we see what it did.
async fn after_our_drops(place: &Place) {
    const MANY: usize = 300;
    let theirs = stock(place, false).await;
    make(&theirs, &["ns"]).await;
    fill(place, (0..MANY).map(|n| format!("ns$f{n:03}"))).await;
    let mut expected: BTreeSet<String> = (0..MANY).map(|n| format!("f{n:03}")).collect();
    let catalog = place.catalog().await;
    for round in 0..3 {
        // Several in a row, so that one deletion comes upon another.
        for n in [round, 100 + round, MANY - 1 - round] {
            let name = format!("f{n:03}");
            catalog.drop_table(["ns", &name]).await.unwrap();
            expected.remove(&name);
            assert!(!finds(&theirs, &["ns", &name]).await);
        }
        let (kept, ours) = (format!("kept{round}"), format!("ours{round}"));
        let n = i32::try_from(round).unwrap() * 10;
        create(&theirs, &["ns", "theirs"], n).await;
        create(&theirs, &["ns", &kept], n).await;
        catalog
            .create_table(["ns", &ours], rows(n..n + 3))
            .await
            .unwrap();
        expected.extend([kept.clone(), ours.clone()]);
        assert!(finds(&theirs, &["ns", "theirs"]).await);
        assert_eq!(read(&catalog, ["ns", "theirs"]).await, numbers(n..n + 3));
        // One that is deleted is theirs no more, and the other way round.
        catalog.drop_table(["ns", "theirs"]).await.unwrap();
        assert!(!drop_by_stock(&theirs, &["ns", "theirs"]).await);
        catalog
            .create_table(["ns", "mortal"], rows(0..1))
            .await
            .unwrap();
        assert!(drop_by_stock(&theirs, &["ns", "mortal"]).await);
        let dropped = catalog.drop_table(["ns", "mortal"]).await;
        assert_kind(dropped, ErrorKind::TableNotFound);
        for name in [&kept, &ours] {
            assert!(finds(&theirs, &["ns", name]).await);
            assert_eq!(read(&catalog, ["ns", name]).await, numbers(n..n + 3));
        }
        let listed = Vec::from_iter(expected.iter().cloned());
        assert_eq!(list(&theirs, &["ns"]).await, listed);
        assert_eq!(list(&stock(place, false).await, &["ns"]).await, listed);
        assert_eq!(tables(&catalog, &["ns"]).await, listed);
        assert_eq!(tables(&place.catalog().await, &["ns"]).await, listed);
    }
}

on_both!(after_our_drops: a_stock_client_goes_on_after_our_drops_on_local_disk,
    a_stock_client_goes_on_after_our_drops_in_memory);

/// Our drop takes the only table, and then the only row there is.
async fn after_the_last_row(place: &Place) {
    let theirs = stock(place, false).await;
    make(&theirs, &["ns"]).await;
    create(&theirs, &["ns", "t"], 10).await;
    let catalog = place.catalog().await;
    catalog.drop_table(["ns", "t"]).await.unwrap();
    assert_eq!(place.assert_tidy(&[]).await.len(), 1);
    assert!(list(&theirs, &["ns"]).await.is_empty());
    create(&theirs, &["ns", "t"], 20).await;
    assert_eq!(read(&catalog, ["ns", "t"]).await, numbers(20..23));
    catalog.drop_table(["ns", "t"]).await.unwrap();
    let mut request = DropNamespaceRequest::new();
    request.id = id(&["ns"]);
    theirs.drop_namespace(request).await.unwrap();
    assert!(place.manifest().await.is_empty());

    // A table whose namespace is missing.
    fill(place, ["ns$alone".to_string()].into_iter()).await;
    catalog.drop_table(["ns", "alone"]).await.unwrap();
    assert!(place.manifest().await.is_empty());
    assert!(!finds(&theirs, &["ns", "alone"]).await);
    make(&theirs, &["ns"]).await;
    create(&theirs, &["ns", "t"], 30).await;
    assert_eq!(shown(&catalog).await, ["ns$t"]);
    assert_eq!(read(&catalog, ["ns", "t"]).await, numbers(30..33));
    assert!(drop_by_stock(&theirs, &["ns", "t"]).await);
    assert!(!catalog.table_exists(["ns", "t"]).await.unwrap());
    place.assert_tidy(&[]).await;
}

on_both!(after_the_last_row: our_drop_takes_the_last_row_on_local_disk,
    our_drop_takes_the_last_row_in_memory);

/// Ids and locations are text: what looks like SQL in them is nothing else.
async fn odd_locations(place: &Place) {
    let theirs = stock(place, false).await;
    make(&theirs, &["ns"]).await;
    let odd = ["o'clock", "x'OR'a'='a", "back\\slash", "'"];
    for (n, location) in (0..).zip(odd) {
        write_plain(place, &format!("plain{n}"), n * 10).await;
        register(&theirs, &["ns", &format!("t{n}")], location).await;
    }
    register(&theirs, &["ns", "plain"], "plain0").await;
    let catalog = place.catalog().await;
    // The catalog may spell them differently; the rows it takes out are these.
    for left in (0..odd.len()).rev() {
        let name = format!("t{left}");
        catalog.deregister_table(["ns", &name]).await.unwrap();
        assert_eq!(tables(&catalog, &["ns"]).await.len(), left + 1);
        assert!(!finds(&theirs, &["ns", &name]).await);
    }
    assert_eq!(tables(&catalog, &["ns"]).await, ["plain"]);
    assert_eq!(read(&catalog, ["ns", "plain"]).await, numbers(0..3));
}

on_both!(odd_locations: a_row_of_an_odd_location_is_taken_out_on_local_disk,
    a_row_of_an_odd_location_is_taken_out_in_memory);
