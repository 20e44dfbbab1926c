"""Sizes of pages in Parquet files, checked before Arrow reads them.

Arrow allocates the sizes that the header of a page states, up to 2 GiB, before it finds that the page has
fewer bytes, and repeats a large value of a dictionary in each row. The footer is read here, because pyarrow
ends the process when it is asked for the columns of a damaged one.

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from beam_jobs.sources.formats.thrift import I32, I64, NUMBERS, TEXTS, Structs, a_struct, several

# Some writers state sizes of columns in the footer that are too small: pages up to this size are not held to them.
_ANY_PAGE_BYTES = 16 << 20

# Arrow reads no longer headers.
_MOST_HEADER_BYTES = 16 << 20

# Most headers have a tenth of this; those with long texts as statistics may have more.
_SHORT_HEADER_BYTES = 1 << 10

# Pages of a column that are looked at, 15 ms of them: many columns of a damaged file may claim the same bytes.
_MOST_PAGES = 1 << 12

# An encoding: each value has a part of the one before, whose length is stated.
_DELTA_BYTE_ARRAY = 7

_UNPACKED, _PACKED = 2, 3
_PAGE_HEADER = {_UNPACKED: I32, _PACKED: I32}

_ROW_GROUPS, _COLUMNS, _OF_COLUMN = 4, 1, 3
_ENCODINGS, _PATH, _VALUES, _COLUMN_UNPACKED, _COLUMN_PACKED, _FIRST_PAGE, _DICTIONARY = (
    2,
    3,
    5,
    6,
    7,
    9,
    11,
)
_COLUMN = {
    _ENCODINGS: NUMBERS,
    _PATH: TEXTS,
    _VALUES: I64,
    _COLUMN_UNPACKED: I64,
    _COLUMN_PACKED: I64,
    _FIRST_PAGE: I64,
    _DICTIONARY: I64,
}
_FOOTER = {_ROW_GROUPS: several({_COLUMNS: several({_OF_COLUMN: a_struct(_COLUMN)})})}

# After the footer: its length, and the mark of the format.
_END_BYTES = 8


class _Column(NamedTuple):
    """A column in a row group.

    Attributes:
        path: Its name and those of fields in it, joined by dots.
        start, end: Where its pages begin and end.
        unpacked: The size of its pages, unpacked.
        has_dictionary: Whether the first page is a dictionary.
        has_deltas: Whether values may have a part of the one before.
    """

    path: str
    start: int
    end: int
    unpacked: int
    has_dictionary: bool
    has_deltas: bool


class CheckedPages:
    """A Parquet file whose pages are checked while a reader passes their headers.

    Args:
        file: The file, seekable.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # Where the next unread bytes of a header are, in order, and of which column.
        self._awaited: list[tuple[int, int, _Pages]] = []
        self._count = 0

    def expect(self, group: int, names: Iterable[str]) -> int:
        """States which columns, or fields in them, are read next of a row group.

        Returns:
            How many bytes a row may take that repeats values: a few bytes in a page may stand for all of a
            dictionary, or for the value before. Lists of values may take more.

        Raises:
            ValueError: The footer is damaged.
        """
        repeated = 0
        for column in _chosen(self._columns(group), names):
            self._await(_Pages(column.start, column.end, column.unpacked))
            if column.has_dictionary:
                repeated += self._dictionary_bytes(column.start)
            if column.has_deltas:
                repeated += self._largest_page(column)
        return repeated

    def _columns(self, group: int) -> Sequence[_Column]:
        if group < len(self._row_groups):
            return self._row_groups[group]
        raise ValueError(f"the footer is damaged: it has {len(self._row_groups)} row groups")

    @functools.cached_property
    def _row_groups(self) -> Sequence[Sequence[_Column]]:
        try:
            self._file.seek(-_END_BYTES, 2)
            size = int.from_bytes(self._file.read(4), "little")
            self._file.seek(-_END_BYTES - size, 2)
            return _columns_of(self._file.read(size))
        except (IndexError, OSError) as error:
            raise ValueError(f"the footer is damaged: {error}") from None

    def _page(self, start: int) -> tuple[int, int]:
        """How many bytes the page has that begins here, unpacked, and where the next one begins.

        Raises:
            IndexError, ValueError: Its header is damaged or very long.
        """
        self._file.seek(start)
        structs = Structs(self._file.read(_SHORT_HEADER_BYTES))
        header = structs.struct(_PAGE_HEADER)
        if not header.keys() >= {_PACKED, _UNPACKED}:
            raise ValueError("the header of a page has no sizes")
        return max(header[_UNPACKED], 0), start + structs.at + max(header[_PACKED], 0)

    def _dictionary_bytes(self, start: int) -> int:
        """How many bytes the dictionary has that begins here; 0 if it is damaged, as Arrow finds."""
        try:
            return self._page(start)[0]
        except (IndexError, ValueError):
            return 0

    def _largest_page(self, column: _Column) -> int:
        """How many bytes the largest page of a column has: no value is built of bytes of two pages."""
        found, at = 0, column.start
        with contextlib.suppress(IndexError, ValueError):
            for _ in range(_MOST_PAGES):
                if at >= column.end:
                    return found
                size, at = self._page(at)
                found = max(found, size)
        return max(column.unpacked, _ANY_PAGE_BYTES)

    def _await(self, pages: _Pages) -> None:
        if pages.start < pages.end:
            # The number makes two entries at one place comparable.
            self._count += 1
            at = pages.start + len(pages.begun)
            bisect.insort(self._awaited, (at, self._count, pages))

    def read(self, size: int = -1) -> bytes:
        """Reads bytes.

        Raises:
            ValueError: A page whose header they hold is larger than its column, or has a damaged header.
        """
        start = self._file.tell()
        data = self._file.read(size)
        end = start + len(data)
        while True:
            place = bisect.bisect_left(self._awaited, (start,))
            if place == len(self._awaited) or self._awaited[place][0] >= end:
                return data
            at, _, pages = self._awaited.pop(place)
            pages.advance(memoryview(data)[at - start :])
            self._await(pages)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _chosen(columns: Sequence[_Column], names: Iterable[str]) -> Sequence[_Column]:
    """Those of some names and with these fields; all if a name is not found: Arrow has names of its own."""
    wanted, seen, found = set(names), set[str](), []
    for column in columns:
        if above := wanted.intersection(
            itertools.accumulate(column.path.split("."), "{}.{}".format)
        ):
            seen |= above
            found.append(column)
    return found if seen == wanted else columns


