"""Notes about shards: which of them the next run believes."""

import dataclasses
import re
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import Digest, Note, ShardResult, noted_shards, second_name
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.rejects import Reject
from beam_jobs.storage.atomic import Piece
from readers.files import files
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard
from tests.support.datasets import write_shard

FOLDER = "0123abcd"
NAME = f"{FOLDER}/train-00003-of-00007.tfrecord"
DIGEST = "89abcdef" * 4
SECOND = f"{FOLDER}/train-00003-of-00007.89abcdef.tfrecord"
REJECTS = f"{FOLDER}/rejects/train-00003-of-00007.jsonl"
SCHEMA = Schema({"key": Feature("string")})


def output_of(directory="/out", **changes) -> Output:
    output = Output(str(directory), SCHEMA, Placement(0, Splits()), (0,), options={"a": 1})
    return dataclasses.replace(output, run="run", **changes)


def written(directory: Path, records=(b"one", b"two" * 50), name=NAME) -> ShardResult:
    """Writes a shard, its index and its rejects; returns the result."""
    rejects = name.replace(FOLDER, f"{FOLDER}/rejects").replace(".tfrecord", ".jsonl")
    listed = directory / rejects
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_bytes(b"two\nrejects\n")
    shard = dataclasses.replace(write_shard(directory / name, records), path=name)
    reject = Reject("a\udc80", "decode", "wh\u00fd")
    return ShardResult(0, 3, shard, 2, reject, False, rejects)


def noted(directory: Path, result: ShardResult, figures=None, digest=DIGEST) -> None:
    names = [result.shard.path, f"{result.shard.path}.index", result.rejects]
    contents = [(directory / name).read_bytes() for name in names]
    pieces = [(len(data), google_crc32c.value(data)) for data in contents]
    files = [Piece(name, *piece) for name, piece in zip(names, pieces, strict=True)]
    Note(output_of(directory), NAME).write(digest, result, figures, files)


def found_in(directory: Path, digest=DIGEST):
    """What the next run finds, or the path that it must write."""
    path, found = Note(output_of(directory), NAME).find(lambda: digest)
    return found or path


def is_marked(path) -> bool:
    return bool(re.fullmatch(rf"{FOLDER}/train-00003-of-00007\.[0-9a-f]{{8}}\.tfrecord", path))


def files_of(directory: Path) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


FIGURES = {"records": 2, "features": {"x": [[2, 0, 0.1, 1e300, -(7**400), 5], {}, [[1, 2]]]}}


@pytest.mark.parametrize("name", [NAME, SECOND])
def test_a_shard_is_found_with_its_figures(tmp_path, name):
    result = written(tmp_path, name=name)
    noted(tmp_path, result, FIGURES)
    found, figures = found_in(tmp_path)
    assert found == dataclasses.replace(result, kept=True)
    assert type(found.shard) is Shard and type(found.first_reject) is Reject
    assert figures == FIGURES
    # Also by the run after that one.
    noted(tmp_path, found, figures)
    assert found_in(tmp_path) == (found, figures)


def test_without_a_note_a_shard_must_be_written(tmp_path):
    assert found_in(tmp_path) == NAME
    written(tmp_path)
    assert found_in(tmp_path) == NAME
    assert found_in(tmp_path / "nowhere") == NAME


DAMAGES = {
    "first byte": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "last byte": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("file", [NAME, f"{NAME}.index", REJECTS])
@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
def test_beside_a_file_that_is_not_as_written_the_shard_has_a_name_of_its_own(
    tmp_path, damage, file
):
    noted(tmp_path, written(tmp_path, (b"some record", b"another")))
    assert found_in(tmp_path)
    before, path = files_of(tmp_path), tmp_path / file
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(DAMAGES[damage](before[file]))
        assert path.read_bytes() != before[file]
    before, found = files_of(tmp_path), found_in(tmp_path)
    assert found == NAME if damage == "missing" else is_marked(found)
    assert files_of(tmp_path) == before


def test_a_shard_larger_than_one_read_is_checked_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_READ_BYTES", 1000)
    noted(tmp_path, written(tmp_path, [bytes([n]) * 700 for n in range(9)]))
    assert found_in(tmp_path)
    path = tmp_path / NAME
    path.write_bytes(DAMAGES["last byte"](path.read_bytes()))
    assert is_marked(found_in(tmp_path))


BROKEN_NOTES = [b"", b"{", b"[]", b"7", b"\xff\xfe", b"{}", b"1" * 5000, b"[" * 100_000]
BROKEN_NOTES += [b'00000000\\n["%s", null, 0]' % DIGEST.encode()]


@pytest.mark.parametrize("data", BROKEN_NOTES, ids=lambda data: repr(data)[:30])
def test_a_broken_note_is_ignored(tmp_path, data):
    noted(tmp_path, written(tmp_path))
    (tmp_path / f"{NAME}.done").write_bytes(data)
    before = files_of(tmp_path)
    assert found_in(tmp_path) == NAME
    assert files_of(tmp_path) == before


@given(st.data())
@settings(max_examples=50)
def test_a_note_cut_off_or_changed_anywhere_never_raises(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("out")
    noted(directory, written(directory), {"a": [1, 2.5]})
    path = directory / f"{NAME}.done"
    octets = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del octets[data.draw(st.integers(0, len(octets) - 1)) :]
    else:
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(octets) != path.read_bytes()
    path.write_bytes(octets)
    assert found_in(directory) == NAME if changed else found_in(directory)[0].kept


def test_a_note_about_other_records_is_ignored_and_their_shard_keeps_its_name(tmp_path):
    noted(tmp_path, written(tmp_path), digest="other")
    before = files_of(tmp_path)
    assert found_in(tmp_path) == SECOND
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("old", ["", ".00ff00ff"])
def test_a_second_name_has_one_mark_which_is_of_the_new_contents(old):
    assert second_name(f"0123abcd/a.b-00000-of-00001{old}.tfrecord", "89abcdef") == (
        "0123abcd/a.b-00000-of-00001.89abcdef.tfrecord"
    )


def test_notes_are_counted_beside_the_shards_of_their_splits():
    names = [
        f"{FOLDER}/{split}-{n:05d}-of-{count:05d}.tfrecord.done"
        for split, n, count in (("train", 0, 16), ("train", 3, 16), ("v.a-l", 0, 2))
    ]
    others = [f"{FOLDER}/train-00001-of-00016.tfrecord", f"{FOLDER}/x.done", ".staging/run/lease"]
    assert noted_shards([*names, *others]) == (3, 18)


def test_everything_that_decides_the_bytes_of_a_shard_is_in_its_digest(monkeypatch):
    def digest(name=NAME, names=None, records=(b"one", b"two"), **output):
        names = {"label": ("cat",)} if names is None else names
        return Digest(output_of(**output), name, names).update(records).text()

    others = [
        digest(name=f"{FOLDER}/train-00004-of-00007.tfrecord"),
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
        patch.setattr("beam_jobs.dataset.output.versions", lambda: {"numpy": "0"})
        others.append(digest())
    assert len({digest(), *others}) == len(others) + 1
    assert digest() == digest(records=iter([b"one", b"two"]))
    # The place of a dataset, and how it is written, decide none of its bytes.
    for free in ({"directory": "/other"}, {"overwrite": True}, {"num_shards": (9,)}):
        assert digest(**free) == digest()
