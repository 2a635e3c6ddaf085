//! The trait's creation and drop of namespaces.

use lance_core::Result;
use lance_namespace::models::{
    CreateNamespaceRequest, CreateNamespaceResponse, DropNamespaceRequest, DropNamespaceResponse,
};

use super::routing::{create_mode, invalid, namespace_parts, unsupported};
use crate::catalog::Catalog;
use crate::ident::NamespaceIdent;
use crate::root::create::CreateMode;

impl Catalog {
    pub(super) async fn make_namespace(
        &self,
        request: CreateNamespaceRequest,
    ) -> Result<CreateNamespaceResponse> {
        let ident = NamespaceIdent::from(namespace_parts(&request.id)?);
        let create = Catalog::create_namespace(self, ident)
            .properties(request.properties.unwrap_or_default());
        let made = match create_mode(request.mode.as_deref())? {
            CreateMode::Create => create.await?,
            CreateMode::ExistOk => create.exist_ok().await?,
            CreateMode::Overwrite => {
                return Err(unsupported(
                    "a namespace cannot be overwritten; drop it first",
                ));
            }
        };
        Ok(CreateNamespaceResponse {
            properties: Some(made.properties.into_iter().collect()),
            ..Default::default()
        })
    }

    pub(super) async fn remove_namespace(
        &self,
        request: DropNamespaceRequest,
    ) -> Result<DropNamespaceResponse> {
        let drop = Catalog::drop_namespace(self, namespace_parts(&request.id)?);
        let lower = |text: &Option<String>| text.as_deref().map(str::to_ascii_lowercase);
        let skip = match lower(&request.mode).as_deref() {
            None | Some("fail") => false,
            Some("skip") => true,
            Some(other) => return Err(invalid(format!("unknown mode {other:?}; fail or skip"))),
        };
        match lower(&request.behavior).as_deref() {
            None | Some("restrict") => {}
            Some("cascade") => {
                return Err(unsupported("a namespace is dropped only when it is empty"));
            }
            Some(other) => {
                return Err(invalid(format!(
                    "unknown behavior {other:?}; restrict or cascade"
                )));
            }
        }
        if skip {
            drop.if_exists().await?;
        } else {
            drop.await?;
        }
        Ok(DropNamespaceResponse::default())
    }
}
