"""The cards of the datasets of jobs: the same in every run, and read by the programs that they are for."""

from __future__ import annotations

import json
import shutil

import apache_beam as beam
import numpy as np
import pytest

import readers
from beam_jobs import Schema, WriteShards
from beam_jobs.dataset.card.files import card_files
from readers.format.manifest import CARD, Manifest
from tests.support.commands import ONE, TWO, run
from tests.support.datasets import write_numbers
from tests.support.images import encoded

HOSTILE = ("cat|dog", "<script>alert(1)<", "`a` [b](c)", "two\nlines", "plain")


def photo(number):
    y, x = np.mgrid[: 16 + number % 3, :24]
    return np.stack([8 * y, 6 * x, 100 + y + number], axis=2).astype(np.uint8)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder of inputs for each job."""
    path = tmp_path_factory.mktemp("inputs")
    for number in range(24):
        folder = path / "images" / HOSTILE[number % len(HOSTILE)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(encoded(photo(number), "PNG"))
    (path / "images" / "plain" / "bad.png").write_bytes(b"no image")
    (path / "sensors" / "walk").mkdir(parents=True)
    for number in range(9):
        signal = np.arange(20 + number, dtype=np.float32)
        np.save(path / "sensors" / "walk" / f"{number}.npy", signal)
    (path / "text").mkdir()
    lines = [json.dumps({"text": f"the words of {n}", "label": f"l{n % 3}"}) for n in range(30)]
    (path / "text" / "a.jsonl").write_text("\n".join(lines))
    return path


FLAGS = {
    "images": ["--encoding", "source"],
    "sensors": ["--encoding", "raw"],
    "text": ["--label_field", "label", "--tokens", "words"],
}


def arguments(inputs, job, out, *more):
    common = ["--splits", "train=0.7,val=0.3", "--num_shards", 2, "--license", "CC-BY-4.0"]
    return [job, "--input", inputs / job, *FLAGS[job], *common, "--output", out, *more]


def card_of(directory):
    return {name: (directory / name).read_bytes() for name in CARD if (directory / name).exists()}


@pytest.mark.parametrize("job", FLAGS)
def test_the_same_command_writes_the_same_card(inputs, tmp_path, job):
    assert run(*arguments(inputs, job, tmp_path / "a", *ONE)) == 0
    assert run(*arguments(inputs, job, tmp_path / "b", *TWO)) == 0
    found = card_of(tmp_path / "a")
    assert len(found) == 4
    assert found == card_of(tmp_path / "b")
    assert found == card_files(Manifest.read(tmp_path / "a"))
    assert str(tmp_path).encode() not in b"".join(found.values())
    assert readers.verify(tmp_path / "a").ok


def test_a_licence_is_in_the_manifest_and_in_the_next_dataset_of_its_command(inputs, tmp_path):
    assert run(*arguments(inputs, "text", tmp_path / "old")) == 0
    assert run("--config", tmp_path / "old", "--output", tmp_path / "new") == 0
    old, new = (Manifest.read(tmp_path / name) for name in ("old", "new"))
    assert old.options["license"] == new.options["license"] == "CC-BY-4.0"
    assert run("reshard", "--input", tmp_path / "new", "--output", tmp_path / "bare") == 0
    assert "license" not in Manifest.read(tmp_path / "bare").options
    assert b"## Licence" not in (tmp_path / "bare" / "README.md").read_bytes()


def test_a_card_is_replaced_with_its_dataset_even_if_users_have_edited_it(inputs, tmp_path):
    out = tmp_path / "out"
    assert run(*arguments(inputs, "images", out)) == 0
    (out / "README.md").write_text("# My photos\n")
    assert readers.verify(out).ok
    assert run(*arguments(inputs, "sensors", out)) == 2
    assert (out / "README.md").read_text() == "# My photos\n"
    assert run(*arguments(inputs, "sensors", out, "--overwrite")) == 0
    assert card_of(out) == card_files(Manifest.read(out))


def test_a_dataset_without_a_card_is_read_verified_and_replaced(inputs, tmp_path):
    out = tmp_path / "out"
    assert run(*arguments(inputs, "sensors", out)) == 0
    for name in CARD:
        (out / name).unlink()
    assert readers.verify(out).ok
    assert len(readers.RecordSource(out)) > 0
    assert run("reshard", "--input", out, "--output", tmp_path / "again") == 0
    assert run(*arguments(inputs, "sensors", out, "--overwrite")) == 0
    assert card_of(out) == card_files(Manifest.read(out))


@pytest.mark.parametrize("status", [403, 404])
def test_a_store_without_a_card_is_no_problem_to_those_who_may_not_list_it(tmp_path, s3, status):
    s3.upload(write_numbers(tmp_path / "numbers"), "numbers")
    s3.proxy.fault(status, "README|croissant|dataset_info|features", methods=("GET", "HEAD"))
    assert readers.verify(f"{s3.url}/numbers").ok
    assert [request for request in s3.proxy.seen("README", None) if request.fault]


SCHEMA = Schema(
    {
        "key": ("string",),
        "label": ("int64",),
        "weight": ("float32",),
        "flag": ("bool",),
        "half": ("float16", (2,), "list"),
        "tokens": ("int64", (None,), "list"),
        "boxes": ("float32", (None, 4), "list"),
        "grid": ("int32", (None, None), "list"),
        "words": ("string", (None,), "list"),
        "means": ("float64", (3,), "raw"),
        "counts": ("uint64", (None, 2), "raw"),
        "wide": ("uint32", (2,), "raw"),
        "signal": ("float32", (None, 2)),
        "events": ("int16", (None, None), "sequence"),
        "png": ("uint8", (None, None, 3), "png"),
        "deep": ("uint16", (None, None, 1), "png"),
        "image/encoded": ("uint8", (None, None, 3), "source"),
        "a b|<c>": ("int64",),
    }
)


def record(number):
    rng = np.random.default_rng(number)
    sizes = rng.integers(0, 4, 6).tolist()
    return {
        "label": number % 5,
        "weight": np.float32(number / 4),
        "flag": bool(number % 2),
        "half": rng.normal(size=2).astype(np.float16),
        "tokens": rng.integers(-9, 9, sizes[0]),
        "boxes": rng.normal(size=(sizes[1], 4)).astype(np.float32),
        "grid": rng.integers(-9, 9, (2, 1 + sizes[2])).astype(np.int32),
        "words": [f"wörter {n}" for n in range(sizes[3])],
        "means": rng.normal(size=3),
        "counts": rng.integers(1 << 62, 1 << 64, (sizes[4], 2), np.uint64),
        "wide": rng.integers(0, 1 << 32, 2, np.uint32),
        "signal": rng.normal(size=(sizes[5], 2)).astype(np.float32),
        "events": [np.arange(n, dtype=np.int16) for n in range(1 + number % 3)],
        "png": encoded(photo(number), "PNG"),
        "deep": encoded(photo(number)[..., 0].astype(np.uint16) * 257, "PNG"),
        "image/encoded": encoded(photo(number), "PNG"),
        "a b|<c>": number,
    }


@pytest.fixture(scope="module")
def every_encoding(tmp_path_factory):
    """A dataset with a feature of each encoding, and with names that other programs must bear."""
    path = tmp_path_factory.mktemp("encodings") / "out"
    write = WriteShards(
        path,
        schema=SCHEMA,
        num_shards=3,
        splits={"train": 0.8, "val_2": 0.2},
        label_names=HOSTILE,
        options={"license": "https://example.org/terms", "source": "<b>|\n---\n"},
    )
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([(f"k{n}", record(n)) for n in range(40)]) | write
    return path


def records_by_key(directory, split):
    """What the readers read of each record, by its key."""
    source = readers.RecordSource(directory, split=split)
    return {found["key"]: found for found in (source[n] for n in range(len(source)))}


def same(found, expected):
    """Whether a value of TensorFlow Datasets is that of the readers."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.kind in "OS":  # Bytes, or a list of them.
        return found.tolist() == expected.tolist()
    alike = (found.shape, found.dtype) == (expected.shape, expected.dtype)
    return alike and found.tobytes() == expected.tobytes()


