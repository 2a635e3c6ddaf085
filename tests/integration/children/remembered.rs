//! What a catalog remembers of the manifest is what is in it, whoever changed it, and what it does goes by that.

use std::sync::Arc;

use lance_namespace::LanceNamespace;
use lance_namespace::models::{DescribeTableRequest, RegisterTableRequest};
use lancekeep::{Catalog, ErrorKind, NamespaceIdent};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::stock::id;
use super::{
    Place, Stopped, assert_kind, batch_of, each_point, make, numbers, read, rows_of, tables,
};
use crate::common::catalog_of;
use crate::support::{Gate, Kind, SharedMemory};

/// More than a snapshot keeps apart.
const MANY: i32 = 70;

/// All that a catalog lists, and what is in each table.
async fn shown(catalog: &Catalog) -> Vec<String> {
    let mut shown = Vec::new();
    for namespace in catalog
        .list_namespaces(NamespaceIdent::root())
        .await
        .unwrap()
    {
        let described = catalog.describe_namespace(&namespace).await.unwrap();
        shown.push(format!("{namespace} {:?}", described.properties));
        for table in tables(catalog, &[&namespace]).await {
            let status = catalog
                .table_status([namespace.as_str(), table.as_str()])
                .await
                .unwrap();
            shown.push(format!("{namespace}.{table} {status:?}"));
        }
    }
    shown
}

async fn agree(catalog: &Catalog, place: &Place, at: &str) -> usize {
    let fresh = shown(&place.catalog().await).await;
    assert_eq!(shown(catalog).await, fresh, "{at}");
    fresh.len()
}

async fn remembered(place: &Place) {
    let (catalog, other) = (place.catalog().await, place.catalog().await);
    make(&catalog, &[&["a"]]).await;
    for n in 0..MANY {
        let name = format!("t{n}");
        catalog.declare_table(["a", &name]).await.unwrap();
    }
    assert_eq!(agree(&catalog, place, "declared").await, 71);
    catalog
        .create_table(["a", "t0"], batch_of(0))
        .await
        .unwrap();
    catalog
        .create_table(["a", "new"], batch_of(1))
        .await
        .unwrap();
    agree(&catalog, place, "created").await;
    catalog.drop_table(["a", "t1"]).await.unwrap();
    catalog.drop_table(["a", "new"]).await.unwrap();
    agree(&catalog, place, "dropped").await;
    // The other one is behind, and then this one.
    other.drop_table(["a", "t2"]).await.unwrap();
    let again = other.create_table(["a", "t3"], batch_of(3)).await;
    again.unwrap();
    assert_kind(
        catalog.drop_table(["a", "t2"]).await,
        ErrorKind::TableNotFound,
    );
    agree(&catalog, place, "after the other").await;
    agree(&other, place, "the other").await;
    let location = catalog.deregister_table(["a", "t3"]).await.unwrap();
    agree(&catalog, place, "deregistered").await;
    other
        .register_table(["a", "back"], &location)
        .await
        .unwrap();
    agree(&other, place, "registered").await;
    assert_eq!(read(&catalog, ["a", "back"]).await, numbers(rows_of(3)));
    let create = other.create_namespace("b");
    create.property("k", "v").await.unwrap();
    catalog.create_table(["b", "x"], batch_of(1)).await.unwrap();
    agree(&catalog, place, "in another namespace").await;
    catalog.drop_table(["b", "x"]).await.unwrap();
    other.drop_namespace("b").await.unwrap();
    agree(&catalog, place, "without the namespace").await;
    agree(&other, place, "the other, at the end").await;
    place.assert_tidy(&[]).await;
}

on_both!(remembered: what_is_remembered_is_what_is_there_on_local_disk,
    what_is_remembered_is_what_is_there_in_memory);

