"""Sounds: .wav by the sensors job and by libsndfile, others by libsndfile alone."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import soundfile

from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.target import Target
from tests.campaigns.fuzz.targets.recordings import MOST_BYTES, chosen, examining

_VARIANTS = (
    ReadOptions(max_bytes=MOST_BYTES),
    ReadOptions(max_bytes=MOST_BYTES, float_audio=True),
    ReadOptions(max_bytes=MOST_BYTES, float_audio=True, mono=True),
)


def _sound(kind: str, subtype: str, channels: int = 2, length: int = 30) -> bytes:
    values = np.sin(np.arange(length * channels, dtype=np.float64)).reshape(length, channels) * 0.9
    out = io.BytesIO()
    soundfile.write(out, values, 8000, subtype=subtype, format=kind)
    return out.getvalue()


def _wavs() -> list[bytes]:
    kinds = ("PCM_16", "PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "MS_ADPCM")
    files = [_sound("WAV", kind, 1 + n % 2) for n, kind in enumerate(kinds)]
    return chosen(*files, _sound("WAVEX", "PCM_16"), variants=len(_VARIANTS))


def _like_libsndfile(data: bytes, found: Recording) -> None:
    """Compares with libsndfile where it reads as many samples: it repairs some damage, and refuses other.

    Known, and not a finding: of several data chunks it reads the last, and jobs reject them.
    """
    if data.count(b"data") > 1:
        return
    (signal,) = found.arrays.values()
    assert signal.ndim == 2 and found.rate
    dtype: Any = signal.dtype.name
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.format not in ("WAV", "WAVEX") or _EXACT.get(file.subtype) != dtype:
                return
            expected = file.read(dtype=dtype, always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError):
        return
    if expected.shape == signal.shape:
        # NaNs of one sample may have other bits.
        assert np.array_equal(signal, expected, equal_nan=dtype.startswith("float")), (
            "other samples"
        )


_EXACT = {"PCM_16": "int16", "PCM_32": "int32", "FLOAT": "float32", "DOUBLE": "float64"}

_WORDS = (b"RIFF", b"WAVE", b"fmt \x10\0\0\0", b"data", b"LIST", b"RIFX", b"RF64", b"ds64", b"fact", b"\xfe\xff",
          b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71", b"\xff\xff\xff\xff")  # fmt: skip
_LIMITS = Limits(memory=32 << 20)

TARGETS = (
    Target("wav", _wavs, examining(".wav", _VARIANTS, _like_libsndfile), None, _WORDS, 1024, _LIMITS),
    Target("flac", lambda: chosen(_sound("FLAC", "PCM_16"), _sound("FLAC", "PCM_24", 1, 4), variants=3),
           examining(".flac", _VARIANTS), None, (b"fLaC", b"\xff\xf8"), 16384, _LIMITS),
    Target("ogg", lambda: chosen(_sound("OGG", "VORBIS", 1, 64), _sound("OGG", "OPUS", 1, 64), variants=3),
           examining(".ogg", _VARIANTS), None, (b"OggS", b"vorbis", b"OpusHead"), 8192, _LIMITS),
)  # fmt: skip
