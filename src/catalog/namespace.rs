//! [`Catalog`] as a `LanceNamespace`, for clients that speak the trait or its REST form.
//!
//! Ids of one part are root tables and keep the catalog's semantics: a drop is a drop with the default retention, a
//! deregistration a drop that is kept until purged by name, a registration of a dropped table at its own location its
//! undrop; whatever else touches a root table first looks whether it is dropped. Longer ids are tables in namespaces of
//! the manifest, which comes into being with the first write to it: their drop is immediate and final. What creates,
//! drops, registers and lists is the catalog's own; everything else is the base's, and what the base does not support is
//! `Unsupported`.
//!
//! Errors carry the code of the kind that the catalog's own call would give, and no value of a storage option.

use async_trait::async_trait;
use bytes::Bytes;
use lance_core::Result;
#[allow(clippy::wildcard_imports)] // Nearly every model of the trait is needed.
use lance_namespace::models::*;
use lance_namespace::{LanceNamespace, NamespaceError};

use crate::catalog::Catalog;
use crate::child;
use crate::error::Error;
use crate::ident::{NamespaceIdent, TableIdent};
use crate::root;
use crate::root::status::TableState;
use crate::store::Slot;

mod namespaces;
mod routing;
mod versions;

pub(super) use routing::Bases;
use routing::{
    Id, NO_REGISTERED_PROPERTIES, NO_ROOT_PROPERTIES, code_of, create_mode, has_any, invalid,
    namespace_parts, not_found, read_ipc, refuse_properties, table_ident, unsupported,
};

impl Catalog {
    async fn list_root(&self, request: ListTablesRequest) -> Result<ListTablesResponse> {
        let mut listing = self
            .list_tables()
            .include_declared(request.include_declared.unwrap_or(true));
        if let Some(limit) = request.limit {
            let limit = usize::try_from(limit)
                .map_err(|_| invalid(format!("a page cannot hold {limit} tables")))?;
            listing = listing.limit(limit);
        }
        if let Some(token) = request.page_token {
            listing = listing.page_token(token);
        }
        let page = listing.await?;
        let mut response = ListTablesResponse::new(page.tables);
        response.page_token = page.page_token;
        Ok(response)
    }
}

