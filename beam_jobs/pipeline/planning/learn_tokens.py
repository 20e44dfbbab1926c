"""Learns the tokens of texts: a tokenizer from a sample, a vocabulary from counts of words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsList, AsSideInput, AsSingleton

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
from beam_jobs.pipeline.steps import MergeBundle, MergeInPieces, ReadTasks, once
from beam_jobs.plan.placement import Placement
from beam_jobs.records.pieces import merged
from beam_jobs.sources.chunks import Task
from readers.format.manifest import RESERVED_IDS

# The name of the pass in progress.
SAMPLING = "sampling"


def _sampler(
    learns: LearnSubwords, placement: Placement, strata: bytes, size: int
) -> Callable[[Task], Sample]:
    """Samples a task, given the bytes of all inputs."""
    return learns.sampler(SplitRules(placement, strata), size)


def _is_wanted(piece: tuple[int, list[bytes]], every: Sample) -> bool:
    return piece[0] < fitting(every.sizes)


def _learn(pieces: Iterable[Any], every: Sample, listed: list[int], size: int) -> str:
    return learn(pieces, every.sizes, every.inputs, listed, size)


def learn_tokenizer(
    learns: LearnSubwords,
    output: Output,
    processes: int,
    strata: Side[bytes],
    tasks: beam.PCollection,
    sizes: beam.PCollection,
    listed: beam.PCollection,
) -> beam.PCollection:
    """The step to the text of the tokenizer's file, from tasks, their bytes, and the numbers of listed chunks."""
    size = sizes | "AllBytes" >> beam.CombineGlobally(sum)
    sample = ReadTasks[Sample](SAMPLING, partial(_sampler, learns, output.placement), processes)
    sampled = (
        tasks
        | "SpreadSample" >> beam.Reshuffle()
        | "Sample" >> beam.ParDo(sample, strata, AsSingleton(size))
    )
    every = AsSingleton(
        sampled
        | "WithoutTexts" >> beam.Map(Sample.without_texts)
        | "Sizes" >> beam.CombineGlobally(partial(merged, empty=Sample))
    )
    chosen = (
        sampled
        | "Texts" >> beam.ParDo(MergeBundle(Sample))
        | "SpreadTexts" >> beam.Reshuffle()
        | "Choose" >> beam.Filter(_is_wanted, every)
    )
    found = AsIter(chosen), every, AsList(listed)
    return once(tasks.pipeline, "Learn", _learn, *found, learns.size)


def build_vocabulary(counts: beam.PCollection, size: int, summary: AsSideInput) -> beam.PCollection:
    """The step from `WordCounts` to one tuple of all tokens by id, at most `size`, including the two reserved ones."""
    pieces = counts | "CountWords" >> MergeInPieces(WordCounts)
    sides = AsList(pieces | "Marks" >> beam.FlatMap(marks)), size - RESERVED_IDS
    smallest = once(counts.pipeline, "Smallest", smallest_wanted, *sides)
    frequent = (
        pieces
        | "SpreadWords" >> beam.Reshuffle()
        | "Frequent" >> beam.Map(frequent_words, AsSingleton(smallest))
    )
    return once(counts.pipeline, "Rank", rank_words, summary, AsList(frequent), size)
