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
use crate::stores::{Place, Store};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    OnDisk,
    InMemory,
    OnS3,
    OnAzure,
    /// On local disk behind REST, with this delimiter between the parts of an id.
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
    _place: Place,
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
            Kind::OnDisk => Self::catalog(Place::new(Store::Disk)).await,
            Kind::InMemory => Self::catalog(Place::new(Store::Memory)).await,
            Kind::OnS3 => Self::catalog(Place::new(Store::S3)).await,
            Kind::OnAzure => Self::catalog(Place::new(Store::Azure)).await,
            Kind::OverRest(delimiter) => {
                let subject = Self::catalog(Place::new(Store::Disk)).await;
                subject.behind(delimiter).await
            }
            Kind::Directory => Self::stock(false, DIRECTORY).await,
            Kind::Manifest => Self::stock(true, MANIFEST).await,
            Kind::ManifestOverRest => {
                let subject = Self::stock(true, MANIFEST_OVER_REST).await;
                subject.behind("$").await
            }
        }
    }

    async fn catalog(place: Place) -> Self {
        let catalog = place.catalog().await;
        Self {
            namespace: Arc::new(catalog.clone()),
            can: CATALOG,
            catalog: Some(catalog),
            served: None,
            _place: place,
        }
    }

    async fn stock(manifest: bool, can: Capabilities) -> Self {
        let place = Place::new(Store::Disk);
        let namespace = DirectoryNamespaceBuilder::new(&place.uri)
            .manifest_enabled(manifest)
            .build()
            .await
            .unwrap();
        Self {
            namespace: Arc::new(namespace),
            can,
            catalog: None,
            served: None,
            _place: place,
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