/// Operations that go to the base of the id as they are, once a root table was seen not to be dropped.
macro_rules! on_the_base {
    ($($operation:ident($request:ty $(, $data:ident: $kind:ty)?) -> $response:ty;)*) => {
        #[async_trait]
        impl LanceNamespace for Catalog {
            $(
                async fn $operation(
                    &self,
                    request: $request
                    $(, $data: $kind)?
                ) -> Result<$response> {
                    let ident = table_ident(&request.id)?;
                    let base = self.base_of(&request.id).await?;
                    self.answer(&ident, base.$operation(request $(, $data)?).await)
                }
            )*

            async fn describe_transaction(
                &self,
                request: DescribeTransactionRequest,
            ) -> Result<DescribeTransactionResponse> {
                let base = self.base_of_transaction(&request.id).await?;
                self.cleaned(base.describe_transaction(request).await)
            }

            async fn alter_transaction(
                &self,
                request: AlterTransactionRequest,
            ) -> Result<AlterTransactionResponse> {
                let base = self.base_of_transaction(&request.id).await?;
                self.cleaned(base.alter_transaction(request).await)
            }

            async fn alter_table_add_columns(
                &self,
                request: AlterTableAddColumnsRequest,
            ) -> Result<AlterTableAddColumnsResponse> {
                let base = self.base_to_alter(&request.id).await?;
                self.cleaned(base.alter_table_add_columns(request).await)
            }

            async fn alter_table_alter_columns(
                &self,
                request: AlterTableAlterColumnsRequest,
            ) -> Result<AlterTableAlterColumnsResponse> {
                let base = self.base_to_alter(&request.id).await?;
                self.cleaned(base.alter_table_alter_columns(request).await)
            }

            async fn alter_table_drop_columns(
                &self,
                request: AlterTableDropColumnsRequest,
            ) -> Result<AlterTableDropColumnsResponse> {
                let base = self.base_to_alter(&request.id).await?;
                self.cleaned(base.alter_table_drop_columns(request).await)
            }

            async fn batch_create_table_versions(
                &self,
                _: BatchCreateTableVersionsRequest,
            ) -> Result<BatchCreateTableVersionsResponse> {
                Err(unsupported("versions of several tables at once"))
            }

            async fn batch_commit_tables(
                &self,
                _: BatchCommitTablesRequest,
            ) -> Result<BatchCommitTablesResponse> {
                Err(unsupported("commits to several tables at once"))
            }

            async fn list_namespaces(
                &self,
                request: ListNamespacesRequest,
            ) -> Result<ListNamespacesResponse> {
                namespace_parts(&request.id)?;
                Ok(child::list::namespaces(self, request).await?)
            }

            async fn describe_namespace(
                &self,
                request: DescribeNamespaceRequest,
            ) -> Result<DescribeNamespaceResponse> {
                let ident = NamespaceIdent::from(namespace_parts(&request.id)?);
                let described = child::namespaces::describe(self, &ident).await;
                let described = self.cleaned(described.map_err(Into::into))?.properties;
                let recorded = ident.is_root() || !described.is_empty();
                Ok(DescribeNamespaceResponse {
                    properties: recorded.then(|| described.into_iter().collect()),
                    ..Default::default()
                })
            }

            async fn create_namespace(
                &self,
                request: CreateNamespaceRequest,
            ) -> Result<CreateNamespaceResponse> {
                self.make_namespace(request).await
            }

            async fn drop_namespace(
                &self,
                request: DropNamespaceRequest,
            ) -> Result<DropNamespaceResponse> {
                self.remove_namespace(request).await
            }

            async fn namespace_exists(&self, request: NamespaceExistsRequest) -> Result<()> {
                let ident = NamespaceIdent::from(namespace_parts(&request.id)?);
                let there = child::must_exist(self, &ident).await;
                self.cleaned(there.map_err(Into::into))
            }

            async fn list_tables(&self, request: ListTablesRequest) -> Result<ListTablesResponse> {
                if namespace_parts(&request.id)?.is_empty() {
                    return self.list_root(request).await;
                }
                Ok(child::list::tables(self, request).await?)
            }

            /// Root tables by name, child tables by the parts of their id joined with `$`; sorted.
            async fn list_all_tables(
                &self,
                request: ListTablesRequest,
            ) -> Result<ListTablesResponse> {
                let include_declared = request.include_declared.unwrap_or(true);
                let listing = Catalog::list_tables(self).include_declared(include_declared);
                let mut tables = listing.await?.tables;
                tables.extend(child::list::all_tables(self, include_declared).await?);
                tables.sort_unstable();
                if let Some(after) = request.page_token {
                    tables.retain(|name| *name > after);
                }
                let mut response = ListTablesResponse::new(Vec::new());
                if let Some(limit) = request.limit {
                    let limit = usize::try_from(limit)
                        .ok()
                        .filter(|l| *l > 0)
                        .ok_or_else(|| invalid(format!("a page cannot hold {limit} tables")))?;
                    if tables.len() > limit {
                        tables.truncate(limit);
                        response.page_token = tables.last().cloned();
                    }
                }
                response.tables = tables;
                Ok(response)
            }

            async fn table_exists(&self, request: TableExistsRequest) -> Result<()> {
                let ident = table_ident(&request.id)?;
                if ident.is_child() {
                    child::check_existing(&ident)?;
                    let there = child::must_be_registered(self, &ident).await;
                    return self.cleaned(there.map(|_| ()).map_err(Into::into));
                }
                match self.table_status(&ident).await? {
                    TableState::Live { .. } | TableState::Declared => Ok(()),
                    TableState::Dropped(d) | TableState::Restoring(d) | TableState::Purging(d) => {
                        Err(Error::TableDropped {
                            dropped: Box::new(d),
                        }
                        .into())
                    }
                    TableState::Deregistered => Err(Error::TableDeregistered { ident }.into()),
                    TableState::Creating => Err(not_found(&ident, "being created")),
                    TableState::Incomplete => Err(not_found(&ident, "incomplete")),
                    TableState::Absent => Err(not_found(&ident, "not there")),
                }
            }

            async fn create_table(
                &self,
                request: CreateTableRequest,
                request_data: Bytes,
            ) -> Result<CreateTableResponse> {
                self.make_table(request, request_data).await
            }

            async fn declare_table(
                &self,
                request: DeclareTableRequest,
            ) -> Result<DeclareTableResponse> {
                self.reserve_table(request).await
            }

            async fn drop_table(&self, request: DropTableRequest) -> Result<DropTableResponse> {
                let slot = self.slot_of(&request.id).await?;
                Catalog::drop_table(self, &slot.ident).await?;
                Ok(DropTableResponse {
                    id: request.id,
                    location: Some(slot.uri),
                    ..Default::default()
                })
            }

            async fn deregister_table(
                &self,
                request: DeregisterTableRequest,
            ) -> Result<DeregisterTableResponse> {
                let slot = self.slot_of(&request.id).await?;
                Catalog::deregister_table(self, &slot.ident).await?;
                Ok(DeregisterTableResponse {
                    id: request.id,
                    location: Some(slot.uri),
                    ..Default::default()
                })
            }

            async fn register_table(
                &self,
                request: RegisterTableRequest,
            ) -> Result<RegisterTableResponse> {
                let ident = table_ident(&request.id)?;
                if ident.is_child() {
                    refuse_properties(request.properties.as_ref(), NO_REGISTERED_PROPERTIES)?;
                } else {
                    refuse_properties(request.properties.as_ref(), NO_ROOT_PROPERTIES)?;
                }
                Catalog::register_table(self, &ident, &request.location).await?;
                Ok(RegisterTableResponse {
                    location: Some(self.slot_of(&request.id).await?.location),
                    ..Default::default()
                })
            }

            async fn describe_table(
                &self,
                request: DescribeTableRequest,
            ) -> Result<DescribeTableResponse> {
                let ident = table_ident(&request.id)?;
                let looks_into =
                    [request.load_detailed_metadata, request.check_declared].contains(&Some(true));
                let mut described = if ident.is_child() && !looks_into {
                    self.described(&ident).await?
                } else {
                    let base = self.base_of(&request.id).await?;
                    self.answer(&ident, base.describe_table(request).await)?
                };
                if self.is_managed() {
                    described.managed_versioning = Some(true);
                }
                Ok(described)
            }

            async fn list_table_versions(
                &self,
                request: ListTableVersionsRequest,
            ) -> Result<ListTableVersionsResponse> {
                self.versions_listed(request).await
            }

            async fn create_table_version(
                &self,
                request: CreateTableVersionRequest,
            ) -> Result<CreateTableVersionResponse> {
                self.version_created(request).await
            }

            async fn describe_table_version(
                &self,
                request: DescribeTableVersionRequest,
            ) -> Result<DescribeTableVersionResponse> {
                self.version_described(request).await
            }

            async fn batch_delete_table_versions(
                &self,
                request: BatchDeleteTableVersionsRequest,
            ) -> Result<BatchDeleteTableVersionsResponse> {
                self.versions_deleted(request).await
            }

            fn namespace_id(&self) -> String {
                format!("lancekeep(root={})", self.root_uri())
            }
        }
    };
}

