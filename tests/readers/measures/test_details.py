"""Values, channels and words of a sample, and the bounds of visits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import signal as scipy_signal

from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.measures import visits
from readers.measures.arrays import measure_array, measure_number
from readers.measures.channels import Channels
from readers.measures.sample import sample_of
from readers.measures.texts import Words
from readers.measures.values import Collector, drawn_places, joined
from tests.support.datasets import write_dataset


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_one_place_is_drawn_in_each_equal_part(count, most, number):
    places = drawn_places(count, most, number)
    if count <= most:
        assert places is None
        return
    assert places.min() >= 0 and places.max() < count
    np.testing.assert_array_equal(np.floor((places + 0.5) * most / count).clip(0).shape, (most,))
    parts = np.arange(most + 1) * count / most
    assert ((places >= np.floor(parts[:-1])) & (places <= parts[1:])).all()


def test_values_are_drawn_by_rows_and_joined():
    feature = Feature("int16", (None, 3))
    first, second = (Collector(feature, 10) for _ in range(2))
    long = np.arange(300, dtype=np.int16).reshape(100, 3)
    first.add(long, 0)
    first.add(long[:4], 1)
    second.add(long[:0], 2)
    found = joined([first.values(), second.values()])
    assert found.drawn.dtype == np.int16
    assert len(found.drawn) == 14
    np.testing.assert_array_equal(found.sizes, [300, 12, 0])
    np.testing.assert_array_equal(found.shapes, [[100, 3], [4, 3], [0, 3]])
    np.testing.assert_array_equal(found.drawn[10:], long[:4])
    np.testing.assert_array_equal(found.drawn[:, 1] - found.drawn[:, 0], 1)
    assert not found.is_whole


@given(arrays.arrays(np.float64, ()))
@settings(deadline=None)
def test_a_number_is_measured_as_an_array_is(value):
    with np.errstate(all="ignore"):
        expected = measure_array(value)
    found = measure_number(float(value))
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], name)


def test_the_spectrum_is_that_of_welch():
    rng = np.random.default_rng(0)
    waves = rng.normal(size=(4096, 2)).cumsum(axis=0)
    found = Channels(2)
    found.add(waves)
    size, power = found.spectrum()
    _, expected = scipy_signal.welch(
        waves, window=np.hanning(size), nperseg=size, noverlap=0, axis=0, scaling="density"
    )
    # Those of SciPy count both halves of the spectrum.
    np.testing.assert_allclose(2 * power[1:-1], expected[1:-1])


def test_channels_of_several_runs_add_up():
    rng = np.random.default_rng(0)
    records = [rng.normal(size=(int(n), 2)) for n in rng.integers(1, 300, 20)]
    records[3][5:20, 0], records[4][:, 1] = np.nan, 0
    whole, one, other = (Channels(2) for _ in range(3))
    for place, record in enumerate(records):
        whole.add(record)
        (one if place < 9 else other).add(record)
    found = one.merge([other])
    for name in ("records", "steps", "missing", "gap_steps", "longest_gap", "dead", "low", "high"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name), name)
    np.testing.assert_allclose(found.squares, whole.squares)
    np.testing.assert_allclose(found.spectrum()[1], whole.spectrum()[1])
    assert found.missing[0] == 15 and found.dead[1] == 1


def test_scripts_are_those_of_the_names_of_letters():
    found = Words()
    found.add("Straße Ελλάδα Привет 日本 ﾊﾛｰ ｗ한국 عربى \U00020000 1, 2! \U0001f600".encode())
    assert found.scripts == {
        "Latin": 7,
        "Greek": 6,
        "Cyrillic": 6,
        "Han": 3,
        "Katakana": 2,
        "Katakana-hiragana": 1,
        "Hangul": 2,
        "Arabic": 4,
    }


def written(directory, schema, records):
    return Manifest.read(write_dataset(directory, schema, {"train": [records]}))


def test_records_that_are_too_large_are_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(visits, "LARGEST", 10_000)
    monkeypatch.setattr(visits, "_WINDOW", 1_000)
    schema = Schema({"x": ("float32", (None,)), "key": ("string", ())})
    records = [{"x": np.zeros(n, np.float32), "key": str(n)} for n in (10, 5000, 20, 4000, 30)]
    sample = sample_of(str(tmp_path / "d"), written(tmp_path / "d", schema, records), 100, True)[
        "train"
    ]
    assert (sample.seen, sample.too_large, sample.keys) == (3, 2, ("10", "20", "30"))
    np.testing.assert_array_equal(sample.numbers, [0, 2, 4])
    np.testing.assert_array_equal(sample.details.values["x"].shapes[:, 0], [10, 20, 30])


def test_a_sample_is_the_same_for_any_number_of_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(visits, "_WINDOW", 5_000)
    schema = Schema({"x": ("float32", (None, 2)), "key": ("string", ())})
    records = [{"x": np.full((n, 2), n, np.float32), "key": str(n)} for n in range(60)]
    manifest = written(tmp_path / "d", schema, records)
    found = []
    for cores in (1, 7):
        monkeypatch.setattr(visits, "processors", lambda cores=cores: cores)
        found.append(sample_of(str(tmp_path / "d"), manifest, 100, True)["train"])
    one, other = found
    assert one.keys == other.keys
    np.testing.assert_array_equal(one.details.values["x"].drawn, other.details.values["x"].drawn)
    np.testing.assert_array_equal(one.digests["x"], other.digests["x"])


def test_damaged_records_are_named(tmp_path):
    schema = Schema({"x": ("float32", (2,))})
    directory = write_dataset(tmp_path / "d", schema, {"train": [[{"x": np.ones(2, np.float32)}]]})
    other = Manifest(Schema({"x": ("float32", (3,))}), Manifest.read(directory).splits)
    (directory / "manifest.json").write_bytes(other.to_bytes())
    with pytest.raises(ValueError, match=r"record 0 at byte 0: feature 'x'"):
        sample_of(str(directory), Manifest.read(directory), 10, True)
