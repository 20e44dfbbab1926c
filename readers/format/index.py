"""The `.idx` sidecar of a TFRecord file: the offset and length of every record.

Each line is "<offset> <length>" in bytes, framing included: the form that NVIDIA DALI and the
`tfrecord` package read.
"""

from __future__ import annotations

import numpy as np

from readers.format.tfrecord import FRAME_BYTES

# The smallest numbers of 2, 3, ... 19 digits.
_POWERS = 10 ** np.arange(1, 19)


def format_index(lengths: np.ndarray) -> bytes:
    """The text of an `.idx` file for records that follow one another without gaps.

    Args:
        lengths: int64 [records], the length of each record in bytes, framing included.
    """
    offsets = np.cumsum(lengths) - lengths
    lines = (f"{o} {n}\n" for o, n in zip(offsets.tolist(), lengths.tolist(), strict=True))
    return "".join(lines).encode()


def is_formatted(data: bytes, index: np.ndarray) -> bool:
    """Whether a text is what `format_index` writes, to the byte, given the numbers in it.

    Args:
        data: The text of an `.idx` file.
        index: int64 [records, 2], what `parse_index` found in it.
    """
    # Each number takes its digits and a separator at least, so texts of that length have no others.
    ends = np.cumsum(np.searchsorted(_POWERS, index.reshape(-1), side="right") + 2)
    if len(data) != (ends[-1] if len(ends) else 0):
        return False
    separators = np.frombuffer(data, np.uint8)[ends - 1].reshape(-1, 2)
    return bool((separators == np.frombuffer(b" \n", np.uint8)).all())


def parse_index(data: bytes, file: str) -> np.ndarray:
    """The (offset, length) of every record, int64 [records, 2], both in bytes.

    Args:
        data: The text of an `.idx` file.
        file: The file's name, for error messages.

    Raises:
        ValueError: The text is not an index.
    """
    try:
        if data.translate(None, b"0123456789 \r\n"):
            raise ValueError
        # A fifth of the time of int(): an index of ten million records is parsed in 0.3 s. But it
        # clips numbers that are too large to the largest int64, and parses blank text as a 0.
        is_empty = not data[:100].strip() and not data.strip()
        numbers = np.empty(0, np.int64) if is_empty else np.fromstring(data, np.int64, sep=" ")
        index = numbers.reshape(-1, 2)
        if numbers.size and numbers.max() == np.iinfo(np.int64).max:
            raise ValueError
    except ValueError:
        raise ValueError(f"{file}: not an index (lines of '<offset> <length>')") from None
    # No number is negative: a minus sign is no digit.
    if index.size and (index[:, 1].min() < FRAME_BYTES or (np.diff(index[:, 0]) <= 0).any()):
        raise ValueError(f"{file}: not an index of a TFRecord file: offsets must increase")
    return index
