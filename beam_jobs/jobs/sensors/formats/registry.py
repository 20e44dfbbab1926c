"""Finds the format and the reader of a recording by the name of its file."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beam_jobs.errors import DataError, JobError, RejectError, UsageError
from beam_jobs.packages import require
from beam_jobs.storage.limits import check_bytes

if TYPE_CHECKING:
    from beam_jobs.jobs.sensors.read_options import ReadOptions
    from beam_jobs.jobs.sensors.recording import Recording

    Reader = Callable[[bytes, ReadOptions], Recording]

# The flags that apply to files of a kind. They are those of `ReadOptions`, by their names as flags.
_ARRAYS = ("arrays",)
_CHANNELS = ("columns", "drop_columns")
_TABLE = (*_CHANNELS, "time_column")
_LINES = (*_TABLE, "text_encoding")
_CELLS = (*_LINES, "delimiter", "header", "skip_lines")
_AUDIO = ("channels",)

FLAGS = (*_ARRAYS, *_CELLS, *_AUDIO)

# Packages add formats by entry points of this group: the name is a suffix without its first dot, the
# value a `Reader`.
ENTRY_POINTS = "beam_shards.recordings"


@dataclass(frozen=True)
class Format:
    """A format of recordings, or a family of formats that one function reads.

    Attributes:
        suffixes: The endings of its files in lower case, such as ".csv.gz".
        reader: The `Reader` as "module:function". It is imported for the first file, raises
            RejectError if a file lacks what the options ask for, and anything else if it is damaged.
        flags: Those of `FLAGS` that apply to its files.
        libraries: The optional modules that the reader imports.
        extra: The extra of this package that installs them.
    """

    suffixes: tuple[str, ...]
    reader: str
    flags: tuple[str, ...] = FLAGS
    libraries: tuple[str, ...] = ()
    extra: str = ""


# Libraries that crash on some damaged files, and so read them in another process.
_CRASHING = {"h5py"}

_SOUNDS = ".flac .ogg .oga .opus .mp3 .aiff .aif .aifc .au .snd .caf .sph"


def _own(
    suffixes: str, reader: str, flags: tuple[str, ...], libraries: str = "", extra: str = ""
) -> Format:
    names = tuple(suffixes.split())
    return Format(names, f"{__package__}.{reader}", flags, tuple(libraries.split()), extra)


FORMATS = (
    _own(".npy", "npy:read_npy", ()),
    _own(".npz", "npy:read_npz", _ARRAYS),
    _own(".csv .csv.gz", "text_tables:read_csv", _CELLS, "pyarrow", "beam"),
    _own(".tsv .tsv.gz", "text_tables:read_tsv", _CELLS, "pyarrow", "beam"),
    _own(".txt .txt.gz", "text_tables:read_txt", _CELLS, "pyarrow", "beam"),
    _own(".jsonl .jsonl.gz", "text_tables:read_jsonl", _LINES, "pyarrow", "beam"),
    _own(".wav", "audio:read_wav", _AUDIO),
    _own(_SOUNDS, "audio:read_sound", _AUDIO, "soundfile", "beam"),
    _own(".parquet", "arrow:read_parquet", _TABLE, "pyarrow", "beam"),
    _own(".feather .arrow", "arrow:read_feather", _TABLE, "pyarrow", "beam"),
    _own(".h5 .hdf5", "hdf5:read_h5", _ARRAYS, "h5py", "beam"),
    _own(".mat", "matlab:read_mat", _ARRAYS, "scipy h5py", "matlab"),
    _own(".nc", "netcdf:read_nc", _ARRAYS, "netCDF4 h5py", "netcdf"),
    _own(".edf .bdf", "edf:read_edf", _CHANNELS, "edfio", "beam"),
)

# Advice about files that look like recordings, but are not read.
NOT_READ = {
    ".m4a .aac .mp4 .wma .amr .webm .w64 .voc": "convert with ffmpeg -i IN OUT.flac",
    ".xlsx .xls .ods": "save each sheet as .csv",
    ".pkl .pickle .joblib .pt": "it may run code when it is opened; save arrays as .npz",
    ".json": "write a row on each line, as .jsonl",
    ".mseed .hea .dat .rec .c3d .bag .mcap .tdms .fif": "convert to .npz, .h5 or .csv",
}


def read_recording(name: str, data: bytes, options: ReadOptions) -> Recording:
    """The recording in the bytes of a file.

    Times that are dates count from 1970-01-01 UTC; in float64 they are exact to a microsecond.

    Args:
        name: The name of the file, or its path.

    Raises:
        RejectError: No format has such a name, or the bytes are not a complete file of it, or lack
            what `options` ask for.
        UsageError: The library for the format is not installed.
    """
    suffix, form = _format_of(name)
    if not form:
        raise RejectError(_refusal(name))
    read = _reader(form, suffix)
    try:
        if _CRASHING.isdisjoint(form.libraries):
            return _checked(form, read(data, options), options)
        # Not at the top: the help lists formats without it.
        from beam_jobs.engines.guarded import guarded

        memory = len(data) + 4 * options.max_bytes
        return _checked(form, guarded(read, data, options, memory=memory), options)
    except DataError as error:  # The process that reads it was killed.
        raise DataError(f"{name}: {error.message}") from None
    except (RejectError, JobError):
        raise
    except MemoryError:
        raise RejectError(
            f"reading it takes more memory than --max_record_bytes {options.max_bytes} allows: it is "
            "damaged, or raise the number"
        ) from None
    except Exception as error:  # libraries raise nearly everything on broken input
        # Some errors, such as those of zlib and struct, have no text.
        reason = f"{error!s:.200}".strip() or type(error).__name__
        raise RejectError(f"not a whole {suffix} file: {reason}") from None


def _checked(form: Format, recording: Recording, options: ReadOptions) -> Recording:
    """The recording in order; raises RejectError if it lacks what the options ask for."""
    check_bytes(sum(array.nbytes for array in recording.arrays.values()), options.max_bytes)
    if all(array.shape[:1] == (0,) for array in recording.arrays.values()):
        raise RejectError("the recording has no samples")
    if "arrays" not in form.flags:
        from beam_jobs.jobs.sensors.read_options import choose_arrays

        choose_arrays(recording.arrays, options)
    for name in options.own_columns:
        if name not in recording.columns and name not in recording.metadata:
            raise RejectError(
                f"neither its metadata nor the file has {name!r}: expected a column of a --table, "
                "or a column, an array or an attribute of the file"
            )
    return recording if options.recording_column else recording.in_order(options.times)


def _refusal(name: str) -> str:
    ending = f".{name.rsplit('.', 1)[-1].lower()}"
    for endings, cure in NOT_READ.items():
        if ending in endings.split():
            return f"{ending} files are not read: {cure}"
    suffixes = ", ".join(suffixes_of(*FORMATS, *_others().values()))
    return f"expected a file name that ends in one of {suffixes}"


def flags_of(name: str) -> tuple[str, ...]:
    """The flags that apply to a file, by its name; none if its format is unknown."""
    _, form = _format_of(name)
    return form.flags if form else ()


def suffixes_of(*formats: Format) -> list[str]:
    """The suffixes of formats, without those of packed files."""
    return [suffix for form in formats for suffix in form.suffixes if not suffix.endswith(".gz")]


def suffixes_with(flag: str) -> str:
    """The suffixes of this package's formats to which a flag applies, as help texts list them."""
    *most, last = suffixes_of(*(form for form in FORMATS if flag in form.flags))
    return f"{', '.join(most)} or {last}" if most else last


def _format_of(name: str) -> tuple[str, Format | None]:
    """The longest known suffix of a name, and its format; this package's formats go first."""
    parts = name.rpartition("/")[2].lower().split(".")
    suffixes = [f".{'.'.join(parts[start:])}" for start in range(1, len(parts))]
    for formats in (_OWN, _others()):
        for suffix in suffixes:
            if suffix in formats:
                return suffix, formats[suffix]
    return "", None


_OWN = {suffix: form for form in FORMATS for suffix in form.suffixes}


@functools.cache
def _others() -> dict[str, Format]:
    """The formats of other packages by suffix."""
    from importlib import metadata

    points = metadata.entry_points(group=ENTRY_POINTS)
    return {f".{point.name.lower()}": Format((f".{point.name}",), point.value) for point in points}


@functools.cache
def _reader(form: Format, suffix: str) -> Reader:
    for library in form.libraries:
        require(library, form.extra, f"{suffix} files")
    try:
        return pkgutil.resolve_name(form.reader)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{suffix} files are read by {form.reader}: {error}") from None
