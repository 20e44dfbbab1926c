"""The documentation site, as users see it; `build/pictures` keeps what this test saw."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.browsers.chromium import Page
from tests.support.checkout import ROOT

SITE = ROOT / "build/site"
PICTURES = ROOT / "build/pictures"
PAGES = ["index", "tutorials/keras", "read/batches", "moving/webdataset", "reference/readers"]
WIDTHS = [500, 1024, 1440]

# Elements that reach beyond the window and cannot be scrolled within another one.
_TOO_WIDE = """[...document.querySelectorAll("article *")]
  .filter(element => element.getBoundingClientRect().right > innerWidth + 1
    && !element.closest("pre, .table-wrapper, .highlight, .math, dt"))
  .map(element => element.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def site() -> Path:
    """The site of this checkout."""
    if not (SITE / "index.html").exists():
        subprocess.run([ROOT / "run_local.sh", "docs"], check=True)
    PICTURES.mkdir(parents=True, exist_ok=True)
    return SITE


@pytest.mark.browsers
@pytest.mark.ci
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_into_windows_of_three_widths(page: Page, site: Path, name: str) -> None:
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            page.open(site / f"{name}.html", width, scheme)
            picture = PICTURES / f"{name.replace('/', '-')}-{width}-{scheme}.png"
            picture.write_bytes(page.pixels(whole=True))
            assert page.evaluate(_TOO_WIDE) == []
            assert [line for line in page.told() if "console" in line or "exception" in line] == []


@pytest.mark.browsers
@pytest.mark.ci
def test_the_search_finds_a_name(page: Page, site: Path) -> None:
    page.open(site / "search.html")
    page.evaluate("void (location.href = 'search.html?q=class_weights')")
    found: list[str] = []
    until = time.monotonic() + 60
    while not found and time.monotonic() < until:
        time.sleep(0.1)
        found = page.evaluate(
            "[...document.querySelectorAll('#search-results li a')].map(link => link.textContent)"
        )
    assert any("readers" in title for title in found), found
