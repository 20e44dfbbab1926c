"""Resolves the arguments of a reader (path, split, schema, columns) to a plan."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from readers.decoders.channels import Channels
from readers.files.local import path_text
from readers.files.of_path import files_of
from readers.format.lookup.index_file import joined_sections
from readers.format.lookup.rows import SeenRows, joined_rows
from readers.format.lookup.where import Where
from readers.format.manifest import MANIFEST, divided, join, open_generation
from readers.format.schema import Schema
from readers.order.mixture import Mix
from readers.shards.features import common_sizes
from readers.shards.plan import ColumnNames, Paths, Plan
from readers.shards.resolving.datasets import dataset_plan
from readers.shards.resolving.files import files_plan, found_files, is_glob
from readers.shards.rows import Rows

# Names of sections -> the arrays of each part of a plan, for all records of its file.
_ReadSections = Callable[[tuple[str, ...]], Sequence[dict[str, np.ndarray]]]


def resolve(
    path: Paths,
    split: str | None,
    schema: Mapping[str, Any] | None,
    columns: ColumnNames | None,
    accept_cut: bool = False,
    pinned: Collection[str] = (),
) -> Plan:
    """Makes the plan of a reader, after all checks that do not need a record.

    The arguments are those of `readers.load`, whether to accept shards whose size differs from the manifest, and the
    SHA-256 of generations to read instead of the newest ones.

    Raises:
        FileNotFoundError: A file is missing.
        DatasetError: (a ValueError) There is neither a manifest nor a schema, or a shard does not match the manifest.
        ValueError: The split, or a feature of `schema` or `columns`, does not exist; a dataset to mix is empty, or
            differs from the others in its features; or a file is compressed.
    """
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema(schema)
    return _Resolver(split, schema, columns, accept_cut, pinned).plan(path)


@dataclass(frozen=True)
class _Resolver:
    """Makes plans; arguments as for `resolve`."""

    split: str | None
    schema: Schema | None
    columns: ColumnNames | None
    accept_cut: bool
    pinned: Collection[str]
    known: dict[str, tuple[Plan, _ReadSections]] = field(default_factory=dict)

    def plan(self, path: Paths) -> Plan:
        """The plan for a path of any kind."""
        if isinstance(path, Mix):
            return self._mixed(path)
        if isinstance(path, Rows):
            plan, read = self._of_one(path_text(path.path))
            return _with_columns(_subset(plan, path, read), self.columns)
        names = _names(path)
        if isinstance(path, (str, os.PathLike)):
            return _with_columns(self._of_one(path_text(path))[0], self.columns)
        texts = [name for name in names if isinstance(name, str)]
        if texts == names and self.schema is not None and not _has_manifest(texts[0]):
            return _with_columns(files_plan(texts, self.split, self.schema), self.columns)
        return _joined(names, [self.plan(name) for name in names])

    def _of_one(self, name: str) -> tuple[Plan, _ReadSections]:
        """The plan for all features of a directory or a pattern, made once: a mixture may have thousands of subsets."""
        if name not in self.known:
            if self.schema is not None and not _has_manifest(name):
                plan = files_plan(found_files(name), self.split, self.schema)
            elif is_glob(name):
                raise ValueError(f"{name}: a glob needs schema=; a dataset is a directory")
            else:
                generation = open_generation(name, self.pinned)
                how = self.schema, self.accept_cut, self.columns
                plan = dataset_plan(generation, self.split, *how)
            self.known[name] = plan, _section_reader(plan)
        return self.known[name]

    def _mixed(self, mix: Mix) -> Plan:
        plans = [self.plan(path) for path in mix.weights]
        for path, plan in zip(mix.weights, plans, strict=True):
            if not plan.records:
                raise ValueError(f"{path}: {plan.name} has no records to mix")
        counts = (plan.records for plan in plans)
        mixed = tuple(zip(counts, mix.weights.values(), strict=True))
        return replace(_joined(list(mix.weights), plans), mixed=mixed)


def _with_columns(plan: Plan, columns: ColumnNames | None) -> Plan:
    """The plan for some features, and some channels of them."""
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


def _subset(plan: Plan, rows: Rows, read: _ReadSections) -> Plan:
    """The plan for some records of another plan, in its order; ValueError if `rows` does not suit it."""
    if rows.where is None:
        return plan.of(_row_numbers(rows, plan))
    classes = {name: meaning.get("classes", ()) for name, meaning in plan.meanings.items()}
    where = Where(rows.where, plan.stored, classes)
    fulfilled = [np.empty(0, bool)]
    for part, columns in zip(plan.parts, read(tuple(where.sections)), strict=True):
        run = slice(part.skip, part.skip + part.take)
        fulfilled.append(where({name: column[run] for name, column in columns.items()}))
    stored = np.flatnonzero(np.concatenate(fulfilled))
    if plan.rows is None:
        return plan.of(stored)
    numbers = plan.rows.numbers_of(stored)
    return plan.of(numbers[numbers >= 0])


def _section_reader(plan: Plan) -> _ReadSections:
    """Reads sections of the indexes of a plan, each once; the arrays are in maps of these files."""

    @functools.cache
    def read(names: tuple[str, ...]) -> Sequence[dict[str, np.ndarray]]:
        files = ((each.stored, [part.index for part in each.parts]) for each in plan.files)
        return joined_sections(files, names)

    return read


def _row_numbers(given: Rows, plan: Plan) -> np.ndarray:
    """The numbers of the records, int64 [n], ascending."""
    rows = np.asarray(given.rows)
    if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
        raise ValueError(
            f"Rows of {given.path}: expected a list of row numbers, got {rows.dtype} {rows.shape}"
        )
    numbers = np.sort(rows.astype(np.int64))
    if numbers.size and not 0 <= numbers[0] <= numbers[-1] < plan.records:
        raise ValueError(
            f"Rows of {given.path}: rows from {numbers[0]} to {numbers[-1]}, but {plan.name} has {plan.records} records"
        )
    if twice := np.flatnonzero(numbers[1:] == numbers[:-1]).tolist():
        raise ValueError(
            f"Rows of {given.path}: row {numbers[twice[0]]} occurs twice; weigh datasets with readers.Mix"
        )
    return numbers


def _has_manifest(name: str) -> bool:
    directory, _ = divided(name)
    return files_of(directory).exists(join(directory, MANIFEST))


def _names(path: Any) -> list[str | Rows]:
    """The paths in an argument, as text unless they are `Rows`; raises ValueError unless it is a path or a list of paths."""
    kinds = str, os.PathLike, Rows
    paths = [path] if isinstance(path, kinds) else path
    is_list = isinstance(paths, Sequence) and len(paths) > 0
    if not is_list or not all(isinstance(name, kinds) and name != "" for name in paths):
        raise ValueError(
            f"path={path!r:.200}: expected a directory, a list of directories or files, readers.Rows or a readers.Mix"
        )
    return [name if isinstance(name, Rows) else path_text(name) for name in paths]


def _joined(paths: Sequence[object], plans: Sequence[Plan]) -> Plan:
    """Makes the plan for all records of several datasets, which must have the same features."""
    first = plans[0]
    for path, plan in zip(paths, plans, strict=True):
        if plan.schema != first.schema:
            raise ValueError(
                f"{path} has other features than {paths[0]}; the first that differs is "
                f"{first.schema.difference(plan.schema)}; choose features that both have with columns="
            )
        for name in first.schema:
            if (found := plan.meanings.get(name)) != (expected := first.meanings.get(name)):
                raise ValueError(
                    f"{path} and {paths[0]} differ in the meaning of {name!r}: {found!r:.200}, not {expected!r:.200}; "
                    "write both alike, or choose other features with columns="
                )
    records = sum(plan.records for plan in plans)
    nbytes = sum(plan.records * (plan.record_bytes or 0.0) for plan in plans)
    if all(plan.parts is first.parts and plan.rows is not None for plan in plans):
        # Subsets of one dataset, of which a mixture may have thousands, open it once.
        parts, elsewhere = first.parts, first.elsewhere
        listed = [plan.rows.of(np.arange(plan.records)) for plan in plans if plan.rows is not None]
        rows: SeenRows | None = SeenRows(sum(first.takes), np.concatenate(listed), False)
    else:
        parts = tuple(part for plan in plans for part in plan.parts)
        elsewhere = {
            name: tuple(part for plan in plans for part in plan.parts_of(name))
            for name in first.schema
            if any(name in plan.elsewhere for plan in plans)
        }
        rows = joined_rows([(sum(plan.takes), plan.rows) for plan in plans])
    return Plan(
        name=" and ".join(f"{path} {plan.name}" for path, plan in zip(paths, plans, strict=True)),
        schema=first.schema,
        parts=parts,
        records=records,
        record_bytes=nbytes / records if records else None,
        fingerprint=tuple(plan.fingerprint for plan in plans),
        meanings=first.meanings,
        decoders=first.decoders,
        rows=rows,
        elsewhere=elsewhere,
        generations=tuple(dict.fromkeys(sha256 for plan in plans for sha256 in plan.generations)),
        sizes=common_sizes({name: [p.sizes.get(name) for p in plans] for name in first.schema}),
    )


def name_list(argument: str, names: Any) -> list[str]:
    """The list of feature names in an argument; raises ValueError if it is empty or not a list."""
    if isinstance(names, (list, tuple)) and names and all(isinstance(n, str) for n in names):
        return list(names)
    raise ValueError(f"{argument}={names!r}: expected a list of feature names")
