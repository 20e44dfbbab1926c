"""The features of records that a function makes, learned from the first records of a job."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.passes import EncodingPlan
from beam_jobs.jobs.protocols import LearnSubwords, LearnWords, RecordJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.mapping import (
    Mapper,
    bytes_of,
    feature_of,
    load_function,
    merged,
    stated,
)
from beam_jobs.records.runs import Held
from beam_jobs.sources.chunks import Chunk, Task
from readers.format.encode import Encoder
from readers.format.encode.values import checked
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema

# The records from which features are learned, and the files in which they are looked for.
_RECORDS, _FILES = 20, 100

# Features of all jobs that a function may not change, besides those that decide splits.
_KEPT = {"key", "label"}

_NOTHING = Schema({"key": Feature("string")})


class _EnoughError(Exception):
    """The first records are known."""


@dataclass(frozen=True)
class _FirstMapper(Mapper):
    """The mapper of a job, without a schema, while its first records are made.

    Attributes:
        made: What its function returned for each.
        sizes: Roughly how many bytes each takes.
        errors: Why some records have no features.
    """

    made: list[dict[str, Any]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def values(self, record: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Adds a record; there are no values, because they need a schema."""
        try:
            stored, given = self.given(record)
            self.made.append(self.call(given, key))
            self.sizes.append(bytes_of(stored))
        except (RejectError, ValueError) as error:
            self.errors.append(f"{key}: {error}")
        if len(self.made) + len(self.errors) == _RECORDS:
            raise _EnoughError
        raise RejectError("it was read to learn the features of all records")


def mapped(
    job: RecordJob,
    function: str,
    given: Mapping[str, Feature],
    decide_splits: Collection[str],
    compress: Callable[[np.ndarray, str], bytes],
) -> tuple[RecordJob, Mapper]:
    """The job whose records a function can take, and the mapper that calls it.

    Args:
        job: Defines the records.
        function: `MODULE:FUNCTION`.
        given: Features that are known; the others are those of the first records.
        decide_splits: Features that decide the splits of records.
        compress: Returns the file of an image, given its pixels and the encoding.

    Raises:
        UsageError: The function cannot be imported, cannot take the records, makes features of none
            of the first records, or changes one that it may not change.
    """
    _, digest, _ = load_function(function)
    wanted, job = job.schema, job.decoded()
    kept = frozenset((_KEPT | {*decide_splits}) & job.schema.keys())
    if clash := sorted(kept & given.keys()):
        raise UsageError(f"--map_schema {clash[0]}: a function may not change it: leave it out")
    rate, channels = job.record_rate, job.record_channels
    mapper = Mapper(function, digest, job.schema, job.schema, kept, compress, rate, channels)
    first = _FirstMapper(**vars(mapper))
    _make_first_records(job, first)
    if not (first.made or given):
        why = f"the first: {first.errors[0]}" if first.errors else "there is none"
        raise UsageError(f"--map {function} makes features of no record: {why}")
    features = {name: wanted[name] for name in kept} | dict(given)
    for name in sorted({name for made in first.made for name in made} - features.keys()):
        values = [made[name] for made in first.made if name in made]
        features[name] = _common(function, name, values, wanted.get(name))
    mapper = replace(mapper, schema=Schema(features))
    try:
        sizes = [bytes_of(mapper.fitted(made)) for made in first.made]
    except RejectError:
        return job, mapper
    return job, replace(mapper, growth=sum(sizes) / sum(first.sizes) if sizes else 1.0)


def _make_first_records(job: RecordJob, first: _FirstMapper) -> None:
    """Makes the first records by the order in which inputs are listed, so that no engine decides them."""
    if isinstance(job.learns, LearnWords | LearnSubwords):
        # Of the same form; theirs are not learned yet.
        job = replace(cast(Any, job), tokens="bytes")
    plan = EncodingPlan(
        rules=SplitRules(Placement(0, Splits.parse("train=1"))),
        schema=_NOTHING,
        names=None,
        shard_plan=b"",
        held=cast(Held, None),
        mapper=first,
        vocabulary=job.vocabulary,
        tokenizer=job.tokenizer,
    )
    read = job.second_pass(plan)
    encoder = RecordEncoder(Encoder(_NOTHING), first)
    found = (job.sources(pattern, _FILES) for pattern in job.inputs.patterns)
    try:
        for source in itertools.islice(itertools.chain.from_iterable(found), _FILES):
            for chunk in job.chunks(source):
                for records in read.encoded(Task((_counted(chunk),)), encoder):
                    first.errors.extend(map(str, records.rejects))
    except _EnoughError:
        pass


def _counted(chunk: Chunk) -> Chunk:
    """The chunk, or the whole file for its first range of bytes, whose lines are not counted yet."""
    if chunk.first:
        return chunk
    return Chunk(chunk.source, 0, 0, 1, chunk.source.size)


def _common(function: str, name: str, values: list[Any], wanted: Feature | None) -> Feature:
    """The feature that holds some values: that of the job if it does, else one that follows from them."""
    if wanted and not wanted.step and _holds_all(name, wanted, values):
        return wanted
    known = [feature for feature in map(feature_of, values) if feature]
    first: Feature | None = next(iter(known), None)
    common = functools.reduce(merged, known, first)
    if not common:
        shown = " and ".join(sorted({stated(name, feature) for feature in known})[:2])
        raise UsageError(
            f"--map {function}: the first records have {shown or f'no {name!r} with a dtype'}: return one "
            f"dtype and rank, or state them, such as with --map_schema {name}=float32[None]"
        )
    shape = (None, *common.shape[1:]) if len(known) < len(values) else common.shape
    encoding = wanted.encoding if wanted else ""
    try:
        return Feature(common.dtype, shape, encoding if encoding != "source" else "")
    except ValueError:
        return Feature(common.dtype, shape, common.encoding)


def _holds_all(name: str, feature: Feature, values: list[Any]) -> bool:
    if feature.encoding in IMAGE_ENCODINGS:
        feature = Feature(feature.dtype, feature.shape, "tensor")
    try:
        for value in values:
            checked(name, feature, value)
    except ValueError:
        return False
    return True