/// One process, many tasks: each sees what it did, and all of it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_catalog_see_each_others_tables() {
    let place = Place::in_memory();
    let catalog = Arc::new(place.catalog().await);
    make(&catalog, &[&["a"]]).await;
    let tasks = (0..8).map(|n| {
        let catalog = Arc::clone(&catalog);
        tokio::spawn(async move {
            let name = format!("t{n}");
            let ident = ["a", name.as_str()];
            catalog.create_table(ident, batch_of(n)).await.unwrap();
            assert_eq!(read(&catalog, ident).await, numbers(rows_of(n)));
            if n % 2 == 0 {
                catalog.drop_table(ident).await.unwrap();
                assert!(!catalog.table_exists(ident).await.unwrap());
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(tables(&catalog, &["a"]).await, ["t1", "t3", "t5", "t7"]);
    agree(&catalog, &place, "at rest").await;
    place.assert_tidy(&[]).await;
}

/// The trait describes a table as the base does, from what is remembered.
#[tokio::test]
async fn a_table_is_described_as_the_base_does() {
    let place = Place::in_memory();
    let theirs = super::stock::stock(&place, true).await;
    super::stock::make(&theirs, &["a"]).await;
    super::stock::create(&theirs, &["a", "t"], 0).await;
    let Place::Memory(memory) = &place else {
        unreachable!()
    };
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    let create = catalog.create_table(["a", "new"], batch_of(0));
    create.await.unwrap();
    for table in ["t", "new"] {
        let mut request = DescribeTableRequest::new();
        request.id = id(&["a", table]);
        let expected = theirs.describe_table(request.clone()).await.unwrap();
        actor.counter.reset();
        let described = LanceNamespace::describe_table(&catalog, request).await;
        assert_eq!(described.unwrap(), expected);
        assert_eq!(actor.counter.total(), 1, "{:?}", actor.counter.log());
    }
}

/// An id that a namespace has is taken, before anything is written.
#[tokio::test]
async fn an_id_that_a_namespace_has_is_taken() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    make(&catalog, &[&["a"], &["a", "b"]]).await;
    actor.counter.reset();
    let created = catalog.create_table(["a", "b"], batch_of(0)).await;
    assert_kind(created, ErrorKind::TableAlreadyExists);
    let declared = catalog.declare_table(["a", "b"]).await;
    assert_kind(declared, ErrorKind::TableAlreadyExists);
    assert_eq!(actor.counter.writes(), 0, "{:?}", actor.counter.log());
}

/// A stock client registers the table's directory under another id while it is dropped: what was registered before the
/// drop took effect keeps its data, and so does what came before the look after it.
#[tokio::test]
async fn a_drop_is_overtaken_by_an_alias_of_its_directory() {
    let start = SharedMemory::new();
    let catalog = catalog_of(&start.actor()).await;
    make(&catalog, &[&["a"]]).await;
    let t = ["a", "t"];
    catalog.create_table(t, batch_of(1)).await.unwrap();
    let location = Place::Memory(start.clone()).manifest().await[1]
        .location
        .clone()
        .unwrap();
    let (start, location) = (&start, &location);
    let kept = each_point(|n| async move {
        let memory = start.fork().await;
        let gate = Gate::new();
        let actor = memory.actor_at_gate(&gate, 0);
        let slow = catalog_of(&actor).await;
        let drop = async move { slow.drop_table(t).await };
        let stopped = Stopped::after(gate.clone(), n, drop).await?;
        let looks = gate
            .waiting()
            .iter()
            .any(|(_, request)| request.kind == Kind::List && request.path.contains("__manifest"));
        let place = Place::Memory(memory.clone());
        let theirs = super::stock::stock(&place, true).await;
        let mut request = RegisterTableRequest::new(location.clone());
        request.id = id(&["a", "alias"]);
        LanceNamespace::register_table(&theirs, request)
            .await
            .unwrap();
        let before = place.manifest().await.iter().any(|row| row.id == "a$t");
        stopped.go_on().await.unwrap();
        let at = format!(
            "stopped before request {n}, {:?}",
            actor.counter.log().get(n)
        );
        let catalog = catalog_of(&memory.actor()).await;
        assert!(!catalog.table_exists(t).await.unwrap(), "{at}");
        if before || looks {
            assert_eq!(
                read(&catalog, ["a", "alias"]).await,
                numbers(rows_of(1)),
                "{at}"
            );
        }
        Some((before, looks))
    })
    .await;
    assert!(kept.iter().filter(|(before, _)| *before).count() > 5);
    assert!(kept.contains(&(false, true)), "{kept:?}");
}

/// Two creates of one id where neither saw the other's row before it wrote: the commit itself decides.
#[tokio::test]
async fn the_commit_decides_between_two_creates() {
    let memory = SharedMemory::new();
    let first = catalog_of(&memory.actor()).await;
    make(&first, &[&["a"]]).await;
    let t = ["a", "t"];
    let gate = Gate::new();
    let actor = memory.actor_at_gate(&gate, 0);
    let slow = catalog_of(&actor).await;
    // Stopped before it sends the commit itself.
    let commits = {
        let fork = memory.fork().await;
        let actor = fork.actor();
        let catalog = catalog_of(&actor).await;
        actor.counter.reset();
        catalog.create_table(t, batch_of(0)).await.unwrap();
        let log = actor.counter.log();
        log.iter()
            .position(|r| r.kind == Kind::PutCreate && r.path.contains("__manifest"))
            .unwrap()
    };
    let create = async move { slow.create_table(t, batch_of(0)).await.map(drop) };
    let stopped = Stopped::after(gate, commits, create).await.unwrap();
    first.create_table(t, batch_of(1)).await.unwrap();
    assert_kind(stopped.go_on().await, ErrorKind::TableAlreadyExists);
    assert_eq!(read(&first, t).await, numbers(rows_of(1)));
    Place::Memory(memory).assert_tidy(&[]).await;
}

/// A clean-up takes the versions between the one that is remembered and the latest; and somebody removes the manifest,
/// which another process then makes anew.
#[tokio::test]
async fn what_is_missing_in_between_hides_nothing() {
    let memory = SharedMemory::new();
    let (idle, other) = (
        catalog_of(&memory.actor()).await,
        catalog_of(&memory.actor()).await,
    );
    make(&other, &[&["a"]]).await;
    assert!(tables(&idle, &["a"]).await.is_empty());
    other.declare_table(["a", "x"]).await.unwrap();
    other.declare_table(["a", "y"]).await.unwrap();
    let raw = memory.raw();
    let dump = memory.dump().await;
    let of_manifest = |path: &&String| path.starts_with("root/__manifest/");
    let versions = |path: &&String| path.contains("/_versions/") && path.ends_with(".manifest");
    // The latest version sorts first.
    let mut earlier = dump.iter().filter(of_manifest).filter(versions).skip(1);
    assert!(earlier.clone().count() > 1);
    for path in earlier.by_ref() {
        raw.delete(&Path::from(path.as_str())).await.unwrap();
    }
    assert_eq!(tables(&idle, &["a"]).await, ["x", "y"]);
    for path in memory.dump().await.iter().filter(of_manifest) {
        raw.delete(&Path::from(path.as_str())).await.unwrap();
    }
    assert!(!idle.table_exists(["a", "x"]).await.unwrap());
    make(&catalog_of(&memory.actor()).await, &[&["b"]]).await;
    let root = NamespaceIdent::root();
    assert_eq!(idle.list_namespaces(root).await.unwrap(), ["b"]);
}

/// The same by one that has written before: it does not go on from what is cleaned up, nor from what is gone.
#[tokio::test]
async fn what_is_missing_in_between_misleads_no_writer() {
    let memory = SharedMemory::new();
    let (writer, other) = (
        catalog_of(&memory.actor()).await,
        catalog_of(&memory.actor()).await,
    );
    make(&writer, &[&["a"], &["b"]]).await;
    for round in 0..3 {
        for n in 0..3 {
            let name = format!("x{round}{n}");
            other.declare_table(["a", &name]).await.unwrap();
        }
        let dump = memory.dump().await;
        let versions = dump.iter().filter(|path| {
            path.starts_with("root/__manifest/_versions/") && path.ends_with(".manifest")
        });
        for path in versions.skip(1) {
            let path = Path::from(path.as_str());
            memory.raw().delete(&path).await.unwrap();
        }
        let name = format!("y{round}");
        match round {
            0 => drop(writer.create_namespace(["a", &name]).await.unwrap()),
            1 => drop(writer.declare_table(["a", &name]).await.unwrap()),
            _ => writer.drop_namespace("b").await.unwrap(),
        }
        agree(&other, &Place::Memory(memory.clone()), &name).await;
        agree(&writer, &Place::Memory(memory.clone()), &name).await;
    }
    let fresh = catalog_of(&memory.actor()).await;
    assert_eq!(tables(&fresh, &["a"]).await.len(), 10);
    let root = NamespaceIdent::root();
    assert_eq!(fresh.list_namespaces(root).await.unwrap(), ["a"]);
    assert_eq!(fresh.list_namespaces("a").await.unwrap(), ["y0"]);
}

/// Somebody takes the table out and puts it back, at the same place, while it is dropped: it is gone with its data, or
/// there with all of it.
#[tokio::test]
async fn a_drop_is_overtaken_by_the_same_registration() {
    let start = SharedMemory::new();
    let catalog = catalog_of(&start.actor()).await;
    make(&catalog, &[&["a"]]).await;
    let t = ["a", "t"];
    catalog.create_table(t, batch_of(1)).await.unwrap();
    let start = &start;
    let kept = each_point(|n| async move {
        let memory = start.fork().await;
        let gate = Gate::new();
        let actor = memory.actor_at_gate(&gate, 0);
        let slow = catalog_of(&actor).await;
        let drop = async move { slow.drop_table(t).await };
        let stopped = Stopped::after(gate, n, drop).await?;
        let other = catalog_of(&memory.actor()).await;
        if let Ok(location) = other.deregister_table(t).await {
            // Gone when it comes too late for its data.
            let _ = other.register_table(t, &location).await;
        }
        let _ = stopped.go_on().await;
        let at = format!("stopped before request {n}");
        let catalog = catalog_of(&memory.actor()).await;
        let there = catalog.table_exists(t).await.unwrap();
        if there {
            assert_eq!(read(&catalog, t).await, numbers(rows_of(1)), "{at}");
        }
        assert!(tables(&catalog, &["a"]).await.is_empty() || there, "{at}");
        Some(there)
    })
    .await;
    assert!(kept.iter().any(|there| !there), "{kept:?}");
}
