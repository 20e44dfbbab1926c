"""Notes about committed shards: which of them the next run believes."""

import dataclasses
import json

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.dataset import resume
from beam_jobs.dataset.directory import DONE
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import Digest, ShardResult, find_done, forget_done, note_done
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from beam_jobs.records.rejects import Reject
from beam_jobs.storage import files
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard
from tests.support.datasets import write_shard

NAME = "train-00003-of-00007.tfrecord"
SCHEMA = Schema({"key": Feature("string")})


def written(directory, records=(b"one", b"two" * 50)) -> ShardResult:
    """Writes a shard, its index and its rejects; returns the result."""
    shard = write_shard(directory / NAME, records)
    reject = Reject("a\udc80", "decode", "wh\u00fd")
    listed = directory / "rejects" / f"{NAME.removesuffix('.tfrecord')}.jsonl"
    listed.parent.mkdir(exist_ok=True)
    listed.write_bytes(b"two\nrejects\n")
    return ShardResult(0, 3, shard, 2, reject, False, google_crc32c.value(listed.read_bytes()))


def note_of(directory):
    return directory / ".staging" / f"{NAME}{DONE}"


FIGURES = {"records": 2, "features": {"x": [[2, 0, 0.1, 1e300, -(7**400), 5], {}, [[1, 2]]]}}


def test_a_committed_shard_is_found_with_its_figures(tmp_path):
    result = written(tmp_path)
    note_done(str(tmp_path), NAME, "digest", result, FIGURES)
    found, figures = find_done(str(tmp_path), NAME, "digest")
    assert found == dataclasses.replace(result, kept=True)
    assert type(found.shard) is Shard and type(found.first_reject) is Reject
    assert figures == FIGURES
    # Also by the run after that one.
    note_done(str(tmp_path), NAME, "digest", found, figures)
    assert find_done(str(tmp_path), NAME, "digest") == (found, figures)


def test_without_a_note_a_shard_must_be_written(tmp_path):
    assert find_done(str(tmp_path), NAME, "digest") is None
    written(tmp_path)
    assert find_done(str(tmp_path), NAME, "digest") is None
    assert find_done(f"{tmp_path}/nowhere", NAME, "digest") is None


def test_a_forgotten_shard_is_not_found(tmp_path):
    note_done(str(tmp_path), NAME, "digest", written(tmp_path), None)
    forget_done(str(tmp_path), NAME)
    assert find_done(str(tmp_path), NAME, "digest") is None
    forget_done(str(tmp_path), NAME)
    forget_done(f"{tmp_path}/nowhere", NAME)


