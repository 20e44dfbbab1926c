"""The bounds of a sample, and that it depends on no number of cores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.measures import sample as module
from readers.measures.arrays import measure_array, measure_number
from readers.measures.sample import sample_of
from tests.support.datasets import write_dataset


@given(arrays.arrays(np.float64, ()))
@settings(deadline=None)
def test_a_number_is_measured_as_an_array_is(value):
    with np.errstate(all="ignore"):
        expected = measure_array(value)
    found = measure_number(float(value))
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], name)


def written(directory, schema, records):
    return Manifest.read(write_dataset(directory, schema, {"train": [records]}))


def test_records_that_are_too_large_are_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 10_000)
    monkeypatch.setattr(module, "_WINDOW", 1_000)
    schema = Schema({"x": ("float32", (None,)), "key": ("string", ())})
    records = [{"x": np.zeros(n, np.float32), "key": str(n)} for n in (10, 5000, 20, 4000, 30)]
    manifest = written(tmp_path / "d", schema, records)
    sample = sample_of(str(tmp_path / "d"), manifest, 100)["train"]
    assert (sample.seen, sample.too_large, sample.keys) == (3, 2, ("10", "20", "30"))
    np.testing.assert_array_equal(sample.numbers, [0, 2, 4])


def test_a_sample_is_the_same_for_any_number_of_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_WINDOW", 5_000)
    schema = Schema(
        {"x": ("float32", (None, 2)), "key": ("string", ()), "kinds": ("int64", (None,))}
    )
    records = [
        {"x": np.full((n, 2), n, np.float32), "key": str(n), "kinds": np.arange(n % 3)}
        for n in range(60)
    ]
    directory = write_dataset(
        tmp_path / "d",
        schema,
        {"train": [records]},
        class_names={"kinds": ("a", "b"), "x": ("c",), "none": ("d",)},
    )
    found = []
    for cores in (1, 7):
        monkeypatch.setattr(module, "processors", lambda cores=cores: cores)
        found.append(sample_of(str(directory), Manifest.read(directory), 100)["train"])
    one, other = found
    assert one.keys == other.keys == tuple(map(str, range(60)))
    assert one.classes == other.classes == {"kinds": {0: 40, 1: 20}}
    np.testing.assert_array_equal(one.digests["x"], other.digests["x"])
    np.testing.assert_array_equal(one.measures["x"]["mean"], other.measures["x"]["mean"])


def test_damaged_records_are_named(tmp_path):
    schema = Schema({"x": ("float32", (2,))})
    directory = write_dataset(tmp_path / "d", schema, {"train": [[{"x": np.ones(2, np.float32)}]]})
    other = Manifest(Schema({"x": ("float32", (3,))}), Manifest.read(directory).splits)
    (directory / "manifest.json").write_bytes(other.to_bytes())
    with pytest.raises(ValueError, match=r"record 0 at byte 0: feature 'x'"):
        sample_of(str(directory), Manifest.read(directory), 10)
