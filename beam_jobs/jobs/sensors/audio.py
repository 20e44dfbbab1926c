"""Samples of audio as a recording, whatever the format of their file."""

from __future__ import annotations

import re

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import ReadOptions, Recording, single_signal

# How files in formats other than WAV begin, of those that libsndfile reads; it would open many more,
# whatever their name. An MPEG frame begins with 11 bits that are set.
OTHER_AUDIO = re.compile(
    rb"fLaC|OggS|ID3|\xff[\xe0-\xff]|FORM|\.snd|caff|riff|NIST_1A|Creative Voice File"
)


def sound(samples: np.ndarray, rate: float, options: ReadOptions) -> Recording:
    """Returns the recording of samples [time, channels] at a rate in Hz, scaled and mixed as asked for.

    Raises:
        RejectError: there is no sample.
    """
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
