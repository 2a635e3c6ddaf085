"""pylance over a served catalog: `first` leaves the table `t` dropped, `second` needs it restored by somebody else."""

import lance
import lance_namespace as ln
from lance_namespace import connect
from support import ipc, main, refused, rows


def names(ns, *namespace):
    """All table names of a namespace, in pages of two."""
    found, token = [], None
    while True:
        request = ln.ListTablesRequest(id=list(namespace), limit=2, page_token=token)
        page = ns.list_tables(request)
        assert len(page.tables) <= 2, page
        found += page.tables
        token = page.page_token
        if not token:
            return sorted(found)


def ids(ns, *table, **how):
    dataset = lance.dataset(namespace_client=ns, table_id=list(table))
    return sorted(dataset.to_table(**how)["id"].to_pylist())


def create(ns, data, *table, mode="create"):
    lance.write_dataset(data, namespace_client=ns, table_id=list(table), mode=mode)


def drop(ns, *table):
    return ns.drop_table(ln.DropTableRequest(id=list(table)))


def register(ns, location, *table):
    ns.register_table(ln.RegisterTableRequest(id=list(table), location=location))


def gone(ns, *table):
    """Nothing that asks for the table finds it; of a root table it is told that it was dropped."""
    says = "was dropped" if len(table) == 1 else ""
    refused(ln.TableNotFoundError, says, ids, ns, *table)
    refused(ln.TableNotFoundError, says, create, ns, rows(0, 1), *table, mode="append")
    refused(ln.TableNotFoundError, says, create, ns, rows(0, 1), *table, mode="overwrite")
    request = ln.DescribeTableRequest(id=list(table))
    refused(ln.TableNotFoundError, says, ns.describe_table, request)
    refused(ln.TableNotFoundError, says, ns.table_exists, ln.TableExistsRequest(id=list(table)))
    count = ln.CountTableRowsRequest(id=list(table))
    refused(ln.TableNotFoundError, says, ns.count_table_rows, count)
    refused(ln.TableNotFoundError, says, drop, ns, *table)
    assert table[-1] not in names(ns, *table[:-1])


def children(ns):
    """Namespaces, and a table in one of depth two; its drop is final, so the way back is to deregister it."""
    for namespace in (["a"], ["a", "b"]):
        ns.create_namespace(ln.CreateNamespaceRequest(id=namespace, properties={"owner": "us"}))
        described = ns.describe_namespace(ln.DescribeNamespaceRequest(id=namespace))
        assert described.properties == {"owner": "us"}, described
    listed = ns.list_namespaces(ln.ListNamespacesRequest(id=["a"]))
    assert listed.namespaces == ["b"], listed
    again = ln.CreateNamespaceRequest(id=["a"])
    refused(ln.NamespaceAlreadyExistsError, "a", ns.create_namespace, again)

    table = ("a", "b", "t")
    create(ns, rows(0, 3), *table)
    create(ns, rows(3, 5), *table, mode="append")
    assert ids(ns, *table) == [0, 1, 2, 3, 4]
    assert names(ns, "a", "b") == ["t"] and names(ns, "a") == []
    full = ln.DropNamespaceRequest(id=["a", "b"])
    refused(ln.NamespaceNotEmptyError, "", ns.drop_namespace, full)

    left = ns.deregister_table(ln.DeregisterTableRequest(id=list(table)))
    gone(ns, *table)
    register(ns, left.location.rsplit("/", 1)[-1], *table)
    assert ids(ns, *table) == [0, 1, 2, 3, 4]
    drop(ns, *table)
    gone(ns, *table)
    for namespace in (["a", "b"], ["a"]):
        ns.drop_namespace(ln.DropNamespaceRequest(id=namespace))
    missing = ln.NamespaceExistsRequest(id=["a"])
    refused(ln.NamespaceNotFoundError, "", ns.namespace_exists, missing)