on_the_base! {
    count_table_rows(CountTableRowsRequest) -> i64;
    insert_into_table(InsertIntoTableRequest, data: Bytes) -> InsertIntoTableResponse;
    merge_insert_into_table(MergeInsertIntoTableRequest, data: Bytes) -> MergeInsertIntoTableResponse;
    update_table(UpdateTableRequest) -> UpdateTableResponse;
    delete_from_table(DeleteFromTableRequest) -> DeleteFromTableResponse;
    query_table(QueryTableRequest) -> Bytes;
    create_table_index(CreateTableIndexRequest) -> CreateTableIndexResponse;
    list_table_indices(ListTableIndicesRequest) -> ListTableIndicesResponse;
    describe_table_index_stats(DescribeTableIndexStatsRequest) -> DescribeTableIndexStatsResponse;
    create_table_scalar_index(CreateTableIndexRequest) -> CreateTableScalarIndexResponse;
    drop_table_index(DropTableIndexRequest) -> DropTableIndexResponse;
    restore_table(RestoreTableRequest) -> RestoreTableResponse;
    rename_table(RenameTableRequest) -> RenameTableResponse;
    update_table_schema_metadata(UpdateTableSchemaMetadataRequest) -> UpdateTableSchemaMetadataResponse;
    update_field_metadata(UpdateFieldMetadataRequest) -> UpdateFieldMetadataResponse;
    get_table_stats(GetTableStatsRequest) -> GetTableStatsResponse;
    explain_table_query_plan(ExplainTableQueryPlanRequest) -> String;
    analyze_table_query_plan(AnalyzeTableQueryPlanRequest) -> String;
    alter_table_backfill_columns(AlterTableBackfillColumnsRequest) -> AlterTableBackfillColumnsResponse;
    refresh_materialized_view(RefreshMaterializedViewRequest) -> RefreshMaterializedViewResponse;
    create_materialized_view(CreateMaterializedViewRequest) -> CreateMaterializedViewResponse;
    list_table_tags(ListTableTagsRequest) -> ListTableTagsResponse;
    get_table_tag_version(GetTableTagVersionRequest) -> GetTableTagVersionResponse;
    create_table_tag(CreateTableTagRequest) -> CreateTableTagResponse;
    delete_table_tag(DeleteTableTagRequest) -> DeleteTableTagResponse;
    update_table_tag(UpdateTableTagRequest) -> UpdateTableTagResponse;
    create_table_branch(CreateTableBranchRequest) -> CreateTableBranchResponse;
    list_table_branches(ListTableBranchesRequest) -> ListTableBranchesResponse;
    delete_table_branch(DeleteTableBranchRequest) -> DeleteTableBranchResponse;
}

