"""The `.idx` sidecar: the offset and length of every record."""

from __future__ import annotations

import numpy as np

from readers.format.tfrecord import _NO_NUMBERS, FRAME_BYTES


def format_index(lengths: np.ndarray) -> bytes:
    """The `.idx` text of records that stand one after another.

    Args:
        lengths: int64 [records], bytes of each record, framing included.
    """
    offsets = np.cumsum(lengths) - lengths
    lines = (f"{o} {n}\n" for o, n in zip(offsets.tolist(), lengths.tolist(), strict=True))
    return "".join(lines).encode()


def parse_index(data: bytes, file: str) -> np.ndarray:
    """The (offset, length) of every record, int64 [records, 2], both in bytes.

    Raises:
        ValueError: The text is not an index; the message names `file`.
    """
    try:
        if data.translate(None, b"0123456789 \r\n"):
            raise ValueError
        # In a fifth of the time of int(): the index of ten million records is there in 0.3 s.
        # It makes the largest number of those that are too large, and 0 of no number at all.
        is_empty = not data[:100].strip() and not data.strip()
        numbers = _NO_NUMBERS if is_empty else np.fromstring(data, np.int64, sep=" ")
        index = numbers.reshape(-1, 2)
        if numbers.size and numbers.max() == np.iinfo(np.int64).max:
            raise ValueError
    except ValueError:
        raise ValueError(f"{file}: not an index (lines of '<offset> <length>')") from None
    if index.size and (
        index[:, 0].min() < 0
        or index[:, 1].min() < FRAME_BYTES
        or (np.diff(index[:, 0]) <= 0).any()
    ):
        raise ValueError(f"{file}: not an index of a TFRecord file: offsets must rise")
    return index
