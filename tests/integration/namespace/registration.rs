//! Deregister and register, and the drop that a register takes back.

use lance_namespace::ErrorCode;
use lance_namespace::models::RegisterTableRequest;
use lancekeep::{Catalog, TableState};

use super::TableRules;
use super::calls::*;
use crate::common::table_ids;

/// What `register_table` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Register {
    /// Undrop, at the table's own location only.
    Undrop,
    /// Give an id to a table below the root, by its location relative to the root or by its URI; what is no table, is
    /// somebody's, or is another kind of thing is refused.
    Checked,
    /// Give an id to whatever a relative location names, whether it is there or not.
    Unchecked,
    Unsupported,
}

/// Locations that no register may reach.
pub(crate) const OUTSIDE: [&str; 6] = [
    "../out",
    "../out.lance",
    "/out.lance",
    "a/../../out",
    "s3://other/t.lance",
    "file:///out.lance",
];

/// A deregistered table is out of sight with its data in place, and a register brings it back.
pub(crate) async fn registration(ns: Namespace<'_>, rules: &TableRules, parent: &[&str]) {
    let r = &within(parent, "r");
    create(ns, r, 0..4).await.unwrap();
    let uri = deregister(ns, r).await.unwrap().location.unwrap();
    expect("again", deregister(ns, r).await, NO_TABLE);
    let name = last_segment(&uri);
    if rules.deregister_hides {
        expect("exists", exists(ns, r).await, NO_TABLE);
        expect("count", count(ns, r).await, NO_TABLE);
        assert!(listed(ns, parent, 2).await.is_empty());
    } else {
        assert_eq!(count(ns, r).await.unwrap(), 4);
        assert_eq!(listed(ns, parent, 2).await, ["r"]);
    }
    if rules.register == Register::Unsupported {
        expect("register", register(ns, r, name).await, UNSUPPORTED);
        // Nothing brings it back, and its name stays taken until it is dropped.
        expect("create", create(ns, r, 0..1).await, TABLE_EXISTS);
        drop_table(ns, r).await.unwrap();
        create(ns, r, 0..1).await.unwrap();
        return;
    }
    for outside in OUTSIDE {
        let refused = register(ns, r, outside).await;
        expect(outside, refused, INVALID);
    }
    if rules.register == Register::Unchecked {
        expect("by its URI", register(ns, r, &uri).await, INVALID);
    } else {
        expect("by its URI", register(ns, r, &uri).await, Answer::Done);
        assert_eq!(count(ns, r).await.unwrap(), 4);
        deregister(ns, r).await.unwrap();
        expect("exists", exists(ns, r).await, NO_TABLE);
    }
    let slashed = format!("{name}/");
    let slashed = (rules.register != Register::Unchecked).then_some(slashed);
    register(ns, r, slashed.as_deref().unwrap_or(name))
        .await
        .unwrap();
    assert_eq!(count(ns, r).await.unwrap(), 4);
    assert_eq!(listed(ns, parent, 2).await, ["r"]);
    expect("again", register(ns, r, name).await, TABLE_EXISTS);
    let nobody = register(ns, &within(parent, "nobody"), "nobody.lance").await;
    expect("nobody", nobody, rules.register_missing);
}

