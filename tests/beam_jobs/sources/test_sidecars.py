"""Sidecars in archives: which members they describe, and which columns they hold."""

from __future__ import annotations

import json

import pytest

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import Member
from beam_jobs.sources.archives.sidecars import Samples, group_of, row_of


@pytest.mark.parametrize(
    ("name", "group", "is_sidecar"),
    [
        ("000017.jpg", "000017", False),
        ("000017.TXT", "000017", True),
        ("a/b/000017.json", "a/b/000017", True),
        ("a.b/000017.jpg", "a.b/000017", False),
        ("000017.left.jpg", "000017", False),
        ("000017.seg.json", "000017", False),  # As in WebDataset, its extension is `seg.json`.
        ("a/cls", "a/cls", False),
    ],
)
def test_a_name_is_split_at_dots_after_its_folder(name, group, is_sidecar):
    assert group_of(name) == group
    assert samples_of(name).role(name) == ("lone" if is_sidecar else "record")


def samples_of(*names: str) -> Samples:
    samples = Samples(True)
    for name in names:
        samples.add(Member(name, 0))
    return samples


@pytest.mark.parametrize(
    ("names", "sidecars"),
    [
        (["Track 2.0 (Clean).png", "Track 2.0 (Clean).cls"], ["Track 2.0 (Clean).cls"]),
        (["a/Mu\u0308ller.png", "a\\Müller.cls"], ["a\\Müller.cls"]),
        (["1.left.png", "1.right.png", "1.cls"], ["1.cls"]),
        (["1.5.png", "1.png", "1.cls"], ["1.cls"]),
        (["1.5.png", "1.png", "1.cls", "1.5.cls"], ["1.5.cls"]),
        (["run.acc.txt", "run.gyro.txt", "run.json"], ["run.json"]),
    ],
)
def test_the_longest_name_that_begins_a_members_name_is_its_sidecar(names, sidecars):
    found = samples_of(*names).sidecars_of(names[0])
    assert [member.name for member, _ in found] == sidecars


def sidecar(name: str, data: bytes, error: str = "") -> tuple[Member, bytes]:
    return Member(name, len(data), None, error), data


def test_sidecars_are_columns():
    texts = [sidecar("1.cls", b" 7\n"), sidecar("1.txt", "\ufeffEin Hündchen.\r\n".encode())]
    fields = {"age": 3, "tags": ["a", None], "deep": {"x": 1.5}}
    row = row_of([*texts, sidecar("1.json", json.dumps(fields).encode())])
    assert row == {"cls": "7", "txt": "Ein Hündchen.", **fields}
    assert row_of([]) == {}


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("1.json", b"{", "", r"^1\.json: unexpected end of data"),
        ("1.json", b"", "", r"^1\.json: Input is a zero-length"),
        ("1.json", b"[1]", "", r"^1\.json: expected a JSON object$"),
        ("1.json", b'{"a": NaN}', "", r"^1\.json: "),
        ("1.json", b'{"a": "\xff"}', "", r"^1\.json: "),
        ("1.json", b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "", r"^1\.json: "),
        ("a/1.txt", b"\xff\xfe", "", r"^a/1\.txt: 'utf-8' codec"),
        ("1.cls", b"7", "the member is encrypted", r"^1\.cls: the member is encrypted$"),
    ],
)
def test_an_unreadable_sidecar_is_a_reject_that_names_it(name, data, error, message):
    with pytest.raises(RejectError, match=message):
        row_of([sidecar("1.txt", b"good"), sidecar(name, data, error)])
