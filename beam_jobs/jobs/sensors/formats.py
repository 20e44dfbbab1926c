"""Recordings: from the bytes of a file to arrays whose first axis is time."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.arrays import _load_h5, _load_npy, _load_npz
from beam_jobs.jobs.sensors.audio import _load_flac, _load_wav
from beam_jobs.jobs.sensors.recording import Reading, Recording
from beam_jobs.jobs.sensors.tables import _load_csv, _load_parquet

# NumPy tells every user of a file that Python 2 wrote how to make it load faster, and of times with
# an offset that they are turned into UTC.
warnings.filterwarnings("ignore", ".*additional header parsing", UserWarning)

warnings.filterwarnings("ignore", ".*no explicit representation of timezones", UserWarning)


def read_recording(kind: str, data: bytes, reading: Reading) -> Recording:
    """The recording in the bytes of a file.

    Times that are dates count from 1970-01-01 UTC; in float64 that is exact to a microsecond.

    Args:
        kind: One of `npy`, `npz`, `csv`, `wav`, `flac`, `parquet`, `h5`, `hdf5`.

    Raises:
        RejectError: They are no whole file of this kind, or do not hold what is asked for.
        UsageError: No library for this kind is installed.
    """
    if kind not in _LOADERS:
        kinds = ", ".join(f".{kind}" for kind in _LOADERS)
        raise RejectError(f"expected a file of one of the kinds {kinds}, by its name")
    try:
        return _LOADERS[kind](data, reading)
    except (RejectError, UsageError):
        raise
    except Exception as error:  # libraries raise nearly everything on broken input
        raise RejectError(f"not a whole .{kind} file: {error}") from None


_LOADERS: dict[str, Callable[[bytes, Reading], Recording]] = {
    "npy": _load_npy,
    "npz": _load_npz,
    "csv": _load_csv,
    "wav": _load_wav,
    "flac": _load_flac,
    "parquet": _load_parquet,
    "h5": _load_h5,
    "hdf5": _load_h5,
}
