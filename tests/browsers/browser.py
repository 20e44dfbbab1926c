"""Browsers that open pages of this machine: what Chromium and Firefox share, and how they differ."""

from __future__ import annotations

import abc
import contextlib
import http.client
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.browsers.bidi import Connection, connected
from tests.browsers.page import Page
from tests.engines import services
from tests.engines.packages import needed_by
from tests.engines.services import Service

WIDTHS = (390, 1024, 1920)
SCHEMES = ("light", "dark")

_HEIGHT = 800
_FIREFOX_SCHEME = "layout.css.prefers-color-scheme.content-override"
_FIREFOX_SCHEMES = {"dark": 0, "light": 1}
# Screenshots are as wide as the window; a page that scrolls at once is tested in half of the time.
_FIREFOX_PREFERENCES = (
    'user_pref("ui.useOverlayScrollbars", 1);\nuser_pref("ui.prefersReducedMotion", 1);\n'
)
_EVENTS = [
    "browsingContext.contextCreated",
    "browsingContext.downloadWillBegin",
    "browsingContext.navigationStarted",
    "browsingContext.userPromptOpened",
    "log.entryAdded",
    "network.beforeRequestSent",
]


class Browser(abc.ABC):
    """A browser with one tab.

    Attributes:
        name: `chromium` or `firefox`.
    """

    name: str

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.command("session.subscribe", events=_EVENTS)

    def open(self, path: Path, width: int = 1024, scheme: str = "light") -> Page:
        """Opens a file of this machine in a new tab; all other tabs and windows are closed.

        Args:
            path: The file.
            width: The width of the window's inside, in CSS pixels; it is 800 high.
            scheme: The colours that the user prefers, `light` or `dark`.
        """
        command = self._connection.command
        others = command("browsingContext.getTree", maxDepth=0)["contexts"]
        tab = command("browsingContext.create", type="tab")["context"]
        for other in others:
            command("browsingContext.close", context=other["context"])
        viewport = {"width": width, "height": _HEIGHT}
        command("browsingContext.setViewport", context=tab, viewport=viewport)
        emulate = self._emulation(tab, scheme)
        emulate("")
        self._connection.events.clear()
        url = path.resolve().as_uri()
        command("browsingContext.navigate", context=tab, url=url, wait="complete")
        page = Page(self._connection, tab, url, emulate)
        page.settle()
        return page

    @abc.abstractmethod
    def _emulation(self, tab: str, scheme: str) -> Callable[[str], None]:
        """Shows a tab in a colour scheme when it is called, as if on paper if its argument is `print`."""


class Chromium(Browser):
    """Debian's Chromium."""

    name = "chromium"

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        # Faults of drawings and of the page's policy are in this log alone.
        connection.command("session.subscribe", events=["goog:cdp.Log.entryAdded"])

    def _emulation(self, tab: str, scheme: str) -> Callable[[str], None]:
        session = self._connection.command("goog:cdp.getSession", context=tab)["session"]

        def devtools(method: str, **parameters: Any) -> None:
            self._connection.command(
                "goog:cdp.sendCommand", method=method, params=parameters, session=session
            )

        devtools("Log.enable")
        preferred = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in preferred.items()]
        return lambda medium: devtools(
            "Emulation.setEmulatedMedia", media=medium, features=features
        )


class Firefox(Browser):
    """Debian's Firefox ESR."""

    name = "firefox"

    def _emulation(self, tab: str, scheme: str) -> Callable[[str], None]:
        def emulate(medium: str) -> None:
            tree = self._connection.command("browsingContext.getTree", **{"moz:scope": "chrome"})
            # The line of addresses has the focus until the page is given it.
            self._connection.command(
                "script.evaluate",
                expression=f"Services.prefs.setIntPref({_FIREFOX_SCHEME!r}, {_FIREFOX_SCHEMES[scheme]});"
                f"gBrowser.selectedBrowser.browsingContext.mediumOverride = {medium!r};"
                "gBrowser.selectedBrowser.focus(); 0",
                target={"context": tree["contexts"][0]["context"]},
                awaitPromise=False,
            )

        return emulate


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A running Chromium.

    Args:
        folder: An empty folder for its profile and its log.

    Raises:
        EngineError: It is missing or does not start.
    """
    program, driver = needed_by("chromium", "this test"), needed_by("chromedriver", "this test")
    (port,) = services.free_ports(1)
    status = f"http://127.0.0.1:{port}/status"
    service = Service(
        "chromedriver",
        [driver, f"--port={port}"],
        lambda: services.answers(status),
        _scratch(folder),
    )
    # /dev/shm of a container is small.
    arguments = [
        "--headless=new",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
    ]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    options = {"binary": program, "args": arguments}
    capabilities = {"webSocketUrl": True, "goog:chromeOptions": options}
    with _running(service, folder):
        found = _new_session(port, {"capabilities": {"alwaysMatch": capabilities}})
        with connected(found["webSocketUrl"]) as connection:
            yield Chromium(connection)


@contextlib.contextmanager
def firefox(folder: Path) -> Iterator[Browser]:
    """A running Firefox; the argument and the error are those of `chromium`."""
    program = shutil.which("firefox-esr") or needed_by("firefox", "this test")
    profile = folder / "profile"
    profile.mkdir()
    (profile / "user.js").write_text(_FIREFOX_PREFERENCES)
    (port,) = services.free_ports(1)
    command = [program, "--headless", "--no-remote", f"--profile={profile}"]
    # Access to the system sets the colour scheme of a tab.
    command += [f"--remote-debugging-port={port}", "--remote-allow-system-access", "about:blank"]
    service, address = (
        Service("firefox", command, lambda: services.listens(port)),
        f"127.0.0.1:{port}",
    )
    with _running(service, folder), connected(f"ws://{address}/session") as connection:
        connection.command("session.new", capabilities={})
        yield Firefox(connection)


BROWSERS: dict[str, Callable[[Path], AbstractContextManager[Browser]]] = {
    "chromium": chromium,
    "firefox": firefox,
}


@contextlib.contextmanager
def _running(service: Service, folder: Path) -> Iterator[None]:
    services.start(folder, [service])
    try:
        yield
    finally:
        services.stop(folder)


def _scratch(folder: Path) -> dict[str, str]:
    """Variables with which a browser leaves nothing in other folders."""
    return {"TMPDIR": str(folder), "HOME": str(folder)}


def _new_session(port: int, wanted: dict[str, Any]) -> dict[str, Any]:
    """The capabilities of a new session of chromedriver."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/session", json.dumps(wanted))
    found = json.loads(connection.getresponse().read())["value"]
    if "capabilities" not in found:
        raise services.EngineError(f"Chromium does not start: {found['message']}")
    capabilities: dict[str, Any] = found["capabilities"]
    return capabilities
