//! [`Catalog`] as a `LanceNamespace`, for clients that speak the trait or its REST form.
//!
//! Ids of one part are root tables and keep the catalog's semantics: a drop is a drop with the default retention, a
//! deregistration a drop that is kept until purged by name, a registration of a dropped table at its own location its
//! undrop; whatever else touches a root table first looks whether it is dropped. Longer ids go to a manifest-backed
//! directory namespace on the same root, which comes into being with the first write to it: their drop is the base's,
//! immediate and final. What the base does not support is `Unsupported`.
//!
//! Errors carry the code of the kind that the catalog's own call would give, and no value of a storage option.

use async_trait::async_trait;
use bytes::Bytes;
use lance_core::Result;
#[allow(clippy::wildcard_imports)] // Nearly every model of the trait is needed.
use lance_namespace::models::*;
use lance_namespace::{LanceNamespace, NamespaceError};

use crate::catalog::Catalog;
use crate::error::Error;
use crate::ident::TableIdent;
use crate::lifecycle::Marker;
use crate::root;
use crate::root::create::CreateMode;
use crate::root::status::TableState;

mod routing;

pub(super) use routing::Bases;
use routing::{
    Target, code_of, create_mode, invalid, namespace_parts, not_found, read_ipc, refuse_properties,
    target, unsupported,
};

impl Catalog {
    /// Every child namespace, and the tables in each, as ids joined by the manifest's `$`.
    async fn all_child_tables(&self, include_declared: bool) -> Result<Vec<String>> {
        let base = self.child_base().await?;
        let mut found = Vec::new();
        let mut pending: Vec<Vec<String>> = vec![Vec::new()];
        while let Some(namespace) = pending.pop() {
            let mut request = ListNamespacesRequest::new();
            request.id = Some(namespace.clone());
            for name in self
                .cleaned(base.list_namespaces(request).await)?
                .namespaces
            {
                pending.push([namespace.as_slice(), &[name]].concat());
            }
            if namespace.is_empty() {
                continue;
            }
            let mut request = ListTablesRequest::new();
            request.id = Some(namespace.clone());
            request.include_declared = Some(include_declared);
            for name in self.cleaned(base.list_tables(request).await)?.tables {
                found.push([namespace.as_slice(), &[name]].concat().join("$"));
            }
        }
        Ok(found)
    }

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

