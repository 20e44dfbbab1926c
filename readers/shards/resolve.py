"""Resolves the arguments of a reader (path, split, schema, columns) into a plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.remote import file_size, filesystem_of, local_path, path_text, query
from readers.format.manifest import INDEX_SUFFIX, MANIFEST, DatasetError, Manifest, join
from readers.format.schema import Schema
from readers.format.splits import Shard
from readers.order.split import parse_split, shard_ranges, split_name
from readers.shards.features import chosen_schema, common_sizes, sizes_of
from readers.shards.gzip_files import decompressed_extent, first_record_bytes, is_gzipped
from readers.shards.index import read_index, read_sidecar
from readers.shards.local_shard import version_of
from readers.shards.plan import ALL, Part, Paths, Plan

_GLOB = frozenset("*?[")


def resolve(
    path_or_files: Paths,
    split: str | None,
    schema: Schema | None,
    columns: Sequence[str] | None,
    scan: bool = False,
    accept_cut: bool = False,
    any_order: bool = False,
) -> Plan:
    """The plan of what to read, once everything is checked that needs no record to be read.

    Args:
        path_or_files: A dataset's directory, or a list of them to read one after another; or, with a
            schema, a TFRecord file, a list of files, a glob, or a directory of `*.tfrecord*` files.
        split: A split, or a slice of one. None means the only split, or `train`.
        schema: The schema of files without a manifest; for a dataset, the features to read, of which
            it may say more than the manifest does (see `chosen_schema`).
        columns: The features to read; None means all.
        scan: Whether to count the records of files without manifest and index by scanning them.
        accept_cut: Whether to accept shards whose size is not the one in the manifest.
        any_order: Whether to refuse files whose records can only be read from front to back.

    Raises:
        FileNotFoundError: A file is missing.
        DatasetError: (a ValueError) There is neither a manifest nor a schema, or a shard does not
            match the manifest.
        ValueError: The split, or a feature of `schema` or `columns`, does not exist; or a file is
            compressed in a way that cannot be read as asked.
    """
    if schema is not None and not isinstance(schema, Schema):
        raise ValueError(
            f"schema: expected readers.Schema({{...}}), got {type(schema).__name__}; "
            "wrap the mapping in readers.Schema"
        )
    if isinstance(path_or_files, (str, os.PathLike)):
        path = path_text(path_or_files)
        if schema is None or _is_file(join(path, MANIFEST)):
            if _GLOB.intersection(path) and not _exists(path):
                raise ValueError(f"{path}: a glob needs schema=; a dataset is a directory")
            plan = dataset_plan(path, Manifest.read(path), split, schema, accept_cut)
            return _with_columns(plan, columns)
        files = _found_files(path)
    elif path_or_files and (
        schema is None or _is_file(join(path_text(path_or_files[0]), MANIFEST))
    ):
        plans = [
            resolve(path, split, schema, columns, scan, accept_cut, any_order)
            for path in path_or_files
        ]
        return _joined(path_or_files, plans)
    else:
        files = [path_text(file) for file in path_or_files]
    if schema is None:
        raise ValueError(
            "files without a manifest need schema=readers.Schema({name: (dtype, shape), ...})"
        )
    return _with_columns(_files_plan(files, split, schema, scan, any_order), columns)


def resolve_mixture(
    paths: Any,
    datasets: int,
    split: str | None,
    schema: Schema | None,
    columns: Sequence[str] | None,
    accept_cut: bool = False,
    any_order: bool = False,
) -> Plan:
    """The plan of all records of several datasets, one dataset after another.

    Args:
        paths: A list with the path of each dataset, in any form that `resolve` takes.
        datasets: How many paths the list must have.
        split, schema, columns, accept_cut, any_order: The arguments of `resolve` for every dataset.

    Raises:
        FileNotFoundError, ValueError: `resolve` raises it for a dataset.
        ValueError: A dataset has no records, or the datasets differ in their features.
    """
    if isinstance(paths, (str, os.PathLike)) or len(paths) != datasets:
        found = 1 if isinstance(paths, (str, os.PathLike)) else len(paths)
        raise ValueError(
            f"weights for {datasets} datasets: expected a list of {datasets} paths, found {found}"
        )
    plans = [resolve(path, split, schema, columns, True, accept_cut, any_order) for path in paths]
    for path, plan in zip(paths, plans, strict=True):
        if not plan.records:
            raise ValueError(f"{path}: {plan.name} holds no records to mix")
    return replace(_joined(paths, plans), mixed=tuple(plan.records or 0 for plan in plans))


def _joined(paths: Sequence[str | os.PathLike[str]], plans: Sequence[Plan]) -> Plan:
    """The plan of all records of several datasets, which must have the same features."""
    first = plans[0]
    for path, plan in zip(paths, plans, strict=True):
        if plan.schema != first.schema:
            raise ValueError(
                f"{path} has other features than {paths[0]}: {plan.schema}, not {first.schema}; "
                "choose those they share with columns="
            )
    records = [plan.records or 0 for plan in plans]
    sizes = [n * (plan.record_bytes or 0.0) for n, plan in zip(records, plans, strict=True)]
    return Plan(
        name=" and ".join(f"{path} {plan.name}" for path, plan in zip(paths, plans, strict=True)),
        schema=first.schema,
        parts=tuple(part for plan in plans for part in plan.parts),
        records=sum(records),
        record_bytes=sum(sizes) / sum(records) if sum(records) else None,
        fingerprint=tuple(plan.fingerprint for plan in plans),
        sizes=common_sizes({name: [p.sizes.get(name) for p in plans] for name in first.schema}),
    )


def default_split(names: Sequence[str]) -> str:
    """The split to read if the caller names none: the only one, or `train`.

    Raises:
        ValueError: There are several splits, and none is called `train`.
    """
    if len(names) == 1:
        return names[0]
    if "train" in names:
        return "train"
    raise ValueError(f"name one with split=: the dataset has {', '.join(names) or 'no splits'}")


def name_list(argument: str, names: Any) -> list[str]:
    """The list of feature names in an argument; raises ValueError if it is empty or not a list."""
    if isinstance(names, (list, tuple)) and names and all(isinstance(n, str) for n in names):
        return list(names)
    raise ValueError(f"{argument}={names!r}: expected a list of feature names")


def _with_columns(plan: Plan, columns: Sequence[str] | None) -> Plan:
    if columns is None:
        return plan
    return replace(plan, schema=plan.schema.select(name_list("columns", columns)))


def dataset_plan(
    directory: str,
    manifest: Manifest,
    split: str | None,
    schema: Schema | None = None,
    accept_cut: bool = False,
) -> Plan:
    """The plan for a split of a dataset whose manifest has been read; arguments as of `resolve`."""
    text = default_split(list(manifest.splits)) if split is None else split
    counts = {name: split.records for name, split in manifest.splits.items()}
    name, start, stop = parse_split(text, counts)
    shards = manifest.splits[name].shards
    is_local = local_path(directory) is not None

    def part(run: tuple[int, int, int]) -> Part:
        number, skip, take = run
        shard = shards[number]
        path = join(local_path(directory) or directory, shard.file)
        version = _check_shard(path, shard, accept_cut) if is_local else None
        records, size, crc32c = shard.records, shard.bytes, shard.crc32c
        return Part(path, skip, take, records, size, crc32c=crc32c, version=version)

    # For a store the sizes cost requests, so they wait.
    runs = list(shard_ranges([shard.records for shard in shards], start, stop))
    parts = map_in_threads(part, runs, is_local) if is_local else map(part, runs)
    records = sum(shard.records for shard in shards)
    return Plan(
        name=text,
        schema=manifest.schema if schema is None else chosen_schema(manifest.schema, schema),
        parts=tuple(parts),
        records=stop - start,
        record_bytes=sum(shard.bytes for shard in shards) / records if records else None,
        fingerprint=tuple((s.file, s.records, s.crc32c) for s in shards) + ((start, stop),),
        sizes=sizes_of(manifest),
    )


def _check_shard(path: str, shard: Shard, accept_cut: bool) -> tuple[int, int]:
    """Checks the size of a local shard, and returns its version."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: the manifest lists this shard, but it is missing"
        ) from None
    if stat.st_size != shard.bytes and not accept_cut:
        size = stat.st_size
        raise DatasetError(
            f"{path}: the manifest states {shard.bytes:,} bytes, the file has {size:,}; "
            + (_first_missing(path, shard, size) or "it is damaged or from another run of the job")
        )
    return version_of(stat)


