//! Every operation of the trait, called once on a table of each level: what answers, and what stays unsupported.

use futures::future::BoxFuture;
use lance_namespace::models::*;
use lance_namespace::{ErrorCode, LanceNamespace};

use super::calls::*;
use crate::common::rows;

/// What the id of an operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// A table that must be there.
    Table,
    /// A table, and the number of a version after its parts.
    Transaction,
    /// A table that the operation makes, takes or brings back.
    NewTable,
    Namespace,
    /// A namespace that the operation makes.
    NewNamespace,
    /// Nothing: the request names tables in its body, or none.
    Nothing,
}

type Call = for<'a> fn(&'a dyn LanceNamespace, Option<Vec<String>>) -> BoxFuture<'a, Result<()>>;

pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) of: Of,
    /// On a table with rows, or on a namespace with that table in it.
    pub(crate) answer: Answer,
    call: Call,
}

impl Operation {
    pub(crate) async fn on(&self, ns: Namespace<'_>, parts: &[&str]) -> Result<()> {
        let mut id = id(parts);
        if self.of == Of::Transaction {
            id.get_or_insert_default().push("1".to_string());
        }
        (self.call)(ns, id).await
    }

    /// Whether a table of the id is looked for.
    pub(crate) fn needs_table(&self) -> bool {
        matches!(self.of, Of::Table | Of::Transaction)
    }
}

macro_rules! operations {
    ($($of:ident $name:ident $answer:expr, $request:expr $(, $data:expr)?;)*) => {
        /// All operations but `namespace_id`, in an order in which each finds what it needs. The base has none of
        /// those that answer `UNSUPPORTED`.
        pub(crate) fn operations() -> Vec<Operation> {
            vec![$(Operation {
                name: stringify!($name),
                of: Of::$of,
                answer: $answer,
                call: |ns, id| Box::pin(async move {
                    let mut request = $request;
                    set_id(&mut request, id);
                    ns.$name(request $(, $data)?).await.map(drop)
                }),
            }),*]
        }
    };
}

/// Requests that have an id of their own, and those that have none.
trait HasId {
    fn set(&mut self, id: Option<Vec<String>>);
}

fn set_id(request: &mut impl HasId, id: Option<Vec<String>>) {
    request.set(id);
}

macro_rules! with_id {
    ($($request:ty),* $(,)?) => {
        $(impl HasId for $request {
            fn set(&mut self, id: Option<Vec<String>>) {
                self.id = id;
            }
        })*
    };
}

with_id!(
    AlterTableAddColumnsRequest,
    AlterTableAlterColumnsRequest,
    AlterTableBackfillColumnsRequest,
    AlterTableDropColumnsRequest,
    AlterTransactionRequest,
    AnalyzeTableQueryPlanRequest,
    BatchDeleteTableVersionsRequest,
    CountTableRowsRequest,
    CreateMaterializedViewRequest,
    CreateNamespaceRequest,
    CreateTableBranchRequest,
    CreateTableIndexRequest,
    CreateTableRequest,
    CreateTableTagRequest,
    CreateTableVersionRequest,
    DeclareTableRequest,
    DeleteFromTableRequest,
    DeleteTableBranchRequest,
    DeleteTableTagRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableIndexStatsRequest,
    DescribeTableRequest,
    DescribeTableVersionRequest,
    DescribeTransactionRequest,
    DropNamespaceRequest,
    DropTableIndexRequest,
    DropTableRequest,
    ExplainTableQueryPlanRequest,
    GetTableStatsRequest,
    GetTableTagVersionRequest,
    InsertIntoTableRequest,
    ListNamespacesRequest,
    ListTableBranchesRequest,
    ListTableIndicesRequest,
    ListTableTagsRequest,
    ListTableVersionsRequest,
    ListTablesRequest,
    MergeInsertIntoTableRequest,
    NamespaceExistsRequest,
    QueryTableRequest,
    RefreshMaterializedViewRequest,
    RegisterTableRequest,
    RenameTableRequest,
    RestoreTableRequest,
    TableExistsRequest,
    UpdateFieldMetadataRequest,
    UpdateTableRequest,
    UpdateTableSchemaMetadataRequest,
    UpdateTableTagRequest,
);

