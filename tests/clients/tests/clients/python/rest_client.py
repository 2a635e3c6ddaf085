"""The REST client generated from the protocol's specification, over a served catalog; rows travel in requests.

`first` leaves the table `t` dropped, `second` needs it restored by somebody else."""

import json

import lance_namespace_urllib3_client as client
import pyarrow as pa
from support import ipc, main, rows

TABLE_NOT_FOUND, TABLE_ALREADY_EXISTS, INVALID_INPUT, INVALID_TABLE_STATE = 4, 5, 13, 19
NAMESPACE_NOT_FOUND, NAMESPACE_NOT_EMPTY, UNSUPPORTED = 1, 3, 0


def refused(status, code, text, call, *args, **kwargs):
    """The call fails with just this status and code, and says `text`."""
    try:
        answer = call(*args, **kwargs)
    except client.ApiException as e:
        error = json.loads(e.data.to_json() if hasattr(e.data, "to_json") else e.body)
        assert (e.status, error["code"]) == (status, code), e
        assert text in error["error"], e
        return
    raise AssertionError(f"{status} expected, not {answer!r}")


class Catalog:
    def __init__(self, uri):
        served = client.ApiClient(client.Configuration(host=uri))
        self.tables = client.TableApi(served)
        self.data = client.DataApi(served)
        self.namespaces = client.NamespaceApi(served)

    def ids(self, table, **how):
        how = {"k": 1000, "vector": client.QueryTableRequestVector(single_vector=[])} | how
        answer = self.data.query_table(table, client.QueryTableRequest(**how))
        return sorted(pa.ipc.open_file(answer).read_all()["id"].to_pylist())

    def names(self, namespace="$"):
        """All table names of a namespace, in pages of two."""
        found, token = [], None
        while True:
            page = self.tables.list_tables(namespace, limit=2, page_token=token)
            assert len(page.tables) <= 2, page
            found += page.tables
            token = page.page_token
            if not token:
                return sorted(found)

    def register(self, table, location):
        self.tables.register_table(table, client.RegisterTableRequest(location=location))

    def gone(self, table):
        says = "" if "$" in table else "was dropped"
        calls = [
            lambda: self.ids(table),
            lambda: self.data.insert_into_table(table, ipc(rows(0, 1))),
            lambda: self.tables.describe_table(table, client.DescribeTableRequest()),
            lambda: self.tables.table_exists(table, client.TableExistsRequest()),
            lambda: self.data.count_table_rows(table, client.CountTableRowsRequest()),
            lambda: self.tables.drop_table(table),
        ]
        for call in calls:
            refused(404, TABLE_NOT_FOUND, says, call)


def children(catalog):
    spaces = catalog.namespaces
    spaces.create_namespace("a", client.CreateNamespaceRequest())
    # Any delimiter, told with the request.
    spaces.create_namespace("a.b", client.CreateNamespaceRequest(), delimiter=".")
    assert spaces.list_namespaces("a").namespaces == ["b"]
    catalog.data.create_table("a$b$t", ipc(rows(0, 3)))
    catalog.data.insert_into_table("a.b.t", ipc(rows(3, 5)), delimiter=".")
    assert catalog.ids("a$b$t") == [0, 1, 2, 3, 4]
    assert catalog.names("a$b") == ["t"] and catalog.names() == ["t"]
    drop = client.DropNamespaceRequest()
    refused(409, NAMESPACE_NOT_EMPTY, "", spaces.drop_namespace, "a$b", drop)

    left = catalog.tables.deregister_table("a$b$t", client.DeregisterTableRequest()).location
    catalog.gone("a$b$t")
    catalog.register("a$b$t", left.rsplit("/", 1)[-1])
    assert catalog.ids("a$b$t") == [0, 1, 2, 3, 4]
    catalog.tables.drop_table("a$b$t")
    catalog.gone("a$b$t")
    spaces.drop_namespace("a$b", drop)
    spaces.drop_namespace("a", drop)
    refused(404, NAMESPACE_NOT_FOUND, "", spaces.drop_namespace, "a", drop)


def first(uri):
    catalog = Catalog(uri)
    tables, data = catalog.tables, catalog.data
    data.create_table("t", ipc(rows(0, 5)))
    refused(409, TABLE_ALREADY_EXISTS, "t", data.create_table, "t", ipc(rows(0, 1)))
    data.insert_into_table("t", ipc(rows(5, 10)))
    assert catalog.ids("t", filter="id >= 8") == [8, 9]
    near = client.QueryTableRequestVector(single_vector=[4.1, 0.0])
    assert catalog.ids("t", vector=near, k=2) == [4, 5]
    update = client.UpdateTableRequest(predicate="id = 2", updates=[["name", "'two'"]])
    assert data.update_table("t", update).updated_rows == 1
    assert catalog.ids("t", filter="name = 'two'") == [2]
    data.delete_from_table("t", client.DeleteFromTableRequest(predicate="id < 2"))
    for name in ("u1", "u2", "u3", "u4"):
        data.create_table(name, ipc(rows(0, 1)))
    assert catalog.names() == ["t", "u1", "u2", "u3", "u4"]

    for told in (True, False):
        dropped = tables.drop_table("t")
        location = dropped.location if told else "t.lance"
        catalog.gone("t")
        assert catalog.names() == ["u1", "u2", "u3", "u4"]
        says = "undrop_table restores it"
        declare = client.DeclareTableRequest()
        refused(409, INVALID_TABLE_STATE, says, tables.declare_table, "t", declare)
        refused(400, INVALID_INPUT, "own location", catalog.register, "t", "u1.lance")
        catalog.register("t", location)
        assert catalog.ids("t") == list(range(2, 10))
        refused(409, TABLE_ALREADY_EXISTS, "t", catalog.register, "t", location)

    # A create that the server does goes over what was dropped: its own rows, never the old ones.
    tables.drop_table("u1")
    data.create_table("u1", ipc(rows(70, 72)))
    assert catalog.ids("u1") == [70, 71]
    refused(406, UNSUPPORTED, "", tables.rename_table, "u1", client.RenameTableRequest(new_table_name="v"))
    for name in ("u1", "u2", "u3", "u4"):
        tables.drop_table(name)
    children(catalog)
    tables.drop_table("t")
    catalog.gone("t")


def second(uri):
    catalog = Catalog(uri)
    assert catalog.names() == ["t"]
    assert catalog.ids("t") == list(range(2, 10))
    catalog.data.create_table("held", ipc(rows(0, 1)))
    catalog.tables.deregister_table("held", client.DeregisterTableRequest())
    catalog.gone("held")


main(first, second)
