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


def read(suffix: str, data: bytes, options: ReadOptions) -> Recording | None:
    """The recording that a job would keep; None if it would reject the file."""
    try:
        found = read_recording(f"walk{suffix}", data, options)
    except RejectError as error:
        assert str(error).strip(), "a reject without a reason"
        return None
    for name, array in found.arrays.items():
        assert isinstance(array, np.ndarray), f"{name!r} is no array"
        assert array.dtype.kind != "O" or array.size == 0 or isinstance(array.flat[0], (str, bytes))
        assert array.nbytes <= max(4 * MOST_BYTES, len(data)), f"{name!r} has {array.nbytes} bytes"
    return found


def examining(
    suffix: str, variants: Sequence[ReadOptions], compare: Callable[[bytes, Recording], None]
) -> Callable[[bytes], None]:
    """A check of files with a suffix; the first byte of an input chooses the options.

    Args:
        suffix: The ending of the files' names.
        variants: The options.
        compare: Compares a recording, read with the first options, with another reader of the bytes.
    """
    return functools.partial(_examine, suffix, tuple(variants), compare)


def _examine(
    suffix: str,
    variants: tuple[ReadOptions, ...],
    compare: Callable[[bytes, Recording], None],
    data: bytes,
) -> None:
    if not data:
        return
    number = data[0] % len(variants)
    found = read(suffix, data[1:], variants[number])
    if found is not None and number == 0:
        compare(data[1:], found)


def alone(data: bytes, found: Recording) -> None:
    """Compares with nothing."""


def chosen(*files: bytes, variants: int = 1) -> list[bytes]:
    """Files with the byte that chooses the options: each with the first, the first file with all."""
    return [b"\0" + data for data in files] + [bytes([n]) + files[0] for n in range(1, variants)]
