"""Recordings in .wav and .flac files."""

from __future__ import annotations

import io
import struct

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording, check_size, single_signal
from beam_jobs.packages import require

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

# The count that libsndfile gives for FLAC that was written to a pipe.
_UNKNOWN_FRAMES = 2**63 - 1


def load_wav(data: bytes, options: ReadOptions) -> Recording:
    """Reads [time, channels] from a RIFF file.

    Not with libsndfile, which cuts damaged files short without an error, nor with `wave`, which
    knows no floats (docs/design.md).
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("it does not begin with a RIFF WAVE header")
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
            return _wav_samples(form, data, at, size, options)
        at += size + size % 2
    raise ValueError("it has no chunk b'data'")


def _wav_samples(form: bytes, data: bytes, at: int, size: int, options: ReadOptions) -> Recording:
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
    check_size(count * max(dtype.itemsize, 4 if options.float_audio else 0))
    if bits == 24:
        wide = np.zeros((count, 4), np.uint8)  # the upper three bytes: full scale as for 32 bits
        wide[:, 1:] = np.frombuffer(data, np.uint8, size, at).reshape(count, 3)
        samples = wide.view(dtype)
    else:
        samples = np.frombuffer(data, dtype, count, at)
    return _sound(samples.reshape(-1, channels), float(rate), options)


def load_flac(data: bytes, options: ReadOptions) -> Recording:
    """Reads [time, channels], int16 for samples of up to 16 bits and int32 for longer ones."""
    soundfile = require("soundfile", "audio", ".flac files")
    # The library opens many formats, whatever the name of the file.
    if data[:4] != b"fLaC":
        raise ValueError("it does not begin with a FLAC header")
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        dtype = np.dtype("int16" if file.subtype in ("PCM_S8", "PCM_16") else "int32")
        if file.frames >= _UNKNOWN_FRAMES:
            raise RejectError("its header does not state the number of samples: encode it again")
        itemsize = 4 if options.float_audio else dtype.itemsize
        check_size(file.frames * file.channels * itemsize)
        samples = file.read(dtype=dtype.name, always_2d=True)
        if len(samples) != file.frames:
            raise ValueError(f"it has {len(samples)} of {file.frames} samples")
        return _sound(samples, float(file.samplerate), options)


def _sound(samples: np.ndarray, rate: float, options: ReadOptions) -> Recording:
    if options.float_audio and samples.dtype.kind in "iu":
        middle = 128 if samples.dtype == np.uint8 else 0
        scale = np.float32(2.0 ** (1 - 8 * samples.dtype.itemsize))
        samples = (samples.astype(np.float32) - np.float32(middle)) * scale
    return single_signal(samples, options, rate)
