//! Child namespaces, and how tables come into them and leave them without their data.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use lance_namespace::models::ListNamespacesRequest;

use crate::catalog::Catalog;
use crate::child;
use crate::child::namespaces::{self, Namespace};
use crate::error::{Error, Result};
use crate::ident::{NamespaceIdent, TableIdent, check_existing_parts};
use crate::lifecycle::Marker;
use crate::root;

impl Catalog {
    /// Creates a namespace; await the returned [`CreateNamespace`]. Its parent must exist.
    ///
    /// The first one brings `<root>/__manifest` into being. Cost: the base's look-ups and one commit to the manifest.
    ///
    /// # Errors
    /// [`Error::InvalidIdent`] before any I/O; [`Error::NamespaceAlreadyExists`] (also for the id of a table),
    /// [`Error::NamespaceNotFound`] for a missing parent, [`Error::Conflict`] when many write to the manifest at once.
    pub fn create_namespace(&self, ident: impl Into<NamespaceIdent>) -> CreateNamespace {
        CreateNamespace {
            catalog: self.clone(),
            ident: ident.into(),
            properties: BTreeMap::new(),
            exist_ok: false,
        }
    }

    /// The namespace with its properties. The root has none.
    ///
    /// # Errors
    /// [`Error::NamespaceNotFound`].
    pub async fn describe_namespace(&self, ident: impl Into<NamespaceIdent>) -> Result<Namespace> {
        namespaces::describe(self, &ident.into()).await
    }

    /// The names of the namespaces directly in this one, sorted: 1 LIST, and some reads more after commits to the namespace
    /// manifest by others.
    ///
    /// # Errors
    /// [`Error::NamespaceNotFound`].
    pub async fn list_namespaces(&self, ident: impl Into<NamespaceIdent>) -> Result<Vec<String>> {
        let mut request = ListNamespacesRequest::new();
        request.id = Some(ident.into().parts().to_vec());
        Ok(child::list::namespaces(self, request).await?.namespaces)
    }

    /// Whether the namespace exists. The root always does.
    pub async fn namespace_exists(&self, ident: impl Into<NamespaceIdent>) -> Result<bool> {
        let ident = ident.into();
        check_existing_parts(ident.parts())?;
        child::namespace_exists(self, &ident).await
    }

    /// Drops a namespace, which must be empty; await the returned [`DropNamespace`]. Dropped root tables are in no
    /// namespace and do not count.
    ///
    /// # Errors
    /// [`Error::NamespaceNotFound`]; [`Error::NamespaceNotEmpty`], also when something was created in it while it was
    /// being dropped: it is there again then, with its properties.
    pub fn drop_namespace(&self, ident: impl Into<NamespaceIdent>) -> DropNamespace {
        DropNamespace {
            catalog: self.clone(),
            ident: ident.into(),
        }
    }

    /// Registers the table that is stored at a location, a path relative to the root or a URI below it. For a root
    /// table that is its own directory only, and registering a dropped one there is its undrop.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a location outside the root, a root table's directory, or one that another table has;
    /// [`Error::TableNotFound`] when no version of a table is there; [`Error::TableAlreadyExists`];
    /// [`Error::NamespaceNotFound`].
    pub async fn register_table(
        &self,
        ident: impl Into<TableIdent>,
        location: impl AsRef<str>,
    ) -> Result<()> {
        let (ident, location) = (ident.into(), location.as_ref());
        if ident.is_child() {
            child::register::register_table(self, &ident, location).await?;
            return Ok(());
        }
        let slot = root::dropping_slot(self.store(), &ident)?;
        let given = location.trim_end_matches('/');
        if given != slot.location
            && given != slot.uri
            && self.store().location_of(given).as_deref() != Some(&slot.location)
        {
            return Err(Error::InvalidInput {
                message: format!(
                    "root table {ident} can only be registered at its own location {:?}, not at {location:?}",
                    slot.location
                ),
            });
        }
        match self.undrop_table(&ident).await {
            Ok(_) => Ok(()),
            Err(Error::TableNotDropped { ident }) => Err(Error::TableAlreadyExists { ident }),
            Err(e) => Err(e),
        }
    }

    /// Takes a table out of the catalog and leaves its data; gives its location relative to the root, to
    /// [`register_table`](Self::register_table) it again. For a root table this is a drop that is kept until it is
    /// purged by name.
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`Error::TableDeregistered`] for a root table that another client deregistered.
    pub async fn deregister_table(&self, ident: impl Into<TableIdent>) -> Result<String> {
        let ident = ident.into();
        if ident.is_child() {
            let slot = child::register::deregister_table(self, &ident).await?;
            return Ok(slot.location);
        }
        let slot = root::dropping_slot(self.store(), &ident)?;
        if self.lifecycle().read_marker(&slot).await? == Marker::Foreign {
            return Err(Error::TableDeregistered { ident });
        }
        self.drop_table(&ident)
            .retention(None)
            .reason("deregistered")
            .await?;
        Ok(slot.location)
    }
}

/// A namespace about to be created; await it. See [`Catalog::create_namespace`].
#[derive(Debug, Clone)]
#[must_use = "a create does nothing until it is awaited"]
pub struct CreateNamespace {
    catalog: Catalog,
    ident: NamespaceIdent,
    properties: BTreeMap<String, String>,
    exist_ok: bool,
}

impl CreateNamespace {
    /// Records a property with it; any text.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(key.into(), value.into());
        self
    }

    /// Records properties with it.
    pub fn properties(
        mut self,
        properties: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        self.properties
            .extend(properties.into_iter().map(|(k, v)| (k.into(), v.into())));
        self
    }

    /// Give the namespace that is there, as it is, if there is one.
    pub fn exist_ok(mut self) -> Self {
        self.exist_ok = true;
        self
    }
}

impl IntoFuture for CreateNamespace {
    type Output = Result<Namespace>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            namespaces::create(&self.catalog, &self.ident, self.properties, self.exist_ok).await
        })
    }
}

/// A drop of a namespace about to be made; await it. See [`Catalog::drop_namespace`].
#[derive(Debug, Clone)]
#[must_use = "a drop does nothing until it is awaited"]
pub struct DropNamespace {
    catalog: Catalog,
    ident: NamespaceIdent,
}

impl DropNamespace {
    /// Answer `false` where there is no such namespace.
    pub fn if_exists(self) -> DropNamespaceIfExists {
        DropNamespaceIfExists(self)
    }
}

impl IntoFuture for DropNamespace {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { namespaces::drop(&self.catalog, &self.ident).await })
    }
}

/// A drop that is content with there being no such namespace. See [`DropNamespace::if_exists`].
#[derive(Debug, Clone)]
#[must_use = "a drop does nothing until it is awaited"]
pub struct DropNamespaceIfExists(DropNamespace);

impl IntoFuture for DropNamespaceIfExists {
    type Output = Result<bool>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.0.await {
                Ok(()) => Ok(true),
                Err(Error::NamespaceNotFound { .. }) => Ok(false),
                Err(e) => Err(e),
            }
        })
    }
}
