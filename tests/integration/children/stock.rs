//! A root that stock namespaces with a manifest have been using.

use std::sync::Arc;

use bytes::Bytes;
use lance_namespace::LanceNamespace;
use lance_namespace::models::{
    CreateNamespaceRequest, CreateTableRequest, DeclareTableRequest, DescribeTableRequest,
    DropTableRequest, ListNamespacesRequest, ListTablesRequest, RegisterTableRequest,
    TableExistsRequest,
};
use lance_namespace_impls::{DirectoryNamespace, DirectoryNamespaceBuilder};
use lancekeep::arrow::array::RecordBatch;
use lancekeep::arrow::ipc::writer::StreamWriter;
use lancekeep::lance::dataset::WriteParams;
use lancekeep::lifecycle::{DropOutcome, FindingKind};
use lancekeep::{Catalog, ErrorKind, NamespaceIdent, Purge, TableState};

use super::{Place, assert_kind, numbers, read, tables};
use crate::common::{rows, write_plainly};
use crate::stores::store_params;

fn ipc(batch: &RecordBatch) -> Bytes {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

pub(super) fn id(parts: &[&str]) -> Option<Vec<String>> {
    Some(parts.iter().map(ToString::to_string).collect())
}

/// With the default settings, or only what the manifest says.
pub(super) async fn stock(place: &Place, dir_listing: bool) -> DirectoryNamespace {
    DirectoryNamespaceBuilder::new(place.uri())
        .session(place.session())
        .storage_options(place.options())
        .dir_listing_enabled(dir_listing)
        .build()
        .await
        .unwrap()
}

pub(super) async fn create(stock: &DirectoryNamespace, parts: &[&str], n: i32) {
    let mut request = CreateTableRequest::new();
    request.id = id(parts);
    stock
        .create_table(request, ipc(&rows(n..n + 3)))
        .await
        .unwrap();
}

pub(super) async fn make(stock: &DirectoryNamespace, parts: &[&str]) {
    let mut request = CreateNamespaceRequest::new();
    request.id = id(parts);
    request.properties = Some([("by".to_string(), "stock".to_string())].into());
    stock.create_namespace(request).await.unwrap();
}

pub(super) async fn register(stock: &DirectoryNamespace, parts: &[&str], location: &str) {
    let mut request = RegisterTableRequest::new(location.to_string());
    request.id = id(parts);
    stock.register_table(request).await.unwrap();
}

pub(super) async fn list(stock: &DirectoryNamespace, parts: &[&str]) -> Vec<String> {
    let mut request = ListTablesRequest::new();
    request.id = id(parts);
    stock.list_tables(request).await.unwrap().tables
}

/// Whether a stock client finds the table by `table_exists` and by a describe that opens it.
pub(super) async fn finds(stock: &DirectoryNamespace, parts: &[&str]) -> bool {
    let mut request = TableExistsRequest::new();
    request.id = id(parts);
    let exists = stock.table_exists(request).await.is_ok();
    let mut request = DescribeTableRequest::new();
    request.id = id(parts);
    request.load_detailed_metadata = Some(true);
    let opens = stock.describe_table(request).await.is_ok();
    assert_eq!(exists, opens, "{parts:?}");
    exists
}

/// A table that no catalog knows.
pub(super) async fn write_plain(place: &Place, name: &str, n: i32) {
    let params = WriteParams {
        session: Some(place.session()),
        store_params: Some(store_params(place.options())),
        ..Default::default()
    };
    write_plainly(&format!("{}/{name}", place.uri()), n..n + 3, params).await;
}

/// Everything that the catalog shows, root tables and children.
pub(super) async fn shown(catalog: &Catalog) -> Vec<String> {
    let mut all = catalog.table_names().await.unwrap();
    let listed = catalog.list_tables().await.unwrap().tables;
    let mut sorted = listed.clone();
    sorted.sort();
    assert_eq!(sorted, all);
    let mut pending = vec![Vec::<String>::new()];
    while let Some(parts) = pending.pop() {
        let below = NamespaceIdent::new(parts.clone());
        for name in catalog.list_namespaces(below).await.unwrap() {
            let inside = [parts.as_slice(), &[name]].concat();
            let listing = catalog.list_tables().namespace(inside.clone());
            for name in listing.await.unwrap().tables {
                all.push([inside.as_slice(), &[name]].concat().join("$"));
            }
            pending.push(inside);
        }
    }
    all.sort();
    // And by the trait's walk over all of it.
    let mut request = ListTablesRequest::new();
    request.id = id(&[]);
    let mut walked = catalog.list_all_tables(request).await.unwrap().tables;
    walked.sort();
    assert_eq!(walked, all);
    all
}

async fn default_settings(place: &Place) {
    let theirs = stock(place, true).await;
    create(&theirs, &["r1"], 10).await;
    create(&theirs, &["r2"], 20).await;
    let mut request = DeclareTableRequest::new();
    request.id = id(&["d"]);
    theirs.declare_table(request).await.unwrap();
    make(&theirs, &["ns"]).await;
    make(&theirs, &["ns", "deep"]).await;
    create(&theirs, &["ns", "t"], 30).await;
    create(&theirs, &["ns", "deep", "t"], 40).await;
    write_plain(place, "elsewhere", 50).await;
    register(&theirs, &["alias"], "elsewhere").await;

    let catalog = place.catalog().await;
    let everything = ["d", "ns$deep$t", "ns$t", "r1", "r2"];
    assert_eq!(shown(&catalog).await, everything);
    assert_eq!(read(&catalog, "r1").await, numbers(10..13));
    assert_eq!(read(&catalog, "r2").await, numbers(20..23));
    assert_eq!(read(&catalog, ["ns", "t"]).await, numbers(30..33));
    assert_eq!(read(&catalog, ["ns", "deep", "t"]).await, numbers(40..43));
    let status = catalog.table_status("d").await.unwrap();
    assert_eq!(status, TableState::Declared);
    let described = catalog.describe_namespace("ns").await.unwrap();
    assert_eq!(described.properties["by"], "stock");
    // A root id is a directory of the root, whatever the manifest says.
    let alias = catalog.open_table("alias").await;
    assert_kind(alias, ErrorKind::TableNotFound);
    let status = catalog.table_status("alias").await.unwrap();
    assert_eq!(status, TableState::Absent);
    elsewhere_is_told_and_kept(place, &catalog, &theirs).await;

    // Root drops: hidden from the stock client, and back.
    let dropped = catalog.drop_table("r1").await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Kept);
    assert_eq!(list(&theirs, &[]).await, ["d", "r2"]);
    assert!(!finds(&theirs, &["r1"]).await);
    assert_eq!(list(&stock(place, true).await, &[]).await, ["d", "r2"]);
    catalog.undrop_table("r1").await.unwrap();
    assert_eq!(list(&theirs, &[]).await, ["d", "r1", "r2"]);
    assert!(finds(&theirs, &["r1"]).await);
    assert_eq!(read(&catalog, "r1").await, numbers(10..13));

    // Purged, the manifest's row is all that is left of it, and nobody shows that; the name is free.
    catalog.drop_table("r1").await.unwrap();
    catalog.purge_table("r1").await.unwrap();
    assert_eq!(list(&theirs, &[]).await, ["d", "r2"]);
    let left = ["d", "ns$deep$t", "ns$t", "r2"];
    assert_eq!(shown(&catalog).await, left);
    catalog.create_table("r1", rows(60..61)).await.unwrap();
    assert_eq!(list(&theirs, &[]).await, ["d", "r1", "r2"]);
    assert_eq!(read(&catalog, "r1").await, [60]);

    // A child drop deletes at once.
    let dropped = catalog.drop_table(["ns", "t"]).await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deleted);
    assert!(list(&theirs, &["ns"]).await.is_empty());
    assert!(!finds(&theirs, &["ns", "t"]).await);
    // Both go on working on it.
    create(&theirs, &["ns", "t"], 70).await;
    assert_eq!(read(&catalog, ["ns", "t"]).await, numbers(70..73));
    catalog
        .create_table(["ns", "ours"], rows(80..83))
        .await
        .unwrap();
    assert_eq!(list(&theirs, &["ns"]).await, ["ours", "t"]);
    assert!(finds(&theirs, &["ns", "ours"]).await);
    let mut request = DropTableRequest::new();
    request.id = id(&["r2"]);
    theirs.drop_table(request).await.unwrap();
    let status = catalog.table_status("r2").await.unwrap();
    assert_eq!(status, TableState::Absent);
    let left = ["d", "ns$deep$t", "ns$ours", "ns$t", "r1"];
    assert_eq!(shown(&catalog).await, left);
    let mut request = ListNamespacesRequest::new();
    request.id = id(&[]);
    let listed = theirs.list_namespaces(request).await.unwrap().namespaces;
    assert_eq!(
        listed,
        catalog
            .list_namespaces(NamespaceIdent::root())
            .await
            .unwrap()
    );
}

