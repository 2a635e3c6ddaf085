//! One suite over `&dyn LanceNamespace`, run on [`Catalog`](lancekeep::Catalog) on each store and behind
//! REST, and on the two directory namespaces of the base. What a namespace under test can do is told by its
//! [`Capabilities`], so that a difference is written down once, and a change of either side makes a test fail.
//!
//! # Where the base's directory namespaces differ
//!
//! `-`: as the catalog. "Disk" is the base without a manifest, "manifest" the base as it is built by default; both are
//! lance-namespace-impls 14.0.2.
//!
//! | what | catalog | disk | manifest |
//! | --- | --- | --- | --- |
//! | create with `exist_ok`, `overwrite` | as they say | `TableAlreadyExists`: modes are not looked at | -; `exist_ok` tells no version |
//! | create with a mode that there is not | `InvalidInput` | `TableAlreadyExists` | - |
//! | create from no Arrow stream; from one without batches | `InvalidInput`; an empty table | - | `Internal`; `Internal` |
//! | create or declare in a namespace that is not there | `NamespaceNotFound` | `Unsupported` | it is made, in no namespace |
//! | create answers with the storage options | no | all of them | all of them |
//! | drop of a root table | kept; `register_table` is its undrop, a create goes on with its history | deleted | deleted |
//! | drop of a table that is not there | `TableNotFound` | `Internal` (local disk) | - |
//! | declare over a dropped root table | `InvalidTableState` | done: nothing is left | done: nothing is left |
//! | deregistered root table | hidden | hidden, the name stays taken | still listed and opened: only its row is gone |
//! | register | root: undrop; child: a table below the root that is nobody's, by location or URI | `Unsupported` | any relative location without `..`, whether a table is there or not, also another table's |
//! | properties of a table | root: `Unsupported`; child: kept | `Unsupported` | root: lost; child: kept |
//! | order of pages | root: of the store's keys (`a-b` before `a`); child: of names | of names | of names |
//! | a page of 0 or -1 | `InvalidInput` | an empty one; all | an empty one; all |
//! | list in a namespace that is not there | `NamespaceNotFound` | `Unsupported` | an empty list |
//! | a namespace with the id of a root table | both are there | `Unsupported` | `NamespaceAlreadyExists` |
//! | modes of create and drop of a namespace | as they say; `overwrite` and `cascade` are `Unsupported` | `Unsupported` | not looked at |
//! | `list_all_tables` | root and children, in pages | root | root, without tokens |
//! | operations that there are none of | `Unsupported` | an error without a code | an error without a code |
//! | names | letters, digits, `_`, `-`, `.`; refused before any I/O | any, also `../x`, beside the root | any |
//!
//! # What REST does to it
//!
//! The base's client joins the parts of an id with a delimiter, and its adapter splits them and drops empty ones. So a
//! name with the delimiter in it is another id (noticed where the body has the id too), an empty part is none, URLs
//! take the segments `.` and `..` away, `.` as the delimiter cannot name the root, `list_all_tables` joins with `$`
//! whatever the delimiter is, and a body holds at most 2 MiB. See [`rest`].

use lance_namespace::ErrorCode;

pub(crate) mod calls;
mod codes;
mod http;
mod names;
pub(crate) mod operations;
mod quiet;
mod registration;
mod rest;
mod spaces;
mod subjects;
mod tables;

use calls::{
    Answer, INTERNAL, INVALID, NAMESPACE_EXISTS, NO_NAMESPACE, NO_TABLE, TABLE_EXISTS, UNSUPPORTED,
};
use operations::Otherwise;
use registration::Register;
use subjects::{Kind, Subject};
use tables::Properties;

/// What a namespace under test can do.
#[derive(Debug)]
pub(crate) struct Capabilities {
    root: TableRules,
    /// `None`: there are no namespaces, and an id of two or more parts is `Unsupported`.
    children: Option<TableRules>,
    namespaces: NamespaceRules,
    /// What an operation answers that there is no code for.
    unsupported: Answer,
    /// Whether `list_all_tables` shows child tables, in pages.
    lists_children: bool,
}

