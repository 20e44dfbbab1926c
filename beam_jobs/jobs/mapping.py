"""The features of records that a function makes, learned from the first records of a job."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from beam_jobs.dataset.output import Output
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.job import Job
from beam_jobs.jobs.passes import Learned
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.mapping import Mapper, feature_of, load_function, merged, stated
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Chunk, Task
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema

# The records from which features are learned, and the files in which they are looked for.
_RECORDS, _FILES = 20, 100

# Features of all jobs that a function may not change, besides those that determine splits.
_KEPT = {"key", "label"}

_NOTHING = Schema({"key": Feature("string")})


class _EnoughError(Exception):
    """Stops a job once its first records are known."""


class _FirstRecords(RecordEncoder):
    """Takes the place of a job's encoder, and keeps the records.

    Attributes:
        records: (key, features) of each.
        rejects: Inputs without a record.
    """

    def __init__(self) -> None:
        super().__init__(Encoder(_NOTHING))
        self.records: list[tuple[str, Mapping[str, Any]]] = []
        self.rejects: list[Reject] = []

    def encode(self, split: int, record: Mapping[str, Any], key: str = "") -> tuple[bytes, bytes]:
        self.records.append((key or record["key"], record))
        if len(self.records) == _RECORDS:
            raise _EnoughError
        return b"", b""


def mapped(
    job: Job,
    function: str,
    given: Mapping[str, Feature],
    split_features: Collection[str],
    compress: Callable[[np.ndarray, str], bytes],
) -> tuple[Job, Mapper]:
    """The job whose records a function can take, and the mapper that calls it.

    Args:
        function: `MODULE:FUNCTION`.
        given: The known features; others are learned from the first records.
        split_features: Features that determine the splits of records.
        compress: Returns the file of an image, given its pixels and the encoding.

    Raises:
        UsageError: The function cannot be imported, cannot take the records, makes features of none
            of the first records, or changes one that it may not change.
    """
    _, digest, _ = load_function(function)
    wanted, job = job.schema, job.decoded()
    kept = frozenset((_KEPT | {*split_features}) & job.schema.keys())
    if clash := sorted(kept & given.keys()):
        raise UsageError(
            f"--map_schema {clash[0]}: --map may not change this feature: leave it out"
        )
    rate, channels = job.record_rate, job.record_channels
    mapper = Mapper(function, digest, job.schema, job.schema, kept, compress, rate, channels)
    first = _first_records(job, mapper)
    made, sizes, errors = [], [], []
    for key, record in first.records:
        try:
            stored, decoded = mapper.given(record)
            made.append(mapper.call(decoded, key))
            sizes.append(_size(stored))
        except (RejectError, ValueError) as error:
            errors.append(f"{key}: {error}")
    errors += map(str, first.rejects)
    if not (made or given):
        why = f"the first: {errors[0]}" if errors else "there is none"
        raise UsageError(f"--map {function} fails for all of the first records: {why}")
    features = {name: wanted[name] for name in kept} | dict(given)
    for name in sorted({name for values in made for name in values} - features.keys()):
        found = [values[name] for values in made if name in values]
        features[name] = _common(mapper, name, found, wanted.get(name))
    mapper = replace(mapper, schema=Schema(features))
    with contextlib.suppress(RejectError):  # It does not fit the given schema.
        grown = sum(_size(mapper.fitted(values)) for values in made)
        mapper = replace(mapper, growth=grown / sum(sizes) if sizes else 1.0)
    return job, mapper


def _size(values: Mapping[str, Any]) -> int:
    """Roughly how many bytes a record takes."""
    return len(pickle.dumps(values, pickle.HIGHEST_PROTOCOL))


def _first_records(job: Job, mapper: Mapper) -> _FirstRecords:
    """The first records in the order in which inputs are listed, so that they are the same on every engine."""
    job = job.unlearned()
    output = Output("", _NOTHING, Placement(0, Splits()), num_shards=(0,), mapper=mapper)
    learned = Learned(_NOTHING, None, job.vocabulary, job.tokenizer)
    read = job.second_pass(output, learned)
    first = _FirstRecords()
    found = (job.sources(pattern, _FILES) for pattern in job.inputs.patterns)
    with contextlib.suppress(_EnoughError):
        for source in itertools.islice(itertools.chain.from_iterable(found), _FILES):
            for records in read.encoded(Task.of([Chunk.whole(source)]), first):
                first.rejects += records.rejects
    return first


def _common(mapper: Mapper, name: str, values: list[Any], wanted: Feature | None) -> Feature:
    """The feature that fits some values: that of the job if it fits, else one that follows from them."""
    if wanted and not wanted.step:
        with contextlib.suppress(RejectError):
            for value in values:
                mapper.fit(name, wanted, value)
            return wanted
    known = [feature for feature in map(feature_of, values) if feature]
    first: Feature | None = next(iter(known), None)
    common = functools.reduce(merged, known, first)
    if not common:
        shown = " and ".join(sorted({stated(name, feature) for feature in known})[:2])
        raise UsageError(
            f"--map {mapper.function}: the first records have {shown or f'no {name!r} with a dtype'}: "
            f"return one dtype and rank, or state them, such as with --map_schema {name}=float32[None]"
        )
    shape = (None, *common.shape[1:]) if len(known) < len(values) else common.shape
    encoding = wanted.encoding if wanted else ""
    try:
        return Feature(common.dtype, shape, encoding if encoding != "source" else "")
    except ValueError:
        return Feature(common.dtype, shape, common.encoding)
