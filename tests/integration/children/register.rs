//! A child table leaves the catalog with its data, and comes back at its location.

use lancekeep::{Error, ErrorKind, TableState};

use super::{Place, assert_kind, make, read, tables};
use crate::common::{rows, write_with_plain_lance};

async fn there_and_back(place: &Place) {
    let catalog = place.catalog().await;
    let other = place.catalog().await;
    make(&catalog, &[&["a"], &["a", "b"]]).await;
    let created = catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    let uri = created.uri().trim_end_matches('/').to_string();

    let location = other.deregister_table(["a", "t"]).await.unwrap();
    assert!(uri.ends_with(&format!("/{location}")), "{uri}, {location}");
    assert!(!location.contains('/'), "{location}");
    for catalog in [&catalog, &other] {
        let status = catalog.table_status(["a", "t"]).await.unwrap();
        assert_eq!(status, TableState::Absent);
        assert!(tables(catalog, &["a"]).await.is_empty());
        let again = catalog.deregister_table(["a", "t"]).await;
        assert_kind(again, ErrorKind::TableNotFound);
    }
    assert!(place.entries().await.contains(&location));

    // A new table of the name does not touch what lies there.
    catalog.create_table(["a", "t"], rows(7..8)).await.unwrap();
    // Back under another name, by its location relative to the root or by its URI.
    catalog
        .register_table(["a", "b", "u"], location.as_str())
        .await
        .unwrap();
    assert_eq!(read(&other, ["a", "b", "u"]).await, [0, 1, 2]);
    let moved = other.deregister_table(["a", "b", "u"]).await.unwrap();
    assert_eq!(moved, location);
    catalog.drop_table(["a", "t"]).await.unwrap();
    catalog
        .register_table(["a", "t"], uri.as_str())
        .await
        .unwrap();
    for catalog in [&catalog, &other] {
        assert_eq!(read(catalog, ["a", "t"]).await, [0, 1, 2]);
    }
    let rows = place.assert_tidy(&[]).await;
    let row = rows.iter().find(|row| row.id == "a$t").unwrap();
    assert_eq!(row.location.as_deref(), Some(location.as_str()));
    // Its drop deletes it, as any other's.
    catalog.drop_table(["a", "t"]).await.unwrap();
    place.assert_tidy(&[]).await;
}

on_both!(there_and_back:
    a_deregistered_child_comes_back_on_local_disk,
    a_deregistered_child_comes_back_in_memory);
on_servers!(there_and_back:
    a_deregistered_child_comes_back_on_s3,
    a_deregistered_child_comes_back_on_azure);

async fn refused(place: &Place) {
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    catalog.create_table("r", rows(0..1)).await.unwrap();
    let taken = catalog.open_table(["a", "t"]).await.unwrap();
    let taken = taken.uri().trim_end_matches('/').to_string();
    let taken_here = taken.rsplit('/').next().unwrap().to_string();
    let free = catalog.create_table(["a", "u"], rows(5..6)).await.unwrap();
    let free = free.uri().trim_end_matches('/').to_string();
    let free_here = catalog.deregister_table(["a", "u"]).await.unwrap();
    let before = (place.manifest().await, place.entries().await);

    let register = async |location: &str| catalog.register_table(["a", "new"], location).await;
    for outside in [
        "../out",
        "..",
        ".",
        "",
        "/",
        "x/../../out",
        "/abs",
        "file:///abs",
        "s3://bucket/x",
        "memory://elsewhere/x",
        "..\\out",
        "%2e%2e/out",
    ] {
        let error = register(outside).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidInput,
            "{outside:?}: {error}"
        );
    }
    // What belongs to somebody.
    for owned in [
        "__manifest",
        "__manifest/",
        "__manifest/_versions",
        "r.lance",
        "r.lance/",
        "new.lance",
        taken_here.as_str(),
        taken.as_str(),
    ] {
        let error = register(owned).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{owned:?}: {error}");
    }
    let error = register("nothing_here").await.unwrap_err();
    assert!(matches!(error, Error::TableNotFound { .. }), "{error}");
    // Ids that cannot be.
    let there = catalog.register_table(["a", "t"], free_here.as_str()).await;
    assert_kind(there, ErrorKind::TableAlreadyExists);
    let namespace = catalog.register_table(["b", "t"], free_here.as_str()).await;
    assert_kind(namespace, ErrorKind::NamespaceNotFound);
    assert_eq!((place.manifest().await, place.entries().await), before);

    // So it was not the call.
    catalog
        .register_table(["a", "new"], format!("{free}/"))
        .await
        .unwrap();
    assert_eq!(read(&catalog, ["a", "new"]).await, [5]);
}

on_both!(refused: registrations_are_refused_on_local_disk, registrations_are_refused_in_memory);
on_servers!(refused: registrations_are_refused_on_s3, registrations_are_refused_on_azure);

/// A declaration is no table, but its location is a place that a table can be registered at once it was written.
#[tokio::test]
async fn a_table_that_plain_lance_wrote_is_registered() {
    let place = Place::on_disk();
    let catalog = place.catalog().await;
    make(&catalog, &[&["a"]]).await;
    write_with_plain_lance(&format!("{}/elsewhere", place.uri()), 0..4).await;
    write_with_plain_lance(&format!("{}/deep/down", place.uri()), 4..6).await;
    catalog
        .register_table(["a", "t"], "elsewhere")
        .await
        .unwrap();
    assert_eq!(read(&catalog, ["a", "t"]).await, [0, 1, 2, 3]);
    catalog
        .register_table(["a", "d"], "deep/down")
        .await
        .unwrap();
    assert_eq!(read(&catalog, ["a", "d"]).await, [4, 5]);
    // Each location once.
    let twice = catalog.register_table(["a", "u"], "elsewhere/").await;
    assert_kind(twice, ErrorKind::InvalidInput);
    let twice = catalog.register_table(["a", "u"], "deep//down").await;
    assert_kind(twice, ErrorKind::InvalidInput);
    // A table within a table, or around one, would be deleted with it.
    for nested in ["elsewhere/data", "deep"] {
        let nested = catalog.register_table(["a", "u"], nested).await;
        assert!(nested.is_err(), "{nested:?}");
    }
    assert_eq!(
        catalog.deregister_table(["a", "d"]).await.unwrap(),
        "deep/down"
    );
    assert_eq!(tables(&catalog, &["a"]).await, ["t"]);
}

/// For a root table the same calls are a drop that is kept, and its undrop.
async fn root_tables(place: &Place) {
    let catalog = place.catalog().await;
    catalog.create_table("r", rows(0..3)).await.unwrap();
    let location = catalog.deregister_table("r").await.unwrap();
    assert_eq!(location, "r.lance");
    let dropped = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].expires_at, None);
    let elsewhere = catalog.register_table("r", "elsewhere").await;
    assert_kind(elsewhere, ErrorKind::InvalidInput);
    catalog.register_table("r", location).await.unwrap();
    assert_eq!(read(&catalog, "r").await, [0, 1, 2]);
    let again = catalog.register_table("r", "r.lance").await;
    assert_kind(again, ErrorKind::TableAlreadyExists);
    let missing = catalog.deregister_table("none").await;
    assert_kind(missing, ErrorKind::TableNotFound);
    assert!(!place.has_manifest().await);
}

on_both!(root_tables:
    deregistering_a_root_table_is_a_drop_on_local_disk,
    deregistering_a_root_table_is_a_drop_in_memory);
on_servers!(root_tables:
    deregistering_a_root_table_is_a_drop_on_s3,
    deregistering_a_root_table_is_a_drop_on_azure);
