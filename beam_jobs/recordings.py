"""Recordings: from the bytes of a file to arrays whose first axis is time."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import math
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.optional import optional
from readers.format.schema import format_shape

# NumPy tells every user of a file that Python 2 wrote how to make it load faster, and of times with
# an offset that they are turned into UTC.
warnings.filterwarnings("ignore", ".*additional header parsing", UserWarning)
warnings.filterwarnings("ignore", ".*no explicit representation of timezones", UserWarning)

# Ticks in a second.
TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

# A file may claim to unpack to anything; a record cannot exceed protobuf's 2 GiB.
_MAX_ARRAY_BYTES = 1 << 31

# Rows of a table that are text at the same time.
_BLOCK = 4096

# What 64-bit nanoseconds can hold; NumPy takes words such as "now" for times, too.
_ISO_8601 = re.compile(
    r"(?:1[7-9]|2[01])[0-9]{2}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)

_ARROW_NUMBERS = frozenset(
    ("bool", "halffloat", "float", "double")
    + tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
)
_ARROW_TIMES = ("timestamp", "date")

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# The rest of a GUID whose first two bytes are one of the formats above.
_WAVE_GUID = bytes.fromhex("000000001000800000aa00389b71")
_WAVE_DTYPES = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "<i4",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}

# What libsndfile says of FLAC that was written to a pipe.
_UNKNOWN_FRAMES = 2**63 - 1


class Recording(NamedTuple):
    """What a file holds.

    Attributes:
        arrays: Name -> [time, ...] as the file has it; the only array of a file is `signal`.
        rate: Samples a second, where the file says.
        times: float64 [time], seconds on the file's own clock, where a time column was asked for.
    """

    arrays: dict[str, np.ndarray]
    rate: float | None = None
    times: np.ndarray | None = None


@dataclass(frozen=True)
class Reading:
    """How files are read; each kind of file takes what concerns it.

    Attributes:
        arrays: The names of the arrays to take; all of them if empty.
        columns: Of `.csv` and `.parquet` files, the channels in this order; if empty, every column
            of a `.csv` file but the time, every column of numbers of a `.parquet` file but the time.
        time_column: The column that has the times; none if empty.
        time_unit: Of times that are plain numbers: one of `TIME_UNITS`.
        float_audio: Whether integer samples of audio become float32 from -1 to 1.
    """

    arrays: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    time_column: str = ""
    time_unit: str = "s"
    float_audio: bool = False


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


def _chosen(names: Iterable[str], wanted: tuple[str, ...]) -> list[str]:
    names = list(names)
    if missing := [name for name in wanted if name not in names]:
        raise RejectError(f"no array {missing[0]!r}: the file has {', '.join(names)}")
    return list(wanted) or names


def _named(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not arrays:
        raise RejectError("the archive holds no array")
    if len(arrays) == 1:
        return {"signal": next(iter(arrays.values()))}
    if clash := arrays.keys() & {"key", "label"}:
        raise RejectError(f"an array may not be called {min(clash)!r}: choose with --arrays")
    return arrays


def _alone(
    signal: np.ndarray, reading: Reading, rate: float | None = None, times: np.ndarray | None = None
) -> Recording:
    if reading.arrays:
        _chosen(("signal",), reading.arrays)
    return Recording({"signal": signal}, rate, times)


def _check_size(size: int) -> None:
    if size > _MAX_ARRAY_BYTES:
        raise RejectError(f"it unpacks to {size} bytes, more than a record can hold (2 GiB)")


def _load_npy(data: bytes, reading: Reading) -> Recording:
    return _alone(parse_npy(data), reading)


def parse_npy(data: bytes) -> np.ndarray:
    """The array of a `.npy` file's bytes, as `np.load` reads it but never from pickled objects.

    Raises:
        RejectError: It holds objects.
        ValueError: The bytes are no whole `.npy` file.
    """
    # The parts of a header that NumPy needs 30 us to read; few headers differ in a dataset.
    shape, fortran_order, dtype = _npy_header(data[: _npy_header_bytes(data)])
    if dtype.hasobject:
        raise RejectError("it holds pickled objects, which are never loaded")
    count = math.prod(shape)
    array = (
        np.frombuffer(data, dtype, count, _npy_header_bytes(data)) if count else np.empty(0, dtype)
    )
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _npy_header_bytes(data: bytes) -> int:
    wide = data[6:7] > b"\x01"
    return (12 if wide else 10) + int.from_bytes(data[8 : 12 if wide else 10], "little")


@functools.lru_cache(maxsize=4096)
def _npy_header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version}")
    # Version 3 is version 2 with names of fields in UTF-8, which no recording has.
    wide = version != (1, 0)
    read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
    shape, fortran_order, dtype = read(stream)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    return shape, fortran_order, dtype


def _load_npz(data: bytes, reading: Reading) -> Recording:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_size(sum(member.file_size for member in archive.infolist()))
        members = {
            member.filename.removesuffix(".npy"): member
            for member in archive.infolist()
            if member.filename.endswith(".npy")
        }
        names = _chosen(members, reading.arrays)
        return Recording(_named({name: parse_npy(archive.read(members[name])) for name in names}))


def _load_csv(data: bytes, reading: Reading) -> Recording:
    """Rows are times; the first line names the columns, unless it is of numbers itself."""
    # Every cell but the last ends in one of these.
    _check_size(8 * (1 + data.count(b",") + max(data.count(b"\n"), data.count(b"\r"))))
    if b"\0" in data:  # which Python takes from 3.11 on
        raise ValueError("it holds bytes that are zero")
    first = next(_csv_rows(data), None)
    if first is None:
        raise RejectError("the file is empty")
    names = [] if all(map(_is_number, first)) else [name.strip() for name in first]
    if not names and (reading.columns or reading.time_column):
        raise RejectError("its first line has no names for --columns and --time_column")
    time = _place(names, reading.time_column) if reading.time_column else None
    places = [_place(names, name) for name in reading.columns]
    places = places or [place for place in range(len(first)) if place != time]
    if not places:
        raise RejectError(f"it has no column but the time {reading.time_column!r}")
    table = _plain_table(data, bool(names), len(first))
    if table is None:
        signal, times = _mixed_table(data, names, len(first), places, time, reading.time_unit)
    else:
        signal = table[:, places]
        times = None if time is None else _seconds(table[:, time], reading.time_unit)
    return _alone(signal, reading, times=None if times is None else _checked(times))


def _place(names: list[str], name: str) -> int:
    if names.count(name) != 1:
        count = "two columns" if name in names else "no column"
        raise RejectError(f"{count} {name!r}: the file has {', '.join(names)}")
    return names.index(name)


def _csv_text(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")


def _csv_rows(data: bytes) -> Iterator[list[str]]:
    return filter(None, csv.reader(_csv_text(data)))


def _plain_table(data: bytes, header: bool, width: int) -> np.ndarray | None:
    """The numbers of a table of nothing else, in a quarter of the time of `_mixed_table`."""
    text = _csv_text(data)
    if header:
        next(filter(None, csv.reader(text)))
    line = next((line for line in text if line.strip("\r\n")), "")
    if not line:
        return None
    try:
        table = np.loadtxt(
            itertools.chain([line], text), delimiter=",", comments=None, quotechar='"', ndmin=2
        )
    except ValueError:
        return None
    return table if table.shape[1] == width else None


def _mixed_table(
    data: bytes, names: list[str], width: int, places: list[int], time: int | None, unit: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Columns of numbers, empty cells NaN, and of times, among others of anything."""
    rows = _csv_rows(data)
    if names:
        next(rows)
    blocks, times, row = [np.empty((0, len(places)))], [np.empty(0)], 1
    while block := list(itertools.islice(rows, _BLOCK)):
        for number, cells in enumerate(block, row):
            if len(cells) != width:
                raise RejectError(f"row {number} has {len(cells)} values, not {width}")
        columns = list(zip(*block, strict=True))
        signal = [_numbers(columns[i], row, names[i] if names else None) for i in places]
        blocks.append(np.stack(signal, 1))
        if time is not None:
            times.append(_csv_seconds(columns[time], row, unit))
        row += len(block)
    return np.concatenate(blocks), None if time is None else np.concatenate(times)


