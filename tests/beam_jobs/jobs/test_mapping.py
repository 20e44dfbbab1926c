"""The first records of each job, and the features that a function makes of them."""

import json

import numpy as np
import pytest

from beam_jobs.errors import UsageError
from readers.format.schema import Feature, Schema
from tests.support.commands import parse_command
from tests.support.datasets import numbers, write_dataset
from tests.support.images import encoded

SOURCE = """
from pathlib import Path

import numpy as np


def same(features, info):
    return features


def told(features, info):
    return {"rate": info.rate or 0.0, "channels": info.channels or 0, "of": info.key}


def spectrum(features, info):
    return {"power": abs(np.fft.rfft(features["signal"], axis=0)) ** 2}


def smaller(features, info):
    small = features["image"][::2, ::2]
    return {**features, "image": small, "mean": small.mean((0, 1), dtype=np.float32)}


def lengths(features, info):
    return {"text": features["text"], "words": features["text"].split(), "tokens": features["tokens"]}


def kinds(features, info):
    return {"x": [0.5, np.float64(1), 3][int(features["label"])]} if "label" in features else {"x": None}


def odd(features, info):
    return {"x": 1} if len(features["signal"]) % 2 else {"x": 1.5}


def failing(features, info):
    raise RuntimeError("not today")


def moved(features, info):
    return {**features, "id": 1 + features["id"]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "functions_of_a_user.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mapped(job, source, function, *flags, output="out"):
    """The output of a command, whose first records are read."""
    arguments = [job, "--input", str(source), "--output", output]
    arguments += ["--map", f"functions_of_a_user:{function}", *map(str, flags)]
    return parse_command(arguments).output


def refused(*arguments):
    with pytest.raises(UsageError) as caught:
        mapped(*arguments)
    assert caught.value.exit_code == 2
    return caught.value.message


@pytest.fixture
def recordings(folder):
    """Ten recordings of two channels and of different lengths; the order of names is that of lengths."""
    for number in range(10):
        path = folder / f"in/{'ab'[number % 2]}/{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.zeros((10 + number, 2), np.float32))
    return folder / "in"


@pytest.fixture
def pictures(folder):
    (folder / "pictures").mkdir()
    for number in range(3):
        pixels = np.full((8 + number, 8, 3), 9, np.uint8)
        (folder / f"pictures/{number}.png").write_bytes(encoded(pixels, "PNG"))
    return folder / "pictures"


def test_sizes_that_differ_among_the_first_records_vary(recordings):
    output = mapped("sensors", recordings, "spectrum", "--label", "none")
    power = Feature("float32", (None, 2))
    assert output.schema == Schema({"key": Feature("string"), "power": power})
    windows = mapped("sensors", recordings, "spectrum", "--label", "none", "--window", 8)
    assert windows.schema["power"] == Feature("float32", (5, 2))
    stated = mapped(
        *("sensors", recordings, "spectrum", "--label", "none", "--window", 8),
        *("--map_schema", "power=float32[None,2]:raw,more=int64"),
    )
    assert stated.schema["power"] == Feature("float32", (None, 2), "raw")
    assert stated.schema["more"] == Feature("int64")


def test_what_fits_a_feature_of_the_job_has_its_sizes_and_its_encoding(recordings):
    plain = ["sensors", "--input", str(recordings), "--output", "o", "--encoding", "raw"]
    output = mapped("sensors", recordings, "same", "--encoding", "raw")
    assert output.schema == parse_command(plain).output.schema
    assert output.mapper.growth == pytest.approx(1)
    assert mapped("sensors", recordings, "spectrum").mapper.growth < 1


def test_features_are_named_as_a_flag_asks(recordings):
    flags = ("--label", "none", "--names", "power=p")
    assert mapped("sensors", recordings, "spectrum", *flags).feature_names == {"power": "p"}


def test_a_function_is_told_what_the_job_knows_of_its_records(recordings, pictures, folder):
    def told(*arguments):
        made = mapped(*arguments).mapper
        return made.rate, made.channels

    flags = ("told", "--label", "none")
    assert told("sensors", recordings / "a", *flags, "--rate", "50Hz") == (50, 2)
    assert told("sensors", recordings / "a", *flags, "--rate", "50Hz", "--resample", "5Hz") == (
        5,
        2,
    )
    assert told("sensors", recordings / "a/0.npy", *flags, "--record", "row") == (None, None)
    assert told("images", pictures / "*.png", *flags, "--channels", 1) == (None, 1)
    write_dataset(
        folder / "data", SCHEMA, {"train": [numbers(0, 3)]}, options={"sample_rate": 16.0}
    )
    assert told("reshard", folder / "data", "same") == (16, None)
    (folder / "x.txt").write_text("one")
    assert told("text", folder / "x.txt", "told") == (None, None)


SCHEMA = Schema({"id": ("int64", ()), "vector": ("float32", (3,)), "name": ("string", ())})


@pytest.mark.parametrize("encoding", ["jpeg", "png", "source", "tensor"])
def test_pictures_are_given_as_pixels_and_stored_as_the_job_would(pictures, encoding):
    output = mapped("images", pictures, "smaller", "--label", "none", "--encoding", encoding)
    assert output.schema["image"] == Feature("uint8", (None, None, 3), encoding)
    assert output.schema["mean"] == Feature("float32", (3,))
    assert output.mapper.features["image"].encoding == "tensor"


@pytest.mark.parametrize("tokens", ["words", "bytes", "bpe"])
def test_tokens_that_are_learned_later_have_their_form_already(folder, tokens):
    (folder / "x.jsonl").write_text(
        "".join(json.dumps({"text": "a bc" * n}) + "\n" for n in (1, 2))
    )
    output = mapped("text", folder / "x.jsonl", "lengths", "--tokens", tokens)
    assert output.schema["words"] == Feature("string", (None,))
    assert output.schema["tokens"] == Feature("int64", (None,), "list")


def test_records_of_a_dataset_are_given_by_its_schema(folder):
    write_dataset(folder / "data", SCHEMA, {"train": [numbers(0, 3)]})
    assert mapped("reshard", folder / "data", "same").schema == SCHEMA
    (folder / "data/manifest.json").unlink()
    message = refused("reshard", folder / "data", "same")
    assert message.startswith("--map needs to know the features of the records, but no manifest")


@pytest.mark.parametrize(
    ("function", "flags", "message"),
    [
        (
            "failing",
            [],
            "fails for all of the first records: the first: a/0.npy: --map functions_of_a_user:",
        ),
        ("odd", [], "the first records have x=float32 and x=int64: return one dtype and rank, or"),
        ("kinds", ["--label", "none"], "the first records have no 'x' with a dtype: return one"),
        (
            "same",
            ["--map_schema", "label=int64"],
            "--map_schema label: --map may not change this feature",
        ),
    ],
)
def test_a_function_that_makes_no_schema_is_refused(recordings, function, flags, message):
    assert message in refused("sensors", recordings, function, *flags)


def test_a_feature_that_decides_splits_is_kept(folder):
    write_dataset(folder / "data", SCHEMA, {"train": [numbers(0, 3)]})
    flags = ("--group_by", "column:id", "--splits", "a=0.5,b=0.5")
    assert "changed 'id'" in refused("reshard", folder / "data", "moved", *flags)
    assert mapped("reshard", folder / "data", "moved").schema == SCHEMA


def test_a_stated_schema_is_enough_if_no_first_record_can_be_made(recordings):
    flags = ("--map_schema", "x=int64", "--label", "none")
    schema = mapped("sensors", recordings, "failing", *flags).schema
    assert schema == Schema({"key": Feature("string"), "x": Feature("int64")})


def test_near_duplicates_are_those_of_what_the_function_gets(recordings):
    arguments = ["sensors", "--input", str(recordings), "--output", "out"]
    arguments += ["--map", "functions_of_a_user:spectrum", "--drop_near_duplicates", "0.9"]
    command = parse_command(arguments)
    (near,) = command.drops
    assert list(near.compared.features) == ["signal"]
    assert "signal" not in command.output.schema
