"""Moves of records between shards: the plan, and the changed files."""

import itertools
import random
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.dataset import shard_writer, topup
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import ShardFile
from beam_jobs.dataset.topup import (
    Change,
    apply_change,
    changes_of,
    moves_by_records,
    plan_changes,
)
from beam_jobs.errors import DataError
from beam_jobs.pipeline import commit_dataset
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.rejects import Reject
from readers.format.index import Index
from readers.format.schema import Feature, Schema
from readers.format.splits import shard_name
from readers.format.tfrecord import frame
from tests.support.datasets import flip, write_shard

FOLDER = "0123abcd"

Shards = list[list[bytes]]

# Donor, first record, number of records, receiver.
Move = tuple[int, int, int, int]


def after(shards: list[list], moves: list[Move]) -> list[list]:
    """The records of each shard after some moves."""
    gone = {(donor, first + row) for donor, first, records, _ in moves for row in range(records)}
    assert len(gone) == sum(records for _, _, records, _ in moves), "a record goes two ways"
    stay = [
        [record for row, record in enumerate(records) if (shard, row) not in gone]
        for shard, records in enumerate(shards)
    ]
    for donor, first, records, receiver in moves:
        moved = shards[donor][first : first + records]
        assert len(moved) == records > 0
        stay[receiver] += moved
    return stay


def numbered(counts: list[int]) -> list[list[tuple[int, int]]]:
    return [[(shard, row) for row in range(count)] for shard, count in enumerate(counts)]


def fewest(counts: list[int]) -> int:
    """The smallest number of records that must move, over all ways to distribute them evenly."""
    shards = len(counts)
    least, rest = divmod(sum(counts), shards)
    return min(
        sum(max(0, n - least - (shard in full)) for shard, n in enumerate(counts))
        for full in itertools.combinations(range(shards), rest)
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9))
@settings(max_examples=50)
def test_moves_by_records_balance_exactly_with_the_fewest_records(counts):
    moves = moves_by_records(counts)
    found = after(numbered(counts), moves)
    sizes = [len(records) for records in found]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(itertools.chain(*found)) == sorted(itertools.chain(*numbered(counts)))
    assert sum(records for _, _, records, _ in moves) == fewest(counts)


# The changed files.


def output_of(directory: Path | str) -> Output:
    placement = Placement(0, Splits(("train", "val"), (0.5, 0.5)))
    return Output(str(directory), Schema({"key": Feature("string")}), placement, (0, 0), run="run")


def results_of(directory: Path, shards: Shards, split: str = "train") -> list[ShardResult]:
    """Writes shards of serialized Examples; returns the results of their writers."""
    (directory / FOLDER).mkdir(exist_ok=True)
    results = []
    for index, records in enumerate(shards):
        # Each number in the index follows from its record, wherever that is.
        sections = {
            "hash": np.array([google_crc32c.value(record) for record in records], np.uint32),
            "length/x": np.array([len(record) for record in records], np.uint32),
            "value/last": np.array([record[-1] / 3 for record in records], np.float64),
        }
        name = f"{FOLDER}/{shard_name(split, index, len(shards))}"
        shard = write_shard(directory / name, records, sections=sections)
        shard = replace(shard, path=name)
        results.append(ShardResult(int(split != "train"), index, shard, 0, None))
    return results


def records_of(rng: random.Random, counts: list[int]) -> Shards:
    """Shards of different records of all sizes."""
    return [
        [
            b"%d/%d " % (shard, row) + rng.randbytes(rng.choice([0, 3, 50, 700]))
            for row in range(count)
        ]
        for shard, count in enumerate(counts)
    ]


def any_moves(rng: random.Random, counts: list[int]) -> list[Move]:
    """Moves of the ends of shards to any shards, their own included, in any order and runs."""
    moves = []
    for donor, count in enumerate(counts):
        row = rng.randint(0, count)
        while row < count:
            records = rng.randint(1, count - row)
            moves.append((donor, row, records, rng.randrange(len(counts))))
            row += records
    rng.shuffle(moves)
    return moves


def changed(results: list[ShardResult], moves: list[Move]) -> list[Change]:
    return list(changes_of([result.shard for result in results], results, moves))