def _number(cell: str) -> float:
    return float(cell) if cell.strip() else math.nan


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: Sequence[str], row: int, column: str | None) -> np.ndarray:
    try:
        return np.fromiter(map(_number, cells), np.float64, len(cells))
    except ValueError:
        at = next(i for i, cell in enumerate(cells) if not _is_number(cell))
    found = f"{cells[at]!r:.80} in row {row + at}"
    if column is None:
        raise ValueError(f"{found} is no number")
    raise RejectError(f"column {column!r} is not numeric: {found}; choose others with --columns")


def _csv_seconds(cells: Sequence[str], row: int, unit: str) -> np.ndarray:
    cells = [cell.strip() for cell in cells]
    try:
        return _seconds(np.fromiter(map(_number, cells), np.float64, len(cells)), unit)
    except ValueError:
        is_time = _ISO_8601.fullmatch if _ISO_8601.fullmatch(cells[0]) else _is_number
    for number, cell in enumerate(cells, row):
        if not is_time(cell):
            raise RejectError(
                f"row {number}: time {cell!r:.80} is neither a number nor ISO 8601, or not the one "
                "that the others are"
            )
    return _seconds(np.array(cells, "M8[ns]").astype(np.int64), "ns")


def _seconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Times in float64 seconds, rounded once where they are integers."""
    per_second = TIME_UNITS[unit]
    if not np.can_cast(ticks.dtype, np.int64):
        return ticks.astype(np.float64) / per_second
    whole, rest = np.divmod(ticks.astype(np.int64), per_second)
    return whole + rest / per_second


def _checked(times: np.ndarray) -> np.ndarray:
    """Times that can be a clock's.

    Raises:
        RejectError: One is missing or infinite, or does not come after the one before.
    """
    if not np.isfinite(times).all():
        row = int(np.argmin(np.isfinite(times)))
        raise RejectError(f"row {row + 1}: time {times[row]} is not finite")
    steps = np.diff(times)
    if (steps <= 0).any():
        row = int(np.argmax(steps <= 0)) + 1
        raise RejectError(
            f"row {row + 1}: time {times[row]} s does not come after {times[row - 1]} s"
        )
    return times


def _load_wav(data: bytes, reading: Reading) -> Recording:
    """The samples of a RIFF file; the `wave` module knows neither floats nor, before 3.12, GUIDs."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("it does not begin as RIFF WAVE")
    form, at = None, 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if size > len(data) - at:
            raise ValueError(f"its chunk {name!r} has {len(data) - at} of {size} bytes")
        if name == b"fmt ":
            form = data[at : at + size]
        if name == b"data":
            if form is None:
                raise ValueError("no chunk b'fmt ' comes before its samples")
            return _wav_samples(form, data, at, size, reading)
        at += size + size % 2
    raise ValueError("it has no chunk b'data'")


