"""Spectrograms of signals: magnitudes, mel bands, or decibels of either."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.signals import flat, window_starts
from beam_jobs.jobs.sensors.spans import Span, parse_span
from beam_jobs.jobs.sensors.spectra.mel import MelBands, mel_bands
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, check_bytes

# Values that are transformed at a time, so that they stay in the processor's cache.
_BLOCK = 1 << 15

# The least power that has decibels, as in librosa.
_LEAST_POWER = 1e-10


@dataclass(frozen=True)
class Spectrogram:
    """What spectrograms are made.

    Attributes:
        frame: Length of a frame.
        step: Distance from one frame to the next.
        mel: Number of mel bands of the power spectrum; 0 for the magnitude of each frequency.
        log: Whether values are decibels.
    """

    frame: Span
    step: Span
    mel: int = 0
    log: bool = False

    @classmethod
    def parse(cls, spectrogram: str, mel: int, log: bool) -> Spectrogram | None:
        """Parses the flags of the same names; returns None without `--spectrogram`.

        Raises:
            UsageError: a flag is malformed, or needs another one.
        """
        if mel < 0:
            raise UsageError(f"--mel {mel}: expected a number of bands such as 80")
        if not spectrogram:
            if mel or log:
                given = f"--mel {mel}" if mel else "--log"
                raise UsageError(
                    f"{given} is about spectrograms: add --spectrogram FRAME:STEP such as 25ms:10ms"
                )
            return None
        frame, _, step = spectrogram.partition(":")
        if not (frame and step):
            raise UsageError(
                f"--spectrogram {spectrogram}: expected FRAME:STEP such as 256:128 or 25ms:10ms"
            )
        return cls(parse_span(frame, "--spectrogram"), parse_span(step, "--spectrogram"), mel, log)

    def of(
        self, signal: np.ndarray, rate: float | None, limit: int = DEFAULT_RECORD_BYTES
    ) -> np.ndarray:
        """Returns the spectrogram of a signal [time, ...]; see `spectrogram`.

        Args:
            signal: [time, ...] of real numbers.
            rate: Samples per second; None if unknown.
            limit: The most bytes that the result may take.

        Raises:
            RejectError: the signal is shorter than a frame, complex, or its spectrogram would exceed
                a record.
            UsageError: a frame has a single sample, a mel band has no frequency, or the rate is
                needed and unknown.
        """
        frame, step = self.frame.samples(rate), self.step.samples(rate)
        if frame < 2:
            raise UsageError(f"{self.frame.source}: {frame} sample, expected at least 2")
        if len(signal) < frame:
            raise RejectError(f"{len(signal)} samples, a frame has {frame}")
        if self.mel and not rate:
            raise UsageError(
                f"--mel {self.mel}: the recordings do not state how many samples a second has; add "
                "--rate 16kHz, or --resample"
            )
        bands = mel_bands(self.mel, frame, rate, limit) if self.mel and rate else None
        return spectrogram(signal, frame, step, bands, self.log, limit)


def spectrogram(
    signal: np.ndarray,
    frame: int,
    step: int,
    mel: MelBands | None = None,
    log: bool = False,
    limit: int = DEFAULT_RECORD_BYTES,
) -> np.ndarray:
    """Returns short-time Fourier magnitudes: float32 [frames, frame // 2 + 1, ...].

    They equal `tf.abs(tf.signal.stft(x, frame, step, fft_length=frame))` of each channel x if
    `frame` is even: TensorFlow's window of an odd number of samples is not periodic. Values are
    converted to float32, then transformed in float64.

    Args:
        signal: [time, ...] of real numbers; the only channel of [time, 1] adds no dimension.
        frame: Samples per frame, at least 2; each frame is multiplied by a periodic Hann window.
        step: Samples from one frame to the next. Frames lie entirely inside the signal.
        mel: Bands of the power spectrum that the result has instead: [frames, bands, ...], those of
            `librosa.feature.melspectrogram(y=x, n_fft=frame, hop_length=step, center=False)`.
        log: Whether the result is in decibels of power, those of
            `librosa.power_to_db(power, top_db=None)`: 10 * log10(max(power, 1e-10)).
        limit: The most bytes that the result may take.

    Raises:
        RejectError: the signal is complex, or its spectrogram would exceed a record.
    """
    if signal.dtype.kind == "c":
        raise RejectError(f"a spectrogram needs real numbers, not {signal.dtype}")
    channels = flat(signal)
    starts, bins = window_starts(len(signal), frame, step), frame // 2 + 1
    # Frames take time even if an array has no channel.
    size = 4 * len(starts) * bins * max(1, channels.shape[1])
    check_bytes(size, limit, "its spectrogram takes")
    rows = len(mel.starts) if mel else bins
    result = np.empty((len(starts), rows, channels.shape[1]), np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi / frame * np.arange(frame))
    block = max(1, _BLOCK // max(1, frame * channels.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # from values that are not finite
        series = np.ascontiguousarray(channels.T, np.float32)
        for first in range(0, len(starts), block):
            part = starts[first : first + block]
            frames = sliding_window_view(series, frame, 1)[:, part.start : part.stop : step]
            spectra = np.abs(np.fft.rfft(frames * window))
            if mel or log:
                spectra = _convert_power(spectra * spectra, mel, log)
            result[first : first + block] = spectra.transpose(1, 2, 0)
    trailing = () if signal.shape[1:] == (1,) else signal.shape[1:]
    return result.reshape(len(starts), rows, *trailing)


def _convert_power(power: np.ndarray, mel: MelBands | None, log: bool) -> np.ndarray:
    values = mel.sums(power) if mel else power
    return 10 * np.log10(np.maximum(values, _LEAST_POWER)) if log else values
