"""What a tokenizer is learned from: a sample of the texts of the training split."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from beam_jobs.errors import DataError
from beam_jobs.jobs.text.subwords import train_bpe
from beam_jobs.plan.summary import Summary
from beam_jobs.records.ragged import Ragged

# Text that a tokenizer is learned from: one worker holds it, and more changes few of the merges.
_SAMPLE_BYTES = 64 << 20

_ALL = 2**64 - 1


def sample_below(size: int) -> int:
    """The place in the order below which texts are in the sample, so that it has about its size.

    Args:
        size: Bytes of all files.
    """
    return _ALL if size <= _SAMPLE_BYTES else _ALL * _SAMPLE_BYTES // size


class Sample:
    """The first texts in the global order, of those that were added, that fit in a sample.

    A packed file holds more text than its size says, so there may be more than that.

    Args:
        inputs: The chunks of files that they are from.
    """

    def __init__(self, inputs: int = 0) -> None:
        self.inputs = inputs
        self._parts = [(np.empty(0, np.uint64), Ragged.of([]))]
        self._added = 0

    def add(self, orders: np.ndarray, texts: Sequence[bytes]) -> None:
        """Adds texts and their places in the order, uint64 [n]."""
        self._extend([(orders, Ragged.of(texts))])

    def merge(self, other: Sample) -> None:
        """Adds what another one has kept."""
        self.inputs += other.inputs
        self._extend(other._parts)

    def _extend(self, parts: Iterable[tuple[np.ndarray, Ragged]]) -> None:
        for orders, texts in parts:
            self._parts.append((orders, texts))
            self._added += len(texts.data)
        if self._added > _SAMPLE_BYTES:
            self._cut()

    def _cut(self) -> None:
        # The first text that does not fit stays: in a part of all texts it might, and where the
        # sample ends must not depend on the parts.
        orders = np.concatenate([orders for orders, _ in self._parts])
        lengths = np.concatenate([texts.lengths for _, texts in self._parts])
        every = Ragged(lengths, b"".join([texts.data for _, texts in self._parts]))
        rows = np.argsort(orders, kind="stable")
        ends = np.cumsum(lengths[rows], dtype=np.int64)
        kept = rows[: _fitting(ends) + 1]
        self._parts, self._added = [(orders[kept], every.take(kept))], 0

    def texts(self) -> Iterator[bytes]:
        """Yields them in their order, the first one whatever its size."""
        self._cut()
        ((_, texts),) = self._parts
        yield from itertools.islice(texts, max(_fitting(texts.ends), 1))


def _fitting(ends: np.ndarray) -> int:
    """How many texts fit, by where they end one after another, int64 [n]."""
    return int(np.searchsorted(ends, _SAMPLE_BYTES, side="right"))


def check_training(summary: Summary, split: int) -> Summary:
    """The summary itself, once the training split is known to hold a text to learn from.

    Raises:
        DataError: It has none, but another has.
    """
    if not summary.splits[split].records and any(found.records for found in summary.splits):
        raise DataError(
            "the training split has no text to learn tokens from: give it a larger share with --splits"
        )
    return summary


def learn(sample: Sample, vocabulary_size: int, listed: Sequence[int] = ()) -> str:
    """The text of the tokenizer's file that is learned from a sample, as `train_bpe` gives it.

    Args:
        listed: How many chunks of files there are, by pattern.

    Raises:
        DataError: The sample is not of all of them.
    """
    if sample.inputs != sum(listed):
        raise DataError(
            f"{sum(listed)} inputs were listed, texts to learn from came of {sample.inputs}. The "
            "runner lost or repeated some: no dataset was written, run the job again"
        )
    return train_bpe(sample.texts(), vocabulary_size)