impl HasId for BatchCreateTableVersionsRequest {
    fn set(&mut self, id: Option<Vec<String>>) {
        let parts = id.unwrap_or_default();
        self.entries = vec![CreateTableVersionEntry::new(parts, 9, "staged".to_string())];
    }
}

impl HasId for BatchCommitTablesRequest {
    fn set(&mut self, id: Option<Vec<String>>) {
        let mut declare = DeclareTableRequest::new();
        declare.id = id;
        let mut operation = CommitTableOperation::new();
        operation.declare_table = Some(Box::new(declare));
        self.operations = vec![operation];
    }
}

fn named(name: &str) -> String {
    name.to_string()
}

fn no_vector() -> QueryTableRequestVector {
    QueryTableRequestVector::new()
}

fn merge() -> MergeInsertIntoTableRequest {
    let mut request = MergeInsertIntoTableRequest::new();
    request.on = Some(vec![named("id")]);
    request.when_matched_update_all = Some(true);
    request
}

fn index(kind: &str) -> CreateTableIndexRequest {
    let mut request = CreateTableIndexRequest::new(named("id"), named("BTREE"));
    request.name = Some(named(kind));
    request
}

fn stats_of(index: &str) -> DescribeTableIndexStatsRequest {
    let mut request = DescribeTableIndexStatsRequest::new();
    request.index_name = Some(named(index));
    request
}

fn drop_index(index: &str) -> DropTableIndexRequest {
    let mut request = DropTableIndexRequest::new();
    request.index_name = Some(named(index));
    request
}

fn added() -> Vec<AddColumnsEntry> {
    let mut twice = AddColumnsEntry::new(named("twice"));
    twice.expression = Some(Some(named("id * 2")));
    vec![twice]
}

fn altered() -> Vec<AlterColumnsEntry> {
    let mut rename = AlterColumnsEntry::new(named("twice"));
    rename.rename = Some(Some(named("double")));
    vec![rename]
}

fn action() -> Vec<AlterTransactionAction> {
    let mut set = AlterTransactionSetProperty::new();
    set.key = Some(named("reviewed"));
    set.value = Some(named("yes"));
    let mut action = AlterTransactionAction::new();
    action.set_property_action = Some(Box::new(set));
    vec![action]
}

fn metadata() -> UpdateTableSchemaMetadataRequest {
    let mut request = UpdateTableSchemaMetadataRequest::new();
    request.metadata = Some(properties(&[("k", "v")]));
    request
}

fn field_metadata() -> Vec<UpdateFieldMetadataEntry> {
    let entry = UpdateFieldMetadataEntry::new(named("id"), properties(&[("k", "v")]));
    vec![entry]
}

fn view() -> CreateMaterializedViewRequest {
    use create_materialized_view_request::Kind;
    CreateMaterializedViewRequest::new(Kind::Query, named("SELECT id FROM t"), named(""))
}

const DONE: Answer = Answer::Done;

