"""Finds equal texts by their digests, and near ones by their sketches, without bringing the texts together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.near import Near, SketchBuilder, Sketched, joined_texts
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.spec import TextSpec
from beam_jobs.jobs.text.split_texts import all_texts, splits_of
from beam_jobs.jobs.text.texts import Texts
from beam_jobs.plan.summary import Summary
from beam_jobs.records.pieces import PIECE_BYTES
from beam_jobs.sources.chunks import Task

DIGEST_BYTES = 16

# A text: its number in its task, its digest, and its place in the global order. The rows of all
# texts are split into 256 partitions by the first byte of the digest: 125 MB each for a billion.
DIGEST_ROW = np.dtype([("row", "<i8"), ("digest", f"V{DIGEST_BYTES}"), ("order", "<u8")])


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


def _digests(texts: Texts) -> Iterator[bytes]:
    """Yields the digest of each text; with further fields, of the digests of all fields."""
    if not texts.more:
        return map(_digest, texts.texts)
    rows = zip(texts.texts, texts.more, strict=True)
    return (_digest(b"".join(map(_digest, (text, *more)))) for text, more in rows)


def text_digests(
    spec: TextSpec, rules: SplitRules, task: Task
) -> tuple[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The digests of a task's texts, as `protocols.Digester` describes them."""
    numbers = [np.empty(0, np.int64)]
    digests: list[bytes] = []
    orders = [np.empty(0, np.uint64)]
    first = 0
    for texts in all_texts(spec, task):
        _, errors = splits_of(spec, texts, rules)
        rows = np.delete(np.arange(len(texts.keys)), list(errors))
        good = texts.take(rows)
        numbers.append(rows + first)
        digests += _digests(good)
        orders.append(rules.placement.orders(good.keys))
        first += len(texts.keys)
    found = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)
    return task.id, (np.concatenate(numbers), found, np.concatenate(orders))


def text_sketches(spec: TextSpec, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's texts, without those that are dropped because they are equal to others."""
    builder = SketchBuilder(near, task.id)
    dropped = task.dropped_rows
    first = 0
    for texts in all_texts(spec, task):
        splits, errors = splits_of(spec, texts, rules)
        rows = np.delete(np.arange(len(texts.keys)), list(errors))
        rows = rows[~np.isin(rows + first, dropped)]
        good = texts.take(rows)
        fields = zip(*map(good.of_field, range(len(spec.text_features))), strict=True)
        values = list(map(joined_texts, fields))
        orders = rules.placement.orders(good.keys)
        builder.add(rows + first, orders, splits[rows], values)
        first += len(texts.keys)
    return builder.finish(task.count)


def pack_digests(
    numbers: np.ndarray, digests: np.ndarray, orders: np.ndarray
) -> Iterator[tuple[int, bytes]]:
    """Yields (partition, some rows of a task's texts in it).

    Args:
        numbers: int64 [n], the number of each text among all texts of the task.
        digests: uint8 [n, 16].
        orders: uint64 [n], the place of each text in the global order.
    """
    rows = np.empty(len(digests), DIGEST_ROW)
    rows["row"] = numbers
    rows["digest"] = np.ascontiguousarray(digests).view(f"V{DIGEST_BYTES}")[:, 0]
    rows["order"] = orders
    parts = digests[:, 0]
    order = np.argsort(parts, kind="stable")
    found, starts = np.unique(parts[order], return_index=True)
    for part, chosen in zip(found.tolist(), np.split(rows[order], starts[1:]), strict=False):
        for some in _limited(chosen):
            yield part, some


def _limited(rows: np.ndarray) -> Iterator[bytes]:
    """Yields the bytes of some rows at a time, at most `PIECE_BYTES`."""
    step = PIECE_BYTES // rows.itemsize
    for start in range(0, len(rows), step):
        yield rows[start : start + step].tobytes()


def find_duplicates(packed: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yields (id of a task, the numbers of its texts to drop, int64 as bytes).

    Of equal texts, the one with the smallest place in the order is kept.

    Args:
        packed: (id of a task, some of its rows from `pack_digests`) for all tasks, in one partition.

    Raises:
        UsageError: Two equal texts have the same key.
    """
    tasks = sorted(packed)
    tables = [np.frombuffer(rows, DIGEST_ROW) for _, rows in tasks]
    rows = np.concatenate([np.empty(0, DIGEST_ROW), *tables])
    owners = np.repeat(np.arange(len(tasks)), [len(table) for table in tables])
    halves = np.frombuffer(rows["digest"].tobytes(), "<u8").reshape(-1, 2)
    order = np.lexsort((rows["row"], owners, rows["order"], halves[:, 1], halves[:, 0]))
    same = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
    dropped = order[1:][same]
    if (twice := rows["order"][dropped] == rows["order"][order[:-1][same]]).any():
        raise _duplicate_key(tasks[owners[dropped[twice]].min()][0])
    for owner in np.unique(owners[dropped]).tolist():
        numbers = np.sort(rows["row"][dropped[owners[dropped] == owner]])
        for some in _limited(numbers.astype("<i8")):
            yield tasks[owner][0], some


def with_dropped(element: tuple[str, tuple[list[Any], list[bytes]]]) -> Iterator[Any]:
    """Yields a task with the numbers of the records to drop.

    Args:
        element: The task's id, the task, and the numbers found in all partitions.

    Raises:
        UsageError: Two tasks have this id.
        DataError: The runner repeated some numbers.
    """
    name, (tasks, dropped) = element
    if len(tasks) > 1:
        raise _duplicate_key(name)
    numbers = np.frombuffer(b"".join(dropped), "<i8")
    if len(np.unique(numbers)) < len(numbers):
        raise DataError(
            f"{name}: the runner handed over the same duplicates twice; no dataset was written, run "
            "the job again"
        )
    for task in tasks:
        yield task.without(numbers)


def _duplicate_key(task: str) -> UsageError:
    first, _, _ = task.rpartition("#")
    return UsageError(
        f"duplicate key of a text in {first} or soon after it: every record needs a key of its own; "
        "do two --input patterns match the same file, or do two rows of a --table name it (--key row "
        "tells them apart)?"
    )


@dataclass
class Tally:
    """How many texts were compared, and how many of them are duplicates to drop."""

    texts: int = 0
    dropped: int = 0

    def merge(self, other: Tally) -> None:
        """Adds the counts of another instance."""
        self.texts += other.texts
        self.dropped += other.dropped


def check_tally(summary: Summary, tally: Tally | None, near: int = 0) -> None:
    """Checks that all texts of a summary were compared.

    Args:
        summary: The summary of all texts.
        tally: None if duplicates are kept.
        near: How many of the texts are dropped because they are near others.

    Raises:
        DataError: The runner lost or repeated texts or duplicates.
    """
    if tally:
        dropped = sum(split.duplicates for split in summary.splits) - near
        if (tally.texts, tally.dropped) != (summary.texts, dropped):
            raise DataError(
                f"the inputs have {summary.texts} texts, {tally.texts} were compared; of "
                f"{tally.dropped} duplicates {dropped} were dropped. The runner lost or repeated "
                "some: no dataset was written, run the job again"
            )
