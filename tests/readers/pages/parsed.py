"""A page as its parser sees it, held to what every report keeps."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

VOID = {"img", "br", "hr", "input", "meta", "link"}
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Parsed(HTMLParser):
    """The elements of a page; making one checks what is true of every report.

    Attributes:
        tags: How many elements there are of each name.
        ids: All ids.
        links: The ids that links name.
        text: The text of the page, without styles.
        sources: The kinds of all pictures and sounds.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open
        assert not set(self.tags) & {"script", "iframe", "object", "embed", "base", "form"}
        assert len(set(self.ids)) == len(self.ids)
        assert set(self.links) <= set(self.ids)
        assert not HIDDEN.search(html)
        assert len(html.encode()) < 5_000_000

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        for name, value in attributes:
            assert not name.startswith("on") and name not in ("action", "srcdoc"), (tag, name)
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                assert re.fullmatch("[a-z]+(-[a-z0-9]+)*", value)
                self.ids.append(value)
            elif name in ("href", "for"):
                if tag == "a" or name == "for":
                    self.links.append(value.removeprefix("#"))
                else:
                    assert value.startswith("data:")
            elif name == "src":
                self.sources[value.partition(";")[0]] += 1
                assert value.startswith(
                    ("data:image/png;base64,", "data:image/jpeg;base64,", "data:audio/wav;base64,")
                )
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open:
            self.text += data

    def valued(self, tag: str, name: str) -> list[str]:
        """The values of an attribute of all elements of a name."""
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]