/// What is registered at another place is reported and left alone.
async fn elsewhere_is_told_and_kept(place: &Place, catalog: &Catalog, theirs: &DirectoryNamespace) {
    for dry_run in [true, false, true] {
        let report = catalog.reconcile(dry_run).await.unwrap();
        let told: Vec<_> = report.of(FindingKind::RegisteredElsewhere).collect();
        assert_eq!(told.len(), 1, "{report:?}");
        assert_eq!(told[0].ident.parts(), ["alias"]);
        assert!(!told[0].mended && told[0].error.is_none());
        assert!(
            report
                .findings
                .iter()
                .all(|f| f.kind == FindingKind::RegisteredElsewhere),
            "{report:?}"
        );
    }
    catalog.purge_dropped(Purge::all()).await.unwrap();
    assert!(place.entries().await.contains("elsewhere"));
    assert!(!list(theirs, &[]).await.contains(&"alias".to_string()));
}

on_both!(default_settings: a_root_of_a_stock_namespace_on_local_disk,
    a_root_of_a_stock_namespace_in_memory);
on_servers!(default_settings:
    a_root_of_a_stock_namespace_on_s3,
    a_root_of_a_stock_namespace_on_azure);

/// A table that is registered as a root table at another place is reached as a child once it is registered as one.
async fn alias_as_child(place: &Place) {
    let theirs = stock(place, true).await;
    make(&theirs, &["ns"]).await;
    write_plain(place, "elsewhere", 50).await;
    register(&theirs, &["alias"], "elsewhere").await;
    let catalog = place.catalog().await;
    catalog
        .register_table(["ns", "child"], "elsewhere")
        .await
        .unwrap();
    assert_eq!(read(&catalog, ["ns", "child"]).await, numbers(50..53));
    assert!(finds(&theirs, &["ns", "child"]).await);
    // As a root table a manifest-only client still has it, so its data stays.
    let dropped = catalog.drop_table(["ns", "child"]).await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deregistered);
    assert!(finds(&stock(place, false).await, &["alias"]).await);
}