/// What tables at one level can do.
#[derive(Debug)]
pub(crate) struct TableRules {
    /// Whether a create looks at its mode. Without, every mode is `create`.
    modes: bool,
    /// To a mode that there is not, over a live table.
    unknown_mode: Answer,
    /// The version that an `exist_ok` tells of the table that is there.
    exist_ok_version: Option<i64>,
    /// To a create from bytes that are no Arrow stream.
    junk: Answer,
    /// To a create from a stream with a schema and no batch.
    no_batches: Answer,
    /// Whether a drop keeps the data and a create goes on with its history.
    keeps_dropped: bool,
    drop_missing: Answer,
    /// To a declare over a declared table that was dropped.
    declare_dropped: Answer,
    /// Whether a deregistered table is out of sight.
    deregister_hides: bool,
    register: Register,
    /// To a register of an id that never was, at a location where nothing is.
    register_missing: Answer,
    properties: Properties,
    /// Pages in the order of the store's keys, not of the names.
    ordered_by_key: bool,
    page_of_none: Answer,
    negative_page: Answer,
    /// To a create and a declare in a namespace that is not there.
    no_parent: Answer,
    operations: Otherwise,
}

/// What namespaces can do.
#[derive(Debug)]
pub(crate) struct NamespaceRules {
    /// Whether create and drop look at their mode and behaviour. Without, they are `create`, `fail` and `restrict`.
    modes: bool,
    /// To a create of a namespace with the id of a root table.
    beside_root_table: Answer,
    /// To a listing in a namespace that is not there.
    list_missing: Answer,
}

const CATALOG: Capabilities = Capabilities {
    root: TableRules {
        modes: true,
        unknown_mode: INVALID,
        exist_ok_version: Some(1),
        junk: INVALID,
        no_batches: Answer::Done,
        keeps_dropped: true,
        drop_missing: NO_TABLE,
        declare_dropped: Answer::Refused(ErrorCode::InvalidTableState),
        deregister_hides: true,
        register: Register::Undrop,
        register_missing: NO_TABLE,
        properties: Properties::Refused,
        ordered_by_key: true,
        page_of_none: INVALID,
        negative_page: INVALID,
        no_parent: Answer::Done,
        operations: &[],
    },
    children: Some(TableRules {
        modes: true,
        unknown_mode: INVALID,
        exist_ok_version: Some(1),
        junk: INVALID,
        no_batches: Answer::Done,
        keeps_dropped: false,
        drop_missing: NO_TABLE,
        declare_dropped: Answer::Done,
        deregister_hides: true,
        register: Register::Checked,
        register_missing: INVALID,
        properties: Properties::Kept,
        ordered_by_key: false,
        page_of_none: INVALID,
        negative_page: INVALID,
        no_parent: NO_NAMESPACE,
        operations: &[],
    }),
    namespaces: NamespaceRules {
        modes: true,
        beside_root_table: Answer::Done,
        list_missing: NO_NAMESPACE,
    },
    unsupported: UNSUPPORTED,
    lists_children: true,
};

/// The base without a manifest.
const DIRECTORY: Capabilities = Capabilities {
    root: TableRules {
        modes: false,
        unknown_mode: TABLE_EXISTS,
        exist_ok_version: None,
        junk: INVALID,
        no_batches: Answer::Done,
        keeps_dropped: false,
        drop_missing: INTERNAL,
        declare_dropped: Answer::Done,
        deregister_hides: true,
        register: Register::Unsupported,
        register_missing: UNSUPPORTED,
        properties: Properties::Refused,
        ordered_by_key: false,
        page_of_none: Answer::Done,
        negative_page: Answer::Done,
        no_parent: UNSUPPORTED,
        operations: &[
            ("register_table", UNSUPPORTED),
            // Of a deregistered table.
            ("drop_table", Answer::Done),
        ],
    },
    children: None,
    namespaces: NamespaceRules {
        modes: false,
        beside_root_table: UNSUPPORTED,
        list_missing: UNSUPPORTED,
    },
    unsupported: Answer::Uncoded,
    lists_children: false,
};

/// The base as it is built by default: with a manifest, which root tables are written to and not read from.
const MANIFEST: Capabilities = Capabilities {
    root: TableRules {
        deregister_hides: false,
        properties: Properties::Lost,
        ..MANIFEST_TABLES
    },
    children: Some(MANIFEST_TABLES),
    namespaces: NamespaceRules {
        modes: false,
        beside_root_table: NAMESPACE_EXISTS,
        list_missing: Answer::Done,
    },
    unsupported: Answer::Uncoded,
    lists_children: false,
};

const MANIFEST_TABLES: TableRules = TableRules {
    modes: true,
    unknown_mode: INVALID,
    exist_ok_version: None,
    junk: INTERNAL,
    no_batches: INTERNAL,
    keeps_dropped: false,
    drop_missing: NO_TABLE,
    declare_dropped: Answer::Done,
    deregister_hides: true,
    register: Register::Unchecked,
    register_missing: Answer::Done,
    properties: Properties::Kept,
    ordered_by_key: false,
    page_of_none: Answer::Done,
    negative_page: Answer::Done,
    no_parent: Answer::Done,
    operations: &[],
};

