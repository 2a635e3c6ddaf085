//! One function for each call that the suite makes often, and what an answer comes to.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use lance_namespace::models::*;
use lance_namespace::{ErrorCode, LanceNamespace, NamespaceError};
use lancekeep::arrow::array::{AsArray, RecordBatch};
use lancekeep::arrow::datatypes::Int32Type;
use lancekeep::arrow::ipc::reader::FileReader;
use lancekeep::arrow::ipc::writer::StreamWriter;

use crate::common::rows;

pub(crate) type Namespace<'a> = &'a dyn LanceNamespace;
pub(crate) type Result<T> = std::result::Result<T, lance_namespace::Error>;

/// What an answer comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Refused(ErrorCode),
    /// An error that carries no code: directly "unknown", over REST an internal error.
    Uncoded,
}

use Answer::Refused;

pub(crate) const NO_TABLE: Answer = Refused(ErrorCode::TableNotFound);
pub(crate) const TABLE_EXISTS: Answer = Refused(ErrorCode::TableAlreadyExists);
pub(crate) const NO_NAMESPACE: Answer = Refused(ErrorCode::NamespaceNotFound);
pub(crate) const NAMESPACE_EXISTS: Answer = Refused(ErrorCode::NamespaceAlreadyExists);
pub(crate) const NOT_EMPTY: Answer = Refused(ErrorCode::NamespaceNotEmpty);
pub(crate) const INVALID: Answer = Refused(ErrorCode::InvalidInput);
pub(crate) const UNSUPPORTED: Answer = Refused(ErrorCode::Unsupported);
pub(crate) const INTERNAL: Answer = Refused(ErrorCode::Internal);

pub(crate) fn code_of(error: &lance_namespace::Error) -> Option<ErrorCode> {
    let lance_namespace::Error::Namespace { source, .. } = error else {
        return None;
    };
    source
        .downcast_ref::<NamespaceError>()
        .map(NamespaceError::code)
}

pub(crate) fn answer<T>(result: &Result<T>) -> Answer {
    match result {
        Ok(_) => Answer::Done,
        Err(error) => code_of(error).map_or(Answer::Uncoded, Refused),
    }
}

#[track_caller]
pub(crate) fn expect<T>(what: &str, result: Result<T>, wanted: Answer) {
    let error = result.as_ref().err().map(ToString::to_string);
    assert_eq!(answer(&result), wanted, "{what}: {error:?}");
}

/// An id as the models want it.
pub(crate) fn id(parts: &[&str]) -> Option<Vec<String>> {
    Some(parts.iter().map(ToString::to_string).collect())
}

/// The last segment of a location: of a table directly below the root, its location relative to that.
pub(crate) fn last_segment(location: &str) -> &str {
    let location = location.trim_end_matches('/');
    location.rsplit_once('/').map_or(location, |(_, last)| last)
}

/// The id of something in a namespace.
pub(crate) fn within<'a>(parent: &[&'a str], name: &'a str) -> Vec<&'a str> {
    [parent, &[name]].concat()
}