/// Registers in a namespace: what may be registered, and where.
pub(crate) async fn in_namespace(ns: Namespace<'_>, rules: &TableRules, parent: &[&str]) {
    let (a, b) = (&within(parent, "a"), &within(parent, "b"));
    create(ns, &["x"], 0..2).await.unwrap();
    create(ns, a, 0..4).await.unwrap();
    let location = describe(ns, a).await.unwrap().location.unwrap();
    let name = last_segment(&location);
    let nowhere = register(ns, &["no", "b"], name).await;
    expect("in no namespace", nowhere, NO_NAMESPACE);
    let checked = rules.register == Register::Checked;
    for (location, refusal) in [
        ("nothing", NO_TABLE),
        (name, INVALID),
        ("x.lance", INVALID),
        ("__manifest", INVALID),
    ] {
        let registered = register(ns, b, location).await;
        if checked {
            expect(location, registered, refusal);
            expect("exists", exists(ns, b).await, NO_TABLE);
        } else {
            expect(location, registered, Answer::Done);
            deregister(ns, b).await.unwrap();
        }
    }
    for odd in ["", ".", "./", "__manifest/", "x.lance/data"] {
        let registered = register(ns, b, odd).await;
        if checked {
            assert_ne!(answer(&registered), Answer::Done, "{odd:?}");
            assert_ne!(answer(&registered), Answer::Uncoded, "{odd:?}");
        } else {
            expect(odd, registered, Answer::Done);
            deregister(ns, b).await.unwrap();
        }
    }
    // A deregistered table may come back under another id, and is then that one's.
    deregister(ns, a).await.unwrap();
    register(ns, b, name).await.unwrap();
    assert_eq!(count(ns, b).await.unwrap(), 4);
    expect("exists", exists(ns, a).await, NO_TABLE);
    assert_eq!(listed(ns, parent, 2).await, ["b"]);
    assert_eq!(count(ns, &["x"]).await.unwrap(), 2);
}

/// At the root of a catalog: drop, deregister and register are drop, drop until purged and undrop.
pub(crate) async fn kept_drops(ns: Namespace<'_>, catalog: &Catalog) {
    create(ns, &["t"], 0..7).await.unwrap();
    let location = describe(ns, &["t"]).await.unwrap().location.unwrap();
    assert!(location.ends_with("/t.lance"), "{location}");
    let live = register(ns, &["t"], "t.lance").await;
    expect("register a live table", live, TABLE_EXISTS);

    drop_table(ns, &["t"]).await.unwrap();
    expect("drop again", drop_table(ns, &["t"]).await, NO_TABLE);
    let dropped = catalog.list_dropped_tables().await.unwrap();
    assert!(dropped[0].expires_at.is_some());
    // Declaring would bury it: refused, and nothing is changed.
    let declared = declare(ns, &["t"]).await;
    let text = declared.as_ref().unwrap_err().to_string();
    for way in ["undrop_table", "purge_table", "create_table"] {
        assert!(text.contains(way), "{text}");
    }
    let state = Answer::Refused(ErrorCode::InvalidTableState);
    expect("declare", declared, state);
    assert_eq!(catalog.list_dropped_tables().await.unwrap(), dropped);
    for elsewhere in OUTSIDE.into_iter().chain(["u.lance", "/t.lance", "t"]) {
        let refused = register(ns, &["t"], elsewhere).await;
        expect(elsewhere, refused, INVALID);
    }
    let mut with_properties = RegisterTableRequest::new("t.lance".to_string());
    with_properties.id = id(&["t"]);
    with_properties.properties = Some(properties(&[("k", "v")]));
    let refused = ns.register_table(with_properties).await;
    expect("with properties", refused, UNSUPPORTED);
    assert_eq!(catalog.list_dropped_tables().await.unwrap(), dropped);
    register(ns, &["t"], "t.lance").await.unwrap();
    assert_eq!(count(ns, &["t"]).await.unwrap(), 7);
    assert_eq!(table_ids(catalog, "t").await, (0..7).collect::<Vec<_>>());

    deregister(ns, &["t"]).await.unwrap();
    let dropped = catalog.list_dropped_tables().await.unwrap();
    assert_eq!(dropped[0].expires_at, None);
    // By its whole location, as a client has it from a describe.
    register(ns, &["t"], &location).await.unwrap();
    assert_eq!(count(ns, &["t"]).await.unwrap(), 7);

    drop_table(ns, &["t"]).await.unwrap();
    let revived = create(ns, &["t"], 50..52).await.unwrap();
    assert!(revived.version > Some(1), "{revived:?}");
    assert_eq!(table_ids(catalog, "t").await, [50, 51]);

    declare(ns, &["d"]).await.unwrap();
    let status = catalog.table_status("d").await.unwrap();
    assert_eq!(status, TableState::Declared);
    create(ns, &["d"], 0..1).await.unwrap();
    assert_eq!(catalog.table_names().await.unwrap(), ["d", "t"]);
}