const MANIFEST_OVER_REST: Capabilities = Capabilities {
    // An error without a code is an internal one on the wire.
    unsupported: INTERNAL,
    ..MANIFEST
};

/// The tests of a namespace of each kind, every one on a new root: those of all, those of what has children, and those
/// of a catalog.
macro_rules! suite {
    ($($module:ident: $kind:expr, $sort:ident;)*) => {
        $(mod $module {
            suite!(@$sort $kind);
        })*
    };
    (@catalog $kind:expr) => {
        suite!(@nested $kind);
        suite!(@tests $kind, a_dropped_table_comes_back, every_operation_on_a_dropped_table);
    };
    (@nested $kind:expr) => {
        suite!(@flat $kind);
        suite!(@tests $kind, iceberg_16060_only_an_empty_namespace_is_dropped, root_and_children_are_apart);
    };
    (@flat $kind:expr) => {
        suite!(
            @tests $kind,
            the_life_of_a_table,
            a_create_wants_data,
            lancedb_3288_a_declared_table_is_written_later,
            pages_hold_each_name_once,
            properties_of_tables,
            deregister_and_register,
            namespaces_of_any_depth,
            every_operation
        );
    };
    (@tests $kind:expr, $($test:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            use super::{Kind, Subject};
            super::$test(&Subject::of($kind).await).await;
        })*
    };
}

suite! {
    on_disk: Kind::OnDisk, catalog;
    in_memory: Kind::InMemory, catalog;
    on_s3: Kind::OnS3, catalog;
    on_azure: Kind::OnAzure, catalog;
    over_rest: Kind::OverRest("$"), catalog;
    over_rest_with_colons: Kind::OverRest("::"), catalog;
    stock_directory: Kind::Directory, flat;
    stock_manifest: Kind::Manifest, nested;
    stock_manifest_over_rest: Kind::ManifestOverRest, nested;
}

async fn the_life_of_a_table(subject: &Subject) {
    for (parent, rules) in subject.levels().await {
        tables::life(subject.ns(), rules, parent).await;
    }
}

async fn a_create_wants_data(subject: &Subject) {
    for (parent, rules) in subject.levels().await {
        tables::data(subject.ns(), rules, parent).await;
    }
}

async fn lancedb_3288_a_declared_table_is_written_later(subject: &Subject) {
    for (parent, rules) in subject.levels().await {
        tables::declared(subject.ns(), rules, parent).await;
    }
}

async fn pages_hold_each_name_once(subject: &Subject) {
    for (parent, rules) in subject.levels().await {
        tables::pages(subject.ns(), rules, parent).await;
    }
}

async fn properties_of_tables(subject: &Subject) {
    for (parent, rules) in subject.levels().await {
        tables::table_properties(subject.ns(), rules, parent).await;
    }
}

async fn deregister_and_register(subject: &Subject) {
    for (parent, rules) in subject.levels().await {
        registration::registration(subject.ns(), rules, parent).await;
    }
    if let Some(rules) = &subject.can.children {
        let parent = &["other"];
        calls::make(subject.ns(), parent).await.unwrap();
        registration::in_namespace(subject.ns(), rules, parent).await;
    }
}

async fn namespaces_of_any_depth(subject: &Subject) {
    spaces::the_root(subject.ns()).await;
    match subject.can.children {
        Some(_) => spaces::nested(subject.ns(), &subject.can.namespaces).await,
        None => spaces::none_but_the_root(subject.ns()).await,
    }
}

async fn iceberg_16060_only_an_empty_namespace_is_dropped(subject: &Subject) {
    let rules = subject.can.children.as_ref().unwrap();
    spaces::dropped_when_empty(subject.ns(), rules).await;
}

async fn root_and_children_are_apart(subject: &Subject) {
    let can = &subject.can;
    spaces::apart(subject.ns(), &can.namespaces, can.lists_children).await;
}

async fn every_operation(subject: &Subject) {
    for (parent, rules) in subject.levels().await {
        let unsupported = subject.can.unsupported;
        operations::all(subject.ns(), parent, unsupported, rules.operations).await;
    }
}

async fn a_dropped_table_comes_back(subject: &Subject) {
    let catalog = subject.catalog.as_ref().unwrap();
    registration::kept_drops(subject.ns(), catalog).await;
    spaces::the_facade_sees_the_root_only(subject.ns(), catalog).await;
}

async fn every_operation_on_a_dropped_table(subject: &Subject) {
    let catalog = subject.catalog.as_ref().unwrap();
    operations::on_a_dropped_table(subject.ns(), catalog).await;
}