def stopped_create(ns):
    """A create of pylance that stops before its first commit leaves the table declared, and pylance cannot start over:
    `write_dataset` (`lance/dataset.py`) takes the answer to its second declaration for its own. `mode="overwrite"`
    asks for the location instead, and makes the table."""

    def broken():
        yield rows(0, 1).to_batches()[0]
        raise ValueError("no more rows")

    def write(mode):
        lance.write_dataset(
            broken(), schema=rows(0, 1).schema, namespace_client=ns, table_id=["s"], mode=mode
        )

    refused(OSError, "no more rows", write, "create")
    refused(ln.TableAlreadyExistsError, "s", create, ns, rows(0, 2), "s")
    create(ns, rows(0, 2), "s", mode="overwrite")
    assert ids(ns, "s") == [0, 1]
    drop(ns, "s")


def first(uri):
    ns = connect("rest", {"uri": uri})
    refused(ln.TableNotFoundError, "", ids, ns, "t")
    create(ns, rows(0, 5), "t")
    refused(ln.TableAlreadyExistsError, "t", create, ns, rows(0, 1), "t")
    create(ns, rows(5, 8), "t", mode="append")
    assert ids(ns, "t") == list(range(8))
    assert ids(ns, "t", filter="id >= 6") == [6, 7]
    near = {"column": "vector", "q": [4.1, 0.0], "k": 2}
    assert ids(ns, "t", nearest=near) == [4, 5]
    for name in ("u1", "u2", "u3", "u4"):
        create(ns, rows(0, 1), name)
    assert names(ns) == ["t", "u1", "u2", "u3", "u4"]

    # Undrop, by the location that the drop told and by the one that the specification has.
    opened = lance.dataset(namespace_client=ns, table_id=["t"])
    for told in (True, False):
        dropped = drop(ns, "t")
        location = dropped.location if told else "t.lance"
        gone(ns, "t")
        assert names(ns) == ["u1", "u2", "u3", "u4"]
        # A handle that was opened before the drop reads on.
        assert opened.count_rows() == 8
        # A create declares the table first, which would bury what was dropped.
        says = "undrop_table restores it"
        refused(ln.InvalidTableStateError, says, create, ns, rows(0, 1), "t")
        refused(ln.InvalidInputError, "own location", register, ns, "u1.lance", "t")
        register(ns, location, "t")
        assert ids(ns, "t") == list(range(8))
        refused(ln.TableAlreadyExistsError, "t", register, ns, location, "t")

    # A create that the server does goes over what was dropped: its own rows, never the old ones.
    for name in ("u1", "u2", "u3", "u4"):
        drop(ns, name)
    ns.create_table(ln.CreateTableRequest(id=["u1"]), ipc(rows(70, 72)))
    assert ids(ns, "u1") == [70, 71]
    drop(ns, "u1")

    create(ns, rows(0, 1), "v1.2-x_y")
    assert names(ns) == ["t", "v1.2-x_y"]
    drop(ns, "v1.2-x_y")
    for bad in ("a/b", "größe", "a#b", "../t", "t" * 300):
        refused(ln.InvalidInputError, "invalid name", create, ns, rows(0, 1), bad)
    # pylance's REST client sends a space as a plus sign (see `rest.rs`); the server notices when the body has the id.
    refused(ln.InvalidInputError, 'the route names ["a+b"]', create, ns, rows(0, 1), "a b")
    stopped_create(ns)
    children(ns)
    drop(ns, "t")
    gone(ns, "t")


def second(uri):
    # The root's id is the delimiter, and the path segment "." is lost in pylance's REST client, which does not encode it.
    dotted = connect("rest", {"uri": uri, "delimiter": "."})
    refused(ln.NamespaceNotFoundError, 'namespace "table" not found', names, dotted)
    ns = connect("rest", {"uri": uri, "delimiter": "|"})
    assert names(ns) == ["t"]
    assert ids(ns, "t") == list(range(8))
    create(ns, rows(0, 1), "held")
    ns.deregister_table(ln.DeregisterTableRequest(id=["held"]))
    gone(ns, "held")
    children(ns)


main(first, second)
