//! Handles whose table, or whose store, is not the catalog's any more.

use std::sync::Arc;

use lance_io::object_store::{ObjectStore as LanceStore, WrappingObjectStore};
use object_store::ObjectStore;
use object_store::list::PaginatedListStore;

use super::{NO_HURRY, append, managed_in, plainly, staged};
use crate::common::{rows, table_ids};
use crate::support::{Counter, CountingStore, Kind, SharedMemory};

/// Counts what goes through it.
#[derive(Debug)]
struct Counted(Arc<CountingStore>);

impl WrappingObjectStore for Counted {
    fn wrap(&self, _prefix: &str, _original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        self.0.clone()
    }

    fn wrap_paginated(
        &self,
        _prefix: &str,
        _original: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        None
    }
}

fn creates(counter: &Counter) -> usize {
    counter.of(Kind::PutCreate)
}

/// A manifest goes straight to its place only where Lance writes the data through the very store of the catalog. Where the
/// handle has another one it is staged there: if that is the same place after all, the version is created.
#[tokio::test]
async fn a_handle_with_a_store_of_its_own_stages() {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    let table = catalog.create_table("t", rows([0])).await.unwrap();
    let own = Arc::new(CountingStore::new(memory.raw()));
    let counter = own.counter();
    let wrapper: Arc<dyn WrappingObjectStore> = Arc::new(Counted(own));
    let mut wrapped = table.with_object_store_wrappers([wrapper]);
    append(&mut wrapped, [1]).await.unwrap();
    let through_it: Vec<String> = counter.log().into_iter().map(|r| r.path).collect();
    assert_eq!(staged(&through_it).len(), 1, "{through_it:?}");
    assert_eq!(creates(&counter), 0);
    assert_eq!(table_ids(&catalog, "t").await, [0, 1]);
    let left = memory.dump().await;
    assert_eq!(staged(&left), Vec::<&String>::new());
}

/// And if it is another place, nothing is created: the data is not where the version would name it.
#[tokio::test]
async fn a_handle_with_a_foreign_store_commits_nothing() {
    let memory = SharedMemory::new();
    let catalog = managed_in(&memory.actor(), NO_HURRY).await;
    let table = catalog.create_table("t", rows([0])).await.unwrap();
    let before = memory.dump().await;
    let elsewhere = memory.fork().await.actor();
    let registry = elsewhere.session.store_registry();
    let (store, _) = LanceStore::from_uri_and_params(registry, table.uri(), &Default::default())
        .await
        .unwrap();
    let mut foreign = table.with_object_store(store, None);
    append(&mut foreign, [1]).await.unwrap_err();
    assert_eq!(memory.dump().await, before);
    assert_eq!(table_ids(&catalog, "t").await, [0]);
}

/// A table in a namespace gets a directory of its own each time it is created: a handle of an earlier one has another.
#[tokio::test]
async fn a_handle_of_an_earlier_table_of_a_namespace_commits_nothing() {
    let root = tempfile::tempdir().unwrap();
    let catalog = super::managed(root.path(), NO_HURRY).await;
    catalog.create_namespace(["n"]).await.unwrap();
    let id = ["n", "t"];
    let mut created = catalog.create_table(id, rows([0])).await.unwrap();
    append(&mut created, [1]).await.unwrap();
    let mut opened = catalog.open_table(id).await.unwrap();
    catalog.drop_table(id).await.unwrap();
    append(&mut opened, [2]).await.unwrap_err();
    let now = catalog.create_table(id, rows([10])).await.unwrap();
    for handle in [&mut created, &mut opened] {
        append(handle, [3]).await.unwrap_err();
    }
    assert_ne!(now.uri(), opened.uri());
    assert_eq!(plainly(now.uri()).await, (vec![10], 1));
    assert!(
        !std::path::Path::new(opened.uri())
            .join("_versions")
            .exists()
    );
}
