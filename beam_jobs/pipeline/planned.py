"""What the first half of a pipeline hands to the second: the plan, and all that was learned."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from beam_jobs.sources.classes import Names
from readers.format.schema import Schema

T = TypeVar("T")

# A side input, or the value itself if it is known when the graph is built.
Side: TypeAlias = AsSingleton | T


class Planned(NamedTuple):
    """What is known before the first record is written.

    Attributes:
        inputs: What the second half reads: packed blocks of references, tasks, or encoded records.
        hashes: Packed blocks that hold the hash of every record.
        plan: One packed `Plan`.
        summary: One `Summary` of all records.
        measured: One list of sizes in bytes, or rejects, of the records that were sampled.
        names: Names of classes by feature.
        schema: The features of every record.
        vocabulary: All words by id; empty without words.
        tokenizer: The text of the tokenizer's file; empty without subwords.
        strata: The packed splits by label; empty without them.
    """

    inputs: beam.PCollection
    hashes: beam.PCollection
    plan: beam.PCollection
    summary: beam.PCollection
    measured: beam.PCollection
    names: Side[Names]
    schema: Side[Schema]
    vocabulary: Side[tuple[bytes, ...]] = ()
    tokenizer: Side[str] = ""
    strata: Side[bytes] = b""
