"""`readers.export_npy`: features of a split as `.npy` files that may be larger than memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from readers.batches.collate import collate
from readers.batches.options import Form
from readers.export_file import PartialNpy
from readers.files.remote import ask, local_path
from readers.format.schema import Feature, Schema, format_shape, numpy_dtype
from readers.shards.plan import Paths, Plan
from readers.shards.records import Records
from readers.shards.resolve import name_list, resolve

# Read and written at once: few enough for every machine, enough to be decoded as columns.
_CHUNK_RECORDS, _CHUNK_BYTES = 4096, 8 << 20

# What a killed run has to do again.
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
    """The path of a `.npy` file of one feature of all records of a split; paths for a list of them.

    Row i of the array [records, *shape] is the feature of record i, as in `RecordSource`. The array
    may be larger than memory: it is written as a memory map, a few megabytes at a time, and
    `np.load(path, mmap_mode="r")` opens it as one. Every record's CRC32C is checked.

    A file has its name when it is whole; until then it is `<output>.partial`, with a note of how far
    it is beside it. The same call goes on after a run that was killed, and repeats ten seconds.

    Args:
        path_or_files: A dataset's directory; or, with `schema`, TFRecord files as for `as_numpy`.
        feature: Its name; or a list of names, whose files are written in one pass. Each has numbers
            of one shape in all records.
        output: The file; for a list a directory, in which each file is `<feature>.npy`. Nothing
            there is replaced.
        split: A split or a slice of one, `"train[:10%]"`. None means the only one, or `train`.
        schema: What is in files without a manifest; of a dataset, the features to read.

    Raises:
        ValueError: An argument is wrong, a feature cannot be in a `.npy` file, or a record is
            damaged; the message says what to do.
        DatasetError: (a ValueError) There is no manifest, or a shard is not as it says.
        FileNotFoundError: A shard is missing.
        FileExistsError: The output exists.
        OSError: It cannot be written, or another process is writing it.

    Example:
        >>> path = readers.export_npy("shards/photos", feature="image", output="image.npy")
        >>> np.load(path, mmap_mode="r").shape
        (8000, 224, 224, 3)
    """
    names = [feature] if isinstance(feature, str) else name_list("feature", feature)
    plan = resolve(path_or_files, split, schema, names, scan=True)
    for name, exported in plan.schema.items():
        _check(name, exported)
    outputs = _outputs(output, names, isinstance(feature, str))
    records = Records(plan)
    files = {
        name: PartialNpy(
            outputs[name],
            _digest(plan, name),
            numpy_dtype(exported.dtype),
            (len(records), *(d for d in exported.shape if d is not None)),
        )
        for name, exported in plan.schema.items()
    }
    missing = {name: file for name, file in files.items() if not file.is_whole}
    # A run may have been killed while it took away the notes of files that are all whole.
    if len(missing) == len(files) or not all(file.output.exists() for file in missing.values()):
        with contextlib.ExitStack() as opened:
            for file in missing.values():
                opened.enter_context(file)
            _fill(missing, records)
    for file in files.values():
        file.forget()
    return outputs[feature] if isinstance(feature, str) else [outputs[name] for name in names]


def _fill(files: dict[str, PartialNpy], records: Records) -> None:
    """Writes all rows that are missing, and gives the files their names."""
    end = len(records)
    begin = min(file.rows for file in files.values())
    size = max(1, min(_CHUNK_RECORDS, int(_CHUNK_BYTES / (records.plan.record_bytes or 1))))
    due = time.monotonic() + _SECONDS_BETWEEN_SAVES
    for first in range(begin, end, size):
        numbers = np.arange(first, min(first + size, end))
        columns, _ = records.columns(numbers)
        arrays = collate(columns, records.plan.schema, Form(), records.memory.empty)
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
    if feature.dtype == "string":
        raise ValueError(
            f"feature {name!r} is text, which a .npy file cannot hold in one shape: read it with "
            "readers.as_numpy or readers.RecordSource"
        )
    if feature.dtype == "bfloat16":
        raise ValueError(
            f"feature {name!r} is bfloat16, which .npy files do not know: read it with "
            "readers.as_numpy or readers.RecordSource"
        )
    if not feature.is_fixed:
        raise ValueError(
            f"feature {name!r} has the shape {format_shape(feature.shape)}, which differs between "
            "records, so it is no array: read it with readers.as_numpy(..., batching='padded') or "
            "readers.RecordSource"
        )


def _outputs(output: str | os.PathLike[str], names: Sequence[str], is_one: bool) -> dict[str, Path]:
    """The file of each feature."""
    local = local_path(os.fspath(output))
    if local is None:
        raise ValueError(f"output={os.fspath(output)!r}: expected a local path, to write a map to")
    path = Path(local).expanduser()
    if is_one:
        if path.is_dir():
            raise ValueError(f"output={local!r} is a directory: expected a file in it")
        return {names[0]: path}
    if path.exists() and not path.is_dir():
        raise ValueError(f"output={local!r} is a file: several features go to a directory")
    for name in names:
        if Path(name).name != name:
            raise ValueError(
                f"feature {name!r} has a name that is none for a file: export it alone, to a file "
                "of a name that you choose"
            )
    return {name: path / f"{name}.npy" for name in names}


def _digest(plan: Plan, name: str) -> str:
    """A text that is another one for other values, or another order of them."""
    # Of files without a manifest the fingerprint knows the size alone.
    unlisted = [part.path for part in plan.parts if part.bytes is None]
    states = [ask(path, lambda filesystem, name: filesystem.ukey(name)) for path in unlisted]
    known = plan.fingerprint, states, name, str(plan.schema[name])
    return hashlib.sha256(repr(known).encode()).hexdigest()
