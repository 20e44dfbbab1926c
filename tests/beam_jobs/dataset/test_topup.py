"""Moves of records between shards: the plan, and the changed files."""

import itertools
import random
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import google_crc32c
import numpy as np
import pytest
from apache_beam.pipeline import PipelineVisitor
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.dataset import topup
from beam_jobs.dataset.directory import begin_moves
from beam_jobs.dataset.moves import (
    Change,
    Move,
    changes_of,
    moves_by_records,
    plan_changes,
    read_index,
)
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult, find_done, note_done
from beam_jobs.dataset.shard_file import ShardFile
from beam_jobs.dataset.topup import apply_change, prepare_change
from beam_jobs.errors import DataError
from beam_jobs.pipeline import commit
from beam_jobs.pipeline.commit import top_up
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from beam_jobs.records.rejects import Reject
from readers.format.schema import Feature, Schema
from readers.format.splits import shard_name
from readers.format.tfrecord import frame, read_records
from tests.support.datasets import write_shard

Shards = list[list[bytes]]


def after(shards: list[list], moves: list[Move]) -> list[list]:
    """The records of each shard after some moves."""
    gone = {(m.donor, row) for m in moves for row in range(m.first, m.first + m.records)}
    assert len(gone) == sum(m.records for m in moves), "a record goes two ways"
    stay = [
        [record for row, record in enumerate(records) if (shard, row) not in gone]
        for shard, records in enumerate(shards)
    ]
    for m in moves:
        moved = shards[m.donor][m.first : m.first + m.records]
        assert len(moved) == m.records > 0
        stay[m.receiver] += moved
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
    assert sum(move.records for move in moves) == fewest(counts)


# The changed files.


def results_of(directory: Path, shards: Shards, split: str = "train") -> list[ShardResult]:
    """Writes shards of serialized Examples; returns the results of their writers."""
    results = []
    for index, records in enumerate(shards):
        # Each number in the index follows from its record, wherever that is.
        sections = {
            "hash": np.array([google_crc32c.value(record) for record in records], np.uint32),
            "length/x": np.array([len(record) for record in records], np.uint32),
            "value/last": np.array([record[-1] / 3 for record in records], np.float64),
        }
        name = shard_name(split, index, len(shards))
        shard = write_shard(directory / name, records, sections=sections)
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
            moves.append(Move(donor, row, records, rng.randrange(len(counts))))
            row += records
    rng.shuffle(moves)
    return moves


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def check_files(directory: Path, shards: Shards, found: dict[int, ShardResult]) -> None:
    """Asserts that files and results are those of shards written from these records directly."""
    with tempfile.TemporaryDirectory() as other:
        expected = results_of(Path(other), shards)
        assert files_of(directory) == files_of(Path(other))
    for index, result in found.items():
        assert result.shard == expected[index].shard
        assert (result.split, result.index) == (0, index)
    for index, records in enumerate(shards):
        with (directory / expected[index].shard.file).open("rb") as file:
            assert [data for _, data in read_records(file, "")] == records


def once(directory: str, changes: list[Change]) -> dict[int, ShardResult]:
    prepared = [prepare_change(directory, change) for change in changes]
    return {p.change.before.index: apply_change(directory, p) for p in prepared}


def two_at_once(directory: str, changes: list[Change]) -> dict[int, ShardResult]:
    with ThreadPoolExecutor(2) as threads:

        def both(function, argument):
            barrier = threading.Barrier(2)

            def attempt():
                barrier.wait(10)
                return function(directory, argument)

            one, other = [threads.submit(attempt) for _ in range(2)]
            return one.result(), other.result()

        prepared = [both(prepare_change, change)[0] for change in changes]
        applied = {p.change.before.index: both(apply_change, p) for p in prepared}
        assert all(one == other for one, other in applied.values())
        return {index: one for index, (one, _) in applied.items()}


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("way", [once, two_at_once])
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.booleans(),
)
@settings(max_examples=10)
def test_changed_shards_equal_shards_that_were_written_directly(way, local, counts, rng, balance):
    shards = records_of(rng, counts)
    moves = moves_by_records(counts) if balance else any_moves(rng, counts)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        if not local:
            patch.setattr(topup, "is_local", lambda path: False)
            patch.setattr(topup, "_COPY_BYTES", 97)
        results = results_of(Path(directory), shards)
        changes = changes_of(results, moves)
        check_files(Path(directory), after(shards, moves), way(directory, changes))


@pytest.mark.parametrize(
    ("local", "done"), [(True, "nothing"), (True, "half"), (True, "shard"), (False, "shard")]
)
def test_an_attempt_that_died_is_completed_by_the_next(tmp_path, monkeypatch, local, done):
    shards = records_of(random.Random(2), [9, 1, 1])
    moves = moves_by_records([9, 1, 1])
    monkeypatch.setattr(topup, "is_local", lambda path: local)
    directory = str(tmp_path)
    changes = changes_of(results_of(tmp_path, shards), moves)
    prepared = [prepare_change(directory, change) for change in changes]
    for p in prepared:
        note_done(directory, p.change.name, "digest", p.change.before, None)

    def die(*arguments):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(topup, "write_file", die)
        if done == "nothing":
            patch.setattr(topup, "_rewrite", die)
            patch.setattr(Path, "open", die)
        for p in prepared:
            with pytest.raises(OSError, match="no space"):
                apply_change(directory, p)
            # The note is removed before the first byte of the shard changes.
            if done != "nothing":
                assert find_done(directory, p.change.name, "digest") is None
                assert not (tmp_path / ".staging" / f"{p.change.name}.done").exists()
    if done == "half":
        for p in prepared:
            with (tmp_path / p.change.name).open("r+b") as file:
                # Incoming records are partly written, or leaving ones are not cut off yet.
                file.seek(-1 if p.change.intake else 0, 2)
                file.truncate() if p.change.intake else file.write(b"left")
    found = {p.change.before.index: apply_change(directory, p) for p in prepared}
    for path in (tmp_path / ".staging").glob("*.done"):
        pytest.fail(f"{path.name} is left")
    check_files(tmp_path, after(shards, moves), found)


