"""A browser of each kind, which the tests of one process share, and a server that nobody should ask."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browsers.browser import BROWSERS, Browser


class Canary(http.server.ThreadingHTTPServer):
    """A server on this machine that notes whatever reaches it, and has nothing.

    Attributes:
        url: Its address.
        paths: The paths of requests, in their order.
        connections: The number of connections, with and without requests.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.connections = 0
        super().__init__(("127.0.0.1", 0), _Noted)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Counts a connection."""
        self.connections += 1
        return super().get_request()


class _Noted(http.server.BaseHTTPRequestHandler):
    server: Canary

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.send_error(404)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="session", params=BROWSERS)
def browser(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """A running browser; every test opens its own page."""
    with BROWSERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="session")
def canary() -> Iterator[Canary]:
    """The server."""
    with Canary() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()