def _first_missing(path: str, shard: Shard, size: int) -> str | None:
    """Which record of a truncated shard is the first that is incomplete, in words.

    None if the shard is not truncated, or its index does not show which record it is.
    """
    if size > shard.bytes:
        return None
    try:
        index = read_sidecar(path, shard.bytes)
    except ValueError:
        return None
    if index is None or len(index) != shard.records:
        return None
    row = int(np.searchsorted(index.sum(axis=1), size, side="right"))
    return (
        f"record {row}, at byte {index[row, 0]}, is cut off or missing; run the job again to repair "
        "it, or use on_corrupt='skip' to read what is left (if records are found by index)"
    )


def _files_plan(
    files: list[str], split: str | None, schema: Schema, scan: bool, any_order: bool
) -> Plan:
    """The plan for files without a manifest."""
    if not files:
        raise ValueError("an empty list of files: there is nothing to read")
    if split is not None and split_name(split) != ALL:
        raise ValueError(
            f"unknown split {split_name(split)!r}: files without a manifest have only {ALL!r}"
        )
    files = [local_path(file) or file for file in files]
    are_local = all(local_path(file) is not None for file in files)
    known_sizes = map_in_threads(_size_and_version, files, are_local)
    sizes, versions = zip(*known_sizes, strict=True)
    gzipped = map_in_threads(is_gzipped, files, are_local)
    if any_order and any(gzipped):
        raise ValueError(
            f"{files[gzipped.index(True)]}: compressed with GZIP, so its records can only be read "
            "from front to back: decompress it, or use readers.load(..., order='interleave') without "
            "buckets and packing"
        )
    described = zip(files, sizes, gzipped, strict=True)
    extents = map_in_threads(lambda file: _extent(*file, scan), described, are_local)
    known = [extent for extent in extents if extent]
    fingerprint = tuple(zip(map(os.path.basename, files), sizes, strict=True))
    if len(known) < len(files):
        if split not in (None, ALL):
            number = extents.index(None)
            reason = f"{files[number]}{INDEX_SUFFIX} is missing"
            if gzipped[number]:
                reason = f"{files[number]} is compressed with GZIP: decompress it"
            raise ValueError(f"split {split!r}: a slice needs the number of records, and {reason}")
        whole = tuple(
            Part(file, 0, None, None, gzipped=compressed, version=version)
            for file, compressed, version in zip(files, gzipped, versions, strict=True)
        )
        largest = int(np.argmax(sizes))
        record_bytes = first_record_bytes(files[largest], gzipped[largest])
        return Plan(split or ALL, schema, whole, None, record_bytes, fingerprint)
    counts = [count for count, _ in known]
    records = sum(counts)
    _, start, stop = parse_split(split or ALL, {ALL: records})
    return Plan(
        name=split or ALL,
        schema=schema,
        parts=tuple(
            Part(
                files[number],
                skip,
                take,
                counts[number],
                gzipped=gzipped[number],
                version=versions[number],
            )
            for number, skip, take in shard_ranges(counts, start, stop)
        ),
        records=stop - start,
        record_bytes=sum(size for _, size in known) / records if records else None,
        fingerprint=(*fingerprint, (start, stop)),
    )


