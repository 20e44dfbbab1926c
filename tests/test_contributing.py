"""The files that CONTRIBUTING.md names exist, and its example of an input format works."""

import re
import sys
import types

from beam_jobs.jobs.sensors.formats import registry
from tests.support.checkout import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def blocks_of(language):
    return [text for found, text in BLOCKS if found == language]


def test_the_files_it_names_exist():
    named = {*re.findall(r"\b(?:beam_jobs|readers|tests|docs)/[\w/]+\.(?:py|md)\b", TEXT)}
    named |= {*re.findall(r"\]\(([\w/.]+)", TEXT)}
    assert len(named) > 8
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_its_ten_lines_name_every_package():
    (house,) = blocks_of("")
    assert len(house.splitlines()) == 10
    words = {*re.findall(r"\w+", house)}
    for package in ("beam_jobs", "readers"):
        folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert folders <= words


def test_its_input_format_works(monkeypatch):
    *_, reader, table, extra, test = blocks_of("python")
    (entry,) = re.findall(r"^(\(.*\))$", table, re.MULTILINE)
    suffixes, name, flags, needs, installs = eval(entry, vars(registry))
    place, libraries = f"{registry.__package__}.{name}", tuple(needs.split())
    added = registry.Format((suffixes,), place, flags, libraries, installs)
    source, proof = types.ModuleType(added.reader.partition(":")[0]), {}
    exec(reader, vars(source))
    monkeypatch.setitem(sys.modules, source.__name__, source)
    monkeypatch.setitem(registry._OWN, ".arff", added)
    exec(test, proof)
    (check,) = (value for name, value in proof.items() if name.startswith("test_"))
    check()
    assert "`written` in `tests/beam_jobs/jobs/test_formats.py`" in TEXT  # Else its tests are red.
    # The extra is the one of the entry.
    assert re.findall(r'^    "(\w+)": \["(\w+)[^"]*"\],$', extra, re.MULTILINE) == [
        (added.extra, *added.libraries)
    ]
