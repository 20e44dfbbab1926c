"""The harness finds every fault that is planted in a sound page, in both browsers, and none in the page itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browsers.accessibility import inaccessible
from tests.browsers.browser import SCHEMES, WIDTHS, Browser
from tests.browsers.examine import examine
from tests.browsers.keyboard import unreached
from tests.browsers.page import Page
from tests.browsers.printing import lost_in_print
from tests.browsers.quiet import active_parts, disquiet
from tests.browsers.sample import picture, sample_page
from tests.browsers.working import broken_folds, broken_links, broken_media, broken_tabs

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
        ("<script>console.log('seven')</script>", "in the console: info: seven"),
        ("<script>seven()</script>", "in the console: error: ReferenceError: seven is not defined"),
        ("<iframe srcdoc='x' title='x'></iframe>", "frame or window: "),
        ("<script>setTimeout(() => open('about:blank'))</script>", "frame or window: "),
        ("<img src=x onerror='window.__ran = 8' alt=x>", "script: 8"),
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
        "<a href='data:text/html,x'>x</a>",
        "<p onclick='x()'>x</p>",
        "<p style='background: url(x.png)'>x</p>",
        "<form><button formaction='javascript:x()'>x</button></form>",
        "<svg><foreignObject></foreignObject></svg>",
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
    wanted = {f"{address}/{name}" for name in ("a.png", "b.css", "c.woff", "d.wav")}
    page = opened(
        f"<img src='{address}/a.png' alt=a><link rel=stylesheet href='{address}/b.css'>"
        f"<p style='font-family: c'>c</p><audio preload=auto src='{address}/d.wav'></audio>",
        style=f"@font-face {{ font-family: c; src: url({address}/c.woff) }}",
        policy="",
    )
    assert {*page.requests()} == wanted
    assert {f"{address}{path}" for path in canary.paths} >= wanted
    assert len(active_parts(page)) >= 3


def test_a_file_beside_the_page_is_found(opened, browser):
    page = opened("<img src='other.png' alt=a>", policy="")
    found = [request.rpartition("/")[2] for request in page.requests()]
    assert found == ["other.png"] * (browser.name == "chromium")
    assert active_parts(page) == ['img src="other.png"']


def test_a_page_that_goes_elsewhere_is_found(opened, tmp_path):
    (tmp_path / "other.html").write_text("<title>other</title>")
    page = opened("<meta http-equiv=refresh content='0; url=other.html'>", policy="")
    page.settle()
    assert "other.html" in {url.rpartition("/")[2] for url in page.requests()}


def test_a_drawing_that_cannot_be_drawn_is_found(opened, browser):
    page = opened('<svg role="img" aria-label="x"><path d="M0 0LNaN 3"/></svg>')
    # Firefox tells nobody but its own developers.
    assert ["NaN" in message for message in page.messages()] == [True] * (
        browser.name == "chromium"
    )


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (f"<img src='{picture()}'>", "image-alt"),
        ("<p style='color: #999; background: #888'>seven</p>", "color-contrast"),
        ("<input type=text>", "label"),
        ("<table><tr><th></th><td>7</td></tr></table>", "empty-table-header"),
        ("<h6>seven</h6>", "heading-order"),
    ],
)
def test_axe_runs_in_spite_of_the_policy_and_finds_faults(opened, body, rule):
    page = opened(body)
    assert rule in {line.partition(":")[0] for line in inaccessible(page)}
    assert disquiet(page) == []
    assert page._evaluated("typeof axe", {"context": page._tab}) == "undefined"


def test_a_contrast_that_is_low_in_the_dark_alone_is_found_there(opened):
    style = "@media (prefers-color-scheme: dark) { p { color: #333 } }"
    assert inaccessible(opened(style=style)) == []
    assert "color-contrast" in inaccessible(opened(style=style, scheme="dark"))[0]


def test_what_is_wider_than_the_window_is_named(opened):
    wide = "<div id='broad' style='width: 700px'>x</div>"
    assert opened(wide, width=1024).overflow() == []
    assert opened(wide, width=390).overflow() == ['div#broad "x"']
    assert opened(f"<div style='overflow: auto'>{wide}</div>", width=390).overflow() == []


@pytest.mark.parametrize(
    ("body", "style", "fault"),
    [
        ("<a href='#nowhere'>7</a>", "", "#nowhere leads nowhere"),
        ("<p id='more'>7</p>", "", "id more occurs twice"),
        ("<a href='#shut'>7</a><div hidden id='shut'>x</div>", "", 'a "7" does not show'),
        (
            "",
            "nav::after { content: ''; position: absolute; inset: 0 }",
            "does not show its target",
        ),
    ],
)
def test_a_broken_link_is_found(opened, body, style, fault):
    assert fault in "\n".join(broken_links(opened(body, style=style)))


def test_a_link_scrolls_to_its_target(opened):
    page = opened()
    page.click("nav a[href='#records']")
    down = page.scrolled()
    assert down > 100
    page.click("nav a[href='#more']")
    assert page.scrolled() > down
    smooth = opened(style="html { scroll-behavior: smooth }")
    smooth.click("nav a[href='#records']")
    assert smooth.scrolled() == pytest.approx(down, abs=2)


@pytest.mark.parametrize(
    ("style", "fault"),
    [
        (".panel { display: block !important }", "shows nothing else"),
        (".tabs { pointer-events: none }", "does not choose the tab"),
        (".tabs input { display: none }", "the right arrow does not choose"),
    ],
)
def test_a_broken_tab_is_found(opened, style, fault):
    page = opened(style=style)
    assert fault in "\n".join(broken_tabs(page))


def test_a_broken_fold_is_found(opened):
    page = opened(style="details { pointer-events: none }")
    assert broken_folds(page) == [
        'a click on summary "How they were drawn" neither opens nor closes it'
    ]


def test_pictures_and_sounds_that_cannot_be_decoded_are_found(opened):
    page = opened(
        "<img src='data:image/png;base64,iVBORw0KGgo=' alt='seven'>"
        "<audio controls src='data:audio/wav;base64,UklGRg=='></audio>"
    )
    assert broken_media(page) == ['picture "seven" cannot be decoded', "a sound cannot be decoded"]


@pytest.mark.parametrize(
    ("style", "fault"),
    [
        ("a:focus { outline: none }", 'a "Numbers" looks the same with and without the focus'),
        ("summary { visibility: hidden }", None),
    ],
)
def test_a_focus_that_is_not_seen_is_found(opened, style, fault):
    assert (fault in unreached(opened(style=style))) == (fault is not None)


def test_what_tab_does_not_reach_is_found(opened):
    page = opened("<a href='#numbers' tabindex='-1'>seven</a>")
    assert unreached(page) == ['Tab does not reach a "seven"']


def test_keys_move_the_focus(opened):
    page = opened()
    page.press("Tab", "Tab")
    assert page.focused() == 'a "Records"'
    page.press("Enter")
    assert page.scrolled() > 100
    page.evaluate("document.querySelector('summary').focus()")
    page.press("Space")
    assert page.evaluate("document.querySelector('details').open")


@pytest.mark.parametrize(
    ("body", "style", "fault"),
    [
        (
            "<p style='width: 4000px; text-align: right'>Schluss</p>",
            "",
            "printed without 'Schluss'",
        ),
        (
            "<p style='height: 1px; overflow: hidden'><br>Schluss</p>",
            "",
            "printed without 'Schluss'",
        ),
        ("", "#more { break-before: page; height: 250vh }", "is empty"),
    ],
)
def test_what_is_cut_on_paper_is_found(opened, body, style, fault):
    page = opened(body, style=style)
    assert fault in "\n".join(lost_in_print(page, page.pdf()))


def test_what_only_the_screen_shows_may_be_missing_on_paper(opened):
    page = opened(
        "<p class='screen'>Bildschirm</p>", style="@media print { .screen { display: none } }"
    )
    assert "Bildschirm" not in page.printed_text() and "Records of testing" in page.printed_text()
    assert "Bildschirm" in page.evaluate("document.body.innerText")
    assert lost_in_print(page, page.pdf()) == []


def test_a_screenshot_shows_the_window_or_the_whole_page_in_the_scheme(opened, tmp_path):
    for scheme, levels in (("light", (200, 256)), ("dark", (0, 60))):
        page = opened("<div style='height: 3000px'></div>", width=390, scheme=scheme)
        page.screenshot(tmp_path / "window.png", whole=False)
        page.screenshot(tmp_path / "whole.png")
        window, whole = (
            np.asarray(Image.open(tmp_path / f"{name}.png").convert("L"))
            for name in ("window", "whole")
        )
        assert window.shape == (800, 390)
        assert whole.shape[1] == 390 and 3000 < whole.shape[0] < 6000
        assert levels[0] <= np.median(whole) < levels[1]
    endless = opened("<div style='height: 40000px'></div>", width=390)
    assert Image.open(io.BytesIO(endless.pixels(whole=True))).size == (390, 12_000)
