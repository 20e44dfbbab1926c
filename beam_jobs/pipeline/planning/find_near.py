"""Finds the near duplicates, or the equals, among the records of some tasks.

Keys meet in partitions, the probes of candidates in the block of the second of each pair. Each step reports what
it has handed over and received, and these numbers must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSideInput, AsSingleton, TaggedOutput

from beam_jobs.jobs.near import Near, Sketched
from beam_jobs.pipeline.steps import ReadTasks
from beam_jobs.plan.near_keys import PAIR, PARTS, ROW, Keys, candidates
from beam_jobs.plan.near_pairs import (
    CHUNKS,
    KEYS,
    PAIRS,
    PROBES,
    NearTally,
    near_pairs,
    only_one,
    sent,
)
from beam_jobs.records.pieces import merged
from readers.format.similarity.likeness import Similarity

_PROBES, _TALLY = "probes", "tally"


def _sketch_outputs(result: Sketched, kept_out: bool) -> Iterator[Any]:
    """Yields (partition, `Keys`), and the probes and a tally."""
    tally = NearTally(records=0 if kept_out else result.records)
    tally.received[CHUNKS] = result.chunks
    for block in result.blocks:
        for partition, keys in block.partitions():
            tally.sent[KEYS] += len(keys.rows) // ROW.itemsize
            yield partition, keys
        yield TaggedOutput(_PROBES, (block.name, block.probes.pack()))
    yield TaggedOutput(_TALLY, tally)


class Sketches(NamedTuple):
    """The sketches of all records of a job, or of a dataset.

    Attributes:
        keys: (partition, `Keys`).
        probes: (block, its packed `Probes`).
        tallies: `NearTally`.
    """

    keys: beam.PCollection
    probes: beam.PCollection
    tallies: beam.PCollection


def sketches_of(
    tasks: beam.PCollection,
    listed: beam.PCollection,
    sketch: Callable[[Any], Sketched],
    processes: int,
    phase: str,
    name: str = "",
    kept_out: bool = False,
) -> Sketches:
    """Makes the sketches of the records of tasks.

    Args:
        tasks: The tasks.
        listed: The numbers of the chunks that were listed.
        sketch: Makes the sketches of a task.
        processes: The number of processes that read, in each of the runner's workers.
        phase: The name of the pass in progress.
        name: The end of the names of the steps.
        kept_out: Whether the records are to keep out of others.
    """
    found = (
        tasks
        | f"Sketch{name}" >> beam.ParDo(ReadTasks(phase, sketch, processes))
        | f"Pack{name}"
        >> beam.FlatMap(_sketch_outputs, kept_out).with_outputs(_PROBES, _TALLY, main="keys")
    )
    counted = listed | f"CountListed{name}" >> beam.Map(_listed_tally)
    tallies = (found[_TALLY], counted) | f"AllListed{name}" >> beam.Flatten()
    return Sketches(found["keys"], found[_PROBES], tallies)


def _listed_tally(count: int) -> NearTally:
    return NearTally(sent=Counter({CHUNKS: count}))


def _pair(
    partition: tuple[int, Iterable[Keys]], likeness: Similarity, drops: bool
) -> Iterator[Any]:
    """Yields (name of the first's block, pairs) for the keys of all blocks in a partition, and a tally."""
    number, blocks = partition[0], list(partition[1])
    tally = NearTally()
    tally.received[KEYS] = sum(len(block.rows) for block in blocks) // ROW.itemsize
    for name, pairs in candidates(blocks, number < PARTS, likeness, drops):
        tally.sent[PAIRS] += len(pairs) // PAIR.itemsize
        yield name, pairs
    yield TaggedOutput(_TALLY, tally)


def _send(element: tuple[bytes, tuple[list[bytes], list[bytes]]]) -> Iterator[Any]:
    """Yields (name of the second's block, probes of the firsts) for (name, (probes, pairs)), and a tally."""
    name, (packed, pairs) = element
    probes = only_one(name, list(packed), bool(pairs))
    tally = NearTally()
    tally.received[PAIRS] = sum(map(len, pairs)) // PAIR.itemsize
    for other, records in sent(probes, pairs) if probes and pairs else ():
        tally.sent[PROBES] += len(records)
        yield other, records
    yield TaggedOutput(_TALLY, tally)


def _compare(
    element: tuple[bytes, tuple[list[bytes], list[bytes]]], likeness: Similarity
) -> Iterator[Any]:
    """Yields (probes of a block, its `NearPairs`) for (name, (probes, probes of the firsts)), and a tally."""
    name, (packed, arrived) = element
    probes = only_one(name, list(packed), bool(arrived))
    tally = NearTally()
    tally.received[PROBES] = sum(map(len, arrived))
    if probes and arrived:
        pairs = near_pairs(probes, arrived, likeness)
        tally.dropped = len(np.unique(pairs.second))
        if tally.dropped:
            yield probes, pairs
    yield TaggedOutput(_TALLY, tally)


def find_near(sketches: Sequence[Sketches], near: Near) -> tuple[beam.PCollection, AsSideInput]:
    """Finds the near duplicates among the records of all sketches.

    Returns:
        PCollection of (probes of a block, the `NearPairs` whose second is in it), without blocks that have
        none; and the side input of one `NearTally`.
    """
    keys = tuple(each.keys for each in sketches) | "AllKeys" >> beam.Flatten()
    probes = tuple(each.probes for each in sketches) | "AllProbes" >> beam.Flatten()
    paired = (
        keys
        | "GroupKeys" >> beam.GroupByKey()
        | "Pair"
        >> beam.FlatMap(_pair, near.likeness, near.drops).with_outputs(_TALLY, main="pairs")
    )
    sent_probes = (
        (probes, paired["pairs"])
        | "JoinFirsts" >> beam.CoGroupByKey()
        | "Send" >> beam.FlatMap(_send).with_outputs(_TALLY, main="probes")
    )
    compared = (
        (probes, sent_probes["probes"])
        | "JoinSeconds" >> beam.CoGroupByKey()
        | "Compare" >> beam.FlatMap(_compare, near.likeness).with_outputs(_TALLY, main="near")
    )
    tally = (
        (
            *(each.tallies for each in sketches),
            paired[_TALLY],
            sent_probes[_TALLY],
            compared[_TALLY],
        )
        | "AllTallies" >> beam.Flatten()
        | "MergeTallies" >> beam.CombineGlobally(partial(merged, empty=NearTally))
    )
    return compared["near"], AsSingleton(tally)
