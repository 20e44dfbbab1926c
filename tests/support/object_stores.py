"""Object stores for tests: servers of S3, Google Cloud Storage and Azure behind a faulty network.

One server of each kind runs for a session, and each bucket serves one test or one module. Clients
connect through a proxy, which records every request. It returns an error, truncates the body or closes
the connection for requests that a test selects.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from readers.files.stores import clients
from readers.files.stores.per_process import PerProcess
from tests.support import azurite
from tests.support.preconditions import SIGNED, Preconditions

_SECONDS_TO_START = 60
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


@dataclass(frozen=True)
class Request:
    """A client's request and its outcome.

    Attributes:
        method: The HTTP method, such as GET.
        path: The path, unquoted, without the query.
        query: The query as it was sent.
        range: The `Range` header, or Azure's header of this meaning.
        status: Status of the response; 0 without one.
        sent: Length of the response's body that was sent, in bytes.
        received: Length of the request's body, in bytes.
        fault: The kind of the `Fault` that was applied, or nothing.
    """

    method: str
    path: str
    query: str
    range: str | None
    status: int
    sent: int
    fault: str = ""
    received: int = 0


@dataclass
class Fault:
    """Which requests fail, and how.

    Attributes:
        kind: A status such as 503 (which S3 calls SlowDown), 500 or 429; `cut`, a body that ends
            early together with its connection; `short`, one that ends early but looks whole; `refuse`,
            a connection that is closed before any response.
        path: A regular expression that is searched for in the paths.
        methods: The HTTP methods; None for any.
        first: The number of requests that fail; None for all.
        every: Only every n-th request fails.
        keep: Bytes of a body that `cut` and `short` let through; None for half of it.
        after: The request reaches the store and takes effect before its response fails.
    """

    kind: int | str
    path: str = ""
    methods: tuple[str, ...] | None = ("GET",)
    first: int | None = None
    every: int = 1
    keep: int | None = None
    after: bool = False
    seen: int = field(default=0, init=False)
    done: int = field(default=0, init=False)

    def strikes(self, method: str, path: str) -> bool:
        """Whether this request fails; call it once for each request."""
        if self.methods is not None and method not in self.methods:
            return False
        if not re.search(self.path, path) or (self.first is not None and self.done >= self.first):
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.done += 1
        return True


class Proxy:
    """An HTTP server on localhost that forwards requests to another one.

    Attributes:
        url: Its address for clients.
        requests: The requests to the bucket under test so far.
        faults: The faults to apply.
    """

    def __init__(self, port: int, errors_as: str) -> None:
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        # Clients receive a response before its request is recorded.
        self._lock, self._under_way = threading.Condition(), 0
        proxy, upstream, has_xml = self, port, errors_as != "gcs"

        class Passing(_Passing):
            through, to, is_xml, conditions = proxy, upstream, has_xml, Preconditions(port)

        self._server = _Server(("127.0.0.1", 0), Passing)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def fault(self, kind: int | str, path: str = "", **options: Any) -> Fault:
        """Makes requests fail from now on; arguments as for `Fault`."""
        fault = Fault(kind, path, **options)
        self.faults.append(fault)
        return fault

    def forget(self) -> None:
        """Removes all requests and faults."""
        with self._lock:
            self._settle()
            self.requests.clear()
            self.faults.clear()

    def seen(self, path: str = "", method: str | None = "GET") -> list[Request]:
        """The requests whose path matches a regular expression anywhere; method None for any."""
        with self._lock:
            self._settle()
            return [
                request
                for request in self.requests
                if (method is None or request.method == method) and re.search(path, request.path)
            ]

    def chosen(self, method: str, path: str) -> Fault | None:
        """The fault to apply to a request, if any."""
        with self._lock:
            return next((fault for fault in self.faults if fault.strikes(method, path)), None)

    def begin(self) -> None:
        """Counts a request that has arrived."""
        with self._lock:
            self._under_way += 1

    def note(self, request: Request) -> None:
        """Records a finished request."""
        with self._lock:
            self._under_way -= 1
            self.requests.append(request)
            self._lock.notify_all()

    def _settle(self) -> None:
        self._lock.wait_for(lambda: not self._under_way, timeout=5)

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that close their connection."""


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A small body must not wait for the client to acknowledge the headers.
    disable_nagle_algorithm = True
    wbufsize = -1
    through: Proxy
    to: int
    is_xml: bool
    conditions: Preconditions

    def log_message(self, format: str, *arguments: Any) -> None:
        """Prints nothing: `Proxy` records requests."""

    def handle_expect_100(self) -> bool:
        """Invites the client to send its body without delay."""
        welcome = super().handle_expect_100()
        self.wfile.flush()
        return welcome

    def _pass(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        body = self._body()
        fault = self.through.chosen(self.command, path)
        status = sent = 0
        self.through.begin()
        refused = self.conditions.refused(self.path, self.headers, body)
        try:
            if refused:
                status, headers, data = 412, *self._error(412)
                promised, fault = len(data), None
            elif fault is None or fault.after or fault.kind in ("cut", "short"):
                answer, data = self._ask(body)
                headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP]
                status, length = answer.status, answer.getheader("Content-Length")
                promised = int(length or 0) if self.command == "HEAD" else len(data)
                self.conditions.began(self.path, body, answer.getheader("Location"))
            if fault is not None and isinstance(fault.kind, int):
                status, headers, data = fault.kind, *self._error(fault.kind)
                promised = len(data)
            elif fault is not None and fault.kind == "refuse":
                status, self.close_connection = 0, True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            elif fault is not None:
                data = data[: len(data) // 2 if fault.keep is None else fault.keep]
                if fault.kind == "short" and self.command != "HEAD":
                    promised = len(data)
                self.close_connection = fault.kind == "cut"
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(promised))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
                sent = len(data)
            self.wfile.flush()
        finally:
            applied = "" if fault is None else str(fault.kind)
            self.through.note(
                Request(
                    self.command,
                    path,
                    url.query,
                    self.headers.get("Range") or self.headers.get("x-ms-range"),
                    status,
                    sent,
                    applied,
                    len(body),
                )
            )

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            if len(body) < size:  # The client was killed. No store keeps half a body.
                raise ConnectionError(f"{len(body)} of {size} bytes")
            return body
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def _ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.to, timeout=60)
        # With the client's Host header: a store may return addresses for later requests.
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Connection", "close")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders(body)  # A store may refuse before it has read everything.
        with contextlib.closing(connection):
            answer = connection.getresponse()
            return answer, answer.read()

    def _error(self, status: int) -> tuple[list[tuple[str, str]], bytes]:
        words = {503: "SlowDown", 500: "InternalError", 429: "TooManyRequests", 403: "AccessDenied"}
        words[412] = "conditionNotMet"
        code, text = words.get(status, "Failed"), "Please reduce your request rate."
        if self.is_xml:
            xml = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>"
            return [("Content-Type", "application/xml")], xml.encode()
        error = {"error": {"code": status, "message": text, "errors": [{"reason": code}]}}
        return [("Content-Type", "application/json")], json.dumps(error).encode()


