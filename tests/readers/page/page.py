"""Reads a page as a browser would: its elements, ids, links, resources and text."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"img", "br", "hr", "input", "meta", "link"}

# Attributes that fetch something, or lead somewhere.
RESOURCES = {"src", "srcset", "href", "data", "action", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """A page whose elements are closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.ids: list[str] = []
        self.resources: list[str] = []
        self.labelled_by: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        for name, value in attributes:
            self.attributes[name] += 1
            if name == "id":
                self.ids.append(value)
            elif name in ("for", "aria-labelledby"):
                self.labelled_by.append(value)
            elif name in RESOURCES:
                self.resources.append(value)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.text += data


def check_page(text: str) -> Page:
    """A page that holds to what every report promises."""
    page = Page(text)
    assert not page.tags["script"] and not page.tags["iframe"] and not page.tags["object"]
    assert not [name for name in page.attributes if name.startswith("on")]
    assert len(set(page.ids)) == len(page.ids)
    links = [value for value in page.resources if value.startswith("#")]
    assert {link[1:] for link in links} | set(page.labelled_by) <= set(page.ids)
    others = [value for value in page.resources if not value.startswith("#")]
    assert all(value.startswith("data:") for value in others), others[:3]
    assert "default-src 'none'" in text
    assert len(text.encode()) < 5_000_000
    return page
