"""Recordings in .wav files."""

from __future__ import annotations

import importlib
import struct
from types import ModuleType
from typing import Literal

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.audio import OTHER_AUDIO, sound
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording
from beam_jobs.packages import require
from beam_jobs.storage.limits import check_bytes

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

# A size that was unknown when the header was written.
_UNKNOWN_SIZE = 0xFFFFFFFF


def read_wav(data: bytes, options: ReadOptions) -> Recording:
    """Reads [time, channels] from a RIFF file, or one of its forms RF64 (large) and RIFX (big-endian).

    libsndfile cuts damaged files short without an error, and `wave` knows no floats
    (docs/design.md). So the chunks are checked here, and libsndfile gets whole files alone, with
    samples other than plain numbers. Some files with this name are of another format altogether.
    """
    if data[:4] not in (b"RIFF", b"RF64", b"RIFX") or data[8:12] != b"WAVE":
        if OTHER_AUDIO.match(data):
            return _libsndfile("of another format").read_sound(data, options)
        raise ValueError("it does not begin with a RIFF WAVE header")
    order: Literal["little", "big"] = "big" if data[:4] == b"RIFX" else "little"
    form, at, long_size = b"", 12, _UNKNOWN_SIZE
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], order)
        at += 8
        rest = len(data) - at
        if name == b"data":
            if not form:
                raise ValueError("its format does not come before its audio")
            size = long_size if size == _UNKNOWN_SIZE else size
            if size == _UNKNOWN_SIZE or (not size and _is_unfinished(data, at, order)):
                frame = int.from_bytes(form[12:14], order)
                size = rest - rest % max(1, frame)
        if size > rest:
            what = "audio" if name == b"data" else "header"
            raise ValueError(f"the file ends in its {what}, after {rest} of {size} bytes")
        if name == b"data":
            if order == "big":
                return _by_libsndfile(data, options, "big-endian audio")
            return _wav_samples(form, data, at, size, options)
        if name == b"fmt ":
            form = data[at : at + size]
        if name == b"ds64":
            long_size = int.from_bytes(data[at + 8 : at + 16], "little")
        at += size + size % 2
    raise ValueError("the file ends before its audio")


def _is_unfinished(data: bytes, at: int, order: Literal["little", "big"]) -> bool:
    """Whether a header was never completed: it ends the file at its audio, or before."""
    end = 8 + int.from_bytes(data[4:8], order)
    return end <= at or end == 8 + _UNKNOWN_SIZE


def _wav_samples(form: bytes, data: bytes, at: int, size: int, options: ReadOptions) -> Recording:
    if len(form) < 16:
        raise ValueError(f"its format has {len(form)} bytes, expected at least 16")
    tag, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if tag == _EXTENSIBLE and form[26:40] == _WAVE_GUID:
        tag = int.from_bytes(form[24:26], "little")
    if (tag, bits) not in _WAVE_DTYPES:
        return _by_libsndfile(data, options, f"audio of format {tag} with {bits} bits")
    if not rate or not channels or frame != channels * bits // 8 or size % frame:
        raise ValueError(f"{size} bytes at {rate} Hz, {channels} channels in {frame} bytes")
    dtype = np.dtype(_WAVE_DTYPES[tag, bits])
    count = size // frame * channels
    check_bytes(count * max(dtype.itemsize, 4 if options.float_audio else 0), options.max_bytes)
    if bits == 24:
        wide = np.zeros((count, 4), np.uint8)  # the upper three bytes: full scale as for 32 bits
        wide[:, 1:] = np.frombuffer(data, np.uint8, size, at).reshape(count, 3)
        samples = wide.view(dtype)
    else:
        samples = np.frombuffer(data, dtype, count, at)
    return sound(samples.reshape(-1, channels), float(rate), options)


def _by_libsndfile(data: bytes, options: ReadOptions, what: str) -> Recording:
    try:
        return _libsndfile(f"with {what}").read_any_sound(data, options)
    except ValueError as error:
        raise RejectError(f"{what} cannot be read: {error}") from None


def _libsndfile(what: str) -> ModuleType:
    require("soundfile", "audio", f".wav files {what}")
    return importlib.import_module("beam_jobs.jobs.sensors.formats.sndfile")
