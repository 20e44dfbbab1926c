"""Recordings in .wav files, and in the other formats of audio that libsndfile reads."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.storage.limits import check_bytes

# The first bytes of accepted formats other than WAV; libsndfile would open many more, whatever their
# name. An MPEG frame begins with 11 set bits.
_OTHER_AUDIO = re.compile(rb"fLaC|OggS|\xff[\xe0-\xff]|FORM|\.snd|dns\.|caff|NIST_1A")

# The header of an ID3 tag ends with its size, in 7 bits of each byte.
_TAG = re.compile(rb"ID3...([\0-\x7f]{4})", re.DOTALL)

# Where a stream or file begins behind another; libsndfile reads only the first.
_SECOND = re.compile(
    rb"OggS\0[\x02\x03\x06\x07]|(?<!FLAC.{4})fLaC[\0\x80]\0\0\x22|\.snd\0\0\0|caff\0\x01\0\0",
    re.DOTALL,
)

_OTHER_CHUNK = re.compile(rb"\0*(?!data|RIFF|RF64)[ -~]{4}(.{4})", re.DOTALL)

_UNREAD = "bytes behind its audio were not read"

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

_RIFFS = (b"RIFF", b"RF64")

# Sizes that programs write if they do not know the size yet: SoX, arecord and ffmpeg into a pipe.
_UNKNOWN_SIZE = 0xFFFFFFFF
_UNKNOWN_SIZES = {0x7FFFF000, 0x7FFFFF00, 0x7FFFFFFF, 0x80000000, 0xFFFFFFDB, _UNKNOWN_SIZE}

# The dtypes of libsndfile's encodings. Decoders compute floats; encodings that are not listed have at most 16 bits.
_DTYPES = {
    "DOUBLE": "float64",
    **dict.fromkeys(("FLOAT", "VORBIS", "OPUS"), "float32"),
    **dict.fromkeys(("MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III"), "float32"),
    **dict.fromkeys(("PCM_24", "PCM_32", "ALAC_20", "ALAC_24", "ALAC_32"), "int32"),
    **dict.fromkeys(("DWVW_16", "DWVW_24"), "int32"),
}

# libsndfile logs these lines about a file that is cut or has a hole, and opens it anyway.
_DAMAGE = re.compile(
    r"^.*(?:: (\d+) \(should be (\d+)\)|unexpectedly|truncated|Junk after|lacks an|a hole at).*$",
    re.MULTILINE,
)

# The samples per channel that the header of a NIST file states; libsndfile reads whatever there is.
_NIST_COUNT = re.compile(rb"sample_count -i (\d{1,18})\b")

# An MP3 file without a Xing or Info header states no number of samples; the library estimates it.
_MP3_FRAME = 1152

_MPEG_FRAME = re.compile(rb"\xff[\xe0-\xff]")


def read_wav(data: bytes, options: ReadOptions) -> Recording:
    """Samples [time, channels] of a RIFF file, or of RF64, its form for large files.

    libsndfile cuts damaged files short without an error, and `wave` cannot read floats
    (docs/internals/design.md). So the chunks are checked here, and libsndfile gets only whole files with samples
    other than plain numbers. Some files with this name are in an entirely different format.
    """
    data = _untagged(data)
    if data[:4] not in _RIFFS or data[8:12] != b"WAVE":
        if _OTHER_AUDIO.match(data):
            return read_sound(data, options)
        raise ValueError(f"it begins with {data[:16]!r}, expected a RIFF WAVE header")
    form, long_size = b"", _UNKNOWN_SIZE
    for name, at, size in _chunks(data):
        rest = len(data) - at
        if name == b"data":
            if not form:
                raise ValueError("its format does not come before its audio")
            size = long_size if size == _UNKNOWN_SIZE else size
            unknown = size > rest and size in _UNKNOWN_SIZES
            # A header that was never completed ends the file at its audio, or before.
            end = int.from_bytes(data[4:8], "little")
            if unknown or (not size and (end + 8 <= at or end == _UNKNOWN_SIZE)):
                frame = int.from_bytes(form[12:14], "little")
                size = rest - rest % max(1, frame)
        if size > rest:
            what = "audio" if name == b"data" else "header"
            raise ValueError(f"the file ends in its {what}, after {rest} of {size} bytes")
        if name == b"data":
            recording = _wav_samples(form, data, at, size, options)
            is_read = _has_no_more_audio(data, at + size)
            return recording if is_read else recording._replace(notes=(_UNREAD,))
        if name == b"fmt ":
            form = data[at : at + size]
        if name == b"ds64":
            long_size = int.from_bytes(data[at + 8 : at + 16], "little")
    raise ValueError("the file ends before its audio")


def _has_no_more_audio(data: bytes, at: int) -> bool:
    """Whether only zeros and whole chunks without audio follow."""
    while chunk := _OTHER_CHUNK.match(data, at):
        at = chunk.end() + int.from_bytes(chunk[1], "little")
    return at <= len(data) and not data[at:].strip(b"\0")


def _untagged(data: bytes) -> bytes:
    """A file without the ID3 tags before it.

    libsndfile skips one, but from memory it then reads as many bytes less at the end.
    """
    at = 0
    while tag := _TAG.match(data, at):
        a, b, c, d = tag[1]
        at = tag.end() + (a << 21 | b << 14 | c << 7 | d)
    return data[at:].lstrip(b"\0") if at else data


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields each chunk of a RIFF file: its name, the place of its content, and its size."""
    at = 12
    while at + 8 <= len(data) and data[at]:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        yield data[at : at + 4], at + 8, size
        at += 8 + size
        at += data[at : at + 1] == b"\0" and size % 2  # Some programs leave out the byte that pads.


