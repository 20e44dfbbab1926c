"""The features that are read: from the manifest, its statistics, and the argument `schema`."""

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

# A feature of this form has the stored bytes values.
_BYTES = (Feature("string"), Feature("string", (), "list"))


def chosen_schema(stored: Schema, given: Schema) -> Schema:
    """Checks a given schema, whose features must be in the stored schema.

    It may be more specific than the stored schema: sizes in place of None; `Feature("string")` for the bytes of an encoded
    image, or of any other feature with a single bytes value; and the dtype, shape and encoding of such bytes if they are
    stored as a string. Raises ValueError if a feature is not stored, or cannot be read as the given one.
    """
    for name, feature in stored.select(list(given)).items():
        if not _reads_as(feature, given[name]):
            raise ValueError(
                f"feature {name!r}: schema= has {given[name]}, but the manifest has {feature}; expected the same "
                "feature, with sizes in place of None, or Feature('string') for the stored bytes"
            )
    return given


def _reads_as(stored: Feature, given: Feature) -> bool:
    """Whether the stored values of a feature can be decoded as those of another one."""
    if (stored.dtype, stored.encoding) == (given.dtype, given.encoding):
        # Without the companion, the values do not determine several unknown sizes.
        may_fix = not stored.needs_companion or stored.shape.count(None) == 1
        return stored.shape == given.shape or (may_fix and _fixes(stored.shape, given.shape))
    if stored.step and given.step:
        return _fixes(stored.shape[:1], given.shape[:1]) and _reads_as(stored.step, given.step)
    is_one_value = all(f.codec.is_one_value or f in _BYTES for f in (stored, given))
    return is_one_value and (stored in _BYTES or given in _BYTES)


def _fixes(stored: tuple[int | None, ...], given: tuple[int | None, ...]) -> bool:
    """Whether a shape equals a stored one, except for sizes in place of some None."""
    return len(stored) == len(given) and all(
        size in (None, known) for size, known in zip(stored, given, strict=True)
    )


def with_decoders(plan: Plan, decoders: Mapping[str, Decoder]) -> Plan:
    """Adds decoders to a plan; ValueError if a feature does not exist, or does not suit its decoder."""
    if twice := decoders.keys() & plan.decoders.keys():
        raise ValueError(
            f"decoders: {min(twice)!r} has a decoder, so columns= cannot choose channels"
        )
    decoders = {**plan.decoders, **decoders}
    if not decoders:
        return plan
    work = RecordWork.of_decoders(plan.schema, dict(decoders))
    return replace(plan, schema=work.schema, work=work)


def with_function(plan: Plan, mapped: Map, skip: bool, cache: Cache | None) -> Plan:
    """Adds a function of each record to a plan.

    Unless the user declares the features that it returns, they are taken from its result for the first record. Raises
    ValueError if it fails on that record, or does not return a dict of arrays.
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
    """Fixes the sizes in a plan's shapes that are equal in all records according to the manifest."""
    features = dict(plan.schema)
    for name, (smallest, largest) in plan.sizes.items():
        if name in features and not features[name].is_fixed:
            ends = zip(features[name].shape, smallest, largest, strict=True)
            shape = tuple(low if d is None and low == high else d for d, low, high in ends)
            features[name] = replace(features[name], shape=shape)
    return replace(plan, schema=Schema(features))


def sizes_of(manifest: Manifest) -> dict[str, Sizes]:
    """The smallest and the largest shape of each feature of unknown shape in all splits.

    Features are left out unless the statistics include all of their unknown sizes.
    """
    splits = [split for split in manifest.splits.values() if split.records]
    found = {
        name: [_sizes(feature, split.statistics.get(name), split.records) for split in splits]
        for name, feature in manifest.schema.items()
        if not feature.is_fixed
    }
    return common_sizes(found)


def common_sizes(found: Mapping[str, Sequence[Sizes | None]]) -> dict[str, Sizes]:
    """The smallest and the largest shape of each feature in several parts of the data; left out if unknown in any part."""
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


def _sizes(feature: Feature, figures: Any, records: int) -> Sizes | None:
    """The smallest and the largest shape of a feature in one split of some records, from its statistics."""
    sizes = list(enumerate(feature.shape))
    try:
        if feature.is_image:
            # An earlier version, which counts no sizes of images, may have appended some.
            unknown = (figures["lengths"][str(n)] for n, size in sizes if size is None)
            if any(of_axis.get("count", records) != records for of_axis in unknown):
                return None
        smallest, largest = (
            tuple(figures["lengths"][str(n)][end] if size is None else size for n, size in sizes)
            for end in ("min", "max")
        )
    except (KeyError, TypeError, AttributeError):
        return None
    is_known = all(type(size) is int for size in smallest + largest)
    return (smallest, largest) if is_known else None
