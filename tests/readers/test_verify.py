"""`readers.verify`: every kind of damage is reported, by file and record."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
from pathlib import Path

import google_crc32c
import pytest

import readers
from readers.__main__ import main
from readers.format.index import Index
from readers.format.lookup.index_file import IndexFile
from readers.format.manifest import File, Manifest
from tests.support.datasets import (
    damage,
    index_of,
    manifest_bytes,
    write_numbers,
    write_signals,
)

# The module: `readers.verify` is the function.
VERIFY = importlib.import_module("readers.verify")

SHARD = "train-00001-of-00004.tfrecord"


@pytest.fixture(params=[1 << 20, 50, 64])
def dataset(tmp_path, request, monkeypatch):
    """A dataset that is read in chunks of several sizes, some smaller than a record."""
    monkeypatch.setattr(VERIFY, "_CHUNK_BYTES", request.param)
    monkeypatch.setattr(VERIFY, "_BLOCK_BYTES", 2 * request.param)
    return write_numbers(tmp_path / "numbers", (5, 6, 7, 4))


def changed(dataset, change, name=SHARD):
    """The problems that are reported after the bytes of one file are changed."""
    path = dataset / name
    data = bytearray(path.read_bytes())
    data = change(data) or data
    path.write_bytes(data)
    report = readers.verify(dataset)
    assert not report.ok
    return [str(problem).removeprefix(f"{dataset}/") for problem in report.problems]


def test_an_intact_dataset_has_no_problems(dataset, tmp_path, capsys):
    report = readers.verify(dataset)
    assert report.ok
    assert (report.shards, report.records) == (5, 25)
    assert report.bytes == sum(path.stat().st_size for path in dataset.glob("*.tfrecord"))
    assert main(["verify", str(dataset)]) == 0
    assert "5 shards, 25 records" in capsys.readouterr().out
    assert readers.verify(write_signals(tmp_path / "signals")).ok


def test_every_byte_matters(dataset):
    """Wherever a bit of the first or the last record is flipped, that record is reported."""
    index, path = index_of(dataset / SHARD), dataset / SHARD
    data = path.read_bytes()
    shard = readers.Manifest.read(dataset).splits["train"].shards[1]
    of_index = IndexFile.of(str(dataset), shard)
    for row in (0, 5):
        for place in range(index[row, 0], index[row].sum(), 2):
            path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
            (problem,) = VERIFY._check_shard(of_index, shard)
            assert (problem.file, problem.record) == (str(path), row)
            assert problem.offset == index[row, 0]


def test_all_damaged_records_are_reported(dataset):
    index = index_of(dataset / SHARD)

    def change(data):
        for row in (0, 3, 5):
            data[index[row, 0] + 30] ^= 1

    assert changed(dataset, change) == [
        f"{SHARD}: record {row} at byte {index[row, 0]}: damaged" for row in (0, 3, 5)
    ]


def test_a_truncated_shard_is_reported_by_size_and_records(dataset):
    index = index_of(dataset / SHARD)
    problems = changed(dataset, lambda data: data[: index[4, 0] + 3])
    assert problems == [
        f"{SHARD}: found {index[4, 0] + 3:,} bytes, the manifest states {index[-1].sum():,}",
        f"{SHARD}: record 4 at byte {index[4, 0]}: truncated or missing",
        f"{SHARD}: record 5 at byte {index[5, 0]}: truncated or missing",
    ]


def test_swapped_records_are_found_although_each_is_intact(dataset):
    index = index_of(dataset / SHARD)
    (first, length), (second, same) = index[1].tolist(), index[3].tolist()
    assert length == same

    def change(data):
        one, other = data[first : first + length], data[second : second + length]
        data[first : first + length], data[second : second + length] = other, one

    (problem,) = changed(dataset, change)
    assert problem.startswith(f"{SHARD}: its CRC32C is ")
    assert problem.endswith("each record is intact, so some were swapped or replaced")


def test_every_byte_of_an_index_matters(dataset):
    """Whichever byte changes, and whatever is cut off or appended, the index alone is reported."""
    path = dataset / f"{SHARD}.index"
    data = path.read_bytes()
    shard = readers.Manifest.read(dataset).splits["train"].shards[1]
    flipped = (data[:n] + bytes([data[n] ^ 16]) + data[n + 1 :] for n in range(len(data)))
    others = b"", data[:8], data[:-1], data[:-64], data + b"\0", data * 2
    of_index = IndexFile.of(str(dataset), shard)
    for wrong in (*itertools.islice(flipped, 0, None, 3), *others):
        path.write_bytes(wrong)
        (problem,) = VERIFY._check_shard(of_index, shard)
        assert (problem.file, problem.record) == (str(path), None)
    path.write_bytes(data)
    assert readers.verify(dataset).ok


def test_the_index_of_another_shard_of_the_same_size_is_reported_by_its_checksum(tmp_path):
    dataset = write_numbers(tmp_path, (4, 4))
    paths = [dataset / f"train-0000{n}-of-00002.tfrecord.index" for n in (0, 1)]
    one, other = (path.read_bytes() for path in paths)
    assert one != other
    assert len(one) == len(other)
    paths[0].write_bytes(other)
    (problem,) = readers.verify(dataset).problems
    crcs = [int.from_bytes(data[12:16], "little") for data in (other, one)]
    assert str(problem) == (
        f"{paths[0]}: {crcs[0]:08x} as the CRC32C of its head, the manifest states {crcs[1]:08x}; copy it "
        "again from where the job wrote it, or run the job again"
    )


def test_an_index_with_swapped_lengths_is_reported(tmp_path):
    """The manifest states its checksum, so only the shard says that it is wrong."""
    dataset = write_signals(tmp_path / "signals")
    (path,) = dataset.glob("train-00000*.tfrecord")
    lengths = index_of(path)[:, 1]
    assert lengths[0] != lengths[1]
    lengths[:2] = lengths[1::-1]
    wrong = Index(lengths, {}).to_bytes()
    Path(f"{path}.index").write_bytes(wrong)
    manifest = json.loads((dataset / "manifest.json").read_text())
    crc = int.from_bytes(wrong[12:16], "little")
    stated = {"bytes": len(wrong), "crc32c": f"{crc:08x}"}
    manifest["splits"]["train"]["shards"][0]["index"] = stated
    (dataset / "manifest.json").write_bytes(manifest_bytes(manifest))
    (problem,) = readers.verify(dataset).problems
    assert problem.file == f"{path}.index"
    assert problem.message.startswith(f"it lists a record of {lengths[0]} bytes at byte 0, but")


def test_missing_files_are_reported(dataset, capsys):
    (dataset / SHARD).unlink()
    (dataset / "val-00000-of-00001.tfrecord.index").unlink()
    manifest = json.loads((dataset / "manifest.json").read_text())
    files = {"vocabulary.txt": {"path": "a/vocabulary.txt", "crc32c": "00000000"}}
    more = {"vocabulary": 5, "files": files}
    (dataset / "manifest.json").write_bytes(manifest_bytes({**manifest, **more}))
    problems = [str(problem).rsplit("/", 1)[1] for problem in readers.verify(dataset).problems]
    assert problems == [
        f"{SHARD}: missing",
        "val-00000-of-00001.tfrecord.index: missing",
        "vocabulary.txt: missing",
    ]
    assert main(["verify", str(dataset)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("3 problems")


def test_a_changed_word_of_a_vocabulary_is_reported(tmp_path):
    dataset = write_numbers(tmp_path / "numbers")
    words = b"a\nb\nc\n"
    (dataset / "vocabulary.txt").write_bytes(words)
    files = {"vocabulary.txt": File("vocabulary.txt", google_crc32c.value(words))}
    stated = dataclasses.replace(Manifest.read(dataset), vocabulary=5, files=files)
    (dataset / "manifest.json").write_bytes(stated.to_bytes())
    assert readers.verify(dataset).ok
    (dataset / "vocabulary.txt").write_bytes(b"a\nd\nc\n")
    (problem,) = readers.verify(dataset).problems
    assert problem.file == f"{dataset}/vocabulary.txt"
    assert problem.message.startswith("its CRC32C is ")


def test_a_file_that_cannot_be_read_hides_no_other_problem(tmp_path, monkeypatch):
    dataset = write_numbers(tmp_path / "numbers", (5, 6, 7, 4))
    damage(dataset / SHARD, 2)
    first, stat = "train-00000-of-00004.tfrecord", VERIFY.files_of

    (dataset / "vocabulary.txt").mkdir()
    (dataset / "generations" / "1.json").mkdir(parents=True)
    files = {"vocabulary.txt": File("vocabulary.txt", 0)}
    stated = dataclasses.replace(Manifest.read(dataset), vocabulary=5, files=files)
    (dataset / "manifest.json").write_bytes(stated.to_bytes())

    def refused(path):
        if path.endswith(first):
            raise PermissionError(13, "Permission denied", path)
        return stat(path)

    monkeypatch.setattr(VERIFY, "files_of", refused)
    problems = [str(problem) for problem in readers.verify(dataset).problems]
    assert problems[0].startswith(f"{dataset}/{first}: cannot be read: [Errno 13]")
    assert problems[1].endswith("damaged")
    assert problems[2].startswith(f"{dataset}/vocabulary.txt: cannot be read: ")
    assert problems[3].startswith(f"{dataset}/generations/1.json: cannot be read: ")
    assert main(["verify", str(dataset)]) == 1

    def forbidden(path):  # As a store forbids a missing file to a reader that may not list.
        raise PermissionError(13, "Forbidden", path)

    monkeypatch.setattr(VERIFY, "read_file", forbidden)
    assert not [p for p in readers.verify(dataset).problems if "generations" in p.file]