@pytest.mark.parametrize("late", ["begins", "ends"])
def test_an_attempt_at_writing_a_shard_changes_nothing_once_records_have_moved(tmp_path, late):
    shards, directory = records_of(random.Random(2), [9, 1, 1]), str(tmp_path)
    changes = changes_of(results_of(tmp_path, shards), moves_by_records([9, 1, 1]))
    attempts = {}
    if late == "ends":
        for change, records in zip(changes, shards, strict=True):
            attempts[change.name] = file = ShardFile(directory, change.name)
            frames = [frame(record) for record in records]
            file.write(b"".join(frames))
    begin_moves(directory)
    indexes = {change.name: read_index(directory, change.name) for change in changes}
    found = once(directory, changes)
    for change in changes:
        with pytest.raises(DataError, match=r"changed by another worker|came too late"):
            file = attempts[change.name] if attempts else ShardFile(directory, change.name)
            file.commit(indexes[change.name])
    check_files(tmp_path, after(shards, moves_by_records([9, 1, 1])), found)


def test_no_marker_stays_in_a_dataset_that_another_run_has_completed(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="an attempt of a worker came too late"):
        begin_moves(str(tmp_path))
    assert list(files_of(tmp_path)) == ["manifest.json"]


def test_records_do_not_move_in_a_dataset_that_is_complete(tmp_path):
    shards = records_of(random.Random(2), [9, 1, 1])
    changes = changes_of(results_of(tmp_path, shards), moves_by_records([9, 1, 1]))
    prepared = [prepare_change(str(tmp_path), change) for change in changes]
    (tmp_path / "manifest.json").write_text("{}")
    before = files_of(tmp_path)
    for p in prepared:
        with pytest.raises(DataError, match="an attempt of a worker came too late"):
            apply_change(str(tmp_path), p)
    assert files_of(tmp_path) == before


def test_no_records_are_copied_out_of_a_shard_that_has_changed(tmp_path):
    shards = records_of(random.Random(2), [9, 1, 1])
    changes = changes_of(results_of(tmp_path, shards), moves_by_records([9, 1, 1]))
    once(str(tmp_path), changes)
    for change in changes:
        with pytest.raises(DataError, match="has changed since its shard was written"):
            prepare_change(str(tmp_path), change)


@pytest.mark.parametrize("kind", ["intake", "intake.index"])
@pytest.mark.parametrize("damage", ["changed", "cut off"])
def test_records_that_were_damaged_in_their_copy_are_noticed(tmp_path, kind, damage):
    shards = records_of(random.Random(3), [9, 1])
    changes = changes_of(results_of(tmp_path, shards), moves_by_records([9, 1]))
    prepared = [prepare_change(str(tmp_path), change) for change in changes]
    (copy,) = (tmp_path / ".staging").glob(f"*.{kind}")
    data = bytearray(copy.read_bytes())
    if damage == "changed":
        data[-70] ^= 1
    copy.write_bytes(data if damage == "changed" else data[:-1])
    before = files_of(tmp_path)
    with pytest.raises(ValueError, match=r"fails its CRC32C|damaged at byte"):
        apply_change(str(tmp_path), prepared[1])
    assert files_of(tmp_path) == before


SCHEMA = Schema({"key": Feature("string")})


def output_of(directory: Path) -> Output:
    splits = Splits(("train", "val"), (0.5, 0.5))
    return Output(str(directory), SCHEMA, Placement(0, splits), (0, 0))


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
    assert [change.name[:5] for change in changes] == ["train", "train", "val-0", "val-0"]


def test_nothing_moves_if_a_shard_is_missing_or_there_is_none(tmp_path):
    results = results_of(tmp_path, records_of(random.Random(6), [9, 2, 1]))
    rejects = ShardResult(0, 0, None, 3, Reject("k", "read", "why"))
    for some in (results[1:], results[:2:2] + results[2:], [], [rejects]):
        assert not list(plan_changes(some))


class SideInputs(PipelineVisitor):
    """Finds step -> steps whose output it waits for."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def visit_transform(self, step) -> None:
        waits = [side.pvalue.producer.full_label for side in step.side_inputs]
        self.found[step.full_label] = waits


def test_on_any_runner_all_records_are_copied_before_a_shard_changes(tmp_path):
    # Only the DirectRunner ends a step before the next begins.
    pipeline = beam.Pipeline()
    top_up(pipeline | beam.Create([]), str(tmp_path))
    steps = SideInputs()
    pipeline.visit(steps)
    assert any("AllCopied" in step for step in steps.found["Move"])


def test_an_output_that_cannot_be_written_is_reported_in_one_line(tmp_path, monkeypatch):
    shards = records_of(random.Random(8), [4, 0])
    results = results_of(tmp_path, shards)
    output = output_of(tmp_path)
    (change, _) = plan_changes(results)
    prepared = prepare_change(output.directory, change)
    (tmp_path / change.name).unlink()
    with pytest.raises(DataError, match=f"{change.name} cannot be written"):
        commit._apply(prepared, output.directory, 1)
    with pytest.raises(DataError, match=f"{change.name} cannot be written"):
        commit._prepare(change, output.directory)
