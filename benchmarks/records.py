"""The records that all contenders of `read_shards.py` read: made once, from a fixed seed.

    DIR/values.npy    all records, concatenated along the first axis
    DIR/lengths.npy   int64 [records], the lengths along that axis; only if they vary

The store of each contender is written from these arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure import BenchmarkError

BATCH = 128
NUM_SHARDS = 16
SHUFFLE_BUFFER = 10_000  # records, in readers that shuffle a stream

_SEED = 20_260_201
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Kind:
    """The kind of records in a dataset.

    Attributes:
        name: The dataset's name.
        dtype, shape: The dtype and shape of a record's only array; None marks a variable length.
        records: Number of records in the dataset, a multiple of `BATCH`, so that an epoch has no
            partial batch.
        shortest, longest: Range of variable lengths.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    records: int
    shortest: int = 0
    longest: int = 0

    @property
    def batch(self) -> int:
        """Records in a batch."""
        return BATCH

    @property
    def batchings(self) -> tuple[str, ...]:
        """The batchings that are measured."""
        return ("padded", "ragged") if None in self.shape else ("dense",)

    @property
    def any_shape(self) -> tuple[int, ...]:
        """The shape for NumPy's `reshape`, with -1 for a variable length."""
        return tuple(-1 if size is None else size for size in self.shape)


# 50 to 270 MB each, so that the stores of all contenders fit into the page cache of a laptop.
KINDS = {
    kind.name: kind
    for kind in (
        Kind("small", "float32", (64,), 1600 * BATCH),
        Kind("images", "uint8", (64, 64, 3), 160 * BATCH),
        Kind("sensors", "float32", (None, 6), 320 * BATCH, 50, 500),
        Kind("tokens", "int64", (None,), 1600 * BATCH, 5, 200),
    )
}


class Records:
    """The records of a folder, memory-mapped.

    Args:
        folder: The folder that `make_records` wrote.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._values = np.load(folder / "values.npy", mmap_mode="r")
        lengths = folder / "lengths.npy"
        self._ends = np.cumsum(np.load(lengths)).tolist() if lengths.exists() else None

    def __reduce__(self) -> tuple[type[Records], tuple[Path]]:
        return Records, (self._folder,)  # a mapped array would be pickled with its contents

    def __len__(self) -> int:
        return len(self._values) if self._ends is None else len(self._ends)

    def __getitem__(self, number: int) -> np.ndarray:
        if self._ends is None:
            return np.array(self._values[number])
        return np.array(self._values[self._ends[number - 1] if number else 0 : self._ends[number]])

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(len(self)))

    def shards(self) -> Iterator[Iterator[np.ndarray]]:
        """Yields the records of each of `NUM_SHARDS` contiguous shards."""
        for shard in range(NUM_SHARDS):
            numbers = range(len(self) * shard // NUM_SHARDS, len(self) * (shard + 1) // NUM_SHARDS)
            yield (self[number] for number in numbers)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all values."""
        return self._values.nbytes


def make_records(folder: Path, kind: Kind, records: int) -> None:
    """Writes the arrays of a kind.

    No value is zero, so that padding can be recognised.
    """
    rng = np.random.default_rng((_SEED, list(KINDS).index(kind.name)))
    folder.mkdir(parents=True)
    shape = (records, *kind.any_shape)
    if None in kind.shape:
        lengths = rng.integers(kind.shortest, kind.longest + 1, records)
        np.save(folder / "lengths.npy", lengths)
        shape = (int(lengths.sum()), *kind.any_shape[1:])
    if kind.dtype == "float32":
        values = rng.standard_normal(shape, np.float32)
        values[values == 0] = 1
    else:
        vocabulary = 32_000
        values = rng.integers(1, 256 if kind.dtype == "uint8" else vocabulary, shape, kind.dtype)
    np.save(folder / "values.npy", values)


def pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Returns records as one array [records, longest, ...], padded with zeros.

    For contenders without padding, whose users write this themselves.
    """
    first = rows[0]
    batch = np.zeros((len(rows), max(map(len, rows)), *first.shape[1:]), first.dtype)
    for place, row in zip(batch, rows, strict=True):
        place[: len(row)] = row
    return batch


def unpad(row: np.ndarray) -> np.ndarray:
    """Returns a record of a padded batch without its padding."""
    filled = row.reshape(len(row), -1).any(axis=1)
    return row[: int(filled.nonzero()[0].max(initial=-1)) + 1]


def fingerprint(rows: Iterable[np.ndarray]) -> tuple[int, int]:
    """Returns the number of records and a checksum of them that does not depend on their order."""
    count = total = 0
    for row in rows:
        digest = hashlib.blake2b(f"{row.dtype} {row.shape} ".encode(), digest_size=8)
        digest.update(row.tobytes())
        total += int.from_bytes(digest.digest(), "little")
        count += 1
    return count, total & _MASK


def check(kind: Kind, batching: str, expected: Records, batches: Iterable[Any]) -> None:
    """Checks that batches have all records, in any order.

    Raises:
        BenchmarkError: They do not.
    """

    def rows() -> Iterator[np.ndarray]:
        for batch in batches:
            found = list(batch.numpy() if hasattr(batch, "numpy") else batch)
            if len(found) != BATCH:
                raise BenchmarkError(f"a batch of {len(found)} records, expected {BATCH}")
            yield from map(unpad, found) if batching == "padded" else found

    count, checksum = fingerprint(rows())
    wanted = fingerprint(expected)
    if (count, checksum) != wanted:
        raise BenchmarkError(
            f"{kind.name}, {batching}: {count} records with checksum {checksum:x}, "
            f"expected {wanted[0]} with {wanted[1]:x}"
        )
