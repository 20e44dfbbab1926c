"""The records that all contenders of `read_shards.py` read: made by this project's jobs, from fixed inputs.

    DIR/dataset/               the job's output
    DIR/columns.json           name of a feature -> its dtype and shape
    DIR/<name>.values.npy      the values of all records, concatenated along the first axis; bytes for texts
    DIR/<name>.lengths.npy     int64 [records], the lengths along that axis; only if they vary

This project reads the dataset, with the `key` and the `label` that every job adds. The store of each rival is
written from the arrays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from inputs import make_inputs
from measure import BenchmarkError

BATCH = 128
NUM_SHARDS = 16
SHUFFLE_BUFFER = 10_000  # records, in readers that shuffle a stream

_MASK = (1 << 64) - 1
_SHOWN_SIZE = 160, 120  # of the pictures that become 64x64 pixels

Row = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """The kind of records in a dataset.

    Attributes:
        name: The dataset's name.
        job, flags: The job that writes it, and its flags.
        inputs: The kind of its inputs.
        feature: The feature that is read with the label if only two are chosen.
        records: Number of records in the dataset, a multiple of `BATCH`, so that an epoch has no
            partial batch.
        different: The number of different inputs, which others repeat; None for all.
        batchings: The batchings that are measured.
    """

    name: str
    job: str
    flags: tuple[str, ...]
    inputs: str
    feature: str
    records: int
    different: int | None = None
    batchings: tuple[str, ...] = ("padded", "ragged")

    @property
    def batch(self) -> int:
        """Records in a batch."""
        return BATCH

    def names(self, columns: str, every: Iterable[str]) -> list[str]:
        """The features that are read: those that exist if `columns` is `all`, or two of them."""
        return sorted(every) if columns == "all" else [self.feature, "label"]


_PIXELS = "--encoding", "raw", "--image_size", "64x64"
_TOKENS = "--tokens", "words", "--label_field", "label"

# 60 to 270 MB each, so that the stores of all contenders fit into the page cache of a laptop.
KINDS = {
    kind.name: kind
    for kind in (
        Kind("pixels", "images", _PIXELS, "images", "image", 160 * BATCH, 2_000, ("dense",)),
        Kind("recordings", "sensors", (), "sensors", "signal", 320 * BATCH, 5_000),
        Kind("tokens", "text", _TOKENS, "text", "tokens", 1600 * BATCH, None, ("padded",)),
    )
}


def make_records(folder: str, kind: str, records: int, num_shards: int = NUM_SHARDS) -> None:
    """Makes the inputs of a job, runs it, and writes the arrays for the rivals.

    Args:
        folder: A new folder.
        kind: The name of the kind.
        records: The number of records.
        num_shards: The number of shards.
    """
    import readers
    from beam_jobs.__main__ import main

    made, path = KINDS[kind], Path(folder)
    source = make_inputs(path / "inputs", made.inputs, records, made.different, _SHOWN_SIZE)
    dataset = path / "dataset"
    where = ["--input", str(source), "--output", str(dataset), "--splits", "train=1"]
    if main([made.job, *where, "--num_shards", str(num_shards), *made.flags]):
        raise BenchmarkError(f"the job that writes {kind} failed")
    rows = list(readers.RecordSource(dataset))
    if len(rows) != records:
        raise BenchmarkError(f"{kind}: the job wrote {len(rows)} of {records} records")
    schema = readers.Manifest.read(dataset).schema
    columns = {name: (feature.dtype, list(feature.shape)) for name, feature in schema.items()}
    for name, (dtype, shape) in columns.items():
        values = [row[name] for row in rows]
        if dtype == "string":
            values = [np.frombuffer(value, np.uint8) for value in values]
        if dtype == "string" or None in shape:
            np.save(path / f"{name}.lengths.npy", np.array([len(value) for value in values]))
            np.save(path / f"{name}.values.npy", np.concatenate(values))
        else:
            np.save(path / f"{name}.values.npy", np.stack(values))
    (path / "columns.json").write_text(json.dumps(columns))


class _Column:
    """The values of a feature, memory-mapped."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._values = np.load(folder / f"{name}.values.npy", mmap_mode="r")
        lengths = folder / f"{name}.lengths.npy"
        self._ends = np.cumsum(np.load(lengths)).tolist() if lengths.exists() else None
        self._is_text = dtype == "string"
        self.nbytes = self._values.nbytes

    def __len__(self) -> int:
        return len(self._values) if self._ends is None else len(self._ends)

    def __getitem__(self, number: int) -> Any:
        if self._ends is None:
            value = np.array(self._values[number])
            return value if value.ndim else int(value)
        part = self._values[self._ends[number - 1] if number else 0 : self._ends[number]]
        return part.tobytes() if self._is_text else np.array(part)


