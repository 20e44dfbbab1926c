"""A reader's arguments -> how to read, and the plan of what to read, checked against each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from readers.batches.batch_format import BATCH_MASK, LENGTH, MASK, BatchFormat, Batching, PadTo
from readers.batches.options import OnCorrupt, OrderName, ReadOptions, remainder_of
from readers.batches.orders import shuffle_window
from readers.decoders.decoder import Decoder
from readers.decoders.record_work import RecordFunction
from readers.files.local import is_local
from readers.format.schema import Feature, Schema, format_shape
from readers.hosts import host_of
from readers.order.schedule import Remainder
from readers.order.state import State
from readers.shards.cache import cache_of
from readers.shards.features import with_decoders, with_fixed_shapes, with_function
from readers.shards.plan import Paths, Plan
from readers.shards.resolve import resolve, resolve_mixture

if TYPE_CHECKING:
    from typing import TypedDict

    class Reading(TypedDict, total=False):
        """The arguments that `torch_batches` and `jax_batches` share with `as_numpy`."""

        split: str | None
        schema: Schema | None
        columns: Sequence[str] | None
        batching: Batching
        mask: bool
        lengths: bool
        padding_values: Any
        max_length: int | Mapping[str, int] | None
        pad_to: PadTo
        bucket_boundaries: Sequence[int] | Mapping[str, Sequence[int]] | None
        weights: Sequence[float] | None
        shuffle: bool
        shuffle_buffer: int | None
        order: OrderName | None
        seed: int | None
        repeat: int | None
        remainder: Remainder | None
        drop_remainder: bool
        start_step: int
        state: State | str | None
        on_corrupt: OnCorrupt
        decoders: Mapping[str, Decoder] | None
        map: RecordFunction | None
        map_schema: Mapping[str, Feature | tuple[Any, ...]] | None
        cache_dir: str | os.PathLike[str] | None
        cache_size: int | str | None


def options_of(
    *,
    batching: Batching,
    mask: bool,
    lengths: bool,
    padding_values: Any,
    max_length: int | Mapping[str, int] | None,
    pad_to: PadTo,
    shuffle_buffer: int | None,
    remainder: Remainder | None,
    drop_remainder: bool,
    shard: Any,
    state: State | str | None,
    cache_dir: str | os.PathLike[str] | None,
    cache_size: int | str | None,
    decoders: Mapping[str, Decoder] | None,
    **others: Any,
) -> ReadOptions:
    """How to read, from the arguments of `readers.load`, checked.

    Args:
        batching, mask, lengths, padding_values, max_length, pad_to, shuffle_buffer,
            remainder, drop_remainder, shard, state, cache_dir, cache_size, decoders: Arguments of
            `readers.load`.
        others: The fields of `ReadOptions` that are arguments of the same names.
    """
    return ReadOptions(
        format=BatchFormat(batching, mask, lengths, padding_values, max_length, pad_to),
        window=shuffle_buffer,
        remainder=remainder_of(remainder, drop_remainder),
        shard=host_of(shard),
        state=State.of(state),
        cache=cache_of(cache_dir, cache_size),
        decoders=decoders or {},
        **others,
    )


def make_plan(
    path_or_files: Paths,
    split: str | None,
    schema: Schema | None,
    columns: Sequence[str] | None,
    options: ReadOptions,
    strings: bool = True,
    mapped: Callable[[Schema], Schema] | None = None,
) -> tuple[Plan, ReadOptions]:
    """The plan of what to read, and the options after they were checked against it.

    Args:
        path_or_files, split, schema, columns: The arguments of `readers.load`.
        options: How to read.
        strings: Whether to read features of strings that no argument names, if no `map` may need them.
        mapped: The features of records that are mapped after they are read, from those before; None if
            they are not.

    Raises:
        FileNotFoundError, ValueError: `resolve` raises it, or an option does not suit the dataset.
    """
    names, skip = options.features_to_read(columns), options.on_corrupt == "skip"
    if options.weights is None:
        plan = resolve(path_or_files, split, schema, names, skip, options.shuffle)
    else:
        datasets = len(options.weights)
        plan = resolve_mixture(path_or_files, datasets, split, schema, names, skip, options.shuffle)
    options = _with_order(plan, options)
    if not strings and names is None and options.map is None:
        decoded = options.decoders
        numbers = {n: f for n, f in plan.schema.items() if f.dtype != "string" or n in decoded}
        plan = replace(plan, schema=Schema(numbers))
    if options.map_schema is not None and options.map is None and mapped is None:
        raise ValueError("map_schema= states what map= returns: give both, or neither")
    is_dense = options.format.batching == "dense"
    plan = with_decoders(with_fixed_shapes(plan) if is_dense else plan, options.decoders)
    if options.map is not None:
        plan = with_function(plan, options.map, options.map_schema, skip, options.cache)
    final = replace(plan, schema=mapped(plan.schema)) if mapped else plan
    if is_dense:
        _check_dense(final)
    _check_features(options, final, "map" if mapped or options.map else "decoders")
    if options.boundaries is not None:
        boundaries = {options.bucket_feature(plan.undecoded): options.boundaries}
        options = replace(options, format=replace(options.format, bucket_boundaries=boundaries))
    if plan.records == 0:
        # Repeating, or skipping steps, would search an empty dataset for a batch without end.
        options = replace(options, repeat=1, start_step=0)
    return plan, options


def _with_order(plan: Plan, options: ReadOptions) -> ReadOptions:
    """The options with the order to read a plan in, and with the size of its shuffle windows.

    Without `order=`, it is `global` if all shards are on local disks or in the cache.
    """
    order = options.order
    if order is None:
        cached = options.cache.cacheable(plan.parts) if options.cache else ()
        on_disk = all(is_local(part.path) or part.path in cached for part in plan.parts)
        order = "global" if on_disk else "interleave"
    options = replace(options, order=order)
    return replace(options, window=shuffle_window(plan, options))


def _check_dense(plan: Plan) -> None:
    """Raises ValueError if the records of a plan differ in the shape of a feature, or may do so."""
    for name, feature in plan.schema.items():
        if feature.is_fixed:
            continue
        if name in plan.sizes:
            smallest, largest = map(format_shape, plan.sizes[name])
            found = f"shapes from {smallest} to {largest}"
        else:
            shape = format_shape(feature.shape)
            found = f"the shape {shape}: None is a size that the schema does not fix"
        more = ""
        if feature.is_image:
            more = (
                f", decode it to one size with decoders={{{name!r}: readers.decoders.Resize(224)}}, or "
                "write the dataset with --image_size"
            )
        raise ValueError(
            f"feature {name!r} has {found}, so records cannot be stacked: use batching='padded' or "
            f"'ragged', leave it out with columns={more}"
        )


def _check_features(options: ReadOptions, plan: Plan, work: str) -> None:
    """Checks the options against the features to batch.

    Raises:
        ValueError: A feature cannot be batched in the format (see `BatchFormat.check`),
            `as_supervised` has a name that is not in the batch or none of those that `mask` or
            `lengths` adds; or records are packed by lengths that work on them may change.
    """
    schema = plan.schema
    if plan.work is not None or work == "map":
        _check_work(options, work)
    options.format.check(schema)
    names = [*options.format.batch_names(schema), *options.added_names]
    if len(set(names)) < len(names):
        raise ValueError(
            f"remainder='pad' would replace the feature {BATCH_MASK!r}; leave it out with columns="
        )
    if options.as_supervised is not None:
        _check_as_supervised(options, options.as_supervised, names, len(schema))


def _check_work(options: ReadOptions, argument: str) -> None:
    """Raises ValueError if batches are planned by lengths that work on records may change."""
    if options.format.batching == "packed":
        raise ValueError(
            f"{argument}= may change the lengths by which batching='packed' fills rows: use "
            "transform=, or another batching"
        )
    if argument == "map" and options.boundaries is not None and options.format.pad_to != "longest":
        raise ValueError(
            "map= may change the lengths of records after their bucket is chosen: use pad_to='longest'"
        )


def _check_as_supervised(
    options: ReadOptions, given: Sequence[str], names: list[str], features: int
) -> None:
    """Checks the names of a tuple against those in a batch, of which the features come first."""
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"as_supervised names {unknown[0]!r}: a batch has {', '.join(names)}")
    if options.keys:
        return  # A `transform` may use names that are not in the tuple.
    added = [name for name in names[features:] if name not in options.added_names]
    for argument, is_given, found in (
        ("mask=True", options.format.mask, [name for name in added if name.endswith(MASK)]),
        ("lengths=True", options.format.lengths, [n for n in added if n.endswith(LENGTH)]),
        ("remainder='pad'", options.pads, options.added_names),
    ):
        if is_given and found and not set(found).intersection(given):
            raise ValueError(
                f"{argument} adds {', '.join(found)}, which as_supervised leaves out: name it "
                f"there, or leave out {argument}"
            )