operations! {
    Namespace namespace_exists DONE, NamespaceExistsRequest::new();
    Namespace describe_namespace DONE, DescribeNamespaceRequest::new();
    Namespace list_namespaces DONE, ListNamespacesRequest::new();
    Namespace list_tables DONE, ListTablesRequest::new();
    NewNamespace create_namespace NAMESPACE_EXISTS, CreateNamespaceRequest::new();
    Nothing list_all_tables DONE, ListTablesRequest::new();

    Table table_exists DONE, TableExistsRequest::new();
    Table describe_table DONE, DescribeTableRequest::new();
    Table count_table_rows DONE, CountTableRowsRequest::new();
    Table query_table DONE, QueryTableRequest::new(0, no_vector());
    Table get_table_stats DONE, GetTableStatsRequest::new();
    Table explain_table_query_plan DONE, ExplainTableQueryPlanRequest::new(QueryTableRequest::new(0, no_vector()));
    Table analyze_table_query_plan DONE, AnalyzeTableQueryPlanRequest::new(0, no_vector());
    NewTable create_table TABLE_EXISTS, CreateTableRequest::new(), ipc(&rows(0..3));
    NewTable declare_table TABLE_EXISTS, DeclareTableRequest::new();

    Table insert_into_table DONE, InsertIntoTableRequest::new(), ipc(&rows(10..13));
    Table merge_insert_into_table DONE, merge(), ipc(&rows(12..15));
    Table update_table DONE, UpdateTableRequest::new(vec![vec![named("id"), named("id + 100")]]);
    Table delete_from_table DONE, DeleteFromTableRequest::new(named("id > 110"));

    Table list_table_versions DONE, ListTableVersionsRequest::new();
    Table describe_table_version DONE, DescribeTableVersionRequest::new();
    // No such staged manifest.
    Table create_table_version INVALID, CreateTableVersionRequest::new(6, named("staged"));
    Transaction describe_transaction DONE, DescribeTransactionRequest::new();
    Transaction alter_transaction DONE, AlterTransactionRequest::new(action());

    Table create_table_tag DONE, CreateTableTagRequest::new(named("first"), 1);
    Table list_table_tags DONE, ListTableTagsRequest::new();
    Table get_table_tag_version DONE, GetTableTagVersionRequest::new(named("first"));
    Table update_table_tag DONE, UpdateTableTagRequest::new(named("first"), 2);
    Table delete_table_tag DONE, DeleteTableTagRequest::new(named("first"));
    Table create_table_branch DONE, CreateTableBranchRequest::new(named("side"));
    Table list_table_branches DONE, ListTableBranchesRequest::new();
    Table delete_table_branch DONE, DeleteTableBranchRequest::new(named("side"));

    Table create_table_index DONE, index("one");
    Table create_table_scalar_index DONE, index("two");
    Table list_table_indices DONE, ListTableIndicesRequest::new();
    Table describe_table_index_stats DONE, stats_of("one");
    Table drop_table_index DONE, drop_index("one");

    Table alter_table_add_columns DONE, AlterTableAddColumnsRequest::new(added());
    Table alter_table_alter_columns DONE, AlterTableAlterColumnsRequest::new(altered());
    Table alter_table_drop_columns DONE, AlterTableDropColumnsRequest::new(vec![named("double")]);
    Table update_table_schema_metadata DONE, metadata();
    Table restore_table DONE, RestoreTableRequest::new(1);
    Table batch_delete_table_versions DONE, BatchDeleteTableVersionsRequest::new(vec![VersionRange::new(2, 3)]);

    Table rename_table UNSUPPORTED, RenameTableRequest::new(named("renamed"));
    Table update_field_metadata UNSUPPORTED, UpdateFieldMetadataRequest::new(field_metadata());
    Table alter_table_backfill_columns UNSUPPORTED, AlterTableBackfillColumnsRequest::new(named("id"));
    Table refresh_materialized_view UNSUPPORTED, RefreshMaterializedViewRequest::new();
    Table create_materialized_view UNSUPPORTED, view();
    Nothing batch_create_table_versions UNSUPPORTED, BatchCreateTableVersionsRequest::new(Vec::new());
    Nothing batch_commit_tables UNSUPPORTED, BatchCommitTablesRequest::new(Vec::new());

    NewTable register_table TABLE_EXISTS, RegisterTableRequest::new(named("t.lance"));
    Table deregister_table DONE, DeregisterTableRequest::new();
    Table drop_table NO_TABLE, DropTableRequest::new();
    Namespace drop_namespace DONE, DropNamespaceRequest::new();
}

