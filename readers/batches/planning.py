"""A reader's arguments -> the plan of what to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from readers.batches.options import ReadOptions
from readers.format.schema import Schema, format_shape
from readers.shards.features import with_fixed_shapes
from readers.shards.plan import Paths, Plan
from readers.shards.resolve import resolve, resolve_mixture


def make_plan(
    path_or_files: Paths,
    split: str | None,
    schema: Schema | None,
    columns: Sequence[str] | None,
    options: ReadOptions,
    scan: bool,
    any_order: bool,
) -> tuple[Plan, ReadOptions]:
    """The plan of what to read, and the options after they were checked against it.

    Args:
        path_or_files, split, schema, columns: The arguments of `readers.load`.
        options: How to read.
        scan: Whether to count the records of files that have neither manifest nor index.
        any_order: Whether to refuse files that can only be read from front to back.

    Raises:
        FileNotFoundError, ValueError: `resolve` raises it, or an option does not suit the dataset.
    """
    names, accept_cut = options.features_to_read(columns), options.on_corrupt == "skip"
    if options.weights is None:
        plan = resolve(path_or_files, split, schema, names, scan, accept_cut, any_order)
    else:
        datasets = len(options.weights)
        plan = resolve_mixture(path_or_files, datasets, split, schema, names, accept_cut, any_order)
    if options.format.batching == "dense":
        plan = with_fixed_shapes(plan)
        _check_dense(plan)
    options.check(plan.schema)
    if options.boundaries is not None:
        boundaries = {options.bucket_feature(plan.schema): options.boundaries}
        options = replace(options, format=replace(options.format, bucket_boundaries=boundaries))
    if plan.records == 0:
        # Repeating, or skipping steps, would search an empty dataset for a batch without end.
        options = replace(options, repeat=1, start_step=0)
    return plan, options


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
            more = ", resize it (docs/reading.md shows how), or write the dataset with --image_size"
        raise ValueError(
            f"feature {name!r} has {found}, so records cannot be stacked: use batching='padded' or "
            f"'ragged', leave it out with columns={more}"
        )
