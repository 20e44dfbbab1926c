"""Pieces of objects that are too large for one Beam element.

Beam's runner for Flink makes a combine of every grouping, and each element must fit into the combine's
share of Flink's managed memory, about 5 MB with 64 MB per slot, or the job fails. So nothing above
1 MiB is grouped, combined or broadcast; larger objects are sent in pieces.
"""

from __future__ import annotations

import abc
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from beam_jobs.errors import loss_error

# The size of a piece: half of 1 MiB leaves room for the overhead of coders.
PIECE_BYTES = 1 << 19

# Counts of labels and groups are merged by up to this many workers, so that none gets the pieces
# of all bundles.
_PARTS = 16

# The pickled bytes of an entry of a table without its key.
_ENTRY_BYTES = 20

# The number of a piece, the number of all pieces, and its bytes.
Piece = tuple[int, int, bytes]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
D = TypeVar("D", bound="Divisible")
M = TypeVar("M", bound="Mergeable")


# An odd number whose products spread over 64 bits: 2^64 divided by the golden ratio.
_MIX = np.uint64(0x9E3779B97F4A7C15)


def checksum_of(values: np.ndarray, counts: np.ndarray | int) -> int:
    """A checksum, which adds up, of values, uint64 [n], and of how often each occurs, int [n]."""
    mixed = values * _MIX
    mixed = (mixed ^ mixed >> np.uint64(32)) | np.uint64(1)  # Every value must count, even 0.
    return int((mixed * np.asarray(counts, np.uint64)).sum(dtype=np.uint64))


class Mergeable(Protocol):
    """An object that merges with others of its class, in any order."""

    def merge(self, other: Any, /) -> None:
        """Adds everything that another instance has seen."""


class Divisible(abc.ABC):
    """Facts about records that merge in any order, and may be larger than an element.

    A piece is an object of the same class, with a part of the facts. The checksum of the facts is added up where
    they are found, and sent in one piece, so that a lost or repeated piece is noticed at the end.

    Attributes:
        what: A description of the facts, for errors.
        checksum: The sum of the checksums of all facts that were added.
    """

    what: ClassVar[str] = "facts"
    checksum: int = 0

    @abc.abstractmethod
    def merge(self: D, other: D) -> None:
        """Adds all facts of another instance, which stays as it is."""

    @abc.abstractmethod
    def pieces(self: D) -> Iterator[tuple[Any, D]]:
        """Yields (key, piece of at most `PIECE_BYTES`); merged, all pieces are equal to the whole.

        Pieces with the same records, labels or words have the same key in every process.
        """

    def contents(self) -> int | None:
        """The checksum of the facts themselves; None if there were too many to keep."""
        return self.checksum

    def check(self) -> None:
        """Checks that all pieces were merged exactly once; DataError if the runner lost or repeated some."""
        contents = self.contents()
        if contents is not None and (contents - self.checksum) % (1 << 64):
            raise loss_error(self.what)

    @property
    def is_full(self) -> bool:
        """Whether its pieces should be handed over before more facts are added."""
        return False


def merged(pieces: Iterable[M], empty: Callable[[], M]) -> M:
    """All facts of some objects, or the whole that some pieces were cut from."""
    whole = empty()
    for piece in pieces:
        whole.merge(piece)
    return whole


def cut(data: bytes) -> Iterator[Piece]:
    """Yields bytes in pieces of at most `PIECE_BYTES`, at least one."""
    count = max(1, -(-len(data) // PIECE_BYTES))
    for number in range(count):
        yield number, count, data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]


def joined(pieces: Iterable[Piece]) -> bytes:
    """The bytes that `cut` cut, from their pieces in any order; DataError if the runner lost or repeated pieces."""
    ordered = sorted(pieces)
    expected = ordered[0][1] if ordered else 1
    if [number for number, _, _ in ordered] != list(range(expected)):
        raise loss_error("pieces of what every worker needs", len(ordered), expected)
    return b"".join(data for _, _, data in ordered)


def batches(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yields items in lists of at most `PIECE_BYTES`; a larger item gets a separate list."""
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and total + size > PIECE_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


def parts_of(
    counts: Mapping[K, T], bytes_of: Callable[[K], bytes], parts: int = _PARTS
) -> Iterator[tuple[int, dict[K, T]]]:
    """Yields (part, some entries of a table of numbers, at most `PIECE_BYTES` of them).

    The bytes of a key, which are unique, determine its part.
    """
    divided: list[list[tuple[K, int]]] = [[] for _ in range(parts)]
    for key in counts:
        data = bytes_of(key)
        divided[zlib.crc32(data) % parts].append((key, len(data) + _ENTRY_BYTES))
    for part, keys in enumerate(divided):
        for batch in batches(keys, lambda item: item[1]):
            yield part, {key: counts[key] for key, _ in batch}
