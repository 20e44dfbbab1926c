"""The sample of the training split from which a tokenizer is learned."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from beam_jobs.errors import DataError, loss_error
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.split_texts import split_texts
from beam_jobs.jobs.text.subwords import short_pieces, train_bpe
from beam_jobs.jobs.text.text_reader import TextSpec
from beam_jobs.plan.summary import Summary
from beam_jobs.records.pieces import PIECE_BYTES, batches
from beam_jobs.sources.chunks import Task

# Text from which a tokenizer is learned: it must fit on one worker, and more text changes few of the merges.
_SAMPLE_BYTES = 64 << 20

# The sampled part of the global order is cut into this many bins, of which the first ones are the sample.
_BINS = 256


def bin_width(size: int) -> int:
    """The width of a bin of the global order, so that all bins have about `_SAMPLE_BYTES` of text.

    Args:
        size: The bytes of all files.
    """
    return 2**64 * min(size, _SAMPLE_BYTES) // (_BINS * size) if size else 2**64 // _BINS


class Sample:
    """The texts in the first bins, as many bins as fit in `_SAMPLE_BYTES`.

    More texts than that may be added: a compressed file holds more text than its size suggests.

    Attributes:
        inputs: The number of chunks from which the texts come.
        sizes: int64 [bins], the bytes of all texts that were added.
    """

    is_full = False

    def __init__(self, inputs: int = 0) -> None:
        self.inputs, self.sizes = inputs, np.zeros(_BINS, np.int64)
        self._texts: dict[int, list[bytes]] = {}

    def add(self, bins: np.ndarray, texts: Iterable[bytes]) -> None:
        """Adds texts, whose bins are int [n]."""
        for number, text in zip(bins.tolist(), texts, strict=True):
            self._texts.setdefault(number, []).append(text)
            self.sizes[number] += len(text)
        self._drop()

    def merge(self, other: Sample) -> None:
        """Adds the texts of another instance."""
        self.inputs += other.inputs
        self.sizes += other.sizes
        for number, texts in other._texts.items():
            self._texts.setdefault(number, []).extend(texts)
        self._drop()

    def _drop(self) -> None:
        """Drops the texts of bins that cannot be in a sample of more texts either."""
        for number in [number for number in self._texts if number >= fitting(self.sizes)]:
            del self._texts[number]

    def without_texts(self) -> Sample:
        """Only the number of inputs and the sizes."""
        sizes = Sample(self.inputs)
        sizes.sizes += self.sizes
        return sizes

    def pieces(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yields (bin, texts and parts of texts of at most `PIECE_BYTES`)."""
        for number, texts in self._texts.items():
            parts = itertools.chain.from_iterable(map(_parts, texts))
            for some in batches(parts, len):
                yield number, some


def _parts(text: bytes) -> list[bytes]:
    """A text, in parts that train a tokenizer as the whole does if it is long."""
    if len(text) <= PIECE_BYTES:
        return [text]
    return [piece.encode() for piece in short_pieces(text.decode())]


def fitting(sizes: np.ndarray) -> int:
    """The number of bins whose texts fit in a sample, at least those up to the first text.

    Args:
        sizes: int64 [bins], the bytes of text in each.
    """
    first = int(np.argmax(sizes > 0)) + 1
    return max(first, int(np.searchsorted(np.cumsum(sizes), _SAMPLE_BYTES, side="right")))


def sample_texts(spec: TextSpec, rules: SplitRules, width: int, task: Task) -> Sample:
    """The training texts of a task that are in a bin of the global order."""
    sample = Sample(task.count)
    for texts, splits, _ in split_texts(spec, task, rules):
        bins = rules.placement.orders(texts.keys) // np.uint64(width)
        chosen = (splits == rules.placement.splits.training) & (bins < _BINS)
        for own in texts.texts:
            sample.add(bins[chosen], itertools.compress(own, chosen.tolist()))
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
    pieces: Iterable[tuple[int, list[bytes]]],
    sizes: np.ndarray,
    sampled: int,
    listed: Sequence[int],
    vocabulary_size: int,
) -> str:
    """The contents of the tokenizer's file, which `train_bpe` learns from a sample.

    Args:
        pieces: The pieces of the first bins that fit, in any order.
        sizes: int64 [bins], the bytes of all sampled texts.
        sampled: The number of chunks from which the texts come.
        listed: The number of chunks that each pattern matches.
        vocabulary_size: The maximum number of ids.

    Raises:
        DataError: The runner lost or repeated some.
    """
    if sampled != sum(listed):
        raise loss_error("inputs with training text", sampled, sum(listed))
    texts = [text for _, some in pieces for text in some]
    size, expected = sum(map(len, texts)), int(sizes[: fitting(sizes)].sum())
    if size != expected:
        raise loss_error("bytes of training text", size, expected)
    return train_bpe(texts, vocabulary_size)