def _wav_samples(form: bytes, data: bytes, at: int, size: int, options: ReadOptions) -> Recording:
    if len(form) < 16:
        raise ValueError(f"its format has {len(form)} bytes, expected at least 16")
    tag, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if tag == _EXTENSIBLE and form[26:40] == _WAVE_GUID:
        tag = int.from_bytes(form[24:26], "little")
    if (tag, bits) not in _WAVE_DTYPES:
        try:
            return _decoded(data, options)
        except ValueError as error:
            what = f"audio of format {tag} with {bits} bits"
            raise RejectError(f"{what} cannot be read: {error}") from None
    if not rate or not channels or frame != channels * bits // 8 or size % frame:
        raise ValueError(
            f"{size} bytes at {rate} Hz, {channels} channels of {bits} bits in {frame} bytes"
        )
    dtype = np.dtype(_WAVE_DTYPES[tag, bits])
    count = size // frame * channels
    check_bytes(count * max(dtype.itemsize, 4 if options.float_audio else 0), options.max_bytes)
    if bits == 24:
        wide = np.zeros((count, 4), np.uint8)  # the upper three bytes: full scale as for 32 bits
        wide[:, 1:] = np.frombuffer(data, np.uint8, size, at).reshape(count, 3)
        samples = wide.view(dtype)
    else:
        samples = np.frombuffer(data, dtype, count, at)
    return _sound(samples.reshape(-1, channels), float(rate), options)


def read_sound(data: bytes, options: ReadOptions) -> Recording:
    """Samples [time, channels]: floats if their encoding has some, otherwise int16 or int32."""
    data = _untagged(data)
    if not _OTHER_AUDIO.match(data):
        raise ValueError(f"it begins with {data[:8]!r}, which is not such a format")
    return _decoded(data, options)


class _Bytes(io.BytesIO):
    """Bytes that accept a seek before the first byte, as decoders do."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        place = offset + (0, self.tell(), len(self.getbuffer()))[whence]
        return super().seek(max(place, 0))


def _decoded(data: bytes, options: ReadOptions) -> Recording:
    """Audio of any format that libsndfile knows."""
    import soundfile

    stream = _Bytes(data)
    try:
        with soundfile.SoundFile(stream) as file:
            samples = _samples(file, options)
            stated = _NIST_COUNT.search(data, 0, 1024) if file.format == "NIST" else None
            if stated and int(stated[1]) != len(samples):
                raise ValueError(f"it has {len(samples)} samples, but states {int(stated[1])}")
            _check_end(file, data[stream.tell() :])
            notes = (_UNREAD,) if _SECOND.search(data, 4) else ()
            return _sound(samples, float(file.samplerate), options)._replace(notes=notes)
    except soundfile.LibsndfileError as error:
        raise ValueError(error.error_string) from None


def _samples(file: Any, options: ReadOptions) -> np.ndarray:
    if file.frames >= 2**63 - 1:  # FLAC that was written to a pipe
        raise RejectError("its header does not state the number of samples: encode it again")
    dtype = np.dtype(_DTYPES.get(file.subtype, "int16"))
    size = file.frames * file.channels * max(dtype.itemsize, 4 * options.float_audio)
    check_bytes(size, options.max_bytes)
    samples: np.ndarray = file.read(file.frames, dtype.name, always_2d=True)
    tolerance = _MP3_FRAME if file.subtype.startswith("MPEG") else 0
    if len(samples) < file.frames - tolerance:
        raise ValueError(f"it has {len(samples)} of {file.frames} samples")
    return samples


def _check_end(file: Any, rest: bytes) -> None:
    """Raises ValueError if the file is known to be cut, or was not read to its end."""
    # The reader of WAV checks its chunks, which may lack the byte that pads them.
    log = "" if file.format.startswith("WAV") else file.extra_info
    for match in _DAMAGE.finditer(log):
        if not match[1] or int(match[2]) < int(match[1]) < 0xFFFFFFFF:
            raise ValueError(f"it is cut or damaged: {match[0].strip()}")
    if file.format == "MP3" and _MPEG_FRAME.match(rest):
        raise ValueError("its header does not state all of its samples: encode it again")


def _sound(samples: np.ndarray, rate: float, options: ReadOptions) -> Recording:
    """The recording of samples [time, channels] at a rate in Hz, scaled and mixed as asked for."""
    if options.float_audio and samples.dtype.kind in "iu":
        middle = 128 if samples.dtype == np.uint8 else 0
        scale = np.float32(2.0 ** (1 - 8 * samples.dtype.itemsize))
        samples = (samples.astype(np.float32) - np.float32(middle)) * scale
    if options.mono and samples.shape[1] > 1:
        mean = samples.mean(1, np.float64, keepdims=True)
        samples = (np.rint(mean) if samples.dtype.kind in "iu" else mean).astype(samples.dtype)
    return Recording({"signal": samples}, rate)
