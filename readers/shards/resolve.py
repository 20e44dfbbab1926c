"""Resolves the arguments of a reader (path, split, schema, columns) to a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from readers.decoders.channels import Channels
from readers.files.local import path_text
from readers.files.of_path import files_of
from readers.format.manifest import MANIFEST, Manifest, join
from readers.format.schema import Schema
from readers.order.mixture import Mix
from readers.shards.features import common_sizes
from readers.shards.plan import ColumnNames, Paths, Plan
from readers.shards.resolving.datasets import dataset_plan
from readers.shards.resolving.files import files_plan, found_files, is_glob


def resolve(
    path: Paths,
    split: str | None,
    schema: Mapping[str, Any] | None,
    columns: ColumnNames | None,
    accept_cut: bool = False,
) -> Plan:
    """Makes the plan of a reader, after all checks that do not need a record.

    The arguments are those of `readers.load`, and whether to accept shards whose size differs from the manifest.

    Raises:
        FileNotFoundError: A file is missing.
        DatasetError: (a ValueError) There is neither a manifest nor a schema, or a shard does not match the manifest.
        ValueError: The split, or a feature of `schema` or `columns`, does not exist; a dataset to mix is empty, or
            differs from the others in its features; or a file is compressed.
    """
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema(schema)
    how = split, schema, columns, accept_cut
    if isinstance(path, Mix):
        return _mixed(path, [resolve(directory, *how) for directory in path.weights])
    is_one = isinstance(path, (str, os.PathLike))
    names = _names(path)
    if schema is not None and not files_of(names[0]).exists(join(names[0], MANIFEST)):
        plan = files_plan(found_files(names[0]) if is_one else names, split, schema)
    elif not is_one:
        return _joined(names, [resolve(name, *how) for name in names])
    elif is_glob(names[0]):
        raise ValueError(f"{names[0]}: a glob needs schema=; a dataset is a directory")
    else:
        plan = dataset_plan(names[0], Manifest.read(names[0]), split, schema, accept_cut)
    if columns is None:
        return plan
    of_channels = columns if isinstance(columns, Mapping) else {}
    names = list(columns) if of_channels else name_list("columns", columns)
    decoders = {
        name: Channels.named(name, chosen, plan.meanings.get(name, {}).get("channels", ()))
        for name, chosen in of_channels.items()
        if chosen is not None
    }
    return replace(plan, schema=plan.schema.select(names), decoders=decoders)


def _names(path: Any) -> list[str]:
    """The paths in an argument, as text; raises ValueError unless it is a path or a list of paths."""
    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    is_list = isinstance(paths, Sequence) and len(paths) > 0
    if not is_list or not all(name and isinstance(name, (str, os.PathLike)) for name in paths):
        raise ValueError(
            f"path={path!r:.200}: expected a directory, a list of directories or files, or a readers.Mix"
        )
    return list(map(path_text, paths))


def _mixed(mix: Mix, plans: Sequence[Plan]) -> Plan:
    """Makes the plan for all records of the datasets of a mixture."""
    for path, plan in zip(mix.weights, plans, strict=True):
        if not plan.records:
            raise ValueError(f"{path}: {plan.name} has no records to mix")
    counts = (plan.records for plan in plans)
    mixed = tuple(zip(counts, mix.weights.values(), strict=True))
    return replace(_joined(list(mix.weights), plans), mixed=mixed)


def _joined(paths: Sequence[str | os.PathLike[str]], plans: Sequence[Plan]) -> Plan:
    """Makes the plan for all records of several datasets, which must have the same features."""
    first = plans[0]
    for path, plan in zip(paths, plans, strict=True):
        if plan.schema != first.schema:
            raise ValueError(
                f"{path} has other features than {paths[0]}: {plan.schema}, not {first.schema}; "
                "choose features that both have with columns="
            )
        for name in first.schema:
            if (found := plan.meanings.get(name)) != (expected := first.meanings.get(name)):
                raise ValueError(
                    f"{path} and {paths[0]} differ in the meaning of {name!r}: {found!r:.200}, not {expected!r:.200}; "
                    "write both alike, or choose other features with columns="
                )
    records = sum(plan.records for plan in plans)
    nbytes = sum(plan.records * (plan.record_bytes or 0.0) for plan in plans)
    return Plan(
        name=" and ".join(f"{path} {plan.name}" for path, plan in zip(paths, plans, strict=True)),
        schema=first.schema,
        parts=tuple(part for plan in plans for part in plan.parts),
        records=records,
        record_bytes=nbytes / records if records else None,
        fingerprint=tuple(plan.fingerprint for plan in plans),
        meanings=first.meanings,
        decoders=first.decoders,
        sizes=common_sizes({name: [p.sizes.get(name) for p in plans] for name in first.schema}),
    )


def name_list(argument: str, names: Any) -> list[str]:
    """The list of feature names in an argument; raises ValueError if it is empty or not a list."""
    if isinstance(names, (list, tuple)) and names and all(isinstance(n, str) for n in names):
        return list(names)
    raise ValueError(f"{argument}={names!r}: expected a list of feature names")
