//! Where an operation of the trait goes: the checks before it, the bases, and what their errors become.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use bytes::Bytes;
use lance_core::Result;
use lance_namespace::NamespaceError;
use lance_namespace::models::DescribeTableResponse;
use lance_namespace_impls::{DirectoryNamespace, DirectoryNamespaceBuilder};

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Subject, from_base, from_lance};
use crate::ident::{self, NamespaceIdent, TableIdent};
use crate::root::create::CreateMode;
use crate::root::data::TableData;
use crate::root::{self, open};

/// The base namespaces, made when they are first needed.
#[derive(Debug, Default)]
pub(in crate::catalog) struct Bases {
    root: tokio::sync::OnceCell<Arc<DirectoryNamespace>>,
    children: tokio::sync::OnceCell<Arc<DirectoryNamespace>>,
}

pub(super) type Id = Option<Vec<String>>;

pub(super) fn invalid(message: impl Into<String>) -> lance_core::Error {
    NamespaceError::InvalidInput {
        message: message.into(),
    }
    .into()
}

pub(super) fn unsupported(message: impl Into<String>) -> lance_core::Error {
    NamespaceError::Unsupported {
        message: message.into(),
    }
    .into()
}

pub(super) fn not_found(ident: &TableIdent, state: &str) -> lance_core::Error {
    NamespaceError::TableNotFound {
        message: format!("{ident} is {state}"),
    }
    .into()
}

/// The namespace error inside an error of Lance.
pub(super) fn code_of(error: &lance_core::Error) -> Option<&NamespaceError> {
    match error {
        lance_core::Error::Namespace { source, .. } => source.downcast_ref(),
        _ => None,
    }
}

pub(super) fn table_ident(id: &Id) -> Result<TableIdent> {
    match id.as_deref() {
        None | Some([]) => Err(invalid("a table id has at least one part")),
        Some(parts) => Ok(TableIdent::from(parts)),
    }
}

pub(super) fn namespace_parts(id: &Id) -> Result<&[String]> {
    let parts = id
        .as_deref()
        .ok_or_else(|| invalid("a namespace id is required; the root's is empty"))?;
    ident::check_existing_parts(parts)?;
    Ok(parts)
}

type Properties<'a> = Option<&'a std::collections::HashMap<String, String>>;

pub(super) const NO_ROOT_PROPERTIES: &str =
    "root tables have no properties of their own; use a table in a namespace";
pub(super) const NO_REGISTERED_PROPERTIES: &str =
    "properties cannot be recorded with a table that is registered; only with one that is created";

pub(super) fn has_any(properties: Properties<'_>) -> bool {
    properties.is_some_and(|p| !p.is_empty())
}

pub(super) fn refuse_properties(properties: Properties<'_>, why: &str) -> Result<()> {
    match has_any(properties) {
        true => Err(unsupported(why)),
        false => Ok(()),
    }
}

pub(super) fn create_mode(mode: Option<&str>) -> Result<CreateMode> {
    match mode.map(str::to_ascii_lowercase).as_deref() {
        None | Some("create") => Ok(CreateMode::Create),
        Some("existok" | "exist_ok") => Ok(CreateMode::ExistOk),
        Some("overwrite") => Ok(CreateMode::Overwrite),
        Some(other) => Err(invalid(format!(
            "unknown mode {other:?}; create, exist_ok or overwrite"
        ))),
    }
}

pub(super) fn read_ipc(data: &Bytes) -> Result<TableData> {
    if data.is_empty() {
        return Err(invalid(
            "an Arrow IPC stream is required as the request's data",
        ));
    }
    let bad = |e: arrow::error::ArrowError| invalid(format!("invalid Arrow IPC stream: {e}"));
    // Not the reader of the same: it allocates whatever length the data claims.
    let (mut decoder, mut buffer) = (StreamDecoder::new(), Buffer::from(data.clone()));
    let mut batches: Vec<RecordBatch> = Vec::new();
    while let Some(batch) = decoder.decode(&mut buffer).map_err(bad)? {
        batches.push(batch);
    }
    let schema = decoder
        .schema()
        .ok_or_else(|| invalid("invalid Arrow IPC stream: it has no schema"))?;
    decoder.finish().map_err(bad)?;
    Ok(if batches.is_empty() {
        TableData::empty(schema)
    } else {
        TableData::from(batches)
    })
}

impl Catalog {
    fn base(&self) -> DirectoryNamespaceBuilder {
        let store = self.store();
        let builder =
            DirectoryNamespaceBuilder::new(&store.root_uri).session(store.session.clone());
        match store.params.storage_options() {
            Some(options) => builder.storage_options(options.clone()),
            None => builder,
        }
    }