    async fn register_root(
        &self,
        ident: &TableIdent,
        request: RegisterTableRequest,
    ) -> Result<RegisterTableResponse> {
        let slot = root::dropping_slot(self.store(), ident)?;
        let location = request.location.trim_end_matches('/');
        if location != slot.location && location != slot.uri {
            return Err(invalid(format!(
                "root table {ident} can only be registered at its own location {:?}, not at {location:?}",
                slot.location
            )));
        }
        refuse_properties(request.properties.as_ref())?;
        match self.undrop_table(ident).await {
            Ok(_) => Ok(RegisterTableResponse {
                location: Some(slot.location),
                ..Default::default()
            }),
            Err(Error::TableNotDropped { ident }) => {
                Err(Error::TableAlreadyExists { ident }.into())
            }
            Err(e) => Err(e.into()),
        }
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
                    let base = self.base_of(&request.id).await?;
                    self.cleaned(base.$operation(request $(, $data)?).await)
                }
            )*

            async fn list_namespaces(
                &self,
                request: ListNamespacesRequest,
            ) -> Result<ListNamespacesResponse> {
                namespace_parts(&request.id)?;
                self.cleaned(self.child_base().await?.list_namespaces(request).await)
            }

            async fn describe_namespace(
                &self,
                request: DescribeNamespaceRequest,
            ) -> Result<DescribeNamespaceResponse> {
                namespace_parts(&request.id)?;
                self.cleaned(self.child_base().await?.describe_namespace(request).await)
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
                namespace_parts(&request.id)?;
                self.cleaned(self.child_base().await?.namespace_exists(request).await)
            }

            async fn list_tables(&self, request: ListTablesRequest) -> Result<ListTablesResponse> {
                if namespace_parts(&request.id)?.is_empty() {
                    return self.list_root(request).await;
                }
                self.cleaned(self.child_base().await?.list_tables(request).await)
            }

            /// Root tables by name, child tables by the parts of their id joined with `$`; sorted.
            async fn list_all_tables(
                &self,
                request: ListTablesRequest,
            ) -> Result<ListTablesResponse> {
                let include_declared = request.include_declared.unwrap_or(true);
                let listing = Catalog::list_tables(self).include_declared(include_declared);
                let mut tables = listing.await?.tables;
                tables.extend(self.all_child_tables(include_declared).await?);
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
                let Target::Root(ident) = target(&request.id)? else {
                    return self.cleaned(self.child_base().await?.table_exists(request).await);
                };
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
                let ident = match target(&request.id)? {
                    Target::Root(ident) => ident,
                    Target::Child { parent } => {
                        create_mode(request.mode.as_deref())?;
                        read_ipc(&request_data)?;
                        let base = self.base_in(&parent).await?;
                        return self.cleaned(base.create_table(request, request_data).await);
                    }
                };
                refuse_properties(request.properties.as_ref())?;
                let mode = create_mode(request.mode.as_deref())?;
                let data = read_ipc(&request_data)?;
                let table = Catalog::create_table(self, ident, data).mode(mode).await?;
                Ok(CreateTableResponse {
                    version: i64::try_from(table.version().version).ok(),
                    location: Some(table.uri().to_string()),
                    properties: request.properties,
                    ..Default::default()
                })
            }

            async fn declare_table(
                &self,
                request: DeclareTableRequest,
            ) -> Result<DeclareTableResponse> {
                let ident = match target(&request.id)? {
                    Target::Root(ident) => ident,
                    Target::Child { parent } => {
                        let base = self.base_in(&parent).await?;
                        return self.cleaned(base.declare_table(request).await);
                    }
                };
                refuse_properties(request.properties.as_ref())?;
                let slot = root::new_slot(self.store(), &ident)?;
                if let Some(location) = &request.location
                    && location.trim_end_matches('/') != slot.uri
                {
                    return Err(invalid(format!(
                        "root table {ident} can only be declared at {:?}, not at {location:?}",
                        slot.uri
                    )));
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
                    properties: request.properties,
                    ..Default::default()
                })
            }

            async fn drop_table(&self, request: DropTableRequest) -> Result<DropTableResponse> {
                let Target::Root(ident) = target(&request.id)? else {
                    let base = self.base_with(&request.id).await?;
                    return self.cleaned(base.drop_table(request).await);
                };
                let slot = root::dropping_slot(self.store(), &ident)?;
                Catalog::drop_table(self, &ident).await?;
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
                let Target::Root(ident) = target(&request.id)? else {
                    let base = self.base_with(&request.id).await?;
                    return self.cleaned(base.deregister_table(request).await);
                };
                let slot = root::dropping_slot(self.store(), &ident)?;
                if self.lifecycle().read_marker(&slot).await? == Marker::Foreign {
                    return Err(Error::TableDeregistered { ident }.into());
                }
                Catalog::drop_table(self, &ident)
                    .retention(None)
                    .reason("deregistered")
                    .await?;
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
                match target(&request.id)? {
                    Target::Root(ident) => self.register_root(&ident, request).await,
                    Target::Child { parent } => {
                        let base = self.base_in(&parent).await?;
                        self.cleaned(base.register_table(request).await)
                    }
                }
            }

            fn namespace_id(&self) -> String {
                format!("lancekeep(root={})", self.root_uri())
            }
        }
    };
}

