"""`readers.RecordSource`: random access to records, for PyTorch, Grain and JAX."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsIndex, overload

import google_crc32c
import numpy as np

from readers.batches.batch_format import check_number, check_one_of
from readers.batches.options import OnCorrupt
from readers.batches.read_sizes import records_together
from readers.decoders.decoder import Decoder
from readers.decoders.record_work import check_decoders
from readers.format.decode.records import owned, owned_value
from readers.format.schema import Schema
from readers.format.tfrecord import CorruptRecordError
from readers.order.mixture import Mix
from readers.order.permutation import record_keys
from readers.shards.cache import Cache, check_cache
from readers.shards.features import with_decoders
from readers.shards.find import find
from readers.shards.plan import ColumnNames, Paths
from readers.shards.records import Records
from readers.shards.resolve import resolve

# Fewer records are decoded one by one, which is then as fast (they break even at 16 to 40 records).
_FEW = 32

# Records that an iteration reads together: from a disk, and from a store in one request.
_LOCAL_BYTES, _FETCHED_BYTES = 2 << 20, 8 << 20


class RecordSource:
    """Random access to the records of a split: `len(source)` and `source[i]`, a dict of arrays.

    It implements Grain's `RandomAccessDataSource` and PyTorch's map-style dataset. Threads may share
    it, and it is cheap to pickle; each process, including forked ones, opens the files itself.

    The value of a feature in a record is

    - an array, for numbers with a shape: writable, and a copy, so it outlives the source;
    - a NumPy scalar such as `np.int64`, for a number of shape [];
    - `bytes`, for a string of shape []; lists of `bytes` for strings of other shapes;
    - a list of these, for a sequence of arrays.

    So the default collation of PyTorch and Grain batches all features of fixed shape; strings become a
    list of `bytes` in PyTorch, and an array of NumPy's dtype `S` in Grain.

    `source.__getitems__(indices)`, which PyTorch's loader calls, reads and decodes a batch together
    and returns a list of the same records in a third of the time.

    Args:
        path: A dataset's directory, or a list of them; or, with `schema`, TFRecord files as for `as_numpy`.
        split: A split or a slice of one, `"train[:10%]"`. None means the only split, or `train`.
        columns: The features to read, also with names of channels, as for `load`. None reads all.
        verify_crc: Whether to check the CRC32C of every record read.
        on_corrupt: `raise`, or `skip`, which replaces a record that fails its checksum with the next
            good one. Skipped records are logged (logger `readers`).
        schema: For files without a manifest, their features; for a dataset, the features to read,
            in as much detail as for `load`.
        cache: `readers.Cache("/local/cache", "500GiB")` keeps whole shards of an object store on a
            local disk. None reads the records from the store.
        decoders: Feature name -> how to decode its images, from `readers.decoders`. Random decoders
            depend on `seed`, the epoch and the record's number; call `set_epoch` before each epoch.
        seed: The seed of random decoders, at least 0.

    Raises:
        ValueError: The split or a column is unknown.
        CorruptRecordError: (a ValueError) The framing or the checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.

    Example:
        >>> source = readers.RecordSource("shards/images", split="train")
        >>> len(source), source[17]["image"].shape
        (96, (64, 64, 3))
    """

    def __init__(
        self,
        path: Paths,
        split: str | None = None,
        columns: ColumnNames | None = None,
        verify_crc: bool = True,
        *,
        on_corrupt: OnCorrupt = "raise",
        schema: Mapping[str, Any] | None = None,
        cache: Cache | None = None,
        decoders: Mapping[str, Decoder] | None = None,
        seed: int = 0,
    ) -> None:
        check_one_of("on_corrupt", on_corrupt, OnCorrupt)
        skip = on_corrupt == "skip"
        if skip and not verify_crc:
            raise ValueError("on_corrupt='skip' needs verify_crc=True, which finds damaged records")
        check_number("seed", seed, 0)
        if isinstance(path, Mix):
            raise ValueError(
                "RecordSource does not take a readers.Mix: expected a directory, or a list of them"
            )
        check_cache(cache)
        plan = resolve(path, split, schema, columns, accept_cut=skip)
        check_decoders(decoders or {})
        plan = with_decoders(plan, decoders or {})
        self._seed, self._epoch = seed, 0
        self._records = Records(plan, verify_crc, skip, cache, own=True)
        self._length, self._process = len(self._records), os.getpid()

    @property
    def schema(self) -> Schema:
        """The features of every record."""
        return self._records.plan.schema

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that random decoders depend on; call it before a `DataLoader` starts its workers.

        Args:
            epoch: The number of the epoch, at least 0.
        """
        self._epoch = check_number("epoch", epoch, 0)

    def find(self, key: str | bytes) -> int:
        """The number of the record with a key: `source[source.find("cats/1.jpg")]`.

        It reads the hashes, of 64 bits, in one index per generation; more indexes only if a job moved the record to balance
        shards, or if no record has the key. Of several datasets, the first one that has it counts.

        Raises:
            KeyError: There is no such record.
            DatasetError: (a ValueError) The records have no keys, or a `reshard` job wrote them, which keeps those of others.
        """
        return find(self._opened().plan, key)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(self._length)))
        if self._records.plan.work:
            return self.__getitems__([index])[0]
        return self._record(self._opened(), self._number(index))

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        numbers = [self._number(index) for index in indices]
        records = self._opened()
        has_work = records.plan.work is not None
        is_slow = has_work or any(feature.is_image for feature in self.schema.values())
        if records.is_local and len(numbers) < _FEW and not is_slow:
            return [self._record(records, number) for number in numbers]
        wanted = np.array(numbers, np.int64)
        keys = record_keys(wanted, (self._seed, self._epoch, 0)) if has_work else None
        (columns,) = records.batches(
            wanted,
            (0, len(wanted)),
            lambda row, *span: self._following(numbers[row], *span),
            keys=keys,
        )
        values = [[owned_value(value) for value in columns[name].arrays()] for name in self.schema]
        return [dict(zip(self.schema, row, strict=True)) for row in zip(*values, strict=True)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        nbytes = _LOCAL_BYTES if self._records.is_local else _FETCHED_BYTES
        plan = self._records.plan
        size = min(max(1, int(nbytes / (plan.record_bytes or 1))), records_together(plan))
        for first in range(0, len(self), size):
            numbers = range(first, min(first + size, len(self)))
            try:
                yield from self.__getitems__(numbers)
            except ValueError:  # The records before a damaged one come first.
                yield from map(self.__getitem__, numbers)

    def __repr__(self) -> str:
        # Grain compares this text in checkpoints, so it identifies the data by content, not by path.
        plan = self._records.plan
        content: list[Any] = [plan.fingerprint, plan.schema.to_json()]
        if plan.work:
            content += [repr(plan.work.decoders), self._seed]
        crc = google_crc32c.value(repr(tuple(content)).encode())
        columns = ", ".join(plan.schema)
        return f"RecordSource({plan.name}: {len(self)} records of {columns}; crc32c {crc:08x})"

    def _record(self, records: Records, number: int) -> dict[str, Any]:
        try:
            return owned(records.record(number))
        except CorruptRecordError:
            if not records.skip:
                raise
        good = records.next_good(number, lambda _, *span: self._following(number, *span))
        return owned(records.record(good))

    def _following(self, number: int, first: int, end: int) -> np.ndarray:
        """The numbers of the records after one, int64 [end - first], wrapping around at the end."""
        return (number + 1 + np.arange(first, end)) % self._length

    def _number(self, index: SupportsIndex) -> int:
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"no record {number}: the source has {self._length}")
        return number % self._length

    def _opened(self) -> Records:
        """The records, opened by this process: a fork inherits locks that a thread of its parent may hold."""
        if self._process != os.getpid():
            self._records = self._records.of_plan(self._records.plan)
            self._process = os.getpid()
        return self._records