@pytest.mark.frameworks
def test_tensorflow_datasets_reads_the_records_that_the_readers_read(every_encoding):
    import tensorflow as tf
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(every_encoding)
    assert builder.info.features["label"].num_classes == len(HOSTILE)
    assert str(builder.info.redistribution_info.license) == "https://example.org/terms"
    for split in ("train", "val_2"):
        expected = records_by_key(every_encoding, split)
        found = list(tfds.as_numpy(builder.as_dataset(split=split)))
        assert builder.info.splits[split].num_examples == len(found) == len(expected) > 0
        for one in found:
            wanted = expected[one["key"]]
            assert one.keys() == wanted.keys()
            # What README.md calls the bytes that are stored.
            one["signal"] = tf.io.parse_tensor(one["signal"], tf.float32).numpy()
            one["wide"] = np.frombuffer(one["wide"], np.uint32)
            events = [tf.io.parse_tensor(each, tf.int16).numpy() for each in one.pop("events")]
            assert all(map(same, events, wanted.pop("events")))
            # The sizes of two unknown dimensions are in `grid/shape`.
            one["grid"] = one["grid"].reshape(wanted["grid"].shape)
            assert [name for name in wanted if not same(one[name], wanted[name])] == []


@pytest.mark.frameworks
def test_slices_of_tensorflow_datasets_are_those_of_the_shards(every_encoding):
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(every_encoding)
    keys = [one["key"] for one in tfds.as_numpy(builder.as_dataset(split="train"))]
    halves = [builder.as_dataset(split=s) for s in ("train[:50%]", "train[50%:]")]
    found = [one["key"] for half in halves for one in tfds.as_numpy(half)]
    assert sorted(found) == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.frameworks
