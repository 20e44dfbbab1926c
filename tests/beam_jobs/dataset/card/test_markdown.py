"""Text from data is shown in Markdown, and does nothing there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from beam_jobs.dataset.card.markdown import escaped, table

HOSTILE = [
    "cat|dog",
    "`code` and ``",
    "<script>alert(1)</script>",
    "line\nbreak\r\n\n# title",
    "[link](https://example.org)",
    "![image](x)",
    "https://example.org/a",
    "www.example.org",
    "me@example.org",
    "*a* _b_ ~~c~~ **d**",
    "&lt; &#124; \\| \\",
    "$x^2$",
    "a\u202eb\u200bc\x00d\x85",
    "---",
    "日本\u3000語",
    "<!-- -->",
    "",
]


def rendered(lines):
    """The texts of the cells of a table, and the kinds of everything that is not text."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse("\n".join(lines))
    inline = [token for token in tokens if token.type == "inline"]
    kinds = {child.type for token in inline for child in token.children}
    cells = ["".join(child.content for child in token.children) for token in inline]
    blocks = {token.type for token in tokens if token.type.endswith("_open")}
    return cells, kinds, blocks


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_one_cell_of_plain_text(text):
    check_cell(text)


@given(st.text(max_size=60))
def test_any_text_is_one_cell_of_plain_text(text):
    check_cell(text)


def check_cell(text):
    cells, kinds, blocks = rendered(table(("id", "name"), [("0", escaped(text)), ("1", "end")]))
    assert len(cells) == 6
    assert [*cells[:3], *cells[4:]] == ["id", "name", "0", "1", "end"]
    assert kinds <= {"text"}
    assert blocks == {f"{b}_open" for b in ("table", "thead", "tbody", "tr", "th", "td")}
    shown = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    assert cells[3] == shown.strip()


def test_no_text_becomes_a_link_by_itself():
    assert escaped("https://a.b me@a.b www.a.b") == r"https\://a.b me\@a.b www\.a.b"


def test_a_long_text_is_cut():
    assert escaped("a" * 101) == "a" * 100 + "…"
    assert escaped("|" * 1_000_000, 3) == r"\|\|\|…"
