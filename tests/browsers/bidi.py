"""A connection to a browser: commands, their results, and events, in WebDriver BiDi."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

_SECONDS = 120


class BrowserError(Exception):
    """A browser refuses a command, or a script fails; the message is the browser's."""


class Connection:
    """Sends one command after the other.

    Attributes:
        events: The events so far, in the order in which the browser sent them.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0
        self.events: list[dict[str, Any]] = []

    def command(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        """The result of a command.

        Raises:
            BrowserError: The browser refuses it.
            TimeoutError: The browser does not answer for two minutes.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=_SECONDS))
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif answer["type"] == "error":
                raise BrowserError(f"{method}: {answer['error']}: {answer['message']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result


@contextlib.contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection to an address of this machine; the browser is closed in the end."""
    # A screenshot is one message of megabytes.
    with connect(url, proxy=None, max_size=None, compression=None) as socket:
        connection = Connection(socket)
        try:
            yield connection
        finally:
            with contextlib.suppress(Exception):  # It may have crashed.
                connection.command("browser.close")
