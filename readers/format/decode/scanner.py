"""One position in each of many serialized messages, all of which are read in lockstep."""

from __future__ import annotations

import numpy as np

from readers.format.protobuf.wire import LONGEST_LENGTH

# Bytes that the buffer needs after the last record, so that no step reads outside of it: a varint
# may run past the end of a record before this is noticed, and eight bytes are read at a time.
MARGIN = 32


class IrregularRecords(Exception):
    """Some records do not have the same form as the first.

    Args:
        regular: bool [B], which records do.
    """

    def __init__(self, regular: np.ndarray) -> None:
        super().__init__()
        self.regular = regular


class Scanner:
    """One position in each of B records, all of which advance together.

    Every step raises IrregularRecords if a record does not have what the step expects.

    Args:
        data: uint8 [n], the buffer that holds the records.
        at: int64 [B], the first position in each record.
        stops: int64 [B], the end of each record.
    """

    def __init__(self, data: np.ndarray, at: np.ndarray, stops: np.ndarray) -> None:
        self._octets = data
        # The eight bytes from each position on as one number; this is a view.
        self._words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.at, self._stops = at, stops

    def expect(self, literal: bytes) -> None:
        """Skips the same bytes in every record."""
        require(self.at + len(literal) <= self._stops)
        for start in range(0, len(literal), 8):
            word = literal[start : start + 8]
            found = self._words[self.at + start]
            if len(word) < 8:
                found &= np.uint64((1 << 8 * len(word)) - 1)
            require(found == np.uint64(int.from_bytes(word, "little")))
        self.at = self.at + len(literal)

    def varint(self) -> np.ndarray:
        """Reads a varint in every record: int64 [B]."""
        octet = self._octets[self.at]
        value = octet.astype(np.int64)
        self.at = self.at + 1
        more = octet >= 128
        if more.any():
            value &= 127
        for place in range(1, LONGEST_LENGTH):
            if not more.any():
                return value
            octet = self._octets[self.at] * more
            value += (octet & 127).astype(np.int64) << 7 * place
            self.at = self.at + more
            more = octet >= 128
        require(~more)
        return value

    def enter(self) -> np.ndarray:
        """Reads a length in every record, and returns the end of what it counts, int64 [B]."""
        length = self.varint()
        require(length <= self._stops - self.at)
        return self.at + length

    def leave(self, ends: np.ndarray) -> None:
        """Requires every position to be at the end that `enter` returned."""
        require(self.at == ends)


def require(holds: np.ndarray) -> None:
    """Raises IrregularRecords unless something holds in every record, bool [B]."""
    if not holds.all():
        raise IrregularRecords(holds)
