//! The life of a table, at the root and in a namespace.

use lance_namespace::models::{CreateTableRequest, DeclareTableRequest, ListTablesRequest};

use super::TableRules;
use super::calls::*;
use crate::common::rows;

/// Everything that touches a table says that there is none.
async fn nothing_there(ns: Namespace<'_>, rules: &TableRules, table: &[&str]) {
    expect("exists", exists(ns, table).await, NO_TABLE);
    expect("describe", describe(ns, table).await, NO_TABLE);
    expect("count", count(ns, table).await, NO_TABLE);
    expect("query", query(ns, table, "id > 0").await, NO_TABLE);
    expect("insert", insert(ns, table, 0..1).await, NO_TABLE);
    expect("deregister", deregister(ns, table).await, NO_TABLE);
    expect("drop", drop_table(ns, table).await, rules.drop_missing);
}

/// Create in every mode, read, write, describe, drop, create again.
pub(crate) async fn life(ns: Namespace<'_>, rules: &TableRules, parent: &[&str]) {
    let t = &within(parent, "t");
    nothing_there(ns, rules, t).await;

    let made = create(ns, t, 0..5).await.unwrap();
    assert_eq!(made.version, Some(1));
    expect("exists", exists(ns, t).await, Answer::Done);
    expect("again", create(ns, t, 0..1).await, TABLE_EXISTS);
    assert_eq!(count(ns, t).await.unwrap(), 5);

    let kept = create_in_mode(ns, t, 0..1, Some("exist_ok")).await;
    if rules.modes {
        assert_eq!(kept.unwrap().version, rules.exist_ok_version);
    } else {
        expect("exist_ok", kept, TABLE_EXISTS);
    }
    assert_eq!(count(ns, t).await.unwrap(), 5);

    let inserted = insert(ns, t, 5..7).await.unwrap();
    assert_eq!(inserted.num_inserted_rows, Some(2));
    assert_eq!(inserted.version, Some(2));
    assert_eq!(count(ns, t).await.unwrap(), 7);
    assert_eq!(query(ns, t, "id >= 5").await.unwrap(), [5, 6]);

    let overwritten = create_in_mode(ns, t, 20..23, Some("Overwrite")).await;
    let (version, ids) = if rules.modes {
        assert_eq!(overwritten.unwrap().version, Some(3));
        (3, vec![20, 21, 22])
    } else {
        expect("overwrite", overwritten, TABLE_EXISTS);
        (2, (0..7).collect())
    };
    assert_eq!(query(ns, t, "id >= 0").await.unwrap(), ids);
    let unknown = create_in_mode(ns, t, 0..1, Some("replace")).await;
    expect("unknown mode", unknown, rules.unknown_mode);

    let described = describe(ns, t).await.unwrap();
    assert_eq!(described.is_only_declared, Some(false));
    let location = described.location.unwrap();
    let shown = describe_in_detail(ns, t).await.unwrap();
    assert_eq!(shown.version, Some(version));
    assert_eq!(shown.location, Some(location.clone()));
    assert_eq!(shown.table.as_deref(), Some("t"));
    assert_eq!(shown.namespace, id(parent));
    let fields: Vec<_> = shown.schema.unwrap().fields;
    assert_eq!(fields.len(), 1);
    assert_eq!(fields[0].name, "id");

    let dropped = drop_table(ns, t).await.unwrap();
    let dropped_at = dropped.location.unwrap();
    assert_eq!(last_segment(&dropped_at), last_segment(&location));
    nothing_there(ns, rules, t).await;
    assert!(listed(ns, parent, 3).await.is_empty());

    // A kept table goes on with its history, and a deleted one begins anew; the old rows are gone from view in both.
    let again = create(ns, t, 50..52).await.unwrap();
    if rules.keeps_dropped {
        assert!(again.version > Some(version), "{again:?}");
    } else {
        assert_eq!(again.version, Some(1));
    }
    assert_eq!(query(ns, t, "id >= 0").await.unwrap(), [50, 51]);
    assert_eq!(listed(ns, parent, 3).await, ["t"]);
}

/// A create from what is no table makes none.
pub(crate) async fn data(ns: Namespace<'_>, rules: &TableRules, parent: &[&str]) {
    let t = &within(parent, "t");
    expect("junk", create_from(ns, t, junk()).await, rules.junk);
    let nothing = create_from(ns, t, bytes::Bytes::new()).await;
    expect("nothing", nothing, INVALID);
    expect("exists", exists(ns, t).await, NO_TABLE);
    assert!(listed(ns, parent, 2).await.is_empty());
    let empty = create_from(ns, t, ipc_without_batches()).await;
    expect("no batches", empty, rules.no_batches);
    if rules.no_batches == Answer::Done {
        assert_eq!(count(ns, t).await.unwrap(), 0);
        insert(ns, t, 0..3).await.unwrap();
        assert_eq!(count(ns, t).await.unwrap(), 3);
    }
}

async fn only_declared(ns: Namespace<'_>, table: &[&str]) -> Option<bool> {
    describe(ns, table).await.unwrap().is_only_declared
}