on_the_base! {
    describe_table(DescribeTableRequest) -> DescribeTableResponse;
    count_table_rows(CountTableRowsRequest) -> i64;
    insert_into_table(InsertIntoTableRequest, data: Bytes) -> InsertIntoTableResponse;
    merge_insert_into_table(MergeInsertIntoTableRequest, data: Bytes) -> MergeInsertIntoTableResponse;
    update_table(UpdateTableRequest) -> UpdateTableResponse;
    delete_from_table(DeleteFromTableRequest) -> DeleteFromTableResponse;
    query_table(QueryTableRequest) -> Bytes;
    create_table_index(CreateTableIndexRequest) -> CreateTableIndexResponse;
    list_table_indices(ListTableIndicesRequest) -> ListTableIndicesResponse;
    describe_table_index_stats(DescribeTableIndexStatsRequest) -> DescribeTableIndexStatsResponse;
    describe_transaction(DescribeTransactionRequest) -> DescribeTransactionResponse;
    alter_transaction(AlterTransactionRequest) -> AlterTransactionResponse;
    create_table_scalar_index(CreateTableIndexRequest) -> CreateTableScalarIndexResponse;
    drop_table_index(DropTableIndexRequest) -> DropTableIndexResponse;
    restore_table(RestoreTableRequest) -> RestoreTableResponse;
    rename_table(RenameTableRequest) -> RenameTableResponse;
    list_table_versions(ListTableVersionsRequest) -> ListTableVersionsResponse;
    create_table_version(CreateTableVersionRequest) -> CreateTableVersionResponse;
    describe_table_version(DescribeTableVersionRequest) -> DescribeTableVersionResponse;
    batch_delete_table_versions(BatchDeleteTableVersionsRequest) -> BatchDeleteTableVersionsResponse;
    update_table_schema_metadata(UpdateTableSchemaMetadataRequest) -> UpdateTableSchemaMetadataResponse;
    update_field_metadata(UpdateFieldMetadataRequest) -> UpdateFieldMetadataResponse;
    get_table_stats(GetTableStatsRequest) -> GetTableStatsResponse;
    explain_table_query_plan(ExplainTableQueryPlanRequest) -> String;
    analyze_table_query_plan(AnalyzeTableQueryPlanRequest) -> String;
    alter_table_add_columns(AlterTableAddColumnsRequest) -> AlterTableAddColumnsResponse;
    alter_table_alter_columns(AlterTableAlterColumnsRequest) -> AlterTableAlterColumnsResponse;
    alter_table_drop_columns(AlterTableDropColumnsRequest) -> AlterTableDropColumnsResponse;
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
    async fn make_namespace(
        &self,
        request: CreateNamespaceRequest,
    ) -> Result<CreateNamespaceResponse> {
        let parts = namespace_parts(&request.id)?.to_vec();
        let mode = create_mode(request.mode.as_deref())?;
        if mode == CreateMode::Overwrite {
            return Err(unsupported(
                "a namespace cannot be overwritten; drop it first",
            ));
        }
        let Some((_, parent)) = parts.split_last() else {
            return Err(NamespaceError::NamespaceAlreadyExists {
                message: "the root namespace".to_string(),
            }
            .into());
        };
        // A missing parent is found before the manifest comes into being.
        let base = self.base_in(parent).await?;
        match base.create_namespace(request).await {
            Err(e)
                if mode == CreateMode::ExistOk
                    && matches!(
                        code_of(&e),
                        Some(NamespaceError::NamespaceAlreadyExists { .. })
                    ) =>
            {
                let mut request = DescribeNamespaceRequest::new();
                request.id = Some(parts);
                let there = self.cleaned(base.describe_namespace(request).await)?;
                Ok(CreateNamespaceResponse {
                    properties: there.properties,
                    ..Default::default()
                })
            }
            other => self.cleaned(other),
        }
    }

    async fn remove_namespace(
        &self,
        request: DropNamespaceRequest,
    ) -> Result<DropNamespaceResponse> {
        let parts = namespace_parts(&request.id)?;
        if parts.is_empty() {
            return Err(invalid("the root namespace cannot be dropped"));
        }
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
        match self.base_in(parts).await {
            Ok(base) => self.cleaned(base.drop_namespace(request).await),
            Err(e)
                if skip
                    && matches!(code_of(&e), Some(NamespaceError::NamespaceNotFound { .. })) =>
            {
                Ok(DropNamespaceResponse::default())
            }
            Err(e) => Err(e),
        }
    }
}
