"""`readers.export_npy`: writes features of a split as `.npy` files, which may exceed memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, overload

import numpy as np

from readers.batches.batch_format import BatchFormat
from readers.batches.collate import collate
from readers.batches.read_sizes import records_together
from readers.files.local import is_local, path_text
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.spec import format_shape
from readers.format.schema import Feature
from readers.shards.features import with_fixed_shapes
from readers.shards.plan import Paths
from readers.shards.records import Records
from readers.shards.resolve import name_list, resolve


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

    Row i of the array [records, *shape] is the feature of record i, as in `RecordSource`. The array may be larger than
    memory, and `np.load(path, mmap_mode="r")` maps it for reading. The CRC32C of every record is checked.

    A file is called `<output>.partial` until it is complete. An export that fails removes it.

    Args:
        path: A dataset's directory; or, with `schema`, TFRecord files as for `as_numpy`.
        feature: The feature's name, or a list of names to write in one pass. A feature must be numeric and have the
            same shape in all records.
        output: The file; for a list of features, a directory for one `<feature>.npy` each, whose paths are returned.
            Existing files are not replaced.
        split: A split or a slice of one, `"train[:10%]"`. None means the only split, or `train`.
        schema: The features of files without a manifest; for a dataset, the features to read.

    Raises:
        ValueError: An argument is wrong, or a feature cannot be in a `.npy` file; the message says what to do.
        CorruptRecordError: (a ValueError) The framing or the checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A shard is missing.
        FileExistsError: The output exists; or the `.partial` file of an export that still runs, or was killed.
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
    for target in outputs.values():
        if target.exists():
            raise FileExistsError(f"{target}: already exists; delete it, or choose another output")
    records, size = Records(plan), records_together(plan)
    with ExitStack() as stack:
        files = {name: stack.enter_context(_partial(path)) for name, path in outputs.items()}
        for name, file in files.items():
            _write(file, _header(plan.schema[name], len(records)))
        for first in range(0, len(records), size):
            numbers = np.arange(first, min(first + size, len(records)))
            (columns,) = records.batches(numbers, (0, len(numbers)))
            arrays = collate(columns, plan.schema, BatchFormat(), records.memory.empty)
            for name, file in files.items():
                _write(file, arrays[name].reshape(-1).view(np.uint8).data)
    return outputs[feature] if isinstance(feature, str) else [outputs[name] for name in names]


@contextmanager
def _partial(path: Path) -> Iterator[io.FileIO]:
    """A new file `<path>.partial`, which is renamed when it is complete, and removed if it fails."""
    partial = path.with_name(f"{path.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = partial.open("xb", buffering=0)
    except FileExistsError:
        raise FileExistsError(
            f"{partial}: another export is writing it, or was killed; wait until it ends, or delete the file"
        ) from None
    try:
        with file:
            yield file
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _header(feature: Feature, records: int) -> memoryview:
    """The beginning of a `.npy` file of an array [records, *shape]."""
    header, dtype = io.BytesIO(), np.lib.format.dtype_to_descr(numpy_dtype(feature.dtype))
    shape = records, *feature.known_sizes
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getbuffer()


def _write(file: io.FileIO, data: memoryview) -> None:
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
        problem = f"is {'text' if feature.dtype == 'string' else feature.dtype}"
    elif not feature.is_fixed:
        problem = f"has the shape {format_shape(feature.shape)}, which varies between records"
    else:
        return
    raise ValueError(
        f"feature {name!r} {problem}; a .npy file holds numbers of one shape: read it with "
        "readers.as_numpy(..., batching='padded') or readers.RecordSource"
    )


def _outputs(output: str | os.PathLike[str], names: Sequence[str], is_one: bool) -> dict[str, Path]:
    """The output file of each feature."""
    local = path_text(output)
    path = Path(local)
    if not is_local(local):
        raise ValueError(f"output={local!r}: expected a local path")
    if path.exists() and path.is_dir() == is_one:
        problem = (
            "directory: expected a file" if is_one else "file: several features need a directory"
        )
        raise ValueError(f"output={local!r} is a {problem}")
    if is_one:
        return dict.fromkeys(names, path)
    for name in names:
        if Path(name).name != name:
            raise ValueError(
                f"feature {name!r}: its name cannot be a file name; export it alone, to a file of your choice"
            )
    return {name: path / f"{name}.npy" for name in names}
