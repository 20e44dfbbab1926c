"""Learns the tokens of texts: a tokenizer from a sample, a vocabulary from counts of words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsList, AsSideInput, AsSingleton, TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.jobs.job import LearnSubwords
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.sample import Sample, fitting, learn
from beam_jobs.jobs.text.tokens import (
    WordCounts,
    frequent_words,
    marks,
    rank_words,
    smallest_wanted,
)
from beam_jobs.pipeline.planning.shards import Side
from beam_jobs.pipeline.steps import (
    MergeInPieces,
    TaskStep,
    at_end_of_bundle,
    in_pieces,
    once,
)
from beam_jobs.sources.chunks import Task
from readers.format.manifest import RESERVED_IDS

# The name of the pass in progress.
SAMPLING = "sampling"


class _SampleFn(TaskStep[Sample]):
    """Task -> pieces of the texts that train a tokenizer; and (number of their chunks, bytes by bin)."""

    SIZES = "sizes"

    def __init__(self, learns: LearnSubwords, output: Output, processes: int) -> None:
        super().__init__(SAMPLING, processes)
        self._learns, self._output = learns, output

    def start_bundle(self) -> None:
        super().start_bundle()
        self._sample = Sample()

    def work(self, strata: bytes, size: int) -> Callable[[Task], Sample]:
        rules = SplitRules(self._output.placement, strata)
        return self._learns.sampler(rules, size)

    def outputs(self, result: Sample) -> Iterator[Any]:
        self._sample.merge(result)
        return iter(())

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        sizes = self._sample.inputs, self._sample.sizes
        yield at_end_of_bundle(TaggedOutput(self.SIZES, sizes))
        yield from map(at_end_of_bundle, self._sample.pieces())


def _all_sizes(sizes: list[tuple[int, np.ndarray]]) -> tuple[int, np.ndarray]:
    """The number of sampled chunks, and the bytes of their texts by bin."""
    return sum(inputs for inputs, _ in sizes), np.sum([found for _, found in sizes], axis=0)


def _is_wanted(piece: tuple[int, list[bytes]], sizes: tuple[int, np.ndarray]) -> bool:
    return piece[0] < fitting(sizes[1])


def _learn(
    pieces: Iterable[Any], sizes: tuple[int, np.ndarray], listed: list[int], size: int
) -> str:
    sampled, of_bins = sizes
    return learn(pieces, of_bins, sampled, listed, size)


class LearnTokenizer(beam.PTransform):
    """(tasks, bytes by pattern, chunks by pattern) -> the text of the tokenizer's file, in pieces."""

    def __init__(
        self, learns: LearnSubwords, output: Output, processes: int, strata: Side[bytes]
    ) -> None:
        super().__init__()
        self._learns, self._strata = learns, strata
        self._sample = _SampleFn(learns, output, processes)

    def expand(self, inputs: tuple[beam.PCollection, ...]) -> beam.PCollection:
        tasks, sizes, listed = inputs
        size = sizes | "AllBytes" >> beam.CombineGlobally(sum)
        sampled = (
            tasks
            | "SpreadSample" >> beam.Reshuffle()
            | "Sample"
            >> beam.ParDo(self._sample, self._strata, AsSingleton(size)).with_outputs(
                _SampleFn.SIZES, main="texts"
            )
        )
        every = AsList(sampled[_SampleFn.SIZES])
        known = AsSingleton(once(tasks.pipeline, "Sizes", _all_sizes, every))
        chosen = (
            sampled["texts"]
            | "SpreadTexts" >> beam.Reshuffle()
            | "Choose" >> beam.Filter(_is_wanted, known)
        )
        found = (AsIter(chosen), known, AsList(listed))
        text = once(tasks.pipeline, "Learn", _learn, *found, self._learns.size)
        return in_pieces(text, "Tokenizer")


class BuildVocabulary(beam.PTransform):
    """PCollection of `WordCounts` -> one tuple of all tokens by id, at most `size`, including the two reserved ones."""

    def __init__(self, size: int, summary: AsSideInput) -> None:
        super().__init__()
        self._size, self._summary = size, summary

    def expand(self, counts: beam.PCollection) -> beam.PCollection:
        pipeline = counts.pipeline
        pieces = counts | "Count" >> MergeInPieces(WordCounts)
        found = pieces | "Marks" >> beam.FlatMap(marks)
        sides = AsList(found), self._size - RESERVED_IDS
        smallest = once(pipeline, "Smallest", smallest_wanted, *sides)
        frequent = (
            pieces
            | "SpreadWords" >> beam.Reshuffle()
            | "Frequent" >> beam.Map(frequent_words, AsSingleton(smallest))
        )
        return once(pipeline, "Rank", rank_words, self._summary, AsList(frequent), self._size)
