"""The sample of the training split from which a tokenizer is learned."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from beam_jobs.columns import Ragged
from beam_jobs.errors import DataError, loss_error
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.split_texts import split_texts
from beam_jobs.jobs.text.subwords import train_bpe
from beam_jobs.jobs.text.text_spec import TextSpec
from beam_jobs.plan.summary import Summary
from beam_jobs.sources.chunks import Task

# Text from which a tokenizer is learned: it must fit on one worker, and more text changes few of the merges.
_SAMPLE_BYTES = 64 << 20

# A sample is sent in pieces of this size, and a longer text in parts, so that the worker that learns
# receives at most one piece per bundle more than the sample.
_PART_BYTES = 1 << 16

# The memory for a part's places and its length.
_ROW_BYTES = 20

# More than the number of parts of any text.
_PARTS = 1 << 32

_ALL = 2**64 - 1


def sample_below(size: int) -> int:
    """The place in the global order below which texts are sampled, to get about `_SAMPLE_BYTES`.

    Args:
        size: The bytes of all files.
    """
    return _ALL if size <= _SAMPLE_BYTES else _ALL * _SAMPLE_BYTES // size


class _Rows(NamedTuple):
    """Texts of records, long ones in parts.

    Attributes:
        orders: uint64 [n], the places of the records in the order.
        numbers: int64 [n], the number of the text in its record, times `_PARTS`, and of the part.
        data: The n parts.
    """

    orders: np.ndarray
    numbers: np.ndarray
    data: Ragged

    @classmethod
    def of(cls, orders: np.ndarray, texts: Sequence[bytes], field: int) -> _Rows:
        parts = [
            text[start : start + _PART_BYTES]
            for text in texts
            for start in range(0, max(len(text), 1), _PART_BYTES)
        ]
        counts = np.array([max(1, -(-len(text) // _PART_BYTES)) for text in texts], np.int64)
        numbers = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(np.repeat(orders, counts), field * _PARTS + numbers, Ragged.of(parts))

    @classmethod
    def joined(cls, every: Sequence[_Rows]) -> _Rows:
        """All rows of several tables, in the order."""
        orders = np.concatenate([rows.orders for rows in every])
        numbers = np.concatenate([rows.numbers for rows in every])
        lengths = np.concatenate([rows.data.lengths for rows in every])
        data = Ragged(lengths, b"".join([rows.data.data for rows in every]))
        in_order = np.lexsort((numbers, orders))
        return cls(orders[in_order], numbers[in_order], data.take(in_order))

    def slice(self, start: int, stop: int) -> _Rows:
        """Some consecutive rows."""
        return _Rows(
            self.orders[start:stop],
            self.numbers[start:stop],
            self.data.slice(start, stop),
        )

    @property
    def text_stops(self) -> np.ndarray:
        """The row after the last part of each text, int64 [texts], if the rows are in the order."""
        firsts = np.flatnonzero(self.numbers % _PARTS == 0)
        return np.append(firsts[1:], len(self.numbers))[: len(firsts)]


class Span(NamedTuple):
    """The first and the last place in the order of a piece of a sample, and its bytes."""

    first: int
    last: int
    bytes: int


class Sample:
    """The texts that are first in the global order, as many as fit in `_SAMPLE_BYTES`.

    More texts than that may be added: a compressed file holds more text than its size suggests.

    Args:
        inputs: The number of chunks from which they come.
    """

    def __init__(self, inputs: int = 0) -> None:
        self.inputs = inputs
        self._rows: list[_Rows] = []
        self._added = 0

    @classmethod
    def of(cls, pieces: Iterable[Sample]) -> Sample:
        """The sample from which pieces, or parts of pieces, were cut."""
        whole = cls()
        whole._extend(itertools.chain.from_iterable(piece._rows for piece in pieces))
        return whole

    def add(self, orders: np.ndarray, texts: Sequence[bytes], field: int = 0) -> None:
        """Adds texts of one field of records, whose places in the order are uint64 [n]."""
        self._extend([_Rows.of(orders, texts, field)])

    def merge(self, other: Sample) -> None:
        """Adds the texts of another instance."""
        self.inputs += other.inputs
        self._extend(other._rows)

    def _extend(self, every: Iterable[_Rows]) -> None:
        for rows in every:
            self._rows.append(rows)
            self._added += len(rows.data.data)
        if self._added > _SAMPLE_BYTES:
            self._cut()

    def _cut(self) -> None:
        # Keep the first text that does not fit: it would fit in a part of the texts, and the end of
        # the sample must not depend on the parts.
        rows = self._joined()
        stops = rows.text_stops
        kept = stops[: _fitting(rows) + 1]
        self._rows, self._added = [rows.slice(0, int(kept[-1]) if len(kept) else 0)], 0

    def _joined(self) -> _Rows:
        return _Rows.joined([_Rows.of(np.empty(0, np.uint64), [], 0), *self._rows])

    def pieces(self) -> Iterator[Sample]:
        """Yields consecutive parts of its texts, in the order."""
        self._cut()
        (rows,) = self._rows
        costs = np.cumsum(rows.data.lengths + _ROW_BYTES, dtype=np.int64) // _PART_BYTES
        limits = np.flatnonzero(np.diff(costs, prepend=0)).tolist()
        for start, stop in itertools.pairwise(sorted({0, *limits, len(rows.orders)})):
            piece = Sample()
            piece._rows = [rows.slice(start, stop)]
            yield piece

    @property
    def span(self) -> Span:
        """Where a piece begins and ends."""
        (rows,) = self._rows
        return Span(int(rows.orders[0]), int(rows.orders[-1]), len(rows.data.data))

    def texts(self) -> Iterator[bytes]:
        """Yields the texts in their order, the first one whatever its size."""
        self._cut()
        (rows,) = self._rows
        start = 0
        for stop in _text_ends(rows)[: max(_fitting(rows), 1)].tolist():
            yield rows.data.data[start:stop]
            start = stop


def _text_ends(rows: _Rows) -> np.ndarray:
    """Where in the data of rows that are in the order each text ends, int64 [texts]."""
    return rows.data.ends[rows.text_stops - 1]


def _fitting(rows: _Rows) -> int:
    """The number of texts that fit, of rows that are in the order."""
    return int(np.searchsorted(_text_ends(rows), _SAMPLE_BYTES, side="right"))


class Wanted(NamedTuple):
    """The pieces that may belong to the sample of all texts.

    Attributes:
        last: The last place in the order of its texts and one more, which does not fit.
        bytes: The bytes of all pieces that begin there or before.
    """

    last: int
    bytes: int


def wanted_pieces(spans: Iterable[Span]) -> Wanted:
    """The pieces of all parts to keep, given where each begins and ends."""
    every = sorted(spans, key=lambda span: span.last)
    sizes = itertools.accumulate(span.bytes for span in every)
    pairs = zip(every, sizes, strict=True)
    last = next((span.last for span, size in pairs if size > _SAMPLE_BYTES), _ALL)
    return Wanted(last, sum(span.bytes for span in every if span.first <= last))


def sample_texts(spec: TextSpec, rules: SplitRules, below: int, task: Task) -> Sample:
    """The training texts of a task whose place in the global order is below some number."""
    sample = Sample(task.count)
    for texts, splits, _ in split_texts(spec, task, rules):
        orders = rules.placement.orders(texts.keys)
        chosen = (splits == rules.placement.splits.training) & (orders < np.uint64(below))
        for number in range(len(spec.text_features)):
            training = itertools.compress(texts.of_field(number), chosen.tolist())
            sample.add(orders[chosen], list(training))
    return sample


def check_training(summary: Summary, split: int) -> Summary:
    """Returns the summary after checking that the training split has a text to learn from.

    Raises:
        DataError: The training split is empty, but another split is not.
    """
    if not summary.splits[split].records and any(part.records for part in summary.splits):
        raise DataError(
            "the training split has no text from which to learn tokens: give it a larger share with --splits"
        )
    return summary


def learn(
    pieces: Iterable[Sample],
    wanted: Wanted,
    sampled: Sequence[int],
    listed: Sequence[int],
    vocabulary_size: int,
) -> str:
    """The contents of the tokenizer's file, which `train_bpe` learns from a sample.

    Args:
        pieces: The pieces that begin at `wanted.last` or before.
        wanted: Which pieces these are.
        sampled: The numbers of chunks from which the pieces come.
        listed: The number of chunks that each pattern matches.
        vocabulary_size: The maximum number of ids.

    Raises:
        DataError: The runner lost or repeated some.
    """
    if sum(sampled) != sum(listed):
        raise loss_error("inputs with training text", sum(sampled), sum(listed))
    found = list(pieces)
    if (size := sum(piece.span.bytes for piece in found)) != wanted.bytes:
        raise loss_error("bytes of training text", size, wanted.bytes)
    return train_bpe(Sample.of(found).texts(), vocabulary_size)