def _wav_samples(form: bytes, data: bytes, at: int, size: int, reading: Reading) -> Recording:
    tag, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if tag == _EXTENSIBLE and form[26:40] == _WAVE_GUID:
        tag = int.from_bytes(form[24:26], "little")
    if (tag, bits) not in _WAVE_DTYPES:
        raise RejectError(
            f"samples of format {tag} with {bits} bits: expected PCM of 8, 16, 24 or 32 bits, "
            "or floats of 32 or 64"
        )
    if not rate or not channels or frame != channels * bits // 8 or size % frame:
        raise ValueError(f"{size} bytes at {rate} Hz, {channels} channels in {frame} bytes")
    dtype = np.dtype(_WAVE_DTYPES[tag, bits])
    count = size // frame * channels
    _check_size(count * max(dtype.itemsize, 4 if reading.float_audio else 0))
    if bits == 24:
        wide = np.zeros((count, 4), np.uint8)  # in the upper three bytes, full scale as of 32 bits
        wide[:, 1:] = np.frombuffer(data, np.uint8, size, at).reshape(count, 3)
        samples = wide.view(dtype)
    else:
        samples = np.frombuffer(data, dtype, count, at)
    return _audio(samples.reshape(-1, channels), float(rate), reading)


def _load_flac(data: bytes, reading: Reading) -> Recording:
    soundfile = optional("soundfile", "audio", ".flac files")
    # The library opens many formats, whatever a file is called.
    if data[:4] != b"fLaC":
        raise ValueError("it does not begin as FLAC")
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        dtype = np.dtype("int16" if file.subtype in ("PCM_S8", "PCM_16") else "int32")
        if file.frames >= _UNKNOWN_FRAMES:
            raise RejectError("its head does not say how many samples follow: encode it again")
        itemsize = 4 if reading.float_audio else dtype.itemsize
        _check_size(file.frames * file.channels * itemsize)
        samples = file.read(dtype=dtype.name, always_2d=True)
        if len(samples) != file.frames:
            raise ValueError(f"it has {len(samples)} of {file.frames} samples")
        return _audio(samples, float(file.samplerate), reading)


