from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import resample_poly

from readers.format.similarity.recordings import recording_sketch
from tests.readers.format.similarity.lookalikes import DISTANCE, drift, near_hashes, noisy, speech

GOLDEN = [12535652294253131792, 5478212621355284644, 5478208223258442916]

COPIES = {
    "of half the rate": lambda signal: resample_poly(signal, 1, 2, axis=0),
    "of double the rate": lambda signal: resample_poly(signal, 2, 1, axis=0),
    "with gain and offset": lambda signal: 3.7 * signal + 11,
    "with noise": noisy,
    "with trimmed ends": lambda signal: signal[3:-2],
    "of 16 bits": lambda signal: np.round(signal / abs(signal).max() * 3000).astype(np.int16),
    "with all of this": lambda signal: 9 * noisy(resample_poly(signal[2:-1], 2, 1, axis=0)) - 1,
}


def recording_hash(signal):
    sketch = recording_sketch(signal)
    return sketch[0] if sketch else None


@pytest.fixture(scope="module")
def recordings():
    made = [*(speech(seed) for seed in range(12)), *(drift(seed) for seed in range(12))]
    return [(signal, recording_hash(signal)) for signal in made]


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_differs_in_few_bits(recordings, name):
    for signal, original in recordings:
        copy = recording_hash(COPIES[name](signal))
        assert copy is not None and (copy ^ original).bit_count() <= DISTANCE


def test_different_recordings_are_not_near(recordings):
    hashes = np.array([found for _, found in recordings], np.uint64)
    assert len(near_hashes(hashes, DISTANCE)[0]) == 0


def test_a_sound_played_backwards_upside_down_or_twice_beside_itself():
    signal = speech(0)
    original = recording_hash(signal)
    assert (recording_hash(signal[::-1]) ^ original).bit_count() > DISTANCE
    assert (recording_hash(-signal) ^ original).bit_count() == 0
    both = np.stack([signal, -2 * signal], 1)
    assert (recording_hash(both) ^ original).bit_count() == 0


@pytest.mark.parametrize("value", [0, 1, -7.3, 1e300, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(1000,), (1000, 3)])
def test_a_constant_signal_has_no_hash(value, shape):
    assert recording_hash(np.full(shape, value)) is None


def test_a_tone_has_no_hash():
    time = np.arange(4000)
    for cycles in (40, 333.3, 1500):
        assert recording_hash(np.sin(2 * np.pi * cycles * time / 4000)) is None


@pytest.mark.parametrize("samples", [0, 1, 2, 63])
def test_a_short_signal_has_no_hash(samples):
    assert recording_hash(np.random.default_rng(0).normal(size=samples)) is None


@pytest.mark.parametrize("made", [speech, drift])
def test_few_missing_values_change_few_bits(made):
    signal = made(0).copy()
    original = recording_hash(signal)
    signal[1000:1003] = np.nan
    signal[2000] = np.inf
    signal[2001] = -np.inf
    assert (recording_hash(signal) ^ original).bit_count() <= DISTANCE


def test_a_channel_without_values_makes_no_difference():
    signal = speech(0)
    silent = np.stack([signal, np.full(len(signal), np.nan), np.zeros(len(signal))], 1)
    assert recording_hash(silent) == recording_hash(signal)
    assert recording_hash(np.zeros((1000, 0))) is None


@pytest.mark.parametrize("made", [speech, drift])
@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_the_smallest_and_largest_floats_are_as_good(made, scale):
    assert recording_hash(made(0) * scale) == recording_hash(made(0))


def test_hashes_are_the_same_in_every_version():
    time = np.arange(3000)
    steps = (time * time * 7919 + time * 104729) % 1013 - 506
    slow = np.cumsum(steps)
    fast = steps * ((time // 211) ** 2 % 7)
    found = [recording_hash(signal) for signal in (slow, fast, np.stack([fast, steps], 1))]
    assert found == GOLDEN
