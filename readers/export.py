"""`readers.export_npy`: writes features of a split as `.npy` files, which may exceed memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from readers.batches.batch_format import BatchFormat
from readers.batches.collate import collate
from readers.export_file import PartialNpy
from readers.files.remote import local_path, query
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema, format_shape
from readers.shards.features import with_fixed_shapes
from readers.shards.plan import Paths, Plan
from readers.shards.records import Records
from readers.shards.resolve import name_list, resolve

# Records read and written together: few enough for every machine, enough to decode as columns.
_CHUNK_RECORDS, _CHUNK_BYTES = 4096, 8 << 20

# How much work a killed run has to repeat at most.
_SECONDS_BETWEEN_SAVES = 10.0


@overload
def export_npy(
    path_or_files: Paths,
    feature: str,
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Schema | None = None,
) -> Path: ...


@overload
def export_npy(
    path_or_files: Paths,
    feature: list[str] | tuple[str, ...],
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Schema | None = None,
) -> list[Path]: ...


def export_npy(
    path_or_files: Paths,
    feature: str | Sequence[str],
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Schema | None = None,
) -> Path | list[Path]:
    """Writes a feature of all records of a split to a `.npy` file, and returns the file's path.

    Row i of the array [records, *shape] is the feature of record i, as in `RecordSource`. The array
    may be larger than memory: it is written through a memory map, a few megabytes at a time, and
    `np.load(path, mmap_mode="r")` maps it for reading. The CRC32C of every record is checked.

    An unfinished file is called `<output>.partial`, and a note beside it records its progress. If a
    run is interrupted, the same call resumes it and repeats at most ten seconds of work.

    Args:
        path_or_files: A dataset's directory; or, with `schema`, TFRecord files as for `as_numpy`.
        feature: The feature's name, or a list of names to write in one pass and return a list of
            paths. A feature must be numeric and have the same shape in all records.
        output: The file; for a list of features, a directory for one `<feature>.npy` each. Existing
            files are not replaced.
        split: A split or a slice of one, `"train[:10%]"`. None means the only split, or `train`.
        schema: The features of files without a manifest; for a dataset, the features to read.

    Raises:
        ValueError: An argument is wrong, or a feature cannot be in a `.npy` file; the message
            states what to do.
        CorruptRecordError: (a ValueError) The framing or the checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A shard is missing.
        FileExistsError: The output exists.
        StoreError: (an OSError) A store still fails after several retries.
        OSError: The output cannot be written, or another process is writing it.

    Example:
        >>> path = readers.export_npy("shards/photos", feature="image", output="image.npy")
        >>> np.load(path, mmap_mode="r").shape
        (8000, 224, 224, 3)
    """
    names = [feature] if isinstance(feature, str) else name_list("feature", feature)
    plan = with_fixed_shapes(resolve(path_or_files, split, schema, names, scan=True))
    for name, exported in plan.schema.items():
        _check(name, exported)
    outputs = _outputs(output, names, isinstance(feature, str))
    records = Records(plan)
    files = {
        name: PartialNpy(
            outputs[name],
            _digest(plan, name),
            numpy_dtype(exported.dtype),
            (len(records), *exported.known_sizes),
        )
        for name, exported in plan.schema.items()
    }
    missing = {name: file for name, file in files.items() if not file.is_complete}
    # A run may have been killed after all files were complete, while it removed their notes.
    if len(missing) == len(files) or not all(file.output.exists() for file in missing.values()):
        with contextlib.ExitStack() as opened:
            for file in missing.values():
                opened.enter_context(file.opened())
            _fill(missing, records)
    for file in files.values():
        file.forget()
    return outputs[feature] if isinstance(feature, str) else [outputs[name] for name in names]


def _fill(files: dict[str, PartialNpy], records: Records) -> None:
    """Writes all missing rows, then gives the files their final names."""
    end = len(records)
    begin = min(file.rows for file in files.values())
    size = max(1, min(_CHUNK_RECORDS, int(_CHUNK_BYTES / (records.plan.record_bytes or 1))))
    due = time.monotonic() + _SECONDS_BETWEEN_SAVES
    for first in range(begin, end, size):
        numbers = np.arange(first, min(first + size, end))
        columns, _ = records.columns(numbers)
        arrays = collate(columns, records.plan.schema, BatchFormat(), records.memory.empty)
        for name, file in files.items():
            file.write(first, arrays[name])
        if time.monotonic() >= due:
            for file in files.values():
                file.save(first + len(numbers))
            due = time.monotonic() + _SECONDS_BETWEEN_SAVES
    for file in files.values():
        file.save(end)
    for file in files.values():
        file.commit()


def _check(name: str, feature: Feature) -> None:
    """Raises ValueError for a feature that a `.npy` file cannot hold as numbers of one shape."""
    if feature.dtype in ("string", "bfloat16"):
        kind = "text" if feature.dtype == "string" else feature.dtype
        raise ValueError(
            f"feature {name!r} is {kind}, which a .npy file cannot hold: read it with "
            "readers.as_numpy or readers.RecordSource"
        )
    if not feature.is_fixed:
        raise ValueError(
            f"feature {name!r} has the shape {format_shape(feature.shape)}: None is a size that the "
            "schema does not fix, so it is not one array: read it with readers.as_numpy(..., "
            "batching='padded') or readers.RecordSource"
        )


def _outputs(output: str | os.PathLike[str], names: Sequence[str], is_one: bool) -> dict[str, Path]:
    """The output file of each feature."""
    local = local_path(os.fspath(output))
    if local is None:
        raise ValueError(f"output={os.fspath(output)!r}: expected a local path")
    path = Path(local).expanduser()
    if is_one:
        if path.is_dir():
            raise ValueError(f"output={local!r} is a directory: expected a file")
        return {names[0]: path}
    if path.exists() and not path.is_dir():
        raise ValueError(f"output={local!r} is a file: a list of features needs a directory")
    for name in names:
        if Path(name).name != name:
            raise ValueError(
                f"feature {name!r}: its name cannot be a file name; export it alone, to a file "
                "name of your choice"
            )
    return {name: path / f"{name}.npy" for name in names}


def _digest(plan: Plan, name: str) -> str:
    """A text that changes with the values of the feature and their order."""
    # For files without a manifest, the fingerprint of the plan only covers their sizes.
    unlisted = [part.path for part in plan.parts if part.bytes is None]
    states = [query(path, lambda filesystem, name: filesystem.ukey(name)) for path in unlisted]
    known = plan.fingerprint, states, name, str(plan.schema[name])
    return hashlib.sha256(repr(known).encode()).hexdigest()