def files_of(directory: Path) -> dict[str, bytes]:
    """Path -> content of all files, those of a run that are not whole included."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def check_files(directory: Path, before: Shards, after: Shards, found: list[ShardResult]) -> None:
    """Asserts that changed shards are as if written directly, and that the others are what they were."""
    with tempfile.TemporaryDirectory() as other, tempfile.TemporaryDirectory() as unchanged:
        direct = results_of(Path(other), after)
        results_of(Path(unchanged), before)
        expected = files_of(Path(unchanged))
        for result in found:
            shard = direct[result.index].shard
            name = shard.path.replace(".tfrecord", f".{shard.crc32c:08x}.tfrecord")
            assert result == replace(direct[result.index], shard=replace(shard, path=name))
            for suffix in ("", ".index"):
                expected[name + suffix] = Path(other, shard.path + suffix).read_bytes()
        assert files_of(directory) == expected
    for result in found:
        written = (directory / result.shard.path).read_bytes()
        assert written == b"".join(map(frame, after[result.index]))


def once(output: Output, changes: list[Change]) -> list[ShardResult]:
    return [apply_change(output, change) for change in changes]


def again(output: Output, changes: list[Change]) -> list[ShardResult]:
    """A second run of the job does what the first one did."""
    found = once(output, changes)
    assert once(replace(output, run="other"), changes[::-1]) == found[::-1]
    return found


def two_at_once(output: Output, changes: list[Change]) -> list[ShardResult]:
    barrier = threading.Barrier(2)

    def attempt(change):
        barrier.wait(10)
        return apply_change(output, change)

    found = []
    with ThreadPoolExecutor(2) as threads:
        for change in changes:
            one, other = threads.map(attempt, [change] * 2)
            assert one == other
            found.append(one)
    return found


@pytest.mark.parametrize("way", [once, again, two_at_once])
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.booleans(),
)
@settings(max_examples=10)
def test_changed_shards_equal_shards_that_were_written_directly(way, counts, rng, balance):
    shards = records_of(rng, counts)
    moves = moves_by_records(counts) if balance else any_moves(rng, counts)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(topup, "_COPY_BYTES", 97)
        changes = changed(results_of(Path(directory), shards), moves)
        found = way(output_of(directory), changes)
        assert [result.index for result in found] == [change.before.index for change in changes]
        check_files(Path(directory), shards, after(shards, moves), found)


COUNTS = [9, 1, 1]
MOVES = moves_by_records(COUNTS)


@pytest.fixture
def shards() -> Shards:
    return records_of(random.Random(2), COUNTS)


@pytest.fixture
def changes(tmp_path, shards) -> list[Change]:
    """Changes of a donor and two receivers."""
    return changed(results_of(tmp_path, shards), MOVES)


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_an_attempt_that_died_is_completed_by_the_next(
    tmp_path, monkeypatch, shards, changes, writes
):
    def die(*_, **__):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        match writes:
            case 0:
                patch.setattr(topup, "ShardFile", die)
            case 1:
                patch.setattr(topup.Index, "join", die)
            case 2:
                patch.setattr(shard_writer, "write_file", die)
            case 3:
                patch.setattr(shard_writer.NewFile, "publish", die)
        for change in changes:
            with pytest.raises(OSError, match="no space"):
                apply_change(output_of(tmp_path), change)
    found = once(output_of(tmp_path), changes)
    check_files(tmp_path, shards, after(shards, MOVES), found)


def test_an_attempt_at_writing_a_shard_that_ends_after_its_records_have_moved_changes_nothing(
    tmp_path, shards, changes
):
    output = output_of(tmp_path)
    indexes = [(tmp_path / f"{change.shard.path}.index").read_bytes() for change in changes]
    found = once(output, changes)
    for change, records, data in zip(changes, shards, indexes, strict=True):
        index = Index.of_bytes(data, change.shard.path)
        with ShardFile(output, change.shard.path) as file:
            file.write(b"".join(map(frame, records)))
            assert file.finish(index) == change.shard
            file.commit()
        with ShardFile(output, change.shard.path) as file:
            file.write(b"".join(map(frame, records[::-1])) + b"more")
            file.finish(index)
            with pytest.raises(DataError, match="has other bytes than this job writes"):
                file.commit()
    check_files(tmp_path, shards, after(shards, MOVES), found)


DAMAGES = {
    "a record that stays": ("", lambda path: flip(path, 20)),
    "a record that moves": ("", lambda path: flip(path, -6)),
    "the end of the file": ("", lambda path: path.write_bytes(path.read_bytes()[:-1])),
    "all of the file": ("", lambda path: path.write_bytes(b"")),
    "the head of the index": (".index", lambda path: flip(path, 16)),
    "a number of the index": (".index", lambda path: flip(path, -2)),
    "the end of the index": (".index", lambda path: path.write_bytes(path.read_bytes()[:-1])),
}


@pytest.mark.parametrize("part", DAMAGES)
def test_a_donor_that_is_damaged_is_noticed_before_a_shard_appears(tmp_path, part):
    shards = records_of(random.Random(2), [9, 1])
    donor, receiver = changed(results_of(tmp_path, shards), moves_by_records([9, 1]))
    suffix, damage = DAMAGES[part]
    damage(tmp_path / f"{donor.shard.path}{suffix}")
    before = files_of(tmp_path)
    # A receiver reads nothing that stays.
    for change in [donor] if part == "a record that stays" else [donor, receiver]:
        with pytest.raises((DataError, ValueError), match=donor.shard.path):
            apply_change(output_of(tmp_path), change)
    assert files_of(tmp_path) == before


def test_all_splits_are_balanced_and_balanced_ones_are_left_alone(tmp_path):
    rng = random.Random(5)
    results = results_of(tmp_path, records_of(rng, [5, 2]))
    results += results_of(tmp_path, records_of(rng, [3, 3, 4]), "val")
    changes = list(plan_changes(results[::-1]))
    assert [(change.before.split, change.before.index) for change in changes] == [(0, 0), (0, 1)]
    assert [change.keep for change in changes] == [4, 2]
    # Each split has moves of its own.
    other = [results_of(tmp_path, records_of(rng, [1, 6]), "val"), results[:2]]
    changes = list(plan_changes(itertools.chain(*other)))
    assert [change.before.split for change in changes] == [0, 0, 1, 1]


def test_nothing_moves_if_a_shard_is_missing_or_there_is_none(tmp_path):
    results = results_of(tmp_path, records_of(random.Random(6), [9, 2, 1]))
    rejects = ShardResult(0, 0, None, 3, Reject("k", "read", "why"))
    for some in (results[1:], results[:2:2] + results[2:], [], [rejects]):
        assert not list(plan_changes(some))


def test_an_output_that_cannot_be_written_is_reported_in_one_line(tmp_path, monkeypatch, changes):
    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr(shard_writer.NewFile, "write", full)
    with pytest.raises(DataError, match=f"{changes[0].shard.path} cannot be written .no space"):
        commit_dataset._apply(changes[0], output_of(tmp_path))