/// The operations of the trait of lance-namespace 14.0.2 that send a request; a new base has to be looked through.
pub(crate) const OPERATIONS: usize = 54;

/// Where a stock namespace answers otherwise than [`Operation::answer`] says.
pub(crate) type Otherwise = &'static [(&'static str, Answer)];

/// Calls every operation on a table with rows, and on the namespace that it is in.
pub(crate) async fn all(
    ns: Namespace<'_>,
    parent: &[&str],
    unsupported: Answer,
    otherwise: Otherwise,
) {
    let table = &within(parent, "t");
    create(ns, table, 0..3).await.unwrap();
    let mut wrong = Vec::new();
    for operation in operations() {
        let id = match operation.of {
            Of::Namespace | Of::NewNamespace => parent,
            _ => table,
        };
        let other = otherwise.iter().find(|(name, _)| *name == operation.name);
        let wanted = match (other, operation.answer) {
            (Some((_, other)), _) => *other,
            (None, UNSUPPORTED) => unsupported,
            (None, _) if operation.name == "drop_namespace" && id.is_empty() => INVALID,
            (None, answer) => answer,
        };
        let result = if operation.name == "register_table" {
            let location = describe(ns, table).await.unwrap().location.unwrap();
            let own = last_segment(&location);
            register(ns, table, own).await.map(drop)
        } else {
            operation.on(ns, id).await
        };
        let found = answer(&result);
        if found != wanted {
            let error = result.err().map(|e| e.to_string());
            wrong.push((operation.name, wanted, found, error));
        }
    }
    assert!(wrong.is_empty(), "{parent:?}: {wrong:#?}");
}

#[test]
fn every_operation_is_there_once() {
    let mut names: Vec<_> = operations().iter().map(|o| o.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), OPERATIONS);
}

/// Whether the refusal of an operation tells how to get a dropped table back.
pub(crate) fn explains_undrop(text: &str) -> bool {
    text.contains("was dropped at") && text.contains("undrop_table")
}

/// Every operation that touches a table says of a dropped one that it is not there, and how it comes back.
pub(crate) async fn on_a_dropped_table(ns: Namespace<'_>, catalog: &lancekeep::Catalog) {
    create(ns, &["t"], 0..3).await.unwrap();
    insert(ns, &["t"], 3..5).await.unwrap();
    drop_table(ns, &["t"]).await.unwrap();
    let dropped = catalog.list_dropped_tables().await.unwrap();
    let mut wrong = Vec::new();
    // A version is created from what is staged in the table's own directory; its refusal is tested in `managed`.
    let asked = |o: &&Operation| o.needs_table() && o.name != "create_table_version";
    for operation in operations().iter().filter(asked) {
        let result = operation.on(ns, &["t"]).await;
        let text = result.as_ref().err().map(ToString::to_string);
        // That there is nothing to drop needs no advice, only that it is for an earlier drop.
        let explained = match operation.name {
            "drop_table" | "deregister_table" => |text: &str| text.contains("dropped"),
            _ => explains_undrop,
        };
        if answer(&result) != NO_TABLE || !text.as_deref().is_some_and(explained) {
            wrong.push((operation.name, answer(&result), text));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let declared = operations().into_iter().find(|o| o.name == "declare_table");
    let refused = declared.unwrap().on(ns, &["t"]).await;
    assert!(explains_undrop(&refused.as_ref().unwrap_err().to_string()));
    let state = Answer::Refused(ErrorCode::InvalidTableState);
    expect("declare", refused, state);
    assert!(listed(ns, &[], 2).await.is_empty());
    assert!(all_tables(ns, None, None).await.tables.is_empty());
    assert_eq!(catalog.list_dropped_tables().await.unwrap(), dropped);
    register(ns, &["t"], "t.lance").await.unwrap();
    assert_eq!(count(ns, &["t"]).await.unwrap(), 5);
}
