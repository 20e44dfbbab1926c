"""Visits of the first records of a split, decoded one by one in windows of a few MiB, so that they fit memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from readers.files.processors import processors
from readers.format.decode.images import EncodedImage, pixels_of
from readers.format.features import undecoded
from readers.format.schema import Feature, Schema
from readers.shards.index import read_offsets
from readers.shards.plan import Plan
from readers.shards.resolve import resolve
from readers.source import RecordSource

# Bytes of a window, unless a record is larger.
_WINDOW = 4 << 20

# Larger windows, of one record each, are visited one at a time.
_LARGE = 32 << 20

# Records that are larger, as they are stored or with the pixels of a picture, are left out.
LARGEST = 256 << 20

# Texts that are larger are, too: of each character, several bytes are in memory.
_LARGEST_TEXT = 32 << 20

_Kept = TypeVar("_Kept")
Record = Mapping[str, Any]

# Stands for the pixels of a picture that cannot be decoded.
UNDECODABLE = np.zeros((0, 0, 3), np.uint8)


def visit(
    directory: str,
    part: str,
    schema: Schema,
    visitor: Callable[[Iterator[tuple[int, Record]]], _Kept],
) -> list[_Kept]:
    """What a visitor keeps of each window of records of a part of a split, in their order.

    Args:
        directory: The dataset's directory.
        part: The part, such as `train[:100]`.
        schema: The features to decode.
        visitor: Is given the numbers and the values of records, without those that are too large. Several
            threads call it.

    Raises:
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        ValueError: A record does not fit the schema.
    """
    lengths = _lengths(resolve(directory, part, schema, None, any_order=True))
    source = RecordSource(directory, part, schema=undecoded(schema))
    large = Lock()

    def records(window: range) -> Iterator[tuple[int, Record]]:
        for number, stored in zip(window, source.__getitems__(window), strict=True):
            record = _decoded(stored, schema)
            if record is not None:
                yield number, record

    def visited(window: range) -> _Kept:
        size = int(lengths[window.start : window.stop].sum())
        with large if size > _LARGE else nullcontext():
            return visitor(records(window) if size <= LARGEST else iter(()))

    with ThreadPoolExecutor(processors()) as threads:
        return list(threads.map(visited, _windows(lengths)))


def _lengths(plan: Plan) -> np.ndarray:
    """The size of each record of a plan in its file, int64 [records]."""
    found = [np.diff(read_offsets(part))[part.skip :][: part.take] for part in plan.parts]
    return np.concatenate([*found, np.empty(0, np.int64)])


def _windows(lengths: np.ndarray) -> Iterator[range]:
    """The numbers of the records that are read together."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _WINDOW, side="right")))
        yield range(start, stop)
        start = stop


def _decoded(stored: Record, schema: Schema) -> Record | None:
    """A record with the pixels of its pictures; None if it is too large once it is decoded."""
    record = dict(stored)
    for name, value in stored.items():
        if schema[name].is_image:
            record[name] = _pixels(name, schema[name], value)
            if record[name] is None:
                return None
        elif isinstance(value, bytes) and len(value) > _LARGEST_TEXT:
            return None
    return record


def _pixels(name: str, feature: Feature, encoded: Any) -> Any:
    """The pixels of a picture, or of a list of pictures; None if they are larger than `LARGEST`."""
    several = encoded if feature.step else [encoded]
    try:
        images = [EncodedImage(name, feature.step or feature, data) for data in several]
        if sum(_bytes_of(image) for image in images) > LARGEST:
            return None
        return pixels_of(name, feature, encoded)
    except ValueError:
        return UNDECODABLE


def _bytes_of(image: EncodedImage) -> int:
    return int(np.prod(image.shape, dtype=np.int64)) * image.dtype.itemsize