/// Case 10: declare succeeds, the first write fails, create again; listed with and without declared tables.
pub(crate) async fn declared(ns: Namespace<'_>, rules: &TableRules, parent: &[&str]) {
    let d = &within(parent, "d");
    let location = declare(ns, d).await.unwrap().location.unwrap();
    expect("again", declare(ns, d).await, TABLE_EXISTS);
    expect("exists", exists(ns, d).await, Answer::Done);
    expect("count", count(ns, d).await, NO_TABLE);
    assert_eq!(only_declared(ns, d).await, Some(true));
    let described = describe(ns, d).await.unwrap();
    assert_eq!(
        last_segment(&described.location.unwrap()),
        last_segment(&location)
    );
    let with = |include| listed_with(ns, parent, Some(2), include);
    assert_eq!(with(None).await, ["d"]);
    assert_eq!(with(Some(true)).await, ["d"]);
    assert!(with(Some(false)).await.is_empty());

    expect("junk", create_from(ns, d, junk()).await, rules.junk);
    assert_eq!(only_declared(ns, d).await, Some(true));
    let made = create(ns, d, 0..3).await.unwrap();
    assert_eq!(made.version, Some(1));
    assert_eq!(count(ns, d).await.unwrap(), 3);
    assert_eq!(only_declared(ns, d).await, Some(false));
    assert_eq!(with(Some(false)).await, ["d"]);
    expect("over a table", declare(ns, d).await, TABLE_EXISTS);
    expect("over a table", create(ns, d, 0..1).await, TABLE_EXISTS);

    // The other ways to the first rows.
    for (name, mode) in [
        ("e", Some("exist_ok")),
        ("f", Some("overwrite")),
        ("g", None),
    ] {
        let table = &within(parent, name);
        declare(ns, table).await.unwrap();
        match mode {
            Some(_) => drop(create_in_mode(ns, table, 0..4, mode).await.unwrap()),
            None => drop(insert(ns, table, 0..4).await.unwrap()),
        }
        assert_eq!(count(ns, table).await.unwrap(), 4, "{name}");
        assert_eq!(only_declared(ns, table).await, Some(false), "{name}");
    }

    let h = &within(parent, "h");
    let mut elsewhere = DeclareTableRequest::new();
    elsewhere.id = id(h);
    elsewhere.location = Some(format!("{location}-elsewhere"));
    let elsewhere = ns.declare_table(elsewhere).await;
    expect("elsewhere", elsewhere, INVALID);
    expect("exists", exists(ns, h).await, NO_TABLE);
    declare(ns, h).await.unwrap();
    drop_table(ns, h).await.unwrap();
    expect("exists", exists(ns, h).await, NO_TABLE);
    expect(
        "declare a dropped",
        declare(ns, h).await,
        rules.declare_dropped,
    );
    assert_eq!(
        listed_with(ns, parent, None, Some(false)).await,
        ["d", "e", "f", "g"]
    );
}

/// Names that the store's keys (`a-b.lance/` < `a.b.lance/` < `a.lance/`) order otherwise than names do.
const BY_NAME: [&str; 8] = ["a", "a-b", "a.b", "b1", "b2", "c", "d", "e"];
const BY_KEY: [&str; 8] = ["a-b", "a.b", "a", "b1", "b2", "c", "d", "e"];

/// Pages of every size hold each name once, and the last one has no token.
pub(crate) async fn pages(ns: Namespace<'_>, rules: &TableRules, parent: &[&str]) {
    assert!(listed(ns, parent, 7).await.is_empty());
    for (i, name) in BY_NAME.into_iter().enumerate() {
        let table = &within(parent, name);
        if i % 4 == 0 {
            create(ns, table, 0..1).await.unwrap();
        } else {
            declare(ns, table).await.unwrap();
        }
    }
    let wanted = if rules.ordered_by_key {
        BY_KEY
    } else {
        BY_NAME
    };
    for page in [1, 2, 7, 8, 9] {
        assert_eq!(listed(ns, parent, page).await, wanted, "pages of {page}");
    }
    assert_eq!(listed_with(ns, parent, None, None).await, wanted);
    let written = listed_with(ns, parent, Some(1), Some(false)).await;
    assert_eq!(written, ["a", "b2"]);
    for (limit, answer) in [(0, rules.page_of_none), (-1, rules.negative_page)] {
        let mut request = ListTablesRequest::new();
        request.id = id(parent);
        request.limit = Some(limit);
        let what = format!("a page of {limit}");
        expect(&what, ns.list_tables(request).await, answer);
    }
    let nameless = ns.list_tables(ListTablesRequest::new()).await;
    expect("no id", nameless, INVALID);
}

/// What becomes of properties that a table is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Properties {
    Kept,
    /// Refused with `Unsupported`, and no table is made.
    Refused,
    /// Taken, and not told again.
    Lost,
}

pub(crate) async fn table_properties(ns: Namespace<'_>, rules: &TableRules, parent: &[&str]) {
    let given = properties(&[("owner", "it's \"me\""), ("a$b#c%2f d", "ä\n\t$#%")]);
    for (name, written) in [("created", true), ("declared", false)] {
        let table = &within(parent, name);
        let made = if written {
            let mut request = CreateTableRequest::new();
            request.id = id(table);
            request.properties = Some(given.clone());
            ns.create_table(request, ipc(&rows(0..2))).await.map(drop)
        } else {
            let mut request = DeclareTableRequest::new();
            request.id = id(table);
            request.properties = Some(given.clone());
            ns.declare_table(request).await.map(drop)
        };
        if rules.properties == Properties::Refused {
            expect(name, made, UNSUPPORTED);
            expect("exists", exists(ns, table).await, NO_TABLE);
            continue;
        }
        made.unwrap();
        let told = describe(ns, table).await.unwrap().properties;
        match rules.properties {
            Properties::Kept => assert_eq!(told, Some(given.clone()), "{name}"),
            _ => assert_eq!(told, None, "{name}"),
        }
    }
}