DAMAGES = {
    "first byte": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "last byte": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("file", [NAME, f"{NAME}.index", "rejects/train-00003-of-00007.jsonl"])
@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
def test_a_shard_whose_files_are_not_as_written_is_written_again(tmp_path, damage, file):
    result = written(tmp_path, (b"some record", b"another"))
    note_done(str(tmp_path), NAME, "digest", result, None)
    assert find_done(str(tmp_path), NAME, "digest")
    path = tmp_path / file
    if damage == "missing":
        path.unlink()
    else:
        before = path.read_bytes()
        path.write_bytes(DAMAGES[damage](before))
        assert path.read_bytes() != before
    assert find_done(str(tmp_path), NAME, "digest") is None


def test_a_shard_larger_than_one_read_is_checked_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_READ_BYTES", 1000)
    result = written(tmp_path, [bytes([n]) * 700 for n in range(9)])
    note_done(str(tmp_path), NAME, "digest", result, None)
    assert find_done(str(tmp_path), NAME, "digest")
    path = tmp_path / NAME
    path.write_bytes(DAMAGES["last byte"](path.read_bytes()))
    assert find_done(str(tmp_path), NAME, "digest") is None


def change_note(directory, **changes) -> None:
    """Changes fields of a note: `result__shard__bytes=7` changes the size of the shard."""
    note = json.loads(note_of(directory).read_text())
    for path, value in changes.items():
        inner = note
        *above, last = path.split("__")
        for name in above:
            inner = inner[name]
        if value is KeyError:
            del inner[last]
        else:
            inner[last] = value
    note_of(directory).write_text(json.dumps(note))


BROKEN_NOTES = [b"", b"{", b"[]", b"7", b"\xff\xfe", b"{}", b"1" * 5000, b"[" * 100_000]
BROKEN_NOTES += [b'{"digest": "digest", "result": null, "figures": 0}']


@pytest.mark.parametrize("data", BROKEN_NOTES, ids=lambda data: repr(data)[:30])
def test_a_broken_note_is_ignored(tmp_path, data):
    note_done(str(tmp_path), NAME, "digest", written(tmp_path), None)
    note_of(tmp_path).write_bytes(data)
    assert find_done(str(tmp_path), NAME, "digest") is None


@given(st.data())
@settings(max_examples=50)
def test_a_note_cut_off_or_changed_anywhere_never_raises(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("out")
    note_done(str(directory), NAME, "digest", written(directory), {"a": [1, 2.5]})
    octets = bytearray(note_of(directory).read_bytes())
    if data.draw(st.booleans()):
        del octets[data.draw(st.integers(0, len(octets) - 1)) :]
    else:
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    note_of(directory).write_bytes(octets)
    find_done(str(directory), NAME, "digest")


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "other"},
        {"digest": KeyError},
        {"figures": KeyError},
        {"result__shard": "train"},
        {"result__shard__bytes": KeyError},
        {"result__shard__bytes": 7},
        {"result__shard__bytes": "182"},
        {"result__shard__crc32c": 0},
        {"result__shard__index_bytes": 7},
        {"result__shard__index_crc32c": "0"},
        {"result__shard__more": 1},
        {"result__shard__file": 7},
        {"result__shard__file": "../../../../etc/passwd"},
        {"result__first_reject": {"key": "k"}},
        {"result__more": 1},
        {"result__index": 3.5},
        {"result__rejected": [2]},
        {"result__first_reject": {"key": 1, "stage": None, "error": []}},
    ],
    ids=str,
)
def test_a_note_with_wrong_fields_is_ignored(tmp_path, changes):
    note_done(str(tmp_path), NAME, "digest", written(tmp_path), None)
    change_note(tmp_path, **changes)
    assert find_done(str(tmp_path), NAME, "digest") is None


@pytest.mark.parametrize("place", ["../{}", "sub/{}", "{root}/{}"])
def test_a_note_that_names_a_file_elsewhere_is_ignored(tmp_path, place):
    (tmp_path / "out" / "sub").mkdir(parents=True)
    file = place.format(NAME, root=tmp_path)
    note_done(f"{tmp_path}/out", NAME, "digest", written(tmp_path / "out"), None)
    for folder in (tmp_path, tmp_path / "out" / "sub"):
        written(folder)
    if file.startswith("/"):
        file = "/".join([".."] * len(tmp_path.parts)) + file
    change_note(tmp_path / "out", result__shard__file=file)
    assert find_done(f"{tmp_path}/out", NAME, "digest") is None


def output_of(**changes) -> Output:
    output = Output("/out", SCHEMA, Placement(0, Splits()), (0,), options={"a": 1})
    return dataclasses.replace(output, **changes)


def test_everything_that_decides_the_bytes_of_a_shard_is_in_its_digest(monkeypatch):
    def digest(name=NAME, names=None, records=(b"one", b"two"), **output):
        names = {"label": ("cat",)} if names is None else names
        return Digest(output_of(**output), name, names).update(records).text()

    others = [
        digest(name="train-00004-of-00007.tfrecord"),
        digest(names={}),
        digest(names={"label": ("cat", "dog")}),
        digest(names={"label": ("dog",)}),
        digest(names={"box_labels": ("cat",)}),
        digest(records=()),
        digest(records=(b"two", b"one")),
        digest(records=(b"on", b"etwo")),
        digest(records=(b"one", b"two", b"")),
        digest(schema=Schema({"key": Feature("string"), "x": Feature("int64")})),
        digest(options={"a": 2}),
        digest(options={}),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(resume, "versions", lambda: {"numpy": "0"})
        others.append(digest())
    assert len({digest(), *others}) == len(others) + 1
    assert digest() == digest(records=iter([b"one", b"two"]))
    # The place of a dataset, and how it is written, decide none of its bytes.
    for free in ({"directory": "/other"}, {"overwrite": True}, {"num_shards": (9,)}):
        assert digest(**free) == digest()
