"""Sketches share a key and are near where a comparison of each with each says so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.similarity import likeness as module
from readers.format.similarity.likeness import DEFAULTS, Likeness
from readers.format.similarity.texts import TEXT_SIMILARITY
from tests.readers.format.similarity.lookalikes import (
    DISTANCE,
    drift,
    jpeg,
    noisy,
    smooth_picture,
    speech,
)

PICTURES = Likeness("picture", 0.9)
TEXTS = Likeness("text", 0.8)
RECORDINGS = Likeness("recording", 0.9)


def are_near(likeness, one, other):
    """Whether two values share a key, and are near."""
    found = likeness.sketch([one, other])
    shared = (found.keys[0] == found.keys[1]) & found.known.all(axis=0)
    return bool(shared.any() and likeness.near(found.probes[:1], found.probes[1:])[0])


def test_the_thresholds_of_the_checks_are_the_defaults():
    assert PICTURES.distance == RECORDINGS.distance == DISTANCE
    assert DEFAULTS == {"picture": 0.9, "text": TEXT_SIMILARITY, "recording": 0.9}


@pytest.mark.parametrize("distance", range(7))
@given(st.lists(st.integers(0, 63), max_size=6), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_hashes_within_the_distance_share_a_key(distance, flips, value):
    other = value
    for bit in flips[:distance]:
        other ^= 1 << bit
    one, two = np.array([value, other], np.uint64)
    masks = module._masks(distance)
    assert any(one & mask == two & mask for mask in masks)
    assert min(int(mask).bit_count() for mask in masks) >= 16


def test_a_picture_is_near_its_copies_and_not_one_with_another_part():
    picture = smooth_picture(0, 96)
    other = picture.copy()
    other[:6, :6] = np.where(picture[:6, :6].mean() > picture.mean(), 0, 255)
    assert all(are_near(PICTURES, picture, copy) for copy in (jpeg(picture), picture / 255))
    lumas = PICTURES.sketch([picture, other]).probes
    assert not PICTURES.near(lumas[:1], lumas[1:])[0]


def test_a_threshold_of_one_asks_for_the_same():
    picture = smooth_picture(0, 96)
    assert are_near(Likeness("picture", 1), picture, picture)
    assert not are_near(Likeness("picture", 1), picture, jpeg(picture))
    assert are_near(Likeness("text", 1), "a longer text", "A  longer text")
    assert not are_near(Likeness("text", 1), "a longer text", "another longer text")
    assert are_near(Likeness("recording", 1), [speech(0)], [speech(0)])
    assert not are_near(Likeness("recording", 1), [speech(0)], [speech(0)[50:]])


def test_recordings_of_several_arrays_are_near_if_all_are():
    likeness = Likeness("recording", 0.9, 2)
    one, two, other = speech(0), drift(0), drift(1)
    assert are_near(likeness, [one, two], [noisy(one), 3 * two])
    assert not are_near(likeness, [one, two], [one, other])
    flat = np.zeros(100)
    assert are_near(likeness, [one, flat], [one, flat])
    assert not are_near(likeness, [one, flat], [one, flat + 1])


def test_values_without_a_hash_are_near_their_equals_alone():
    flat = np.zeros((20, 20, 3), np.uint8)
    assert are_near(PICTURES, flat, flat.copy())
    assert not are_near(PICTURES, flat, flat + 1)
    assert not are_near(PICTURES, flat, flat[:10])
    assert are_near(RECORDINGS, [np.arange(5.0)], [np.arange(5.0)])
    assert not are_near(RECORDINGS, [np.arange(5.0)], [np.arange(5)])
    assert are_near(TEXTS, "", " \n") and not are_near(TEXTS, "", "a")
    assert are_near(PICTURES, flat[:0], flat[:0])


@pytest.mark.parametrize(
    ("kind", "threshold"), [("picture", 0.89), ("text", 0.4), ("recording", 1.1), ("text", np.nan)]
)
def test_a_threshold_without_keys_is_an_error(kind, threshold):
    with pytest.raises(ValueError, match=rf"expected a similarity of {kind}s from 0\.\d to 1"):
        Likeness(kind, threshold)
