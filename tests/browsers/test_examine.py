"""The harness finds every fault that is planted in a sound page, in both browsers, and none in the page itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browsers.accessibility import inaccessible
from tests.browsers.browser import SCHEMES, WIDTHS, Browser
from tests.browsers.examine import examine
from tests.browsers.keyboard import unreached
from tests.browsers.page import Page
from tests.browsers.printing import lost_in_print
from tests.browsers.quiet import active_parts, disquiet
from tests.browsers.sample import sample_page
from tests.browsers.working import broken_folds, broken_links, broken_pictures, broken_tabs

pytestmark = pytest.mark.browsers

Opens = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Opens:
    """Opens the sample page with something planted in its body, its style or its policy."""

    def opened(body: str = "", width: int = 1024, scheme: str = "light", **planted: str) -> Page:
        path = tmp_path / "page.html"
        path.write_text(sample_page(body, **planted), "utf-8")
        return browser.open(path, width, scheme)

    return opened


def test_a_sound_page_has_no_fault(browser, tmp_path):
    path = tmp_path / "sample.html"
    path.write_text(sample_page(), "utf-8")
    assert examine(browser, path, tmp_path) == []
    found = {file.name for file in tmp_path.glob("*.png")}
    name = f"sample-{browser.name}"
    assert found == {f"{name}-{width}-{scheme}.png" for width in WIDTHS for scheme in SCHEMES}
    assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<script>window.__ran = 7</script>", "script: 7"),
        ("<script>alert('seven')</script>", "dialog: seven"),
        ("<script>seven()</script>", "in the console: error: ReferenceError: seven is not defined"),
        ("<script>setTimeout(() => open('about:blank'))</script>", "frame or window: "),
    ],
)
def test_what_a_page_does_is_found(opened, body, fault):
    page = opened(body, policy="")
    page.settle()
    assert fault in "\n".join(disquiet(page))
    assert active_parts(page)


@pytest.mark.parametrize(
    "part",
    [
        "<a href='java&#9;script:x()'>x</a>",
        "<p onclick='x()'>x</p>",
        "<p style='background: url(x.png)'>x</p>",
        "<template><p>x</p></template>",
    ],
)
def test_what_could_run_later_is_found(opened, part):
    page = opened(f"{part}<a href='https://example.org'>x</a><p title='http://a.b/'>x</p>")
    assert 1 <= len(active_parts(page)) <= 2


def test_what_a_policy_stops_is_found(opened):
    page = opened("<script>window.__ran = 7</script>")
    (message,) = page.messages()
    assert "script-src" in message and page.ran() is None


def test_a_request_is_found_whether_or_not_it_is_answered(opened, canary):
    address = canary.url
    wanted = {f"{address}/{name}" for name in ("a.png", "b.css", "c.woff")}
    page = opened(
        f"<img src='{address}/a.png' alt=a><link rel=stylesheet href='{address}/b.css'>"
        "<p style='font-family: c'>c</p>",
        style=f"@font-face {{ font-family: c; src: url({address}/c.woff) }}",
        policy="",
    )
    assert {*page.requests()} == wanted
    assert {f"{address}{path}" for path in canary.paths} >= wanted


def test_a_contrast_that_is_low_in_the_dark_alone_is_found_there(opened):
    style = "@media (prefers-color-scheme: dark) { p { color: #333 } }"
    assert inaccessible(opened(style=style)) == []
    page = opened(style=style, scheme="dark")
    assert "color-contrast" in inaccessible(page)[0] and disquiet(page) == []


def test_what_is_wider_than_the_window_is_named(opened):
    wide = "<div id='broad' style='width: 700px'>x</div>"
    assert opened(wide, width=1024).overflow() == []
    assert opened(wide, width=390).overflow() == ['div#broad "x"']
    assert opened(f"<div style='overflow: auto'>{wide}</div>", width=390).overflow() == []


@pytest.mark.parametrize(
    ("look", "body", "style", "fault"),
    [
        (broken_links, "<a href='#nowhere'>7</a>", "", "#nowhere leads nowhere"),
        (broken_links, "<p id='more'>7</p>", "", "id more occurs twice"),
        (broken_links, "<a href='#x'>7</a><div hidden id='x'>x</div>", "", 'a "7" does not show'),
        (broken_tabs, "", ".panel { display: block !important }", "shows nothing else"),
        (broken_tabs, "", ".tabs { pointer-events: none }", "does not choose the tab"),
        (broken_tabs, "", ".tabs input { display: none }", "the right arrow does not choose"),
        (broken_folds, "", "details { pointer-events: none }", "neither opens nor closes it"),
        (broken_pictures, "<img src='data:image/png;base64,iVBORw0KGgo=' alt='7'>", "", 'picture "7"'),
        (unreached, "", "a:focus { outline: none }", "the same with and without the focus"),
        (unreached, "<a href='#more' tabindex='-1'>7</a>", "", 'Tab does not reach a "7"'),
    ],
)  # fmt: skip
def test_what_does_not_work_is_found(opened, look, body, style, fault):
    assert fault in "\n".join(look(opened(body, style=style)))


@pytest.mark.parametrize(
    ("body", "style", "fault"),
    [
        ("<p style='width: 4000px; text-align: right'>Schluss</p>", "", "printed without 'Schluss'"),
        ("", "#more { break-before: page; height: 250vh }", "is empty"),
    ],
)  # fmt: skip
def test_what_is_cut_on_paper_is_found(opened, body, style, fault):
    page = opened(body, style=style)
    assert fault in "\n".join(lost_in_print(page, page.pdf()))


def test_what_only_the_screen_shows_may_be_missing_on_paper(opened):
    page = opened(
        "<p class='screen'>Bildschirm</p>", style="@media print { .screen { display: none } }"
    )
    assert "Bildschirm" not in page.printed_text() and "Records of testing" in page.printed_text()
    assert lost_in_print(page, page.pdf()) == []
