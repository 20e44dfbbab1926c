"""A page that a browser shows: what it says, asks for and does, and the hands of its user."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.browsers.bidi import BrowserError, Connection

# Scripts of tests run beside those of the page, with its document but without its variables, whatever its policy
# forbids.
_SANDBOX = "tests"

# The code points of keys in WebDriver.
_KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Shift": "\ue008", "Space": " "}
_KEYS |= {"Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015"}

# How often a page may go elsewhere while it settles.
_NAVIGATIONS = 3

# Pixels; Chromium draws no more than 16,384 in one piece.
_TALLEST = 12_000

# Names an element in reports of faults.
NAME_OF = """(element => {
  const text = (element.textContent || element.alt || "").trim().replace(/\\s+/g, " ").slice(0, 40);
  const id = element.id ? "#" + element.id : "";
  return element.localName + id + (text ? ` "${text}"` : "");
})"""


class Page:
    """A page that was opened by `Browser.open`, until the next one is."""

    def __init__(
        self, connection: Connection, tab: str, url: str, emulate: Callable[[str], None]
    ) -> None:
        self._connection, self._tab, self._url, self._emulate = connection, tab, url, emulate

    def messages(self) -> list[str]:
        """What is in the console: faults of scripts, drawings and the page's policy, and all that is logged."""
        found = []
        for name, event in self._events():
            if name == "log.entryAdded":
                found.append(f"{event['level']}: {event['text']}")
            elif name == "goog:cdp.Log.entryAdded":
                entry = event["params"]["entry"]
                found.append(f"{entry['level']}: {entry['text']}")
        return found

    def requests(self) -> list[str]:
        """The addresses that the page asked for or went to, apart from itself and the data that it holds.

        Firefox does not tell of files of this machine that a page asks for.
        """
        # Firefox does not tell where a page goes by itself, either.
        wanted = [self.evaluate("document.URL")]
        for name, event in self._events():
            if name == "network.beforeRequestSent":
                url = event["request"]["url"]
                wanted += [] if url.startswith("data:") else [url]
            elif name in ("browsingContext.navigationStarted", "browsingContext.downloadWillBegin"):
                wanted.append(event["url"])
        return [url for url in wanted if url.split("#")[0] != self._url]

    def frames(self) -> list[str]:
        """The addresses of frames and windows that the page opened."""
        created = "browsingContext.contextCreated"
        return [event["url"] for name, event in self._events() if name == created]

    def dialogs(self) -> list[str]:
        """The messages of alerts and other dialogs; the browser closed them at once."""
        opened = "browsingContext.userPromptOpened"
        return [event["message"] for name, event in self._events() if name == opened]

    def ran(self) -> Any:
        """`window.__ran`, which the scripts of hostile strings set; None if none ran."""
        return self._evaluated("window.__ran", {"context": self._tab})

    def settle(self) -> None:
        """Waits until pending timers have run and the page has stopped moving, for 3 s at most."""
        for _ in range(_NAVIGATIONS):
            # A page that goes elsewhere meanwhile takes the script with it.
            with contextlib.suppress(BrowserError):
                self.evaluate(_SETTLED)
                return
        self.evaluate(_SETTLED)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in JavaScript, as JSON; promises are awaited.

        Raises:
            BrowserError: The expression throws.
        """
        return self._evaluated(expression, {"context": self._tab, "sandbox": _SANDBOX})

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Writes a PNG of the window, or of the whole page, at most 12,000 pixels of its height."""
        path.write_bytes(self.pixels(whole))

    def pixels(self, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page as `screenshot` writes it."""
        options: dict[str, Any] = {"context": self._tab, "origin": "viewport"}
        if whole:
            width, height = self.evaluate(
                "[document.documentElement.clientWidth, document.documentElement.scrollHeight]"
            )
            box = {"type": "box", "x": 0, "y": 0, "width": width, "height": min(height, _TALLEST)}
            options |= {"origin": "document", "clip": box}
        data: str = self._connection.command("browsingContext.captureScreenshot", **options)["data"]
        return base64.b64decode(data)

    def pdf(self) -> bytes:
        """The page as it is printed, on A4."""
        a4 = {"width": 21.0, "height": 29.7}
        found = self._connection.command("browsingContext.print", context=self._tab, page=a4)
        return base64.b64decode(found["data"])

    def printed_text(self) -> str:
        """The text that the page has for printers, whether or not it fits on their paper."""
        self._emulate("print")
        try:
            text: str = self.evaluate(_TEXT)
            return text
        finally:
            self._emulate("")

    def click(self, selector: str) -> None:
        """Scrolls to the first element that a CSS selector finds, and clicks on its middle.

        Raises:
            BrowserError: No element is found.
        """
        place = json.dumps(selector)
        self.evaluate(
            f"document.querySelector({place})?.scrollIntoView({{block: 'center', behavior: 'instant'}})"
        )
        locator = {"type": "css", "value": selector}
        found = self._connection.command(
            "browsingContext.locateNodes", context=self._tab, locator=locator, maxNodeCount=1
        )["nodes"]
        if not found:
            raise BrowserError(f"no element is {selector}")
        element = {"type": "element", "element": {"sharedId": found[0]["sharedId"]}}
        moves = [
            {"type": "pointerMove", "x": 0, "y": 0, "origin": element},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._act({"type": "pointer", "id": "mouse", "actions": moves})

    def press(self, *keys: str) -> None:
        """Presses keys one after the other: Tab, Enter, Space, Left, Up, Right, Down, or a character."""
        actions = []
        for key in keys:
            value = _KEYS.get(key, key)
            actions += [{"type": kind, "value": value} for kind in ("keyDown", "keyUp")]
        self._act({"type": "key", "id": "keyboard", "actions": actions})

    def overflow(self) -> list[str]:
        """The elements that make the page wider than the window; empty if it is not."""
        found: list[str] = self.evaluate(_OVERFLOW)
        return found

    def _evaluated(self, expression: str, target: dict[str, str]) -> Any:
        found = self._connection.command(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})))()",
            target=target,
            awaitPromise=True,
        )
        if found["type"] == "exception":
            raise BrowserError(found["exceptionDetails"]["text"])
        return json.loads(found["result"].get("value", "null"))

    def _act(self, *sources: dict[str, Any]) -> None:
        self._connection.command("input.performActions", context=self._tab, actions=sources)
        self.settle()

    def _events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for event in self._connection.events:
            yield event["method"], event["params"]


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

# A window in the background is never drawn.
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

# Elements that end right of the window, unless they are inside of one that scrolls or hides what is too wide.
_OVERFLOW = f"""(() => {{
  const root = document.documentElement, limit = root.clientWidth;
  if (Math.max(root.scrollWidth, document.body.scrollWidth) <= limit) return [];
  const wide = [...document.querySelectorAll("body *")].filter(element =>
    element.getBoundingClientRect().right + scrollX > limit + 0.5
    && [...element.children].every(child => child.getBoundingClientRect().right + scrollX <= limit + 0.5));
  const names = wide.slice(0, 5).map({NAME_OF});
  return names.length ? names : [`${{root.scrollWidth}} pixels instead of ${{limit}}`];
}})()"""
