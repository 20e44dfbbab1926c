"""What the targets of recordings share: files as the sensors job reads them, by their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording

# Small, so that a file that unpacks to more than it should shows in the memory of the process.
MOST_BYTES = 1 << 20


# Compares a recording with another reader of the bytes.
Compare = Callable[[bytes, Recording], None]


def examining(
    suffix: str, variants: Sequence[ReadOptions], compare: Compare | None = None
) -> Callable[[bytes], None]:
    """A check of files with a suffix; the first byte of an input chooses the options.

    Args:
        suffix: The ending of the files' names.
        variants: The options.
        compare: Compares a recording that was read with the first options.
    """
    return functools.partial(_examine, suffix, tuple(variants), compare)


def _examine(
    suffix: str, variants: tuple[ReadOptions, ...], compare: Compare | None, data: bytes
) -> None:
    if not data:
        return
    number, data = data[0] % len(variants), data[1:]
    try:
        found = read_recording(f"walk{suffix}", data, variants[number])
    except RejectError as error:
        assert str(error).strip(), "a reject without a reason"
        return
    for name, array in found.arrays.items():
        assert isinstance(array, np.ndarray), f"{name!r} is no array"
        assert array.dtype.kind != "O" or array.size == 0 or isinstance(array.flat[0], (str, bytes))
        assert array.nbytes <= max(4 * MOST_BYTES, len(data)), f"{name!r} has {array.nbytes} bytes"
    if compare and number == 0:
        compare(data, found)


def chosen(*files: bytes, variants: int = 1) -> list[bytes]:
    """Files with the byte that chooses the options: each with the first, the first file with all."""
    return [b"\0" + data for data in files] + [bytes([n]) + files[0] for n in range(1, variants)]
