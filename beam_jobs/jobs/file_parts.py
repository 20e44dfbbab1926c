"""The parts of the files of a task, each with its split.

Nothing here imports Beam.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.job import FileJob, Part
from beam_jobs.jobs.record import Record, SourceValues, source_values
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.placement import Placement
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.source import Label, Source
from beam_jobs.storage.files import reading_ahead

# Parts of a file whose splits are computed together.
_PARTS = 256


class FilePart(NamedTuple):
    """A whole file as its only part."""

    job: FileJob
    source: Source
    content: Callable[[], bytes]
    labels: None = None
    rejects: tuple[Reject, ...] = ()

    @property
    def place(self) -> str:
        return self.source.file

    def planned(self) -> list[tuple[str, int]]:
        return self.job.parts_of(self.source, self.content())

    def records(self) -> Iterator[tuple[str, Record]]:
        return self.job.records_of(self.source, self.content())


class PlacedPart(NamedTuple):
    """A part of a file.

    Attributes:
        part: The part.
        values: What its source states.
        split: Its split, a scalar of NumPy.
        first: The number of its first record among those of the task; 0 if none is dropped.
        dropped: The numbers of its dropped records, from 0.
    """

    part: Part
    values: SourceValues
    split: Any
    first: int = 0
    dropped: frozenset[int] = frozenset()


# Parts of a file that may become records, and parts that cannot.
Placed: TypeAlias = tuple[list[PlacedPart], list[Reject]]


class _Numbering:
    """Numbers the records of a task, if some are dropped or may be, or `always`."""

    def __init__(self, task: Task, placement: Placement, always: bool) -> None:
        self._dropped, self._next, self._placement = task.dropped_rows, 0, placement
        self._numbers = always or len(self._dropped) > 0 or placement.stored is not None

    def of(self, part: Part) -> tuple[int, frozenset[int], bool]:
        """The number of the next part's first record, its dropped records, and whether all are dropped."""
        if not self._numbers:
            return 0, frozenset(), False
        try:
            keys = [key.encode() for key, _ in part.planned()]
        except RejectError:  # Passed on like a part without records, which the passes reject.
            return self._next, frozenset(), False
        first = self._next
        self._next += len(keys)
        low, high = np.searchsorted(self._dropped, [first, self._next])
        near, existing = self._dropped[low:high] - first, self._placement.skipped(keys)
        dropped = frozenset([*near.tolist(), *existing.tolist()])
        return first, dropped, 0 < len(keys) == len(dropped)


def _files(job: FileJob, task: Task) -> Iterator[tuple[Source, Callable[[], bytes]]]:
    """Yields the files of a task, each with a function that reads it, once."""
    sources = [chunk.source for chunk in task.chunks]
    with reading_ahead(itertools.chain.from_iterable(map(job.inputs.reads, sources))):
        for source in sources:
            if source.packed and not source.error:
                for member, data in job.unpacked(source):
                    yield member, functools.partial(bytes, data)
            else:
                yield source, functools.cache(functools.partial(job.inputs.read, source))


def placed_parts(
    job: FileJob, rules: SplitRules, task: Task, numbered: bool = False
) -> Iterator[Placed]:
    """Yields the parts of all files of a task, some hundreds at a time."""
    numbering = _Numbering(task, rules.placement, numbered)
    for source, content in _files(job, task):
        parts = job.parts_in(source, content)
        try:
            while some := list(itertools.islice(parts, _PARTS)):
                yield _place(job, rules, some, numbering)
        except RejectError as error:
            yield [], [Reject.of(source.key, "read", error)]


def _place(job: FileJob, rules: SplitRules, parts: list[Part], numbering: _Numbering) -> Placed:
    """The parts, each with its split."""
    stated, without_records = list[PlacedPart](), list[int]()
    rejects: list[Reject] = []
    for part in parts:
        try:
            values = source_values(job, part.source, labelled=part.labels is not None)
        except RejectError as error:
            rejects.append(Reject.of(part.source.key, "read", error))
            continue
        first, dropped, all_dropped = numbering.of(part)
        without_records += [len(stated)] * all_dropped
        stated.append(PlacedPart(part, values, 0, first, dropped))
    places, sources = [part.place for part, *_ in stated], [part.source for part, *_ in stated]
    labels, gone = [values.label for _, values, *_ in stated], np.array(without_records, np.int64)
    placed = list[PlacedPart]()
    for rows, splits in split_sources(rules, places, sources, labels, gone, rejects):
        placed += (stated[n]._replace(split=split) for n, split in zip(rows, splits, strict=True))
    return placed, rejects


def split_sources(
    rules: SplitRules,
    places: Sequence[str],
    sources: Sequence[Source],
    labels: Sequence[Label | None],
    dropped: np.ndarray,
    rejects: list[Reject],
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yields (numbers, their splits, uint8 [k]) of kept sources or parts, then of `dropped` ones, int64 [d].

    Those without a split become rejects.
    """
    kept = np.delete(np.arange(len(places)), dropped)
    for its_rules, rows in ((rules, kept.tolist()), (rules.of_dropped, dropped.tolist())):
        splits, errors = np.empty(0, np.uint8), dict[int, str]()
        if rows:
            keys = [places[row].encode("utf-8", "surrogateescape") for row in rows]
            columns = [sources[row].row for row in rows], [labels[row] for row in rows]
            splits, errors = its_rules.splits_of(keys, *columns)
        rejects += (Reject.of(sources[rows[n]].key, "read", errors[n]) for n in errors)
        good = np.delete(np.arange(len(rows)), list(errors))
        yield [rows[n] for n in good.tolist()], splits[good]
