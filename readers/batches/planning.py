"""Arguments of a reader -> the plan of what to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from readers.batches.options import ReadOptions
from readers.format.schema import Schema
from readers.shards.plan import Paths, Plan
from readers.shards.resolve import resolve, resolve_mixture


def planned(
    path_or_files: Paths,
    split: str | None,
    schema: Schema | None,
    columns: Sequence[str] | None,
    options: ReadOptions,
    scan: bool,
    any_order: bool,
) -> tuple[Plan, ReadOptions]:
    """The plan of what to read, and the options, which were held against it.

    Args:
        path_or_files, split, schema, columns, scan, any_order: As for `resolve`; with weights, the
            first is a list of datasets.

    Raises:
        FileNotFoundError, DatasetError, ValueError: As `resolve`, and `ReadOptions.check`.
    """
    names, cut = options.columns(columns), options.on_corrupt == "skip"
    if options.weights is None:
        plan = resolve(path_or_files, split, schema, names, scan, cut, any_order)
    else:
        datasets = len(options.weights)
        plan = resolve_mixture(path_or_files, datasets, split, schema, names, cut, any_order)
    options.check(plan.schema)
    if plan.records == 0:
        # There is nothing to come to in going on, be it for ever or by some steps.
        options = replace(options, repeat=1, start_step=0)
    return plan, options
