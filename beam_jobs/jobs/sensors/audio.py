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

_OTHER_FORMATS = {
    2: "ADPCM",
    6: "A-law",
    7: "mu-law",
    17: "IMA ADPCM",
    49: "GSM",
    80: "MPEG",
    85: "MP3",
}

_CONVERT = "convert with ffmpeg -c:a pcm_s16le"

# A size that was unknown when the header was written.
_UNKNOWN_SIZE = 0xFFFFFFFF

# The count that libsndfile gives for FLAC that was written to a pipe.
_UNKNOWN_FRAMES = 2**63 - 1


def load_wav(data: bytes, options: ReadOptions) -> Recording:
    """Reads [time, channels] from a RIFF file, or one of its form for large files, RF64.

    Not with libsndfile, which cuts damaged files short without an error, nor with `wave`, which
    knows no floats (docs/design.md).
    """
    if data[:4] == b"RIFX":
        raise RejectError(f"big-endian audio (RIFX) is not supported; {_CONVERT}")
    if data[:4] not in (b"RIFF", b"RF64") or data[8:12] != b"WAVE":
        raise ValueError("it does not begin with a RIFF WAVE header")
    form, at, long_size = b"", 12, _UNKNOWN_SIZE
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        rest = len(data) - at
        if name == b"data":
            if not form:
                raise ValueError("its format does not come before its audio")
            size = long_size if size == _UNKNOWN_SIZE else size
            if size == _UNKNOWN_SIZE or (not size and _is_unfinished(data, at)):
                frame = int.from_bytes(form[12:14], "little")
                size = rest - rest % max(1, frame)
        if size > rest:
            what = "audio" if name == b"data" else "header"
            raise ValueError(f"the file ends in its {what}, after {rest} of {size} bytes")
        if name == b"data":
            return _wav_samples(form, data, at, size, options)
        if name == b"fmt ":
            form = data[at : at + size]
        if name == b"ds64":
            long_size = int.from_bytes(data[at + 8 : at + 16], "little")
        at += size + size % 2
    raise ValueError("the file ends before its audio")


def _is_unfinished(data: bytes, at: int) -> bool:
    """Whether a header was never completed: it ends the file at its audio, or before."""
    end = 8 + int.from_bytes(data[4:8], "little")
    return end <= at or end == 8 + _UNKNOWN_SIZE


def _wav_samples(form: bytes, data: bytes, at: int, size: int, options: ReadOptions) -> Recording:
    if len(form) < 16:
        raise ValueError(f"its format has {len(form)} bytes, expected at least 16")
    tag, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if tag == _EXTENSIBLE and form[26:40] == _WAVE_GUID:
        tag = int.from_bytes(form[24:26], "little")
    if tag in _OTHER_FORMATS:
        raise RejectError(f"{_OTHER_FORMATS[tag]} audio is not supported; {_CONVERT}")
    if (tag, bits) not in _WAVE_DTYPES:
        raise RejectError(
            f"audio of format {tag} with {bits} bits is not supported, only PCM of 8, 16, 24 or 32 "
            f"bits, or floats of 32 or 64; {_CONVERT}"
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
    if not len(samples):
        raise RejectError("the recording has no samples")
    if options.float_audio and samples.dtype.kind in "iu":
        middle = 128 if samples.dtype == np.uint8 else 0
        scale = np.float32(2.0 ** (1 - 8 * samples.dtype.itemsize))
        samples = (samples.astype(np.float32) - np.float32(middle)) * scale
    if options.mono and samples.shape[1] > 1:
        mean = samples.mean(1, np.float64, keepdims=True)
        samples = (np.rint(mean) if samples.dtype.kind in "iu" else mean).astype(samples.dtype)
    return single_signal(samples, options, rate)