# A large file is opened once for each few of its row groups.
@functools.lru_cache(maxsize=2)
def _columns_of(footer: bytes) -> tuple[tuple[_Column, ...], ...]:
    """The columns of each row group."""
    found = []
    for group in Structs(footer).struct(_FOOTER).get(_ROW_GROUPS, ()):
        columns = (column.get(_OF_COLUMN, {}) for column in group.get(_COLUMNS, ()))
        # A column without values has no pages, and its offsets may be 0.
        found.append(tuple(_column(column) for column in columns if column.get(_VALUES)))
    return tuple(found)


def _column(stated: dict[int, Any]) -> _Column:
    start, dictionary = stated.get(_FIRST_PAGE, 0), stated.get(_DICTIONARY, 0)
    has_dictionary = 0 < dictionary < start
    start = max(dictionary if has_dictionary else start, 0)
    return _Column(
        ".".join(stated.get(_PATH, ())),
        start,
        start + stated.get(_COLUMN_PACKED, 0),
        stated.get(_COLUMN_UNPACKED, 0),
        has_dictionary,
        _DELTA_BYTE_ARRAY in stated.get(_ENCODINGS, ()),
    )


@dataclass
class _Pages:
    """The pages of a column in a row group.

    Attributes:
        start: Where the header of the next page begins.
        end: Where the last page ends.
        unpacked: How many bytes the pages have together when they are unpacked, says the footer.
        begun: The first bytes of a header whose rest was not read yet.
    """

    start: int
    end: int
    unpacked: int
    begun: bytes = b""

    def advance(self, data: memoryview) -> None:
        """Checks the next page, of whose header these are the next bytes, and goes to the one after.

        Raises:
            ValueError: The page is larger than its column, or its header is damaged.
        """
        structs = Structs(self.begun + data if self.begun else data)
        try:
            header = structs.struct(_PAGE_HEADER)
        except IndexError:
            self.begun += data
            if len(self.begun) > _MOST_HEADER_BYTES:
                raise ValueError("the header of a page does not end") from None
            return
        except ValueError as error:
            raise ValueError(f"the header of a page has {error}") from None
        self.begun = b""
        self.start += structs.at
        unpacked, packed = header.get(_UNPACKED, 0), header.get(_PACKED, 0)
        if unpacked > max(self.unpacked, _ANY_PAGE_BYTES):
            raise ValueError(f"a page states {unpacked} bytes, its column has {self.unpacked}")
        if packed > self.end - self.start:
            left = max(self.end - self.start, 0)
            raise ValueError(f"a page states {packed} bytes, {left} are left")
        self.start += max(packed, 0)