@dataclass(frozen=True)
class Server:
    """A running store.

    Attributes:
        scheme: The scheme of its URLs, "s3", "gs" or "az".
        proxy: The proxy that clients use.
        port: The store's own port, past the proxy.
        environment: The environment variables that lead clients to the proxy.
        root: The path above all buckets.
        signature: A query that permits every request.
    """

    scheme: str
    proxy: Proxy
    port: int
    environment: dict[str, str]
    root: str = ""
    signature: str = ""


@dataclass(frozen=True)
class Bucket:
    """A bucket of one test or module.

    Attributes:
        url: Its URL, such as s3://name.
        proxy: The store's proxy, with its requests and faults.
        server: The store.
    """

    url: str
    proxy: Proxy
    server: Server

    def upload(self, source: Path, target: str = "") -> str:
        """Copies a file or a folder to the bucket past the proxy, and returns its URL there."""
        target = f"{self.url}/{target or source.name}"
        files = [source] if source.is_file() else sorted(source.rglob("*"))
        for file in files:
            if file.is_file():
                below = "" if file == source else f"/{file.relative_to(source).as_posix()}"
                self.put(f"{target}{below}", file.read_bytes())
        return target

    def put(self, url: str, data: bytes) -> None:
        """Writes an object, past the proxy."""
        _put(self.server, url.split("://")[1], data)

    def get(self, url: str) -> bytes:
        """Reads an object past the proxy."""
        return _send(self.server, "GET", f"/{urllib.parse.quote(url.split('://')[1])}")

    def request(self, name: str, **headers: str) -> urllib.request.Request:
        """A plain request for an object, through the proxy."""
        place = f"{self.server.root}/{self.url.split('://')[1]}/{name}?{self.server.signature}"
        signed = {} if self.server.signature else {"Authorization": SIGNED}
        return urllib.request.Request(f"{self.proxy.url}{place}", headers={**signed, **headers})


def _put(server: Server, path: str, data: bytes) -> None:
    if server.scheme == "gs":
        bucket, _, name = path.partition("/")
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        url, method = f"/upload/storage/v1/b/{bucket}/o?{query}", "POST"
    else:
        url, method = f"/{urllib.parse.quote(path)}", "PUT"
    _send(server, method, url, data)


