"""`readers.export_npy`: writes features of a split as `.npy` files, which may exceed memory."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, overload

import numpy as np

from readers.batches.batch_format import BatchFormat
from readers.batches.collate import collate
from readers.files.local import is_local, path_text
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.spec import format_shape
from readers.format.schema import Feature
from readers.shards.features import with_fixed_shapes
from readers.shards.plan import Paths
from readers.shards.records import Records
from readers.shards.resolve import name_list, resolve

# Records read and written together: few enough for every machine, enough to decode as columns.
_CHUNK_RECORDS, _CHUNK_BYTES = 4096, 8 << 20


@overload
def export_npy(
    path: Paths,
    feature: str,
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Path: ...


@overload
def export_npy(
    path: Paths,
    feature: list[str] | tuple[str, ...],
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
) -> list[Path]: ...


def export_npy(
    path: Paths,
    feature: str | Sequence[str],
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Path | list[Path]:
    """Writes a feature of all records of a split to a `.npy` file, and returns the file's path.

    Row i of the array [records, *shape] is the feature of record i, as in `RecordSource`. The array
    may be larger than memory: it is written a few megabytes at a time, and
    `np.load(path, mmap_mode="r")` maps it for reading. The CRC32C of every record is checked.

    A file is called `<output>.partial` until it is complete. An export that fails removes it.

    Args:
        path: A dataset's directory; or, with `schema`, TFRecord files as for `as_numpy`.
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
        FileExistsError: The output exists; or the `.partial` file of an export that still runs, or
            was killed.
        StoreError: (an OSError) A store still fails after several retries.
        OSError: The output cannot be written.

    Example:
        >>> path = readers.export_npy("shards/photos", feature="image", output="image.npy")
        >>> np.load(path, mmap_mode="r").shape
        (8000, 224, 224, 3)
    """
    names = [feature] if isinstance(feature, str) else name_list("feature", feature)
    plan = with_fixed_shapes(resolve(path, split, schema, names))
    for name, exported in plan.schema.items():
        _check(name, exported)
    outputs = _outputs(output, names, isinstance(feature, str))
    for path in outputs.values():
        if path.exists():
            raise FileExistsError(f"{path}: already exists; delete it, or choose another output")
    partials = {name: path.with_name(f"{path.name}.partial") for name, path in outputs.items()}
    files: dict[str, FileIO] = {}
    with contextlib.ExitStack() as opened:
        for name, partial in partials.items():
            files[name] = opened.enter_context(_created(partial))
            opened.callback(partial.unlink, missing_ok=True)
        _fill(files, Records(plan))
        for name, partial in partials.items():
            partial.replace(outputs[name])
    return outputs[feature] if isinstance(feature, str) else [outputs[name] for name in names]


def _created(partial: Path) -> FileIO:
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        return partial.open("xb", buffering=0)
    except FileExistsError:
        raise FileExistsError(
            f"{partial}: another export is writing it, or was killed; wait until it ends, or delete "
            "the file"
        ) from None


def _fill(files: Mapping[str, FileIO], records: Records) -> None:
    """Writes the headers and all rows."""
    schema, end = records.plan.schema, len(records)
    for name, file in files.items():
        header = io.BytesIO()
        row = np.lib.format.dtype_to_descr(numpy_dtype(schema[name].dtype))
        shape = end, *schema[name].known_sizes
        np.lib.format.write_array_header_1_0(
            header, {"descr": row, "fortran_order": False, "shape": shape}
        )
        _write(file, header.getbuffer())
    size = max(1, min(_CHUNK_RECORDS, int(_CHUNK_BYTES / (records.plan.record_bytes or 1))))
    for first in range(0, end, size):
        numbers = np.arange(first, min(first + size, end))
        (columns,) = records.batches(numbers, (0, len(numbers)))
        arrays = collate(columns, schema, BatchFormat(), records.memory.empty)
        for name, file in files.items():
            _write(file, arrays[name].reshape(-1).view(np.uint8).data)
    for file in files.values():
        os.fsync(file.fileno())


def _write(file: FileIO, data: memoryview) -> None:
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(
            f"{os.fspath(file.name)}: cannot be written ({error.strerror}); free some space, or "
            "choose another output"
        ) from None


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
    local = path_text(output)
    if not is_local(local):
        raise ValueError(f"output={local!r}: expected a local path")
    path = Path(local)
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