class Records:
    """The records of a folder: dicts of an array, bytes or an int by name.

    Args:
        folder: The folder that `make_records` wrote.

    Attributes:
        columns: Name of a feature -> its dtype, and its shape, in which None varies.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns: dict[str, tuple[str, list[int | None]]] = {
            name: tuple(column)
            for name, column in json.loads((folder / "columns.json").read_text()).items()
        }
        self._columns = {n: _Column(folder, n, dtype) for n, (dtype, _) in self.columns.items()}

    def __reduce__(self) -> tuple[type[Records], tuple[Path]]:
        return Records, (self.folder,)  # a mapped array would be pickled with its contents

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, number: int) -> Row:
        return {name: column[number] for name, column in self._columns.items()}

    def __iter__(self) -> Iterator[Row]:
        return map(self.__getitem__, range(len(self)))

    def shards(self, count: int = NUM_SHARDS) -> Iterator[Iterator[Row]]:
        """Yields the records of each of a number of contiguous shards."""
        for shard in range(count):
            numbers = range(len(self) * shard // count, len(self) * (shard + 1) // count)
            yield (self[number] for number in numbers)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all values."""
        return sum(column.nbytes for column in self._columns.values())


def pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Returns arrays as one array [records, longest, ...], padded with zeros.

    For contenders without padding, whose users write this themselves.
    """
    first = rows[0]
    batch = np.zeros((len(rows), max(map(len, rows)), *first.shape[1:]), first.dtype)
    for place, row in zip(batch, rows, strict=True):
        place[: len(row)] = row
    return batch


def collate(rows: Sequence[Mapping[str, Any]], names: Sequence[str], batching: str) -> Row:
    """Returns a batch of records, as users write it for contenders without these batchings."""
    batch: Row = {}
    for name in names:
        values = [row[name] for row in rows]
        if not isinstance(values[0], np.ndarray):
            is_text = isinstance(values[0], (bytes, memoryview, str))
            batch[name] = values if is_text else np.array(values)
        elif batching == "dense":
            batch[name] = np.stack(values)
        else:
            batch[name] = pad(values) if batching == "padded" else values
    return batch


def _unpad(row: np.ndarray) -> np.ndarray:
    """Returns a record of a padded batch without its padding; no record ends with zeros."""
    filled = row.reshape(len(row), -1).any(axis=1)
    return row[: int(filled.nonzero()[0].max(initial=-1)) + 1]


def _fingerprint(rows: Iterable[Row], names: Sequence[str]) -> tuple[int, int]:
    """Returns the number of records and a checksum of them that does not depend on their order."""
    count = total = 0
    for row in rows:
        digest = hashlib.blake2b(digest_size=8)
        for name in names:
            value = row[name]
            if isinstance(value, np.ndarray) and value.ndim:
                digest.update(f"{name} {value.dtype} {value.shape} ".encode())
                digest.update(value.tobytes())
            else:
                text = value.encode() if isinstance(value, str) else value
                text = bytes(text) if isinstance(text, memoryview) else text
                digest.update(text if isinstance(text, bytes) else str(int(text)).encode())
                digest.update(f" {name} ".encode())
        total += int.from_bytes(digest.digest(), "little")
        count += 1
    return count, total & _MASK


def check(
    kind: Kind, batching: str, columns: str, expected: Records, batches: Iterable[Any]
) -> None:
    """Checks that batches have all records, in any order.

    Raises:
        BenchmarkError: They do not.
    """
    names = kind.names(columns, expected.columns)

    def rows() -> Iterator[Row]:
        for batch in batches:
            if set(batch) != set(names):
                raise BenchmarkError(f"a batch of {sorted(batch)}, expected {sorted(names)}")
            arrays = {n: list(v.numpy() if hasattr(v, "numpy") else v) for n, v in batch.items()}
            for row in zip(*arrays.values(), strict=True):
                found = dict(zip(arrays, row, strict=True))
                if batching == "padded":
                    found[kind.feature] = _unpad(np.asarray(found[kind.feature]))
                yield {n: v.numpy() if hasattr(v, "numpy") else v for n, v in found.items()}

    count, checksum = _fingerprint(rows(), names)
    wanted = _fingerprint(expected, names)
    if (count, checksum) != wanted:
        raise BenchmarkError(
            f"{kind.name}, {batching}, {columns}: {count} records with checksum {checksum:x}, "
            f"expected {wanted[0]} with {wanted[1]:x}"
        )
