"""What the targets of recordings share: files as the sensors job reads them, by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from tests.campaigns.fuzz.target import by_choice

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

    def examine(options: ReadOptions, data: bytes) -> None:
        try:
            found = read_recording(f"walk{suffix}", data, options)
        except RejectError as error:
            assert str(error).strip(), "a reject without a reason"
            return
        for name, array in found.arrays.items():
            assert isinstance(array, np.ndarray), f"{name!r} is no array"
            is_object = array.dtype.kind == "O" and array.size
            assert not is_object or isinstance(array.flat[0], (str, bytes))
            assert array.nbytes <= max(4 * MOST_BYTES, len(data)), f"{name!r}: {array.nbytes} bytes"
        if compare and options is variants[0]:
            compare(data, found)

    return by_choice(variants, examine)


def chosen(*files: bytes, variants: int = 1) -> list[bytes]:
    """Files with the byte that chooses the options: each with the first, the first file with all."""
    return [b"\0" + data for data in files] + [bytes([n]) + files[0] for n in range(1, variants)]