def _audio(samples: np.ndarray, rate: float, reading: Reading) -> Recording:
    if reading.float_audio and samples.dtype.kind in "iu":
        middle = 128 if samples.dtype == np.uint8 else 0
        scale = np.float32(2.0 ** (1 - 8 * samples.dtype.itemsize))
        samples = (samples.astype(np.float32) - np.float32(middle)) * scale
    return _alone(samples, reading, rate)


def _load_parquet(data: bytes, reading: Reading) -> Recording:
    """Columns of numbers in the dtype that holds all of them, nulls NaN."""
    parquet = optional("pyarrow.parquet", "beam", ".parquet files")
    file = parquet.ParquetFile(io.BytesIO(data))
    names, time = file.schema_arrow.names, reading.time_column
    types = dict(zip(names, map(str, file.schema_arrow.types), strict=True))
    numeric = [name for name in names if types[name] in _ARROW_NUMBERS and name != time]
    chosen = list(reading.columns) or numeric
    if not chosen:
        raise RejectError(f"no column of numbers but the time: the file has {', '.join(names)}")
    for name in filter(None, (*chosen, time)):
        _place(names, name)
    for name in chosen:
        if types[name] not in _ARROW_NUMBERS:
            raise RejectError(
                f"column {name!r} is not numeric but {types[name]}: choose others with --columns"
            )
    if time and types[time] not in _ARROW_NUMBERS and not types[time].startswith(_ARROW_TIMES):
        raise RejectError(
            f"column {time!r} is {types[time]}: expected numbers, timestamps or dates as times"
        )
    wanted = sorted({*chosen, time} - {""})
    rows = file.metadata.num_rows
    _check_size(8 * rows * len(wanted))
    table = file.read(wanted, use_threads=False)
    if table.num_rows != rows:
        raise ValueError(f"it has {table.num_rows} of {rows} rows")
    signal = np.stack([_arrow_numbers(table[name]) for name in chosen], 1)
    times = _checked(_arrow_seconds(table[time], reading.time_unit)) if time else None
    return _alone(signal, reading, times=times)


def _arrow_numbers(column: Any) -> np.ndarray:
    if str(column.type) == "bool" and column.null_count:
        column = column.cast("uint8")  # or NumPy gets objects
    return column.to_numpy()


def _arrow_seconds(column: Any, unit: str) -> np.ndarray:
    if str(column.type).startswith("date"):
        column = column.cast("timestamp[ms]")
    if str(column.type) not in _ARROW_NUMBERS:
        unit, column = column.type.unit, column.cast("int64")
    return _seconds(column.to_numpy(), unit)


def _load_h5(data: bytes, reading: Reading) -> Recording:
    h5py = optional("h5py", "hdf5", ".h5 files")
    with h5py.File(io.BytesIO(data), "r") as file:
        found = _h5_datasets(h5py, file)
        chosen = _chosen(found, reading.arrays)
        for name in chosen:
            _check_inside(h5py, name, found[name])
        series = {name: found[name] for name in chosen if _is_series(found[name])}
        if other := [name for name in reading.arrays if name not in series]:
            shape = format_shape(found[other[0]].shape or ())
            raise RejectError(
                f"array {other[0]!r} is {found[other[0]].dtype} {shape}: expected numbers along time"
            )
        if not series:
            raise RejectError("it holds no array of numbers")
        _check_size(sum(array.nbytes for array in series.values()))
        return Recording(_named({name: array[()] for name, array in series.items()}))


def _h5_datasets(h5py: Any, file: Any) -> dict[str, Any]:
    """Path -> dataset, or link to another file, in the order of the paths; soft links are left out."""
    found, groups, seen = {}, [("", file["/"])], {file["/"]}
    while groups:
        path, group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                found[path + name] = link
            if not isinstance(link, h5py.HardLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Dataset):
                found[path + name] = item
            elif isinstance(item, h5py.Group) and item not in seen:  # a group may hold itself
                seen.add(item)
                groups.append((f"{path}{name}/", item))
    return dict(sorted(found.items()))


def _check_inside(h5py: Any, name: str, item: Any) -> None:
    """Raises RejectError where an array lies in other files, before one of them is opened."""
    if isinstance(item, h5py.ExternalLink) or item.external or item.is_virtual:
        raise RejectError(f"array {name!r} lies in another file, which is never opened")
    # A whole chunk is unpacked, however few of its values an array has.
    _check_size(math.prod(item.chunks or ()) * item.dtype.itemsize)


def _is_series(dataset: Any) -> bool:
    return dataset.dtype.kind in "biufc" and bool(dataset.shape)


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