pub(crate) fn ipc(batch: &RecordBatch) -> Bytes {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

/// No Arrow stream. The length that it begins with is a small one: what the reader is told to expect it makes room for.
pub(crate) fn junk() -> Bytes {
    Bytes::from_static(b"\x10\0\0\0no Arrow stream, whatever it says")
}

/// A stream with a schema and no batch.
pub(crate) fn ipc_without_batches() -> Bytes {
    let writer = StreamWriter::try_new(Vec::new(), &rows([]).schema()).unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

pub(crate) fn properties(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let owned = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
    pairs.iter().map(owned).collect()
}

pub(crate) async fn create(
    ns: Namespace<'_>,
    table: &[&str],
    ids: Range<i32>,
) -> Result<CreateTableResponse> {
    create_in_mode(ns, table, ids, None).await
}

pub(crate) async fn create_in_mode(
    ns: Namespace<'_>,
    table: &[&str],
    ids: Range<i32>,
    mode: Option<&str>,
) -> Result<CreateTableResponse> {
    let mut request = CreateTableRequest::new();
    request.id = id(table);
    request.mode = mode.map(ToString::to_string);
    ns.create_table(request, ipc(&rows(ids))).await
}

pub(crate) async fn create_from(
    ns: Namespace<'_>,
    table: &[&str],
    data: Bytes,
) -> Result<CreateTableResponse> {
    let mut request = CreateTableRequest::new();
    request.id = id(table);
    ns.create_table(request, data).await
}

pub(crate) async fn insert(
    ns: Namespace<'_>,
    table: &[&str],
    ids: Range<i32>,
) -> Result<InsertIntoTableResponse> {
    let mut request = InsertIntoTableRequest::new();
    request.id = id(table);
    ns.insert_into_table(request, ipc(&rows(ids))).await
}

pub(crate) async fn count(ns: Namespace<'_>, table: &[&str]) -> Result<i64> {
    let mut request = CountTableRowsRequest::new();
    request.id = id(table);
    ns.count_table_rows(request).await
}

/// The ids of the rows that a filter lets through, sorted.
pub(crate) async fn query(ns: Namespace<'_>, table: &[&str], filter: &str) -> Result<Vec<i32>> {
    let mut request = QueryTableRequest::new(0, QueryTableRequestVector::new());
    request.id = id(table);
    request.filter = Some(filter.to_string());
    let file = ns.query_table(request).await?;
    let mut found = Vec::new();
    for batch in FileReader::try_new(std::io::Cursor::new(file), None).unwrap() {
        found.extend_from_slice(
            batch
                .unwrap()
                .column(0)
                .as_primitive::<Int32Type>()
                .values(),
        );
    }
    found.sort_unstable();
    Ok(found)
}

pub(crate) async fn describe(ns: Namespace<'_>, table: &[&str]) -> Result<DescribeTableResponse> {
    let mut request = DescribeTableRequest::new();
    request.id = id(table);
    request.check_declared = Some(true);
    ns.describe_table(request).await
}

pub(crate) async fn describe_in_detail(
    ns: Namespace<'_>,
    table: &[&str],
) -> Result<DescribeTableResponse> {
    let mut request = DescribeTableRequest::new();
    request.id = id(table);
    request.load_detailed_metadata = Some(true);
    ns.describe_table(request).await
}

pub(crate) async fn exists(ns: Namespace<'_>, table: &[&str]) -> Result<()> {
    let mut request = TableExistsRequest::new();
    request.id = id(table);
    ns.table_exists(request).await
}

pub(crate) async fn drop_table(ns: Namespace<'_>, table: &[&str]) -> Result<DropTableResponse> {
    let mut request = DropTableRequest::new();
    request.id = id(table);
    ns.drop_table(request).await
}

pub(crate) async fn deregister(
    ns: Namespace<'_>,
    table: &[&str],
) -> Result<DeregisterTableResponse> {
    let mut request = DeregisterTableRequest::new();
    request.id = id(table);
    ns.deregister_table(request).await
}

pub(crate) async fn register(
    ns: Namespace<'_>,
    table: &[&str],
    location: &str,
) -> Result<RegisterTableResponse> {
    let mut request = RegisterTableRequest::new(location.to_string());
    request.id = id(table);
    ns.register_table(request).await
}

pub(crate) async fn declare(ns: Namespace<'_>, table: &[&str]) -> Result<DeclareTableResponse> {
    let mut request = DeclareTableRequest::new();
    request.id = id(table);
    ns.declare_table(request).await
}

/// The tables of a namespace in the order of its pages.
pub(crate) async fn listed(ns: Namespace<'_>, namespace: &[&str], page: i32) -> Vec<String> {
    listed_with(ns, namespace, Some(page), None).await
}

pub(crate) async fn listed_with(
    ns: Namespace<'_>,
    namespace: &[&str],
    page: Option<i32>,
    include_declared: Option<bool>,
) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), None);
    loop {
        let mut request = ListTablesRequest::new();
        request.id = id(namespace);
        request.limit = page;
        request.page_token = token;
        request.include_declared = include_declared;
        let mut found = ns.list_tables(request).await.unwrap();
        assert!(page.is_none_or(|page| found.tables.len() <= page as usize));
        token = found.page_token.filter(|t| !t.is_empty());
        // A token promises more.
        assert!(token.is_none() || !found.tables.is_empty());
        names.append(&mut found.tables);
        if token.is_none() {
            return names;
        }
    }
}

pub(crate) async fn make(ns: Namespace<'_>, namespace: &[&str]) -> Result<CreateNamespaceResponse> {
    make_with(ns, namespace, None, HashMap::new()).await
}

pub(crate) async fn make_with(
    ns: Namespace<'_>,
    namespace: &[&str],
    mode: Option<&str>,
    properties: HashMap<String, String>,
) -> Result<CreateNamespaceResponse> {
    let mut request = CreateNamespaceRequest::new();
    request.id = id(namespace);
    request.mode = mode.map(ToString::to_string);
    request.properties = Some(properties);
    ns.create_namespace(request).await
}

pub(crate) async fn remove(ns: Namespace<'_>, namespace: &[&str]) -> Result<DropNamespaceResponse> {
    remove_with(ns, namespace, None, None).await
}

pub(crate) async fn remove_with(
    ns: Namespace<'_>,
    namespace: &[&str],
    mode: Option<&str>,
    behavior: Option<&str>,
) -> Result<DropNamespaceResponse> {
    let mut request = DropNamespaceRequest::new();
    request.id = id(namespace);
    request.mode = mode.map(ToString::to_string);
    request.behavior = behavior.map(ToString::to_string);
    ns.drop_namespace(request).await
}

pub(crate) async fn there(ns: Namespace<'_>, namespace: &[&str]) -> Result<()> {
    let mut request = NamespaceExistsRequest::new();
    request.id = id(namespace);
    ns.namespace_exists(request).await
}

pub(crate) async fn describe_namespace(
    ns: Namespace<'_>,
    namespace: &[&str],
) -> Result<HashMap<String, String>> {
    let mut request = DescribeNamespaceRequest::new();
    request.id = id(namespace);
    let described = ns.describe_namespace(request).await?;
    Ok(described.properties.unwrap_or_default())
}

/// The child namespaces, page by page.
pub(crate) async fn children(
    ns: Namespace<'_>,
    namespace: &[&str],
    page: Option<i32>,
) -> Result<Vec<String>> {
    let (mut names, mut token) = (Vec::new(), None);
    loop {
        let mut request = ListNamespacesRequest::new();
        request.id = id(namespace);
        request.limit = page;
        request.page_token = token;
        let mut found = ns.list_namespaces(request).await?;
        assert!(page.is_none_or(|page| found.namespaces.len() <= page as usize));
        names.append(&mut found.namespaces);
        token = found.page_token.filter(|t| !t.is_empty());
        if token.is_none() {
            return Ok(names);
        }
    }
}

pub(crate) async fn all_tables(
    ns: Namespace<'_>,
    page: Option<i32>,
    token: Option<String>,
) -> ListTablesResponse {
    let mut request = ListTablesRequest::new();
    request.id = id(&[]);
    request.limit = page;
    request.page_token = token;
    ns.list_all_tables(request).await.unwrap()
}
