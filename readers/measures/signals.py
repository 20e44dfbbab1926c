"""What near duplicates of the signals of a sample are found by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from readers.format.similarity.recordings import PORTRAIT_SIZE, RecordingSketch, recording_sketch


def signal_sketch(value: np.ndarray) -> RecordingSketch | None:
    """The sketch of a signal of any real dtype, or None for one without enough to tell it by."""
    array = np.asarray(value)
    return recording_sketch(array if array.dtype.kind in "biuf" else array.astype(np.float32))


def signal_portraits(portraits: Sequence[np.ndarray | None]) -> np.ndarray:
    """The portraits of signals, int8 [n, 129]; zeros of one without a portrait."""
    nothing = np.zeros(PORTRAIT_SIZE, np.int8)
    rows = [nothing if portrait is None else portrait for portrait in portraits]
    return np.array(rows, np.int8).reshape(len(rows), PORTRAIT_SIZE)
