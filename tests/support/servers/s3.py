"""An S3 server for the tests: moto's, in memory, on a free port of the loopback.

It says `ready PORT`, and then answers each line of its input with one line: `make NAME` makes a bucket, `requests NAME`
tells those to a bucket since it was asked last, `refuse` makes it refuse all credentials from then on. It ends with its
input, so it never outlives the process that started it, however that one ends.
"""

import collections
import io
import logging
import os
import sys
import threading
import urllib.request

from moto import settings
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

# moto looks for an object and then writes it, in two steps: two conditional puts at once could both succeed, which on
# S3 they cannot. One request at a time makes each of them atomic.
one_at_a_time = threading.Lock()


# The requests to each bucket.
seen = collections.defaultdict(list)


class Handler(MotoRequestHandler):
    """Keeps connections open, which werkzeug's own handler never does."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def run_wsgi(self):
        environ = self.make_environ()
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(self.rfile.read(length))
        started = []

        def start_response(status, headers, exc_info=None):
            started[:] = [status, headers]

        path, _, query = self.path.partition("?")
        bucket, _, key = path.strip("/").partition("/")
        if self.command == "GET" and not key:
            kind = "LIST"
        elif self.command == "POST" and query.startswith("delete"):
            kind = "DELETE"
        else:
            kind = self.command
        with one_at_a_time:
            seen[bucket].append(kind)
            answer = self.server.app(environ, start_response)
            body = b"".join(answer)
            if hasattr(answer, "close"):
                answer.close()
        status, headers = started
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            if name.lower() not in ("connection", "server", "date"):
                self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


logging.getLogger("werkzeug").setLevel(logging.ERROR)
app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
# A proxy that the machine may have is not for the loopback.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def make(bucket):
    url = f"http://127.0.0.1:{server.server_port}/{bucket}"
    direct.open(urllib.request.Request(url, method="PUT"), timeout=60).close()


def requests(bucket):
    with one_at_a_time:
        return " ".join(seen.pop(bucket, []))


def refuse():
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0


# The first request loads moto's S3.
make("first")
print("ready", server.server_port, flush=True)
for line in sys.stdin:
    command, *arguments = line.split()
    answer = {"make": make, "requests": requests, "refuse": refuse}[command](*arguments)
    print("done", answer or "", flush=True)
os._exit(0)
