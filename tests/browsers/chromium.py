"""Debian's Chromium with one tab: what its page says, asks for and does, and the hands of its user."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.engines import services
from tests.engines.packages import needed_by

_SECONDS = 120
_HEIGHT = 800
# Pixels; Chromium draws no more than 16,384 in one piece.
_TALLEST = 12_000
_KEYS = {"Tab": 9, "ArrowRight": 39}

# Names an element in reports of faults.
NAME_OF = """(element => {
  const text = (element.textContent || element.alt || "").trim().replace(/\\s+/g, " ").slice(0, 40);
  const id = element.id ? "#" + element.id : "";
  return element.localName + id + (text ? ` "${text}"` : "");
})"""

# Until the page has stopped moving, for 3 s at most.
_SETTLED = """new Promise(done => {
  let place = NaN, same = 0;
  const look = () => {
    same = scrollY === place ? same + 1 : 0;
    place = scrollY;
    same === 3 ? setTimeout(done, 20) : requestAnimationFrame(look);
  };
  look();
  setTimeout(done, 3000);
})"""


class BrowserError(Exception):
    """The browser refuses a command, or a script fails; the message is the browser's."""


class Page:
    """The tab; the methods are about the file that `open` opened last."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number, self._url = socket, 0, ""
        self._events: list[tuple[str, dict[str, Any]]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._command(f"{domain}.enable")

    def open(self, path: Path, width: int = 1024, scheme: str = "light") -> Page:
        """Opens a file of this machine, and returns this page.

        Args:
            path: The file.
            width: The width of the window's inside, in CSS pixels; it is 800 high.
            scheme: The colours that the user prefers, `light` or `dark`.
        """
        self._go("about:blank")
        size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", **size)
        self._emulate("", scheme)
        self._command("Log.clear")
        self._events.clear()
        self._url = path.resolve().as_uri()
        self._go(self._url)
        self.settle()
        return self

    def told(self) -> list[str]:
        """A line for everything that the page logged, asked for or opened; the browser closed its dialogs at once."""
        found = []
        for name, event in self._events:
            match name:
                case "Log.entryAdded":
                    entry = event["entry"]
                    found.append(f"in the console: {entry['level']}: {entry['text']}")
                case "Runtime.consoleAPICalled":
                    found.append(f"in the console: {event['type']}: {event['args']}")
                case "Runtime.exceptionThrown":
                    details = event["exceptionDetails"]
                    found.append(f"exception: {details.get('exception', details)}")
                case "Network.requestWillBeSent":
                    url = event["request"]["url"]
                    if url.split("#")[0] != self._url and not url.startswith("data:"):
                        found.append(f"request: {url}")
                case "Page.frameAttached":
                    found.append("frame")
                case "Page.javascriptDialogOpening":
                    found.append(f"dialog: {event['message']}")
        return found

    def ran(self) -> Any:
        """`window.__ran`, which the scripts of hostile strings set; None if none ran."""
        return self._evaluated("window.__ran ?? null")

    def settle(self) -> None:
        """Waits until pending timers have run and the page has stopped moving, for 3 s at most."""
        # A page that goes elsewhere meanwhile takes the script with it.
        with contextlib.suppress(BrowserError):
            self.evaluate(_SETTLED)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in JavaScript, as JSON; promises are awaited.

        It runs beside the scripts of the page, with its document but without its variables, whatever its
        policy forbids.

        Raises:
            BrowserError: The expression throws.
        """
        frame = self._command("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self._command("Page.createIsolatedWorld", frameId=frame, worldName="tests")
        return self._evaluated(expression, contextId=world["executionContextId"])

    def pixels(self, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page, at most 12,000 pixels of its height."""
        options: dict[str, Any] = {}
        if whole:
            width, height = self.evaluate(
                "[document.documentElement.clientWidth, document.documentElement.scrollHeight]"
            )
            box = {"x": 0, "y": 0, "width": width, "height": min(height, _TALLEST), "scale": 1}
            options = {"captureBeyondViewport": True, "clip": box}
        return base64.b64decode(self._command("Page.captureScreenshot", **options)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed, on A4."""
        a4 = {"paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(self._command("Page.printToPDF", **a4)["data"])

    def printed_text(self) -> str:
        """The text that the page has for printers, whether or not it fits on their paper."""
        self._emulate("print", "light")
        try:
            text: str = self.evaluate(_TEXT)
            return text
        finally:
            self._emulate("", "light")

    def click(self, element: str) -> None:
        """Scrolls to an element, an expression in JavaScript, and clicks on its middle."""
        x, y = self.evaluate(
            f"""(element => {{
              element.scrollIntoView({{block: "center", behavior: "instant"}});
              const box = element.getBoundingClientRect();
              return [box.x + box.width / 2, box.y + box.height / 2];
            }})({element})"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            self._command("Input.dispatchMouseEvent", **where)
        self.settle()

    def press(self, key: str) -> None:
        """Presses Tab or ArrowRight."""
        for kind in ("keyDown", "keyUp"):
            code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
            self._command("Input.dispatchKeyEvent", type=kind, **code)
        self.settle()

    def _emulate(self, medium: str, scheme: str) -> None:
        preferred = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in preferred.items()]
        self._command("Emulation.setEmulatedMedia", media=medium, features=features)

    def _go(self, url: str) -> None:
        self._events.clear()
        self._command("Page.navigate", url=url)
        while all(name != "Page.loadEventFired" for name, _ in self._events):
            self._receive()

    def _evaluated(self, expression: str, **context: Any) -> Any:
        found = self._command(
            "Runtime.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})))()",
            awaitPromise=True,
            returnByValue=True,
            **context,
        )
        if "exceptionDetails" in found:
            raise BrowserError(str(found["exceptionDetails"]))
        return json.loads(found["result"].get("value", "null"))

    def _command(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        number = self._send(method, **parameters)
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _send(self, method: str, **parameters: Any) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message))
        return self._number

    def _receive(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._socket.recv(timeout=_SECONDS))
        if "method" in answer:
            self._events.append((answer["method"], answer["params"]))
            if answer["method"] == "Page.javascriptDialogOpening":
                self._send("Page.handleJavaScriptDialog", accept=False)
        return answer


# The text that is seen. `innerText` would join those of neighbours in a drawing to one word.
_TEXT = """(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!parent.closest("title, desc, script, style")
        && parent.checkVisibility({visibilityProperty: true})) found.push(walker.currentNode.data);
  }
  return found.join("\\n");
})()"""


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """The tab of a running Chromium.

    Args:
        folder: An empty folder for its profile and its log.

    Raises:
        EngineError: It is missing or does not start.
    """
    (port,) = services.free_ports(1)
    address = f"http://127.0.0.1:{port}/json/list"
    # /dev/shm of a container is small.
    command = [needed_by("chromium", "this test"), "--headless=new", "--disable-dev-shm-usage"]
    command += ["--hide-scrollbars", f"--user-data-dir={folder}/profile", "--no-first-run"]
    command += [f"--remote-debugging-port={port}", "about:blank"]
    if os.geteuid() == 0:
        command.append("--no-sandbox")
    scratch = {"TMPDIR": str(folder), "HOME": str(folder)}
    ready = "webSocketDebuggerUrl"
    browser = services.Service(
        "chromium", command, lambda: services.answers(address, ready), scratch
    )
    services.start(folder, [browser])
    try:
        with urllib.request.urlopen(address) as answer:
            (tab,) = (each for each in json.load(answer) if each["type"] == "page")
        # A screenshot is one message of megabytes.
        with connect(tab[ready], proxy=None, max_size=None, compression=None) as socket:
            yield Page(socket)
    finally:
        services.stop(folder)
