"""The vocabulary of a split, from counts of all its words.

Source: keras/src/layers/preprocessing/index_lookup.py: ids follow falling counts, and ties falling
words.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from beam_jobs.errors import DataError
from beam_jobs.summary import Summary
from beam_jobs.tokens import PADDING, UNKNOWN, WordCounts, unpack_counts

_FIRST_ID = 2


def most_frequent(counts: Iterable[tuple[bytes, int]], size: int) -> list[tuple[int, bytes]]:
    """The (count, word) of the most frequent words, falling; at most `size`."""
    named = ((count, word) for word, count in counts if word not in (PADDING, UNKNOWN))
    return heapq.nlargest(size, named)


# How many words were counted, and the (count, word) of the most frequent ones, falling.
Ranked = tuple[int, list[tuple[int, bytes]]]


class CountWordsFn(beam.CombineFn):
    """Packed counts of one partition -> how many words they count, and the most frequent ones.

    Args:
        size: How many words at most.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def create_accumulator(self) -> Counter[bytes]:
        return Counter()

    def add_input(self, accumulator: Counter[bytes], element: WordCounts) -> Counter[bytes]:
        accumulator.update(unpack_counts(element))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Counter[bytes]]) -> Counter[bytes]:
        merged: Counter[bytes] = Counter()
        for accumulator in accumulators:
            merged.update(accumulator)
        return merged

    def extract_output(self, accumulator: Counter[bytes]) -> Ranked:
        return accumulator.total(), most_frequent(accumulator.items(), self._size)


def vocabulary_of(
    _: None, partitions: Iterable[list[tuple[int, bytes]]], size: int
) -> tuple[bytes, ...]:
    """All tokens by id, the two reserved ones first, from the words of every partition."""
    every = (pair for partition in partitions for pair in partition)
    learned = heapq.nlargest(size - _FIRST_ID, every)
    return (PADDING, UNKNOWN, *(word for _, word in learned))


def vocabulary_file(vocabulary: tuple[bytes, ...]) -> bytes:
    """The text of vocabulary.txt: a word a line, from id 2 on.

    The reserved ones are left out: `TextVectorization(vocabulary=path)` takes no empty line.
    """
    return b"".join(word + b"\n" for word in vocabulary[_FIRST_ID:])


def rank_words(_: None, summary: Summary, partitions: list[Ranked], size: int) -> tuple[bytes, ...]:
    """All tokens by id, after proving that every word of the summary was counted.

    Raises:
        DataError: Counts were lost or repeated on the way.
    """
    counted = sum(total for total, _ in partitions)
    if counted != summary.words:
        raise DataError(
            f"the texts have {summary.words} words, {counted} were counted for the vocabulary. The "
            "runner lost or repeated some: no dataset was written, run the job again"
        )
    return vocabulary_of(None, [ranked for _, ranked in partitions], size)


class BuildVocabulary(beam.PTransform):
    """(PCollection of `pack_counts`, the summary of all texts) -> one tuple of all tokens by id.

    Args:
        size: How many ids there may be, the two reserved ones included.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        counts, summary = inputs
        partitions = (
            counts
            | "Count" >> beam.CombinePerKey(CountWordsFn(self._size - _FIRST_ID))
            | "Words" >> beam.Values()
        )
        return (
            counts.pipeline
            | "Once" >> beam.Create([None])
            | "Rank" >> beam.Map(rank_words, AsSingleton(summary), AsList(partitions), self._size)
        )
