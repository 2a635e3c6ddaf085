//! The namespaces under test, each over a root of its own.

use std::sync::Arc;

use lance_namespace::LanceNamespace;
use lance_namespace_impls::{
    DirectoryNamespaceBuilder, RestAdapter, RestAdapterConfig, RestAdapterHandle,
    RestNamespaceBuilder,
};
use lancekeep::Catalog;

use super::calls::{Namespace, make};
use super::{CATALOG, Capabilities, DIRECTORY, MANIFEST, MANIFEST_OVER_REST, TableRules};
use crate::common::{catalog_of, local};
use crate::support::SharedMemory;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    OnDisk,
    InMemory,
    /// Behind REST, with this delimiter between the parts of an id.
    OverRest(&'static str),
    /// The stock directory namespace without a manifest.
    Directory,
    /// The stock directory namespace as it is built by default.
    Manifest,
    ManifestOverRest,
}

pub(crate) struct Subject {
    pub(crate) namespace: Arc<dyn LanceNamespace>,
    pub(crate) can: Capabilities,
    /// Who is behind it, where it is a catalog.
    pub(crate) catalog: Option<Catalog>,
    pub(crate) served: Option<Served>,
    _root: Option<tempfile::TempDir>,
}

/// A running server; it stops when this goes.
pub(crate) struct Served {
    handle: RestAdapterHandle,
}

impl Served {
    pub(crate) async fn of(namespace: Arc<dyn LanceNamespace>) -> Self {
        let config = RestAdapterConfig {
            port: 0,
            ..Default::default()
        };
        let handle = RestAdapter::new(namespace, config).start().await.unwrap();
        Self { handle }
    }

    pub(crate) fn port(&self) -> u16 {
        self.handle.port()
    }

    pub(crate) fn client(&self, delimiter: &str) -> Arc<dyn LanceNamespace> {
        let address = format!("http://127.0.0.1:{}", self.port());
        Arc::new(
            RestNamespaceBuilder::new(address)
                .delimiter(delimiter)
                .build(),
        )
    }
}

/// Where child tables live in the suite.
pub(crate) const CHILD: [&str; 2] = ["n1", "n2"];

impl Subject {
    pub(crate) async fn of(kind: Kind) -> Self {
        match kind {
            Kind::OnDisk => {
                let (root, catalog) = local().await;
                Self::catalog(catalog, Some(root))
            }
            Kind::InMemory => Self::catalog(catalog_of(&SharedMemory::new().actor()).await, None),
            Kind::OverRest(delimiter) => {
                let (root, catalog) = local().await;
                Self::catalog(catalog, Some(root)).behind(delimiter).await
            }
            Kind::Directory => Self::stock(false, DIRECTORY).await,
            Kind::Manifest => Self::stock(true, MANIFEST).await,
            Kind::ManifestOverRest => {
                let subject = Self::stock(true, MANIFEST_OVER_REST).await;
                subject.behind("$").await
            }
        }
    }

    fn catalog(catalog: Catalog, root: Option<tempfile::TempDir>) -> Self {
        Self {
            namespace: Arc::new(catalog.clone()),
            can: CATALOG,
            catalog: Some(catalog),
            served: None,
            _root: root,
        }
    }

    async fn stock(manifest: bool, can: Capabilities) -> Self {
        let root = tempfile::tempdir().unwrap();
        let namespace = DirectoryNamespaceBuilder::new(root.path().to_str().unwrap())
            .manifest_enabled(manifest)
            .build()
            .await
            .unwrap();
        Self {
            namespace: Arc::new(namespace),
            can,
            catalog: None,
            served: None,
            _root: Some(root),
        }
    }

    async fn behind(mut self, delimiter: &str) -> Self {
        let served = Served::of(self.namespace.clone()).await;
        self.namespace = served.client(delimiter);
        self.served = Some(served);
        self
    }

    pub(crate) fn ns(&self) -> Namespace<'_> {
        self.namespace.as_ref()
    }

    /// The levels that tables can be at, with their rules: the root, and a namespace where there are any.
    pub(crate) async fn levels(&self) -> Vec<(&'static [&'static str], &TableRules)> {
        let mut levels: Vec<(&[&str], _)> = vec![(&[], &self.can.root)];
        if let Some(rules) = &self.can.children {
            self.make_child().await;
            levels.push((&CHILD, rules));
        }
        levels
    }

    pub(crate) async fn make_child(&self) {
        for depth in 1..=CHILD.len() {
            make(self.ns(), &CHILD[..depth]).await.unwrap();
        }
    }
}