    pub(super) async fn root_base(&self) -> Result<&DirectoryNamespace> {
        let base = self
            .inner
            .bases
            .root
            .get_or_try_init(|| async {
                self.base()
                    .manifest_enabled(false)
                    .build()
                    .await
                    .map(Arc::new)
            })
            .await;
        base.map(Arc::as_ref).map_err(|e| self.clean(e))
    }

    /// The manifest-backed base. Making it, and reading through it, writes nothing.
    pub(crate) async fn child_base(&self) -> std::result::Result<&DirectoryNamespace, Error> {
        let base = self
            .inner
            .bases
            .children
            .get_or_try_init(|| async {
                self.base()
                    .manifest_enabled(true)
                    .dir_listing_enabled(false)
                    .build()
                    .await
                    .map(Arc::new)
            })
            .await;
        base.map(Arc::as_ref).map_err(|e| {
            let root = NamespaceIdent::root();
            let subject = Subject::Namespace(&root);
            from_base(e, "open", subject, &self.store().redactor)
        })
    }

    /// An error of the base, free of storage option values, and "not supported" told by its code.
    pub(super) fn clean(&self, error: lance_core::Error) -> lance_core::Error {
        let redactor = &self.store().redactor;
        let text = error.to_string();
        let clean = redactor.text(&text);
        if let lance_core::Error::NotSupported { .. } = error {
            return unsupported(clean);
        }
        if code_of(&error).is_none() {
            // An error of Lance itself: told by the code that our own calls would give.
            let ours = from_lance(error, "work on", &TableIdent::from(""), redactor);
            let code = NamespaceError::from(ours).code();
            return NamespaceError::from_code(code.as_u32(), clean).into();
        }
        // `Debug` shows the sources that `Display` leaves out.
        let debug = format!("{error:?}");
        if clean == text && redactor.text(&debug) == debug {
            return error;
        }
        match code_of(&error) {
            Some(inner) => {
                NamespaceError::from_code(inner.code().as_u32(), redactor.text(inner.message()))
                    .into()
            }
            None => NamespaceError::Internal { message: clean }.into(),
        }
    }

    pub(super) fn cleaned<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| self.clean(e))
    }

    /// What the base answers about a table. Before the manifest is there it says that the namespace is missing; then the
    /// table is too, as in a namespace that is missing later.
    pub(super) fn answer<T>(&self, ident: &TableIdent, result: Result<T>) -> Result<T> {
        self.cleaned(result).map_err(|e| match code_of(&e) {
            Some(NamespaceError::NamespaceNotFound { .. }) if ident.is_child() => {
                child::not_registered(ident).into()
            }
            _ => e,
        })
    }

    /// What the base answers about a table in a namespace, without a look into the table.
    pub(super) async fn described(&self, ident: &TableIdent) -> Result<DescribeTableResponse> {
        let described = child::open::describe(self, ident).await;
        let (uri, properties) = self.cleaned(described.map_err(Into::into))?;
        let recorded = !properties.is_empty();
        Ok(DescribeTableResponse {
            table: Some(ident.name().to_string()),
            namespace: Some(ident.namespace().parts().to_vec()),
            location: Some(uri.clone()),
            table_uri: Some(uri),
            properties: recorded.then(|| properties.into_iter().collect()),
            ..Default::default()
        })
    }

    /// The base for a transaction: its id is the table's and one part more.
    pub(super) async fn base_of_transaction(&self, id: &Id) -> Result<&DirectoryNamespace> {
        let parts = id.as_deref().unwrap_or_default();
        let table = parts.split_last().map(|(_, table)| table.to_vec());
        self.base_of(&table).await
    }

    /// The base for what makes the manifest in it before it looks for the table.
    pub(super) async fn base_to_alter(&self, id: &Id) -> Result<&DirectoryNamespace> {
        let base = self.base_of(id).await?;
        let ident = table_ident(id)?;
        if ident.is_child() {
            child::must_be_registered(self, &ident).await?;
        }
        Ok(base)
    }

    /// The base for an operation on a table; a root table that is dropped or deregistered is refused.
    pub(super) async fn base_of(&self, id: &Id) -> Result<&DirectoryNamespace> {
        let ident = table_ident(id)?;
        if ident.is_child() {
            child::check_existing(&ident)?;
            return Ok(self.child_base().await?);
        }
        let slot = root::reading_slot(self.store(), &ident)?;
        open::check(self.clone(), slot).await?;
        self.root_base().await
    }
}
