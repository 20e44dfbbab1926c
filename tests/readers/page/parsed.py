"""A page as its parser sees it, held to what every report keeps."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

VOID = {"img", "br", "hr", "input", "meta", "link"}
# All that a report consists of; `image`, `path` and the like are parts of drawings.
TAGS = VOID | {
    *[
        "html",
        "head",
        "title",
        "style",
        "body",
        "nav",
        "main",
        "section",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "a",
        "b",
        "div",
        "span",
        "ul",
        "ol",
        "li",
        "dl",
        "dt",
        "dd",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "pre",
        "details",
        "summary",
        "figure",
        "figcaption",
        "label",
        "bdi",
        "audio",
        "svg",
        "image",
        "path",
        "rect",
        "circle",
        "text",
    ],
}
ATTRIBUTES = {
    *[
        "alt",
        "aria-hidden",
        "aria-label",
        "aria-labelledby",
        "charset",
        "checked",
        "class",
        "content",
        "controls",
        "cx",
        "cy",
        "d",
        "dir",
        "fill",
        "for",
        "height",
        "href",
        "http-equiv",
        "id",
        "lang",
        "name",
        "opacity",
        "preload",
        "preserveaspectratio",
        "r",
        "rel",
        "role",
        "scope",
        "src",
        "stroke",
        "stroke-opacity",
        "stroke-width",
        "style",
        "tabindex",
        "text-anchor",
        "title",
        "type",
        "viewbox",
        "width",
        "x",
        "y",
    ],
}
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
        assert set(self.tags) <= TAGS, set(self.tags) - TAGS
        assert len(set(self.ids)) == len(self.ids)
        # Features have places of their own in a page with a section about them.
        has_features = any(name.startswith("feature-") for name in self.ids)
        links = [link for link in self.links if has_features or not link.startswith("feature-")]
        assert set(links) <= set(self.ids)
        assert not HIDDEN.search(html)
        assert len(html.encode()) < 5_000_000

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        for name, value in attributes:
            assert name in ATTRIBUTES, (tag, name)
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
