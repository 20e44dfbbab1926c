"""Chooses the reader of a recording file by the ending of its name."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.arrays import load_h5, load_npy, load_npz
from beam_jobs.jobs.sensors.audio import load_flac, load_wav
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording
from beam_jobs.jobs.sensors.tables import load_csv, load_parquet

# NumPy warns every user that a file written by Python 2 could load faster, and that times with an
# offset are converted to UTC.
warnings.filterwarnings("ignore", ".*additional header parsing", UserWarning)

warnings.filterwarnings("ignore", ".*no explicit representation of timezones", UserWarning)


def read_recording(kind: str, data: bytes, options: ReadOptions) -> Recording:
    """Reads a recording from the bytes of a file.

    Times that are dates count from 1970-01-01 UTC; in float64 they are exact to a microsecond.

    Args:
        kind: The ending of the file's name without the dot, such as `npy`: a key of `LOADERS`.

    Raises:
        RejectError: the bytes are not a complete file of this kind, or lack what `options` ask for.
        UsageError: the library for this kind is not installed.
    """
    if kind not in LOADERS:
        kinds = ", ".join(f".{kind}" for kind in LOADERS)
        raise RejectError(f"expected a file of one of the kinds {kinds}, by its name")
    try:
        recording = LOADERS[kind](data, options)
        known = {*recording.columns, *recording.metadata}
        if missing := [name for name in options.inside if name not in known]:
            raise RejectError(
                f"neither its metadata nor the file has {missing[0]!r}: expected a column of a --table "
                "or of the file, one of its arrays, or an attribute of an .h5 file"
            )
        return recording if options.recording_column else recording.in_order(options.times)
    except (RejectError, UsageError):
        raise
    except Exception as error:  # libraries raise nearly everything on broken input
        raise RejectError(f"not a whole .{kind} file: {error}") from None


LOADERS: dict[str, Callable[[bytes, ReadOptions], Recording]] = {
    "npy": load_npy,
    "npz": load_npz,
    "csv": load_csv,
    "wav": load_wav,
    "flac": load_flac,
    "parquet": load_parquet,
    "h5": load_h5,
    "hdf5": load_h5,
}