on_both!(alias_as_child: a_root_alias_is_registered_as_a_child_on_local_disk,
    a_root_alias_is_registered_as_a_child_in_memory);
on_servers!(alias_as_child:
    a_root_alias_is_registered_as_a_child_on_s3,
    a_root_alias_is_registered_as_a_child_on_azure);

/// Only the manifest: root tables lie in directories of the base's own naming.
async fn manifest_only(place: &Place) {
    let theirs = stock(place, false).await;
    create(&theirs, &["m"], 10).await;
    make(&theirs, &["ns"]).await;
    create(&theirs, &["ns", "t"], 20).await;
    assert_eq!(list(&theirs, &[]).await, ["m"]);

    let catalog = place.catalog().await;
    assert_eq!(shown(&catalog).await, ["ns$t"]);
    assert_eq!(read(&catalog, ["ns", "t"]).await, numbers(20..23));
    let opened = catalog.open_table("m").await;
    assert_kind(opened, ErrorKind::TableNotFound);
    assert_kind(catalog.drop_table("m").await, ErrorKind::TableNotFound);
    let report = catalog.reconcile(false).await.unwrap();
    let told: Vec<_> = report.of(FindingKind::RegisteredElsewhere).collect();
    assert_eq!(told.len(), 1, "{report:?}");
    assert_eq!(told[0].ident.parts(), ["m"]);
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(finds(&theirs, &["m"]).await);

    // A root table of the name is another table, and neither is lost.
    catalog.create_table("m", rows(30..33)).await.unwrap();
    assert_eq!(shown(&catalog).await, ["m", "ns$t"]);
    assert_eq!(read(&catalog, "m").await, numbers(30..33));
    assert!(finds(&theirs, &["m"]).await);
    catalog.drop_table("m").await.unwrap();
    assert!(finds(&theirs, &["m"]).await);
    catalog.purge_table("m").await.unwrap();
    assert!(finds(&theirs, &["m"]).await);

    // Children are the same for both.
    catalog
        .create_table(["ns", "u"], rows(40..43))
        .await
        .unwrap();
    assert_eq!(list(&theirs, &["ns"]).await, ["t", "u"]);
    assert!(finds(&theirs, &["ns", "u"]).await);
    catalog.drop_table(["ns", "t"]).await.unwrap();
    assert!(!finds(&theirs, &["ns", "t"]).await);
    assert_eq!(tables(&catalog, &["ns"]).await, ["u"]);
}