impl Catalog {
    /// The slot of a root table, there or not, or of a registered child table.
    async fn slot_of(&self, id: &Id) -> Result<Slot> {
        let ident = table_ident(id)?;
        if !ident.is_child() {
            return Ok(root::dropping_slot(self.store(), &ident)?);
        }
        child::check_existing(&ident)?;
        Ok(child::must_be_registered(self, &ident).await?)
    }

    async fn make_table(
        &self,
        request: CreateTableRequest,
        data: Bytes,
    ) -> Result<CreateTableResponse> {
        let ident = table_ident(&request.id)?;
        let mode = create_mode(request.mode.as_deref())?;
        let rows = read_ipc(&data)?;
        if ident.is_child() && has_any(request.properties.as_ref()) {
            return self.make_table_with_properties(&ident, request, data).await;
        }
        refuse_properties(request.properties.as_ref(), NO_ROOT_PROPERTIES)?;
        let table = Catalog::create_table(self, ident, rows).mode(mode).await?;
        Ok(CreateTableResponse {
            version: i64::try_from(table.version().version).ok(),
            location: Some(table.uri().to_string()),
            ..Default::default()
        })
    }

    /// Only the base's own create records properties with a table.
    async fn make_table_with_properties(
        &self,
        ident: &TableIdent,
        request: CreateTableRequest,
        data: Bytes,
    ) -> Result<CreateTableResponse> {
        child::check_new(self.store(), ident)?;
        child::must_exist(self, &ident.namespace()).await?;
        let created = self.child_base().await?.create_table(request, data).await;
        let mut created = self.put_in(ident, created).await?;
        // The base answers with what it was built with.
        created.storage_options = None;
        Ok(created)
    }

    /// What the base says of having put a table into a namespace, after a look whether it still is in one.
    async fn put_in<T>(&self, ident: &TableIdent, answer: Result<T>) -> Result<T> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(e) => {
                let lost = matches!(
                    code_of(&e),
                    Some(NamespaceError::ConcurrentModification { .. })
                );
                if lost && child::registered(self, ident).await?.is_some() {
                    return Err(Error::TableAlreadyExists {
                        ident: ident.clone(),
                    }
                    .into());
                }
                return Err(self.clean(e));
            }
        };
        if !child::still_exists(self, &ident.namespace()).await? {
            Catalog::drop_table(self, ident).await?;
            return Err(Error::NamespaceNotFound {
                ident: ident.namespace(),
            }
            .into());
        }
        Ok(answer)
    }

    async fn reserve_table(&self, request: DeclareTableRequest) -> Result<DeclareTableResponse> {
        let ident = table_ident(&request.id)?;
        if ident.is_child() {
            if let Some(location) = &request.location {
                return Err(invalid(format!(
                    "the location of {ident} is the catalog's to choose, not {location:?}; register_table takes one"
                )));
            }
            if has_any(request.properties.as_ref()) {
                child::check_new(self.store(), &ident)?;
                child::must_exist(self, &ident.namespace()).await?;
                let declared = self.child_base().await?.declare_table(request).await;
                let mut declared = self.put_in(&ident, declared).await?;
                declared.managed_versioning = self.is_managed().then_some(true);
                return Ok(declared);
            }
        } else {
            refuse_properties(request.properties.as_ref(), NO_ROOT_PROPERTIES)?;
            let slot = root::new_slot(self.store(), &ident)?;
            if let Some(location) = &request.location
                && location.trim_end_matches('/') != slot.uri
            {
                return Err(invalid(format!(
                    "root table {ident} can only be declared at {:?}, not at {location:?}",
                    slot.uri
                )));
            }
        }
        let declared = Catalog::declare_table(self, &ident).await;
        let location = declared.map_err(|e| match e {
            // Not "not found": the name is taken, by a table that can be restored.
            Error::TableDropped { .. } | Error::TableDeregistered { .. } => {
                lance_core::Error::from(NamespaceError::InvalidTableState {
                    message: e.to_string(),
                })
            }
            e => e.into(),
        })?;
        Ok(DeclareTableResponse {
            location: Some(location),
            managed_versioning: self.is_managed().then_some(true),
            ..Default::default()
        })
    }
}
