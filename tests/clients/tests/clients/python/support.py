"""What the clients' scripts share: rows, refusals, and running one part of a script."""

import io
import sys

import pyarrow as pa


def rows(first, last):
    """Rows `first` to `last`, without `last`: an id, a name, and the vector `[id, 0]`."""
    ids = range(first, last)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "name": [f"name {i}" for i in ids],
            "vector": pa.array([[float(i), 0.0] for i in ids], pa.list_(pa.float32(), 2)),
        }
    )


def ipc(table):
    """The table as an Arrow IPC stream, as it travels in a request."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def refused(error, text, call, *args, **kwargs):
    """The call fails with just this error, which says `text`."""
    try:
        answer = call(*args, **kwargs)
    except Exception as e:
        assert type(e) is error, f"{error.__name__} expected, not {type(e).__name__}: {e}"
        assert text in str(e), f"{text!r} is not in {e}"
        return
    raise AssertionError(f"{error.__name__} expected, not {answer!r}")


def main(*parts):
    """Runs the part named on the command line against the server named there."""
    name, uri = sys.argv[1:]
    part = {p.__name__: p for p in parts}[name]
    part(uri)
    print(name, "done")
