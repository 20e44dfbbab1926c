"""Channels chosen by name, by all readers."""

import dataclasses

import numpy as np
import pytest

import readers
from readers.__main__ import main
from readers.format.manifest import CHANNELS, UNITS, Manifest
from readers.format.schema import Feature, Schema
from readers.transforms import Moments
from tests.support.datasets import write_dataset

NAMES = ["x", "y", "z", "y"]
CHOSEN = {"signal": ["z", "x"], "key": None}


def dataset(folder, shape=(None, 4), encoding="tensor", names=NAMES):
    rng = np.random.default_rng(5)
    lengths = [3, 0, 5, 1, 3] if shape[0] is None else [shape[0]] * 5
    arrays = [rng.random((n, *shape[1:]), np.float32) for n in lengths]
    records = [{"signal": array, "key": str(n)} for n, array in enumerate(arrays)]
    schema = Schema({"signal": Feature("float32", shape, encoding), "key": Feature("string")})
    options = {CHANNELS: {"signal": names}} if names else {}
    write_dataset(folder, schema, {"train": [records[:3], records[3:]]}, options=options)
    return arrays


@pytest.mark.parametrize("encoding", ["tensor", "raw", "list"])
@pytest.mark.parametrize("shape", [(None, 4), (3, 4), (4,)])
def test_chosen_channels_are_those_of_the_names(tmp_path, shape, encoding):
    expected = [array[..., [2, 0]] for array in dataset(tmp_path, shape, encoding)]
    source = readers.RecordSource(tmp_path, columns=CHOSEN)
    for array, record in zip(expected, source[:], strict=True):
        np.testing.assert_array_equal(record["signal"], array)
    batching = "ragged" if shape[0] is None else "dense"
    (batch,) = readers.as_numpy(tmp_path, batch_size=5, columns=CHOSEN, batching=batching)
    for row, array in zip(batch["signal"], expected, strict=True):
        np.testing.assert_array_equal(row, array)
    (batch,) = readers.as_numpy(tmp_path, batch_size=5, columns=CHOSEN, batching="padded")
    for row, array in zip(batch["signal"], expected, strict=True):
        np.testing.assert_array_equal(row[: len(array)], array)


def test_tensorflow_knows_the_number_of_channels(tmp_path):
    expected = dataset(tmp_path)
    (batch,) = readers.load(tmp_path, batch_size=5, columns=CHOSEN, batching="padded")
    assert batch["signal"].shape == (5, 5, 2)
    np.testing.assert_array_equal(batch["signal"][2], expected[2][:, [2, 0]])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"signal": ["w"]},
            "'w' is not the name of one channel of 'signal'; its channels are x, y, z, y",
        ),
        ({"signal": ["y"]}, "'y' is not the name of one channel"),
        ({"signal": []}, "is not the name"),
        ({"signal": "x"}, "'x' is not the name"),
        (
            {"key": ["x"]},
            "'x' is not the name of one channel of 'key'; its channels are without names",
        ),
        ({"other": None}, "other"),
        ({}, "expected a list of feature names"),
    ],
)
def test_channels_that_do_not_exist_are_an_error(tmp_path, columns, message):
    dataset(tmp_path)
    with pytest.raises(ValueError, match=message):
        readers.as_numpy(tmp_path, batch_size=5, columns=columns, batching="padded")


def test_moments_are_those_of_the_chosen_channels(tmp_path):
    dataset(tmp_path)
    figures = {"mean": [1.0, 2.0, 3.0, 4.0], "std": [5.0, 6.0, 7.0, 0.0]}
    manifest = Manifest.read(tmp_path)
    split = dataclasses.replace(
        manifest.splits["train"], statistics={"signal": {"channels": figures}}
    )
    manifest = dataclasses.replace(manifest, splits={"train": split})
    found = Moments.of(manifest, "train", "signal", channels=["z", "x"])
    assert (found.mean, found.std) == ((3.0, 1.0), (7.0, 5.0))
    with pytest.raises(ValueError, match="'w' is not the name of one channel"):
        Moments.of(manifest, "train", "signal", channels=["w"])


def test_names_that_do_not_fit_the_feature_are_none(tmp_path):
    dataset(tmp_path, names=NAMES[:3])
    manifest = Manifest.read(tmp_path)
    assert manifest.channels == {}
    for wrong in ([1, 2, 3, 4], "wxyz", {"a": 1}, None):
        options = {CHANNELS: {"signal": wrong}}
        assert dataclasses.replace(manifest, options=options).channels == {}
    assert dataclasses.replace(manifest, options={CHANNELS: ["signal"]}).channels == {}


def test_people_see_names_and_units(tmp_path, capsys):
    dataset(tmp_path)
    manifest = Manifest.read(tmp_path)
    units = {UNITS: {"signal": ["g", "", "g", "<b>"]}}
    stated = dataclasses.replace(manifest, options={**manifest.options, **units})
    (tmp_path / "manifest.json").write_bytes(stated.to_bytes())
    assert main(["info", str(tmp_path)]) == 0
    assert "channels    signal: x [g], y, z [g], y [<b>]\n" in capsys.readouterr().out
    readers.report(tmp_path, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "x [g]" in page and "y [&lt;b&gt;]" in page and "channel 0" not in page
