"""The three jobs on the DirectRunner: from real files to a dataset."""

import io
import json

import numpy as np
import pytest

from examples.samples import make_samples
from tests.support.commands import refused, run, without_progress
from tests.support.datasets import balanced, files_of, folder_of, records_of


def npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    directory = tmp_path_factory.mktemp("samples")
    make_samples(directory, per_class=15)
    return directory


def test_the_sensors_job_writes_every_recording_once_under_the_names_of_choice(samples, tmp_path):
    out = tmp_path / "out"
    flags = ["--splits", "train=0.7,val=0.2,test=0.1", "--num_shards", 3, "--output", out]
    flags += ["--names", "signal=my_array,label=labels"]
    assert run("sensors", "--input", f"{samples}/sensors/*/*.npy", *flags) == 0
    manifest, records = balanced(out), records_of(out)
    assert manifest.label_names == ("rest", "walk")
    assert list(manifest.splits) == ["train", "val", "test"]
    assert list(manifest.schema) == ["key", "labels", "my_array"]
    assert len(records) == 30
    for key, record in records.items():
        np.testing.assert_array_equal(record["my_array"], np.load(samples / "sensors" / key))
        assert manifest.label_names[int(record["labels"])] == key.split("/")[0]
    statistics = manifest.splits["train"].statistics
    train = [record for record in records.values() if record["split"] == "train"]
    assert statistics["my_array"]["count"] == sum(record["my_array"].size for record in train)
    assert sum(statistics["labels"]["values"].values()) == len(train)


def test_the_images_job_decodes_and_resizes_every_image(samples, tmp_path):
    out = tmp_path / "out"
    flags = ["--output", out, "--image_size", "32x48", "--shard_size", "50KiB"]
    assert run("images", "--input", f"{samples}/images/*/*", *flags) == 0
    manifest, records = balanced(out), records_of(out)
    inputs = (samples / "images").glob("*/*")
    assert records.keys() == {str(path.relative_to(samples / "images")) for path in inputs}
    assert all(record["image"].shape == (32, 48, 3) for record in records.values())
    statistics = manifest.splits["train"].statistics["image"]
    pixels = np.stack([record["image"] for record in records.values()]).astype(float)
    np.testing.assert_allclose(
        [statistics["mean"], statistics["std"]], [pixels.mean(), pixels.std()], rtol=1e-12
    )
    # The number of shards follows from their size.
    sizes = [shard.bytes for shard in manifest.splits["train"].shards]
    assert len(sizes) == -(-sum(sizes) // (50 << 10)) > 1


def test_the_text_job_numbers_words_as_keras_does(samples, tmp_path):
    import keras

    out = tmp_path / "out"
    source = samples / "text" / "opinions.jsonl"
    flags = ["--label_field", "label", "--tokens", "words", "--vocabulary_size", 30]
    flags += ["--splits", "train=0.8,val=0.2", "--num_shards", 2, "--max_length", 8]
    assert run("text", "--input", source, "--output", out, *flags) == 0
    manifest, records = balanced(out), records_of(out)
    train = [r["text"].item() for r in records.values() if r["split"] == "train"]
    layer = keras.layers.TextVectorization(max_tokens=30)
    layer.adapt(train)
    loaded = keras.layers.TextVectorization(vocabulary=str(folder_of(out) / "vocabulary.txt"))
    assert loaded.get_vocabulary() == layer.get_vocabulary()
    assert len(layer.get_vocabulary()) == manifest.vocabulary
    expected = layer([record["text"].item() for record in records.values()]).numpy()
    lines = source.read_text().splitlines()
    for (key, record), ids in zip(records.items(), expected, strict=True):
        np.testing.assert_array_equal(record["tokens"], ids[ids != 0][:8])
        assert json.loads(lines[int(key.split("#")[1]) - 1])["text"].encode() == record["text"]


# Bad inputs and mistakes.


def test_a_class_without_a_record_keeps_its_id_and_is_named_at_the_end(tmp_path, capsys):
    for label, data in {"a": b"no array", "b": npy(np.ones((8, 2))), "c": npy(1), "d": b""}.items():
        (tmp_path / "in" / label).mkdir(parents=True)
        (tmp_path / "in" / label / "x.npy").write_bytes(data)
    out = tmp_path / "out"
    flags = ["--names", "label=labels", "--output", out, "--window", 4]
    assert run("sensors", "--input", tmp_path / "in", *flags) == 0
    manifest = balanced(out)
    assert manifest.label_names == ("a", "b", "c", "d")
    assert {int(record["labels"]) for record in records_of(out).values()} == {1}
    *_, warning = without_progress(capsys.readouterr().err)
    assert warning.startswith("warning: a, c, d: no record has these, of 4 labels; each keeps its")


def test_a_job_that_rejects_all_inputs_fails_with_the_first_reason(tmp_path, capsys):
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(b"no picture")
    arguments = ("images", "--input", f"{tmp_path}/*.jpg", "--label", "none")
    refused(
        capsys, 1, r"all 3 records.*unknown image format", *arguments, "--output", tmp_path / "out"
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_file_that_two_patterns_match_has_a_duplicate_key(samples, tmp_path, capsys):
    inputs = ("--input", f"{samples}/sensors/*/*", "--input", f"{samples}/sensors/rest/0000*")
    message = r"duplicate key 'rest/0000\.npy'"
    refused(capsys, 2, message, "sensors", *inputs, "--output", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_only_overwrite_replaces_a_dataset_and_it_leaves_no_old_file(samples, tmp_path, capsys):
    arguments = ("sensors", "--input", f"{samples}/sensors/*/*", "--output", tmp_path / "out")
    assert run(*arguments, "--num_shards", 5) == 0
    before = files_of(tmp_path / "out")
    refused(capsys, 2, r"a dataset is here already; add --overwrite", *arguments)
    assert run(*arguments, "--num_shards", 5) == 0
    assert f"{tmp_path}/out is complete" in capsys.readouterr().err
    # Not even a path that matches the dataset may delete it.
    pattern = (*arguments[:-1], tmp_path / "o?t")
    refused(capsys, 2, r"without \* \? and \[", *pattern, "--overwrite")
    assert files_of(tmp_path / "out") == before
    assert run(*arguments, "--num_shards", 2, "--overwrite") == 0
    shards = (f"train-0000{n}-of-00002.tfrecord{end}" for n in range(2) for end in ("", ".index"))
    names = [*(f"FOLDER/{name}" for name in shards), "generations/2.json", "manifest.json"]
    assert sorted(files_of(tmp_path / "out")) == names


# Which files are inputs.
