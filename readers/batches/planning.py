"""A reader's arguments -> its options and its plan, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from readers.batches.batch_format import LENGTH, MASK, BatchFormat
from readers.batches.options import Order, ReadOptions
from readers.batches.read_sizes import default_window
from readers.decoders.record_work import Map
from readers.files.local import is_local
from readers.format.schema import Schema, format_shape
from readers.hosts import host_of
from readers.order.state import State
from readers.shards.cache import check_cache
from readers.shards.features import with_decoders, with_fixed_shapes, with_function
from readers.shards.plan import Plan
from readers.shards.resolve import resolve


def plan_of(arguments: Mapping[str, Any], strings: bool = True) -> tuple[Plan, ReadOptions]:
    """Makes the plan and the options from the arguments of `readers.load` by name.

    Without `strings`, string features are read only if an argument names them, or a `map` may need them. Raises the errors
    of `resolve`, or ValueError for an argument that is not valid or does not suit the dataset.
    """
    what = {name: arguments[name] for name in ("path", "split", "schema")}
    others = {n: value for n, value in arguments.items() if n not in (*what, "columns")}
    function, transform = others["map"], others.pop("transform")
    others |= {
        "format": BatchFormat.of(others.pop("batching")),
        "order": Order.of(others.pop("shuffle")),
        "shard": host_of(others["shard"]),
        "map": function if function is None or isinstance(function, Map) else Map(function),
        "decoders": others["decoders"] or {},
    }
    options = ReadOptions(**others, keys=transform is not None)
    skip = options.on_corrupt == "skip"
    check_cache(options.cache)
    names = options.features_to_read(arguments["columns"])
    pinned = options.state.generations if isinstance(options.state, State) else ()
    plan = resolve(**what, columns=names, accept_cut=skip, pinned=pinned)
    options = replace(options, order=_known_order(plan, options))
    if not strings and names is None and options.map is None:
        decoded = options.decoders
        numbers = {n: f for n, f in plan.schema.items() if f.dtype != "string" or n in decoded}
        plan = replace(plan, schema=Schema(numbers))
    is_dense = options.format.batching == "dense"
    plan = with_decoders(with_fixed_shapes(plan) if is_dense else plan, options.decoders)
    if options.map is not None:
        plan = with_function(plan, options.map, skip, options.cache)
    if is_dense:
        _check_dense(plan)
    _check_features(options, plan, "map" if options.map else "decoders")
    if options.format.boundaries is not None:
        buckets = {_bucket_feature(options.format.buckets, plan): options.format.boundaries}
        options = replace(options, format=replace(options.format, buckets=buckets))
    if plan.records == 0:
        # Repeating, or skipping steps, would search an empty dataset forever.
        state = None if isinstance(options.state, int) else options.state
        options = replace(options, repeat=1, state=state)
    return plan, options


def _known_order(plan: Plan, options: ReadOptions) -> Order:
    """Fills in the defaults of an order: `global` if all shards are on disks or in the cache, and the size of windows."""
    by = options.order.by
    if plan.mixed:
        if by == "interleave":
            raise ValueError("readers.Mix reads records in random access: use Order(by='global')")
        by = "global"
    elif by is None:
        parts = [part for files in plan.files for part in files.parts]
        cached = options.cache.cacheable(parts) if options.cache else ()
        on_disk = all(is_local(part.path) or part.path in cached for part in parts)
        by = "global" if on_disk else "interleave"
    order = replace(options.order, by=by)
    has_windows = order.shuffle and by == "interleave"
    return replace(order, buffer=order.buffer or default_window(plan)) if has_windows else order


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
            found = f"the shape {shape}, where None is a size that varies"
        more = ""
        if feature.is_image:
            resized = f"decoders={{{name!r}: readers.decoders.Resize(224)}}"
            more = f", decode it to one size with {resized}, or write the dataset with --image_size"
        raise ValueError(
            f"feature {name!r} has {found}, so records cannot be stacked: use batching='padded' or "
            f"batching='ragged', leave it out with columns={more}"
        )


def _check_features(options: ReadOptions, plan: Plan, work: str) -> None:
    schema = plan.schema
    if plan.work is not None:
        _check_work(options, work)
    options.format.check(schema)
    names = [*options.format.batch_names(schema), *options.added_names]
    replaced = [name for name in names[len(schema) :] if name in schema]
    if replaced:
        raise ValueError(
            f"the batch adds an array named {replaced[0]!r}, which is also a feature; leave the feature "
            "out with columns="
        )
    if options.as_supervised is not None:
        _check_as_supervised(options, options.as_supervised, names, len(schema))


def _check_work(options: ReadOptions, argument: str) -> None:
    """Raises ValueError if batches are planned by lengths that `map` or `decoders` may change."""
    if options.format.batching == "packed":
        raise ValueError(
            f"{argument}= may change the lengths that readers.Packed plans rows by: use transform=, or another batching"
        )
    if argument == "map" and options.format.buckets is not None and options.format.to != "longest":
        raise ValueError(
            "map= may change the lengths of records after their bucket is chosen: use to='longest'"
        )


def _bucket_feature(buckets: Any, plan: Plan) -> str:
    """The feature whose first unknown dimension determines the bucket."""
    candidates = [name for name, feature in plan.undecoded.items() if feature.has_length]
    names = [*buckets] if isinstance(buckets, Mapping) else candidates
    if len(names) != 1 or names[0] not in candidates:
        raise ValueError(
            f"buckets={buckets!r}: expected one feature with a length, as in {{'tokens': [...]}}; the features "
            f"with a length are {', '.join(candidates) or 'none'}"
        )
    return names[0]


def _check_as_supervised(
    options: ReadOptions, given: Sequence[str], names: list[str], features: int
) -> None:
    """Checks the names in a tuple against the names in a batch, where the first are features."""
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"as_supervised names {unknown[0]!r}, but a batch has {', '.join(names)}")
    if options.keys:
        return  # A `transform` may use names that are not in the tuple.
    added = [name for name in names[features:] if name not in options.added_names]
    for argument, found in (
        ("Padded(mask=True)", [name for name in added if name.endswith(MASK)]),
        ("Padded(lengths=True)", [name for name in added if name.endswith(LENGTH)]),
        ("remainder='pad'", options.added_names),
    ):
        if found and not set(found).intersection(given):
            raise ValueError(
                f"{argument} adds {', '.join(found)}, which as_supervised leaves out: add it "
                f"there, or leave out {argument}"
            )
