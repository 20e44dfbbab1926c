from __future__ import annotations

import ast
from importlib import metadata

import pytest

from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.formats.registry import FORMATS
from beam_jobs.packages import check_crc32c, require
from readers.format import tfrecord
from tests.support.checkout import ROOT


def extras_in_code():
    """(place, extra) of every call of `require` that states it, and of every format of recordings."""
    yield from ((found.reader, found.extra) for found in FORMATS if found.extra)
    for path in sorted((ROOT / "beam_jobs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "require":
                continue
            if isinstance(node.args[1], ast.Constant):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.args[1].value


def test_every_extra_that_a_message_names_exists():
    found = list(extras_in_code())
    assert len(found) >= 5
    existing = metadata.metadata("beam-shards").get_all("Provides-Extra")
    assert [(place, extra) for place, extra in found if extra not in existing] == []


def test_a_missing_module_is_reported_with_the_command_that_installs_it():
    with pytest.raises(
        UsageError, match=r"\.x files need no_such \(.*\): pip install 'beam-shards\[heif\]'"
    ):
        require("no_such.part", "heif", ".x files")


def test_checksums_without_native_code_are_refused(monkeypatch):
    check_crc32c()
    monkeypatch.setattr(tfrecord, "crc32c_is_native", lambda: False)
    with pytest.raises(UsageError, match="pip install --force-reinstall google-crc32c"):
        check_crc32c()