on_both!(manifest_only: a_root_of_a_manifest_only_namespace_on_local_disk,
    a_root_of_a_manifest_only_namespace_in_memory);
on_servers!(manifest_only:
    a_root_of_a_manifest_only_namespace_on_s3,
    a_root_of_a_manifest_only_namespace_on_azure);

/// Stock clients may register one place several times. A drop takes away the id, and the data with the last of them.
async fn shared_locations(place: &Place) {
    let theirs = stock(place, true).await;
    make(&theirs, &["ns"]).await;
    create(&theirs, &["r"], 10).await;
    register(&theirs, &["ns", "root"], "r.lance").await;
    write_plain(place, "shared", 20).await;
    register(&theirs, &["ns", "x"], "shared").await;
    register(&theirs, &["ns", "y"], "shared").await;

    let catalog = place.catalog().await;
    assert_eq!(shown(&catalog).await, ["ns$root", "ns$x", "ns$y", "r"]);
    assert_eq!(read(&catalog, ["ns", "root"]).await, numbers(10..13));
    let dropped = catalog.drop_table(["ns", "root"]).await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deregistered);
    assert_eq!(read(&catalog, "r").await, numbers(10..13));
    let dropped = catalog.drop_table(["ns", "x"]).await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deregistered);
    assert_eq!(read(&catalog, ["ns", "y"]).await, numbers(20..23));
    let dropped = catalog.drop_table(["ns", "y"]).await.unwrap();
    assert_eq!(dropped.outcome, DropOutcome::Deleted);
    assert!(!place.entries().await.contains("shared"));
    assert_eq!(shown(&catalog).await, ["r"]);
    catalog.drop_namespace("ns").await.unwrap();
    assert_eq!(read(&catalog, "r").await, numbers(10..13));
}

on_both!(shared_locations: stock_aliases_share_a_location_on_local_disk,
    stock_aliases_share_a_location_in_memory);
on_servers!(shared_locations:
    stock_aliases_share_a_location_on_s3,
    stock_aliases_share_a_location_on_azure);

/// A namespace object of long ago sees what a catalog does now, and the other way round.
#[tokio::test]
async fn old_handles_see_new_children() {
    let place = Place::in_memory();
    // Both made before there is a manifest.
    let theirs = Arc::new(stock(&place, true).await);
    let catalog = place.catalog().await;
    assert!(
        catalog
            .list_namespaces(NamespaceIdent::root())
            .await
            .unwrap()
            .is_empty()
    );
    catalog.create_namespace("a").await.unwrap();
    catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    assert_eq!(list(&theirs, &["a"]).await, ["t"]);
    make(&theirs, &["b"]).await;
    create(&theirs, &["b", "t"], 10).await;
    assert_eq!(shown(&catalog).await, ["a$t", "b$t"]);
    assert_eq!(read(&catalog, ["b", "t"]).await, numbers(10..13));
    place.assert_tidy(&[]).await;
}
