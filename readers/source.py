"""`readers.RecordSource`: len() and [i] over the records of a dataset, for Grain, PyTorch and JAX."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

import google_crc32c
import numpy as np

from readers.format.schema import Schema
from readers.shards.cache import cache_of
from readers.shards.plan import Paths
from readers.shards.records import Records
from readers.shards.resolve import resolve

# Fewer records than these are decoded one by one as fast as together (crossings at 16 to 40 of them).
_MANY = 32


class RecordSource:
    """The records of a split by number, as dicts of arrays.

    It follows Grain's `RandomAccessDataSource` and PyTorch's map-style datasets. It is safe to share
    between threads, and cheap to pickle; each process, forked ones too, opens the files itself. The
    arrays are writable, belong to their record alone, and outlive the source; texts are bytes in an
    object array [], a sequence is a list of arrays.

    `source.__getitems__(indices)`, which PyTorch's loader calls, reads and decodes a whole batch at
    once: a list of the same records, in a third of the time.

    Args:
        path: A dataset's directory; or, with `schema`, TFRecord files as for `as_numpy`.
        split: A split or a slice of one, `"train[:10%]"`. None means the only one, or `train`.
        columns: The features to read; None means all.
        verify_crc: Whether the CRC32C of every record read is checked.
        schema: What is in files without a manifest; of a dataset, the features to read.
        cache_dir: A local directory, for datasets of a store: whole shards are fetched there when they
            are first read, held against the manifest, and read as local files from then on; any
            number of processes may share it. None to read records where they are.
        cache_size: The most it takes, as `"500GiB"` or in bytes; None for 10 GiB. The least recently
            opened shards make room for others. Of a dataset that is larger, the first shards that
            fit are kept, and the others read from the store each time.

    Raises:
        ValueError: The split or a column is unknown.
        DatasetError: (a ValueError) There is no manifest, or a shard is not as it says.
        FileNotFoundError: A file is missing.

    Example:
        >>> source = readers.RecordSource("shards/photos", split="train")
        >>> len(source), source[17]["image"].shape
        (8000, (224, 224, 3))
    """

    def __init__(
        self,
        path: Paths,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        verify_crc: bool = True,
        *,
        schema: Schema | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
    ) -> None:
        cache = cache_of(cache_dir, cache_size)
        plan = resolve(path, split, schema, columns, scan=True, any_order=True)
        self._records = Records(plan, verify_crc, cache=cache)
        self._length, self._process = len(self._records), os.getpid()
        self._is_local = self._records.is_local

    @property
    def schema(self) -> Schema:
        """The features of every record."""
        return self._records.plan.schema

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        return _owned(self._opened().record(self._number(index)))

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        numbers = [self._number(index) for index in indices]
        records = self._opened()
        if self._is_local and len(numbers) < _MANY:
            return [_owned(records.record(number)) for number in numbers]
        columns, _ = records.columns(np.array(numbers, np.int64))
        values = [[_own(value) for value in columns[name].arrays()] for name in self.schema]
        return [dict(zip(self.schema, row, strict=True)) for row in zip(*values, strict=True)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        # Checkpoints compare this text: it tells the same data by content, wherever it lies.
        plan = self._records.plan
        crc = google_crc32c.value(repr((plan.fingerprint, plan.schema.to_json())).encode())
        columns = ", ".join(plan.schema)
        return f"RecordSource({plan.name}: {len(self)} records of {columns}; crc32c {crc:08x})"

    def _number(self, index: SupportsIndex) -> int:
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"record {number} of {self._length}")
        return number % self._length

    def _opened(self) -> Records:
        """The records, opened by this process.

        One that was forked has them from its parent: with locks that threads of the parent may
        have held, and connections that both would use.
        """
        if self._process != os.getpid():
            self._records, self._process = copy.copy(self._records), os.getpid()
        return self._records


def _owned(record: dict[str, Any]) -> dict[str, Any]:
    return {name: _own(value) for name, value in record.items()}


def _own(value: Any) -> Any:
    if isinstance(value, list):
        return [_own(array) for array in value]
    if isinstance(value, bytes):
        return np.array(value, object)
    return value if value.flags.writeable and value.base is None else np.array(value)
