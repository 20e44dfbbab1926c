"""The sample of the training split from which a tokenizer is learned."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from beam_jobs.errors import DataError
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.split_texts import split_texts
from beam_jobs.jobs.text.subwords import train_bpe
from beam_jobs.plan.summary import Summary
from beam_jobs.records.ragged import Ragged
from beam_jobs.sources.chunks import Task

if TYPE_CHECKING:
    from beam_jobs.jobs.text.job import TextJob

# Text to learn a tokenizer from: one worker holds it, and more text changes few of the merges.
_SAMPLE_BYTES = 64 << 20

_ALL = 2**64 - 1


def sample_below(size: int) -> int:
    """The place in the global order below which texts are sampled, to get about `_SAMPLE_BYTES`.

    Args:
        size: The bytes of all files.
    """
    return _ALL if size <= _SAMPLE_BYTES else _ALL * _SAMPLE_BYTES // size


class Sample:
    """The texts that are first in the global order, as many as fit in `_SAMPLE_BYTES`.

    More texts than that may be added: a compressed file holds more text than its size suggests.

    Args:
        inputs: The number of chunks that they come from.
    """

    def __init__(self, inputs: int = 0) -> None:
        self.inputs = inputs
        self._parts = [(np.empty(0, np.uint64), Ragged.of([]))]
        self._added = 0

    def add(self, orders: np.ndarray, texts: Sequence[bytes]) -> None:
        """Adds texts and their places in the order, uint64 [n]."""
        self._extend([(orders, Ragged.of(texts))])

    def merge(self, other: Sample) -> None:
        """Adds the texts of another instance."""
        self.inputs += other.inputs
        self._extend(other._parts)

    def _extend(self, parts: Iterable[tuple[np.ndarray, Ragged]]) -> None:
        for orders, texts in parts:
            self._parts.append((orders, texts))
            self._added += len(texts.data)
        if self._added > _SAMPLE_BYTES:
            self._cut()

    def _cut(self) -> None:
        # Keep the first text that does not fit: it would fit in a part of the texts, and the end of
        # the sample must not depend on the parts.
        orders = np.concatenate([orders for orders, _ in self._parts])
        lengths = np.concatenate([texts.lengths for _, texts in self._parts])
        every = Ragged(lengths, b"".join([texts.data for _, texts in self._parts]))
        rows = np.argsort(orders, kind="stable")
        ends = np.cumsum(lengths[rows], dtype=np.int64)
        kept = rows[: _fitting(ends) + 1]
        self._parts, self._added = [(orders[kept], every.take(kept))], 0

    def texts(self) -> Iterator[bytes]:
        """Yields the texts in their order, the first one whatever its size."""
        self._cut()
        ((_, texts),) = self._parts
        yield from itertools.islice(texts, max(_fitting(texts.ends), 1))


def _fitting(ends: np.ndarray) -> int:
    """The number of texts that fit, given where each one ends, int64 [n]."""
    return int(np.searchsorted(ends, _SAMPLE_BYTES, side="right"))


def sample_texts(job: TextJob, rules: SplitRules, below: int, task: Task) -> Sample:
    """The training texts of a task whose place in the global order is below some number."""
    sample = Sample(len(task.chunks))
    for texts, splits, _ in split_texts(job, task, rules):
        orders = rules.placement.orders(texts.keys)
        chosen = (splits == rules.placement.splits.training) & (orders < np.uint64(below))
        for number in range(len(job.text_features)):
            training = itertools.compress(texts.of_field(number), chosen.tolist())
            sample.add(orders[chosen], list(training))
    return sample


def check_training(summary: Summary, split: int) -> Summary:
    """The summary itself, once the training split is known to hold a text to learn from.

    Raises:
        DataError: The training split is empty, but another split is not.
    """
    if not summary.splits[split].records and any(part.records for part in summary.splits):
        raise DataError(
            "the training split has no text to learn tokens from: give it a larger share with --splits"
        )
    return summary


def learn(sample: Sample, vocabulary_size: int, listed: Sequence[int] = ()) -> str:
    """The contents of the tokenizer's file that `train_bpe` learns from a sample.

    Args:
        sample: The texts to learn from.
        vocabulary_size: The maximum number of ids.
        listed: The number of chunks that each pattern matches.

    Raises:
        DataError: The sample does not come from all of them.
    """
    if sample.inputs != sum(listed):
        raise DataError(
            f"{sample.inputs} of {sum(listed)} inputs contributed training text. The runner lost or "
            "repeated some: no dataset was written, run the job again"
        )
    return train_bpe(sample.texts(), vocabulary_size)
