"""Recordings in the formats of audio that libsndfile reads."""

from __future__ import annotations

import io
import re

import numpy as np
import soundfile

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.audio import OTHER_AUDIO, sound
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording
from beam_jobs.storage.limits import check_bytes

# Decoders compute floats; anything else that is not listed has at most 16 bits.
_DTYPES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "VORBIS": "float32",
    "OPUS": "float32",
    "MPEG_LAYER_I": "float32",
    "MPEG_LAYER_II": "float32",
    "MPEG_LAYER_III": "float32",
    **dict.fromkeys(
        ("PCM_24", "PCM_32", "ALAC_20", "ALAC_24", "ALAC_32", "DWVW_16", "DWVW_24"), "int32"
    ),
}

# What libsndfile logs about a file that is cut or has a hole, and opens nevertheless.
_DAMAGE = re.compile(
    r"^.*(?:: (\d+) \(should be (\d+)\)|unexpectedly|truncated|Junk after|lacks an|a hole at).*$",
    re.MULTILINE,
)

# The count that libsndfile gives for FLAC that was written to a pipe.
_UNKNOWN_FRAMES = 2**63 - 1

# An MP3 file without a header of its own states no number of samples; the library estimates it.
_MP3_FRAME = 1152

_MPEG_FRAME = re.compile(rb"\xff[\xe0-\xff]")


class _Bytes(io.BytesIO):
    """Bytes in which a decoder may seek to a place before the first."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        place = offset + (0, self.tell(), len(self.getbuffer()))[whence]
        return super().seek(max(place, 0))


def read_sound(data: bytes, options: ReadOptions) -> Recording:
    """Reads [time, channels]: floats if its encoding has some, otherwise int16 or int32."""
    if not OTHER_AUDIO.match(data):
        raise ValueError("it does not begin as audio of any such format")
    return read_any_sound(data, options)


def read_any_sound(data: bytes, options: ReadOptions) -> Recording:
    """Reads audio of any format that libsndfile knows; otherwise as `read_sound`."""
    stream = _Bytes(data)
    try:
        with soundfile.SoundFile(stream) as file:
            samples = _samples(file, options)
            _check_end(file, data[stream.tell() :])
            return sound(samples, float(file.samplerate), options)
    except soundfile.LibsndfileError as error:
        raise ValueError(error.error_string) from None


def _samples(file: soundfile.SoundFile, options: ReadOptions) -> np.ndarray:
    if file.frames >= _UNKNOWN_FRAMES:
        raise RejectError("its header does not state the number of samples: encode it again")
    dtype = np.dtype(_DTYPES.get(file.subtype, "int16"))
    check_bytes(
        file.frames * file.channels * max(dtype.itemsize, 4 * options.float_audio),
        options.max_bytes,
    )
    samples = file.read(file.frames, dtype.name, always_2d=True)
    tolerance = _MP3_FRAME if file.format == "MP3" else 0
    if len(samples) < file.frames - tolerance:
        raise ValueError(f"it has {len(samples)} of {file.frames} samples")
    return samples


def _check_end(file: soundfile.SoundFile, rest: bytes) -> None:
    """Raises ValueError if the file is cut, or was not read to its end, as far as that shows."""
    # The chunks of a WAV file are checked by its own reader, and may lack the byte that pads them.
    log = "" if file.format.startswith("WAV") else file.extra_info
    for found in _DAMAGE.finditer(log):
        if not found[1] or int(found[2]) < int(found[1]) < 0xFFFFFFFF:
            raise ValueError(f"it is cut or damaged: {found[0].strip()}")
    if file.format == "MP3" and _MPEG_FRAME.match(rest):
        raise ValueError(
            "it has a variable bitrate and no header that states the number of samples: encode it again"
        )
