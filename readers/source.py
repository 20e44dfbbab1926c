"""`readers.RecordSource`: len() and [i] over the records of a dataset, for Grain, PyTorch and JAX."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

import google_crc32c
import numpy as np

from readers.dataset import Paths, resolve
from readers.format.schema import Schema
from readers.records import Records


class RecordSource:
    """The records of a split by number, as dicts of arrays.

    It is safe to share between threads, and cheap to pickle: a copy opens the files again. The
    arrays are its own, writable, and outlive it; a sequence is a list of arrays.

    Args:
        path: A dataset's directory; or, with `schema`, TFRecord files as for `as_numpy`.
        split: A split or a slice of one, `"train[:10%]"`. None means the only one, or `train`.
        columns: The features to read; None means all.
        verify_crc: Whether the CRC32C of every record read is checked.
        schema: What is in files without a manifest; of a dataset, the features to read.

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
    ) -> None:
        self._records = Records(resolve(path, split, schema, columns, scan=True), verify_crc)

    @property
    def schema(self) -> Schema:
        """The features of every record."""
        return self._records.plan.schema

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        numbers = [self._number(index) for index in indices]
        return [
            {name: _own(value) for name, value in record.items()}
            for record in self._records.read(numbers)
        ]

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
        if not -len(self) <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        return number % len(self)


def _own(value: Any) -> Any:
    if isinstance(value, list):
        return [_own(array) for array in value]
    return value if value.flags.writeable and value.base is None else np.array(value)
