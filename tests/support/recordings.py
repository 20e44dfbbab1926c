"""Recordings in the bytes of a file: written, and read as the sensors job reads them."""

import io
import struct

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording

RATE = 16_000


def edf(
    bits: int = 16,
    rates=(4, 4),
    kind: str = "",
    blocks: int = 3,
    stated=3,
    seconds=1,
    low=-100,
    high=100,
    times: tuple[bytes, ...] = (),
) -> tuple[bytes, list]:
    """A file by the letter of the specification, and its signals in physical units, from -100 to 100.

    Args:
        times: The annotations of each block, a last signal.
    """
    count, top = len(rates), 2 ** (bits - 1) - 1
    mark = b"0" if bits == 16 else b"\xffBIOSEMI"
    head = mark.ljust(8) + b"me".ljust(80) + b"here".ljust(80) + b"01.02.2403.04.05"
    size = 24 if times else 0
    total = count + bool(times)
    head += str(256 * (total + 1)).encode().ljust(8) + kind.encode().ljust(44)
    head += f"{stated:<8}{seconds:<8}{total:<4}".encode()
    notes = "BDF Annotations" if bits == 24 else "EDF Annotations"
    for width, values in (
        (16, [*(f"EEG {i}" for i in range(count)), notes]),
        (80, [""] * total),
        (8, ["uV"] * count + [""]),
        (8, [low] * count + [-1]),
        (8, [high] * count + [1]),
        (8, [-top] * total),
        (8, [top] * total),
        (80, [""] * total),
        (8, [*rates, size]),
        (32, [""] * total),
    ):
        head += b"".join(str(value).encode().ljust(width) for value in values[:total])
    rng = np.random.default_rng(0)
    digital = [rng.integers(-top, top, (blocks, rate)) for rate in rates]
    body = b""
    for block in range(blocks):
        for values in digital:
            body += b"".join(struct.pack("<i", v)[: bits // 8] for v in values[block].tolist())
        body += times[block].ljust(size * bits // 8, b"\0") if times else b""
    return head + body, [values.ravel() * 100 / top for values in digital]


_LIMITS: dict[str, int] = {}


def read(kind: str, data: bytes, **options) -> Recording:
    return read_recording(f"walk.{kind}", data, ReadOptions(**_LIMITS, **options))


def signal(kind: str, data: bytes, **options) -> np.ndarray:
    """The only array of a recording."""
    (found,) = read(kind, data, **options).arrays.items()
    assert found[0] == "signal"
    return found[1]


def rejected(kind: str, data: bytes, **options) -> str:
    """The reason why a file is not a recording."""
    with pytest.raises(RejectError) as caught:
        read(kind, data, **options)
    return str(caught.value)


def limit_records(monkeypatch, size: int) -> None:
    """Lowers the largest size of a record, in bytes."""
    monkeypatch.setitem(_LIMITS, "max_bytes", size)


def npy(array, **options) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(compressed: bool = False, **arrays) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def h5_of(write) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        write(file)
    return buffer.getvalue()


def h5(**arrays) -> bytes:
    def write(file):
        for name, array in arrays.items():
            file[name] = array

    return h5_of(write)


def parquet(columns: dict, **options) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


def waves(channels: int = 2, length: int = 500) -> np.ndarray:
    """float64 [time, channels], from -1 to 1."""
    result = np.random.default_rng(0).uniform(-1, 1, (length, channels))
    result[0], result[1] = -1, 0
    return result


def sound(values: np.ndarray, subtype: str, kind: str = "WAV") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, values, RATE, subtype=subtype, format=kind)
    return buffer.getvalue()


# Suffix, format and encoding, and the dtype in which the samples are read.
SOUNDS = [
    ("ogg", "OGG", "VORBIS", "float32"),
    ("opus", "OGG", "OPUS", "float32"),
    ("mp3", "MP3", "MPEG_LAYER_III", "float32"),
    ("aiff", "AIFF", "PCM_16", "int16"),
    ("aif", "AIFF", "PCM_24", "int32"),
    ("aifc", "AIFF", "PCM_U8", "int16"),
    ("au", "AU", "DOUBLE", "float64"),
    ("snd", "AU", "ULAW", "int16"),
    ("caf", "CAF", "ALAC_24", "int32"),
    ("sph", "NIST", "PCM_16", "int16"),
]
SOUND_FILES = {
    kind: sound(waves(length=48_000) / 2, subtype, name) for kind, name, subtype, _ in SOUNDS
}