@pytest.mark.parametrize("job", FLAGS)
def test_the_card_of_each_job_is_valid_and_opens(inputs, tmp_path, job):
    import mlcroissant
    import tensorflow_datasets as tfds

    out = tmp_path / "out"
    assert run(*arguments(inputs, job, out)) == 0
    metadata = mlcroissant.Dataset(jsonld=str(out / "croissant.json")).metadata
    assert not metadata.ctx.issues.errors
    assert metadata.license == ["CC-BY-4.0"]
    expected = records_by_key(out, "train")
    found = list(tfds.as_numpy(tfds.builder_from_directory(out).as_dataset(split="train")))
    assert {one["key"] for one in found} == set(expected)


@pytest.mark.frameworks
def test_croissant_bears_any_name_and_knows_each_split(every_encoding):
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=str(every_encoding / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors
    _, records = dataset.metadata.record_sets
    assert [field.name for field in records.fields] == ["split", *SCHEMA]
    found = {one["splits/name"]: one["splits/records"] for one in dataset.records("splits")}
    manifest = Manifest.read(every_encoding)
    assert {name.decode() if isinstance(name, bytes) else name: n for name, n in found.items()} == {
        name: split.records for name, split in manifest.splits.items()
    }


@pytest.mark.frameworks
def test_croissant_checks_the_manifest(every_encoding, tmp_path):
    import mlcroissant

    copy = shutil.copytree(every_encoding, tmp_path / "copy")
    described = json.loads((copy / "croissant.json").read_bytes())
    del described["distribution"][0]["sha256"]
    (copy / "croissant.json").write_text(json.dumps(described))
    with pytest.raises(mlcroissant.ValidationError, match="sha256"):
        mlcroissant.Dataset(jsonld=str(copy / "croissant.json"))