def _send(
    server: Server,
    method: str,
    path: str,
    data: bytes | None = None,
    kind: str = "application/octet-stream",
) -> bytes:
    """Sends a request past the proxy, and returns the body of the response."""
    url = f"http://127.0.0.1:{server.port}{server.root}{path}"
    if server.signature:
        url += f"{'&' if '?' in path else '?'}{server.signature}"
    request = urllib.request.Request(url, data, method=method)
    request.add_header("Content-Type", kind)
    if server.scheme == "az":
        request.add_header("x-ms-blob-type", "BlockBlob")
    else:
        request.add_header("Authorization", SIGNED)
    with urllib.request.urlopen(request, timeout=60) as answer:
        body: bytes = answer.read()
    return body


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[int]:
    """Starts a server and yields its port once it responds; replaces `{port}` in the command."""
    for _ in range(3):  # Another process may take the port before the server does.
        port = _free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [word.format(port=port) for word in command],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={k: v for k, v in os.environ.items() if k != "STORAGE_EMULATOR_HOST"},
            )
        try:
            if _answers(process, port):
                yield port
                return
        finally:
            process.kill()
            process.wait()
    raise RuntimeError(f"{command} does not start: {log.read_text()[-2000:]}")


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + _SECONDS_TO_START
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def s3_running(log: Path) -> Iterator[Server]:
    """Runs a server of S3 during the context, with its output in a file."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "{port}"]
    with _behind_a_proxy("s3", command, log) as (proxy, port):
        environment = {
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            # Otherwise a client without credentials asks the machine's cloud for some, and waits.
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        yield Server("s3", proxy, port, environment)


@contextlib.contextmanager
def gcs_running(log: Path) -> Iterator[Server]:
    """Runs a server of Google Cloud Storage during the context, with its output in a file."""
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory"]
    command += ["--host", "127.0.0.1", "--port", "{port}"]
    with _behind_a_proxy("gcs", command, log) as (proxy, port):
        environment = {
            "STORAGE_EMULATOR_HOST": proxy.url,
            "GOOGLE_CLOUD_PROJECT": "testing",
            # Otherwise a client without credentials asks the machine's cloud for some, and waits.
            "NO_GCE_CHECK": "true",
        }
        yield Server("gs", proxy, port, environment)


@contextlib.contextmanager
def azure_running(log: Path) -> Iterator[Server]:
    """Runs a server of Azure Blob Storage during the context, with its output in a file."""
    with _behind_a_proxy("azure", azurite.command(), log) as (proxy, port):
        environment = {"AZURE_STORAGE_CONNECTION_STRING": azurite.connection_string(proxy.url)}
        root, signature = f"/{azurite.ACCOUNT}", azurite.signature()
        yield Server("az", proxy, port, environment, root, signature)


@contextlib.contextmanager
def _behind_a_proxy(store: str, command: list[str], log: Path) -> Iterator[tuple[Proxy, int]]:
    with _running(command, log) as port:
        proxy = Proxy(port, errors_as=store)
        yield proxy, port
        proxy.close()


_NUMBERS = itertools.count()


@contextlib.contextmanager
def bucket_of(server: Server) -> Iterator[Bucket]:
    """A new bucket; meanwhile the environment of this process leads clients to its store."""
    name = f"bucket-{os.getpid()}-{next(_NUMBERS)}"
    if server.scheme == "s3":
        _send(server, "PUT", f"/{name}", b"", "application/xml")
    elif server.scheme == "az":
        _send(server, "PUT", f"/{name}?restype=container", b"")
    else:
        data = json.dumps({"name": name}).encode()
        _send(server, "POST", "/storage/v1/b", data, "application/json")
    server.proxy.forget()
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in server.environment.items():
            patch.setenv(variable, value)
        for variable in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"):
            patch.delenv(variable, raising=False)
        yield Bucket(f"{server.scheme}://{name}", server.proxy, server)
    server.proxy.forget()


def uninstall(module: str, patch: pytest.MonkeyPatch) -> None:
    """Makes the library of a store look as if it were not installed."""
    patch.setattr(clients, "_stores", PerProcess(8))
    ours = ("readers.files.stores.s3", "readers.files.stores.gcs", "readers.files.stores.azure")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        patch.delitem(sys.modules, name)
    package, _, name = module.rpartition(".")
    if package in sys.modules:
        patch.delattr(sys.modules[package], name, raising=False)
    patch.setitem(sys.modules, module, None)


def _server(running: Callable[[Path], AbstractContextManager[Server]]) -> Any:
    """A fixture: a server of a store for the session."""

    @pytest.fixture(scope="session")
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        with running(tmp_path_factory.mktemp("store") / "log") as started:
            yield started

    return server


def _bucket(server: str, scope: Any = "function") -> Any:
    """A fixture: a bucket of a server for one test or one module."""

    @pytest.fixture(scope=scope)
    def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
        with bucket_of(request.getfixturevalue(server)) as made:
            yield made

    return bucket


s3_server, gcs_server, azure_server = map(_server, (s3_running, gcs_running, azure_running))
s3, s3_of_module = _bucket("s3_server"), _bucket("s3_server", "module")
gcs, gcs_of_module = _bucket("gcs_server"), _bucket("gcs_server", "module")
azure, azure_of_module = _bucket("azure_server"), _bucket("azure_server", "module")


@pytest.fixture(params=["s3", "gcs", pytest.param("azure", marks=pytest.mark.azurite)])
def store(request: pytest.FixtureRequest) -> Bucket:
    """A bucket of each store, one after the other, for one test."""
    bucket: Bucket = request.getfixturevalue(request.param)
    return bucket
