"""LanceDB's Python package over a served catalog: `first` leaves the table `t` dropped, `second` needs it restored by
somebody else."""

import lance_namespace as ln
import lancedb
from support import main, refused, rows


def names(db, *namespace):
    """All table names of a namespace, in pages of two."""
    found, token = [], None
    while True:
        page = db.list_tables(namespace_path=list(namespace), limit=2, page_token=token)
        assert len(page.tables) <= 2, page
        found += page.tables
        token = page.page_token
        if not token:
            return sorted(found)


def ids(table):
    return sorted(table.to_arrow()["id"].to_pylist())


def register(db, location, *table):
    """LanceDB has no call for it; its namespace client does."""
    request = ln.RegisterTableRequest(id=list(table), location=location)
    db.namespace_client().register_table(request)


def work(db, namespace):
    """Create, add, query, search, update, delete; six rows are left."""
    db.create_table("t", rows(0, 6), namespace_path=namespace)
    table = db.open_table("t", namespace_path=namespace)
    table.add(rows(6, 9))
    assert ids(table) == list(range(9))
    assert [r["id"] for r in table.search().where("id >= 7").to_list()] == [7, 8]
    assert [r["id"] for r in table.search([4.1, 0.0]).limit(2).to_list()] == [4, 5]
    table.update(where="id = 2", values={"name": "it's two"})
    [two] = table.search().where("id = 2").to_list()
    assert two["name"] == "it's two", two
    table.delete("id = 0 or id > 7")
    table.delete("id = 1")
    table.add(rows(8, 9))
    assert ids(table) == [2, 3, 4, 5, 6, 7, 8]
    table.delete("id = 7")


def gone(db, namespace):
    refused(ln.TableNotFoundError, "t", db.open_table, "t", namespace_path=namespace)
    assert "t" not in names(db, *namespace)


def children(db):
    for namespace in (["a"], ["a", "b"]):
        db.create_namespace(namespace)
    assert db.list_namespaces(["a"]).namespaces == ["b"]
    namespace = ["a", "b"]
    work(db, namespace)
    assert names(db, *namespace) == ["t"]
    deregister = ln.DeregisterTableRequest(id=["a", "b", "t"])
    left = db.namespace_client().deregister_table(deregister).location
    gone(db, namespace)
    register(db, left.rsplit("/", 1)[-1], "a", "b", "t")
    assert ids(db.open_table("t", namespace_path=namespace)) == [2, 3, 4, 5, 6, 8]
    db.drop_table("t", namespace_path=namespace)
    gone(db, namespace)
    db.drop_namespace(["a", "b"])
    db.drop_namespace(["a"])
    assert db.list_namespaces([]).namespaces == []


def first(uri):
    db = lancedb.connect_namespace("rest", {"uri": uri})
    work(db, [])
    for name in ("u1", "u2", "u3", "u4"):
        db.create_table(name, rows(0, 1))
    assert names(db) == ["t", "u1", "u2", "u3", "u4"]
    opened = db.open_table("t")
    db.drop_table("t")
    gone(db, [])
    # A handle that was opened before the drop reads on.
    assert ids(opened) == [2, 3, 4, 5, 6, 8]
    says = "undrop_table restores it"
    for how in ({}, {"exist_ok": True}, {"mode": "overwrite"}):
        refused(RuntimeError, says, db.create_table, "t", rows(0, 1), **how)
    register(db, "t.lance", "t")
    assert ids(db.open_table("t")) == [2, 3, 4, 5, 6, 8]
    for name in ("u1", "u2", "u3", "u4"):
        db.drop_table(name)
    children(db)
    db.drop_table("t")
    gone(db, [])


def second(uri):
    db = lancedb.connect_namespace("rest", {"uri": uri})
    assert names(db) == ["t"]
    table = db.open_table("t")
    assert ids(table) == [2, 3, 4, 5, 6, 8]
    table.add(rows(9, 11))
    assert ids(table) == [2, 3, 4, 5, 6, 8, 9, 10]
    db.create_table("held", rows(0, 1))
    deregister = ln.DeregisterTableRequest(id=["held"])
    db.namespace_client().deregister_table(deregister)
    refused(ln.TableNotFoundError, "held", db.open_table, "held")


main(first, second)
