"""Pictures like photographs and recordings like those of microphones and sensors, and copies of them."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from readers.format.similarity.pairs import popcount

# How many bits of hashes differ between near duplicates, at most.
DISTANCE = 6


def smooth_picture(seed: int, side: int = 224) -> np.ndarray:
    """Colours whose waves weaken with their frequency as those of photographs, uint8 [side, side, 3]."""
    rng = np.random.default_rng(seed)
    waves = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)) * side
    waves[0, 0] = 1
    noise = rng.normal(size=(4, *waves.shape, 2)) @ [1, 1j]
    light, *colours = np.fft.irfft2(noise / waves**1.6, (side, side))
    picture = light[..., None] + 0.3 * np.stack(colours, -1)
    return np.clip(128 + 50 * (picture - picture.mean()) / picture.std(), 0, 255).astype(np.uint8)


def photograph_tiles() -> list[np.ndarray]:
    """Parts of two photographs, none of which overlaps another, uint8 [128, 128, 3]."""
    corners = [(y, x) for y in range(0, 300, 128) for x in range(0, 513, 128)]
    return [
        photo[y : y + 128, x : x + 128] for photo in load_sample_images().images for y, x in corners
    ]


def jpeg(pixels: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=50)
    return np.asarray(Image.open(file))


def resized(pixels: np.ndarray, factor: float) -> np.ndarray:
    size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


def brighter(pixels: np.ndarray) -> np.ndarray:
    return np.clip(pixels * 1.05 + 8, 0, 255).astype(np.uint8)


def gray(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels).convert("L"))


def speech(seed: int) -> np.ndarray:
    """Syllables of harmonics up to 4000 Hz, with pauses: a second at 16 kHz."""
    rng = np.random.default_rng(seed)
    found = 0.001 * rng.normal(size=16000)
    time = 0
    while time < len(found):
        length = min(int(rng.integers(800, 3200)), len(found) - time)
        harmonics = rng.uniform(80, 250) * np.arange(1, 17)
        strength = np.exp(-(((harmonics - rng.uniform(300, 2500)) / 600) ** 2))
        phases = 2 * np.pi * np.arange(length)[:, None] / 16000 * harmonics + rng.uniform(0, 6, 16)
        if rng.random() < 0.75:
            found[time : time + length] += np.hanning(length) * (np.sin(phases) @ strength)
        time += length
    return found


def drift(seed: int, samples: int = 4000, channels: int = 3) -> np.ndarray:
    """Slow random changes, as of temperatures."""
    rng = np.random.default_rng(seed)
    waves = np.maximum(np.arange(samples // 2 + 1), 1)[:, None]
    noise = rng.normal(size=(*waves.shape[:1], channels, 2)) @ [1, 1j]
    return np.fft.irfft(noise / waves, samples, axis=0)


def noisy(signal: np.ndarray) -> np.ndarray:
    """With noise of 30 dB less power."""
    rng = np.random.default_rng(0)
    return signal + signal.std(axis=0) * 10**-1.5 * rng.normal(size=signal.shape)


def near_hashes(hashes: np.ndarray, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of hashes, uint64 [n], that differ in at most some bits, int64 [pairs] each."""
    near = popcount(hashes[:, None] ^ hashes) <= distance
    first, second = np.nonzero(np.triu(near, 1))
    return first, second
