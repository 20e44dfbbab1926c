"""Nothing that comes from a dataset runs, loads or opens anything where it is shown."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import readers
from tests.browsers.conftest import Canary
from tests.browsers.hostile import ASKING, RUNNING, hostile_strings, page_of
from tests.browsers.hostile_dataset import write_hostile
from tests.browsers.quiet import active_parts, disquiet

pytestmark = pytest.mark.browsers

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_SHOWN = ("<svg onload=", "{{7*7}}", "<img src=x onerror=", "</style>", "../../etc/passwd")


@pytest.fixture(scope="module")
def dataset(canary: Canary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a hostile dataset."""
    return write_hostile(tmp_path_factory.mktemp("hostile"), hostile_strings(canary.url))


def shown(browser, path, text):
    """The page of some HTML, in which every fold was opened and every tab chosen."""
    path.write_text(text, "utf-8")
    page = browser.open(path)
    page.evaluate(
        "document.querySelectorAll('details, summary, input[type=radio], label').forEach(element => {"
        " if (element.localName === 'details') element.open = true; else element.click(); })"
    )
    page.settle()
    return page


def test_the_strings_do_run_and_ask_where_they_are_taken_for_markup(browser, canary, tmp_path):
    strings = hostile_strings(canary.url)
    asked = [strings[number] for number in ASKING]
    path = tmp_path / "page.html"
    path.write_text(page_of([strings[number] for number in RUNNING]), "utf-8")
    page = browser.open(path)
    page.settle()
    assert sorted({*page.ran()}) == list(RUNNING)
    path.write_text(page_of(asked), "utf-8")
    page = browser.open(path)
    page.settle()
    wanted = {url for text in asked for url in re.findall(rf"{canary.url}/[\w.]+", text)}
    assert {*page.requests()} >= wanted and len(wanted) == len(asked)
    assert {f"{canary.url}{path}" for path in canary.paths} >= wanted


def test_an_object_in_a_notebook_runs_nothing(browser, canary, dataset, tmp_path):
    before = canary.connections
    written = readers.open(dataset)._repr_html_()
    page = shown(browser, tmp_path / "page.html", page_of([written]))
    assert disquiet(page) == []
    assert active_parts(page) == []
    assert canary.connections == before
    text = page.evaluate("document.body.innerText")
    assert [words for words in _SHOWN if words not in text] == []
    # Without the escapes it would run, and leave.
    careless = shown(browser, tmp_path / "page.html", page_of([html.unescape(written)]))
    assert len(disquiet(careless)) > 10


def test_a_report_runs_nothing_even_without_its_policy(browser, canary, dataset, tmp_path):
    before = canary.connections
    readers.report(dataset, tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text("utf-8")
    assert len(_POLICY.findall(report)) == 1
    # What the policy stops must not be there at all.
    page = shown(browser, tmp_path / "shown.html", _POLICY.sub("", report))
    assert disquiet(page) == []
    assert active_parts(page) == []
    assert page.overflow() == []
    assert canary.connections == before
    text = page.evaluate("document.body.textContent")
    assert [words for words in _SHOWN if words not in text] == []
