"""What a dataset's features are read as: the manifest, its statistics, and what `schema=` adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from readers.decoders.decoder import Decoder, called
from readers.decoders.record_work import Map, RecordWork, schema_of_record
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.shards.cache import Cache
from readers.shards.plan import Plan, Sizes
from readers.shards.records import Records

# The values of such a feature are bytes values as they are stored.
_BYTES = (Feature("string"), Feature("string", (), "list"))


def chosen_schema(stored: Schema, given: Schema) -> Schema:
    """The given schema, whose features the stored schema must have.

    It may say more of a feature than the stored one: sizes in place of None; `Feature("string")`
    for the bytes of an encoded image, or of any other feature that is one bytes value; and the
    dtype, shape and encoding of such bytes if they are stored as a string.

    Raises:
        ValueError: A feature is not stored, or cannot be read as the given one.
    """
    for name, feature in stored.select(list(given)).items():
        if not _reads_as(feature, given[name]):
            raise ValueError(
                f"feature {name!r}: schema= states {given[name]}, the manifest {feature}; expected "
                "the same with sizes in place of None, or Feature('string') for bytes as stored"
            )
    return given


def _reads_as(stored: Feature, given: Feature) -> bool:
    """Whether the stored values of a feature can be decoded as those of another one."""
    if (stored.dtype, stored.encoding) == (given.dtype, given.encoding):
        # Without their companion, values of several unknown sizes do not tell these apart.
        may_fix = not stored.needs_companion or stored.shape.count(None) == 1
        return stored.shape == given.shape or (may_fix and _fixes(stored.shape, given.shape))
    if stored.step and given.step:
        return _fixes(stored.shape[:1], given.shape[:1]) and _reads_as(stored.step, given.step)
    is_one_value = all(f.codec.is_one_value or f in _BYTES for f in (stored, given))
    return is_one_value and (stored in _BYTES or given in _BYTES)


def _fixes(stored: tuple[int | None, ...], given: tuple[int | None, ...]) -> bool:
    """Whether a shape is a stored one, with sizes in place of some None."""
    return len(stored) == len(given) and all(
        size in (None, known) for size, known in zip(stored, given, strict=True)
    )


def with_decoders(plan: Plan, decoders: Mapping[str, Decoder]) -> Plan:
    """The plan with decoders; ValueError if a feature does not exist, or does not suit its decoder."""
    if not decoders:
        return plan
    work = RecordWork.of_decoders(plan.schema, dict(decoders))
    return replace(plan, schema=work.schema, work=work)


def with_function(plan: Plan, mapped: Map, skip: bool, cache: Cache | None) -> Plan:
    """The plan with a function of each record.

    If the user does not state the features that it returns, they are those of its result for the first record. Raises
    ValueError if it fails for that record, or returns no dict of arrays.
    """
    work = plan.work or RecordWork(plan.schema, {}, plan.schema)
    if mapped.schema is not None:
        schema = Schema(mapped.schema)
    elif not plan.records:
        schema = plan.schema
    else:
        first = np.zeros(1, np.int64)
        (columns,) = Records(plan, skip=skip, cache=cache).batches(
            first, (0, 1), lambda _, start, end: np.arange(start, end) + 1, keys=first
        )
        record = {name: column.arrays()[0] for name, column in columns.items()}
        result = called(mapped.function, "map, for the first record,", record, 0)
        schema = schema_of_record(result, plan.schema)
    return replace(plan, schema=schema, work=replace(work, function=mapped.function, schema=schema))


def with_fixed_shapes(plan: Plan) -> Plan:
    """The plan with those sizes fixed that the manifest states to be equal in all records."""
    features = dict(plan.schema)
    for name, (smallest, largest) in plan.sizes.items():
        if name in features and not features[name].is_fixed:
            ends = zip(features[name].shape, smallest, largest, strict=True)
            shape = tuple(low if d is None and low == high else d for d, low, high in ends)
            features[name] = replace(features[name], shape=shape)
    return replace(plan, schema=Schema(features))


def sizes_of(manifest: Manifest) -> dict[str, Sizes]:
    """The smallest and the largest shape of each feature of unknown shape in all splits.

    Features are left out if the statistics do not state all of their unknown sizes.
    """
    splits = [split.statistics for split in manifest.splits.values() if split.records]
    found = {
        name: [_sizes(feature, statistics.get(name)) for statistics in splits]
        for name, feature in manifest.schema.items()
        if not feature.is_fixed
    }
    return common_sizes(found)


def common_sizes(found: Mapping[str, Sequence[Sizes | None]]) -> dict[str, Sizes]:
    """The smallest and the largest shape of each feature in several parts of the data; None if one is not known."""
    common = {}
    for name, parts in found.items():
        known = [part for part in parts if part]
        if known and len(known) == len(parts):
            smallest, largest = zip(*known, strict=True)
            common[name] = (
                tuple(map(min, zip(*smallest, strict=True))),
                tuple(map(max, zip(*largest, strict=True))),
            )
    return common


def _sizes(feature: Feature, figures: Any) -> Sizes | None:
    """The smallest and the largest shape of a feature in one split, by its statistics."""
    sizes = list(enumerate(feature.shape))
    try:
        smallest, largest = (
            tuple(figures["lengths"][str(n)][end] if size is None else size for n, size in sizes)
            for end in ("min", "max")
        )
    except (KeyError, TypeError):
        return None
    is_known = all(type(size) is int for size in smallest + largest)
    return (smallest, largest) if is_known else None