def _extent(file: str, size: int, gzipped: bool, scan: bool) -> tuple[int, int] | None:
    """The number of records in a file and their bytes; None if that takes a scan, and `scan` is off."""
    if gzipped:
        return decompressed_extent(file) if scan else None
    index = read_index(file, size) if scan or not size else read_sidecar(file, size)
    return None if index is None else (len(index), size)


def _size_and_version(file: str) -> tuple[int, tuple[int, int] | None]:
    """The size of a file in bytes, and the version of a local one."""
    try:
        if local_path(file) is None:
            return file_size(file), None
        stat = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{file}: no such file") from None
    return stat.st_size, version_of(stat)


def _exists(path: str) -> bool:
    return bool(query(path, lambda filesystem, name: filesystem.exists(name)))


def _is_file(path: str) -> bool:
    return bool(query(path, lambda filesystem, name: filesystem.isfile(name)))


def _found_files(path: str) -> list[str]:
    """The TFRecord files of a glob or a directory, sorted; or the path itself if it is neither."""
    filesystem, name = filesystem_of(path)
    # The driver may have cached an older listing.
    filesystem.invalidate_cache()
    if _GLOB.intersection(path) and not _exists(path):
        pattern = name
    elif query(path, lambda filesystem, name: filesystem.isdir(name)):
        pattern = join(name, "*.tfrecord*")
    else:
        return [path]
    found = query(path, lambda filesystem, _: filesystem.glob(pattern))
    files = sorted(file for file in found if not file.endswith(INDEX_SUFFIX))
    if not files:
        raise FileNotFoundError(f"{path}: no TFRecord files here")
    return [
        local_path(filesystem.unstrip_protocol(file)) or filesystem.unstrip_protocol(file)
        for file in files
    ]
