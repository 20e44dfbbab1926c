"""Nothing that comes from a dataset runs, loads or opens anything where it is shown."""

from __future__ import annotations

import re

import pytest

import readers
from tests.browsers.faults import active_parts, disquiet, overflow
from tests.browsers.hostile import ADDRESS, ASKING, RUNNING, STRINGS, write_hostile

pytestmark = pytest.mark.browsers

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_OPEN_ALL = """document.querySelectorAll("details, summary, input[type=radio], label").forEach(element => {
  if (element.localName === "details") element.open = true; else element.click(); })"""


def page_of(strings):
    """A page that takes strings for markup, each in an element of its own."""
    parts = "\n".join(f"<div>{text}</div>" for text in strings)
    return f"<!doctype html><meta charset=utf-8><title>x</title><body>{parts}"


def test_the_strings_do_run_and_ask_where_they_are_taken_for_markup(page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page_of([STRINGS[number] for number in RUNNING]), "utf-8")
    page.open(path).settle()
    assert sorted({*page.ran()}) == list(RUNNING)
    asked = [STRINGS[number] for number in ASKING]
    path.write_text(page_of(asked), "utf-8")
    page.open(path).settle()
    wanted = {url for text in asked for url in re.findall(rf"{ADDRESS}/[\w.]+", text)}
    assert {f"request: {url}" for url in wanted} <= {*page.told()} and len(wanted) == len(asked)


@pytest.mark.parametrize("where", ["a report", "an object in a notebook"])
def test_a_hostile_dataset_runs_nothing(page, tmp_path, where):
    directory, path = write_hostile(tmp_path), tmp_path / "page.html"
    if where == "a report":
        # What the policy stops must not be there at all.
        report, policies = _POLICY.subn("", readers.report(directory, path).read_text("utf-8"))
        assert policies == 1
    else:
        report = page_of([readers.open(directory)._repr_html_()])
    path.write_text(report, "utf-8")
    page.open(path).evaluate(_OPEN_ALL)
    page.settle()
    assert [*disquiet(page), *active_parts(page), *overflow(page)] == []
    text = page.evaluate("document.body.textContent")
    for words in ("<svg onload=", "{{7*7}}", "<img src=x onerror=", "</style>", "../../etc/passwd"):
        assert words in text
