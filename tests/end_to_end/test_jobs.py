"""The jobs end to end: real files in, a dataset out, on Beam's DirectRunner."""

import csv
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from beam_jobs.__main__ import main
from examples.samples import make_samples
from readers.format.decode.records import Decoder
from readers.format.index import parse_index
from readers.format.manifest import Manifest
from readers.verify import verify

IN_MEMORY = ["--direct_running_mode", "in_memory"]


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    directory = tmp_path_factory.mktemp("samples")
    make_samples(directory, per_class=15)
    return directory


def run(*arguments):
    return main([str(argument) for argument in arguments])


def records_of(directory, split=None):
    """Every record of a dataset, read with TensorFlow's own reader: split -> list of dicts."""
    manifest = Manifest.read(str(directory))
    decoder = Decoder(manifest.schema)
    found = {}
    for name, part in manifest.splits.items():
        files = [str(Path(directory) / shard.file) for shard in part.shards]
        data = tf.data.TFRecordDataset(files).as_numpy_iterator() if files else ()
        found[name] = [decoder.decode(record) for record in data]
    return found[split] if split else found


def keys_of(records):
    return [record["key"].item().decode() for record in records]


def files_of(directory):
    """Relative path -> SHA-256 of every file below a directory."""
    root = Path(directory)
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def assert_consistent(directory):
    """The files are what the manifest says: sizes, checksums, indexes, balance."""
    import google_crc32c

    manifest = Manifest.read(str(directory))
    for part in manifest.splits.values():
        counts = [shard.records for shard in part.shards]
        assert max(counts, default=0) - min(counts, default=0) <= 1
        for shard in part.shards:
            data = (Path(directory) / shard.file).read_bytes()
            assert len(data) == shard.bytes
            assert google_crc32c.value(data) == shard.crc32c
            index = (Path(directory) / f"{shard.file}.idx").read_bytes()
            parsed = parse_index(index, shard.file)
            assert len(parsed) == shard.records
            assert not len(parsed) or parsed[-1].sum() == shard.bytes
    assert not (Path(directory) / ".staging").exists()
    return manifest


def test_the_sensors_job_writes_every_recording_once_in_balanced_shards(samples, tmp_path):
    out = tmp_path / "out"
    splits = "train=0.7,val=0.2,test=0.1"
    flags = ["--output", out, "--splits", splits, "--num_shards", 3]
    assert run("sensors", "--input", f"{samples}/sensors/*/*.npy", *flags) == 0
    manifest = assert_consistent(out)
    assert manifest.label_names == ("rest", "walk")
    assert list(manifest.splits) == ["train", "val", "test"]
    records = [record for part in records_of(out).values() for record in part]
    assert len(set(keys_of(records))) == len(records) == 30
    for record, key in zip(records, keys_of(records), strict=True):
        np.testing.assert_array_equal(record["signal"], np.load(samples / "sensors" / key))
        assert manifest.label_names[int(record["label"])] == key.split("/")[0]


def test_the_images_job_decodes_turns_and_resizes_every_picture(samples, tmp_path):
    out = tmp_path / "out"
    flags = ["--output", out, "--image_size", "32x48", "--num_shards", 4]
    assert run("images", "--input", f"{samples}/images/*/*", *flags) == 0
    manifest = assert_consistent(out)
    records = records_of(out, "train")
    assert sorted(keys_of(records)) == sorted(
        str(path.relative_to(samples / "images")) for path in (samples / "images").glob("*/*")
    )
    assert all(record["image"].shape == (32, 48, 3) for record in records)
    statistics = manifest.splits["train"].statistics["image"]
    pixels = np.stack([record["image"] for record in records]).astype(float)
    np.testing.assert_allclose(
        [statistics["mean"], statistics["std"]], [pixels.mean(), pixels.std()], rtol=1e-12
    )


def test_pictures_keep_their_own_size_when_none_is_asked_for(samples, tmp_path):
    out = tmp_path / "out"
    assert run("images", "--input", f"{samples}/images/*/*.png", "--output", out) == 0
    for record in records_of(out, "train"):
        with Image.open(samples / "images" / record["key"].item().decode()) as image:
            assert record["image"].shape == (image.height, image.width, 3)


@pytest.mark.slow
def test_features_have_the_names_that_are_asked_for_wherever_they_are_named(samples, tmp_path):
    arguments = ["sensors", "--input", f"{samples}/sensors/*/*.npy", "--num_shards", 2]
    assert run(*arguments, "--output", tmp_path / "plain") == 0
    names = ["--names", "signal=my_array,label=labels"]
    assert run(*arguments, "--output", tmp_path / "named", *names) == 0
    plain, named = (assert_consistent(tmp_path / name) for name in ("plain", "named"))
    assert list(named.schema) == ["key", "labels", "my_array"]
    assert named.schema["my_array"] == plain.schema["signal"]
    before, after = plain.splits["train"].statistics, named.splits["train"].statistics
    assert after["my_array"] == before["signal"]
    assert after["labels"] == before["label"]
    assert after["labels"]["values"]
    for one, other in zip(
        records_of(tmp_path / "plain", "train"),
        records_of(tmp_path / "named", "train"),
        strict=True,
    ):
        np.testing.assert_array_equal(other["my_array"], one["signal"])
        assert (other["labels"], other["key"]) == (one["label"], one["key"])
    report = verify(tmp_path / "named")
    assert report.ok, report.problems


@pytest.mark.slow(base=["png"])
@pytest.mark.parametrize("encoding", ["jpeg", "png", "source"])
def test_encoded_pictures_are_read_by_tensorflow(samples, tmp_path, encoding):
    out = tmp_path / "out"
    flags = ["--output", out, "--encoding", encoding]
    assert run("images", "--input", f"{samples}/images/*/*", *flags) == 0
    records = records_of(out, "train")
    assert len(records) == 30
    for record in records:
        assert tf.io.decode_image(record["image"], channels=3).shape[2] == 3


def test_the_text_job_numbers_words_as_keras_does(samples, tmp_path):
    import keras

    out = tmp_path / "out"
    source = samples / "text" / "opinions.jsonl"
    flags = ["--label_field", "label", "--tokens", "words", "--vocabulary_size", 30]
    flags += ["--splits", "train=0.8,val=0.2", "--num_shards", 2, "--max_length", 8]
    assert run("text", "--input", source, "--output", out, *flags) == 0
    assert_consistent(out)
    records = records_of(out)
    train = [record["text"].item() for record in records["train"]]
    layer = keras.layers.TextVectorization(max_tokens=30)
    layer.adapt(train)
    loaded = keras.layers.TextVectorization(vocabulary=str(out / "vocabulary.txt"))
    assert loaded.get_vocabulary() == layer.get_vocabulary()
    assert len(layer.get_vocabulary()) == Manifest.read(str(out)).vocabulary
    texts = [record["text"].item() for part in records.values() for record in part]
    expected = layer(texts).numpy()
    got = [record["tokens"] for part in records.values() for record in part]
    for tokens, ids in zip(got, expected, strict=True):
        np.testing.assert_array_equal(tokens, ids[ids != 0][:8])
    lines = source.read_text().splitlines()
    for record in (record for part in records.values() for record in part):
        number = int(record["key"].item().decode().split("#")[1])
        assert json.loads(lines[number - 1])["text"].encode() == record["text"].item()


def test_text_files_of_every_kind_give_the_same_records(tmp_path):
    texts = ["one, two", 'three "four"', "füñf\tsechs", "seven"]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    with (tmp_path / "c.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    out = tmp_path / "out"
    inputs = [f for name in ("a.txt", "b.*", "c.csv") for f in ("--input", tmp_path / name)]
    assert run("text", *inputs, "--output", out, "--tokens", "bytes") == 0
    found = {}
    for record in records_of(out, "train"):
        found.setdefault(record["text"].item().decode(), []).append(record["key"].item().decode())
        assert bytes((record["tokens"] - 2).tolist()) == record["text"].item()
    assert {text: len(keys) for text, keys in found.items()} == dict.fromkeys(texts, 3)
    assert sorted(found["seven"]) == ["a.txt#4", "b.jsonl.gz#4", "c.csv#4"]


def test_a_folder_of_text_files_gives_a_record_a_file_labelled_by_its_folder(tmp_path):
    for label in ("neg", "pos"):
        (tmp_path / "in" / label).mkdir(parents=True)
        (tmp_path / "in" / label / "0.txt").write_text(f"two lines\nof {label}")
    out = tmp_path / "out"
    flags = ["--record", "file", "--label", "parent"]
    assert run("text", "--input", tmp_path / "in", "--output", out, *flags) == 0
    found = records_of(out, "train")
    records = dict(zip(keys_of(found), found, strict=True))
    assert records["pos/0.txt"]["text"].item() == b"two lines\nof pos"
    assert int(records["pos/0.txt"]["label"]) == 1


@pytest.mark.slow
def test_a_file_larger_than_a_chunk_is_read_in_pieces_without_losing_a_line(tmp_path):
    lines = [f"{n} " + "x" * (n % 700) for n in range(60_000)]
    (tmp_path / "big.txt").write_text("\n".join(lines))
    assert (tmp_path / "big.txt").stat().st_size > 2 << 23
    out = tmp_path / "out"
    flags = ["--shard_size", "4MiB", "--splits", "train=0.9,val=0.1"]
    assert run("text", "--input", tmp_path / "big.txt", "--output", out, *flags) == 0
    manifest = assert_consistent(out)
    assert len(manifest.splits["train"].shards) == 6
    texts = {
        r["key"].item().decode(): r["text"].item().decode()
        for part in records_of(out).values()
        for r in part
    }
    assert texts == {f"big.txt#{n}": line for n, line in enumerate(lines, 1)}


@pytest.mark.slow
def test_integer_folders_are_the_labels_themselves(tmp_path):
    for name in ("2", "10"):
        (tmp_path / "in" / name).mkdir(parents=True)
        np.save(tmp_path / "in" / name / "a.npy", np.ones(3))
    out = tmp_path / "out"
    assert run("sensors", "--input", tmp_path / "in/*/*.npy", "--output", out) == 0
    manifest = Manifest.read(str(out))
    assert manifest.label_names == ()
    labels = {key: int(r["label"]) for r in records_of(out, "train") for key in keys_of([r])}
    assert labels == {"2/a.npy": 2, "10/a.npy": 10}
    assert manifest.splits["train"].statistics["label"]["values"] == {"2": 1, "10": 1}


def test_labels_come_from_a_table(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("x", "y"):
        np.save(tmp_path / "in" / f"{name}.npy", np.ones((3, 2)))
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nx.npy,sit\ny.npy,run\n")
    out = tmp_path / "out"
    flags = ["--label", f"csv:{table}"]
    assert run("sensors", "--input", tmp_path / "in/*.npy", "--output", out, *flags) == 0
    names = Manifest.read(str(out)).label_names
    assert names == ("run", "sit")
    assert {keys_of([r])[0]: names[int(r["label"])] for r in records_of(out, "train")} == {
        "x.npy": "sit",
        "y.npy": "run",
    }


def test_the_bytes_of_a_small_dataset_are_pinned(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for n in range(5):
            values = np.arange(6 * (n + 1), dtype=np.int16).reshape(-1, 3)
            np.save(tmp_path / "in" / name / f"{n}.npy", values)
    out = tmp_path / "out"
    flags = ["--num_shards", 2, "--seed", 7]
    assert run("sensors", "--input", tmp_path / "in/*/*.npy", "--output", out, *flags) == 0
    files = files_of(out)
    files.pop("manifest.json")  # it names the versions of packages
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    assert digest == GOLDEN, files


GOLDEN = "bd8da8f1845be7ab488def95e0751df8e06b799c8d98b2091f36c01a9c8fa02c"


@pytest.mark.slow
def test_another_seed_gives_other_splits_and_another_order(samples, tmp_path):
    for seed in (0, 1):
        flags = ["--splits", "train=0.5,val=0.5", "--seed", seed, "--output", tmp_path / str(seed)]
        assert run("sensors", "--input", f"{samples}/sensors/*/*", *flags, *IN_MEMORY) == 0
    first, second = (keys_of(records_of(tmp_path / seed, "train")) for seed in "01")
    assert set(first) != set(second)
    assert first != sorted(first)


def test_a_job_never_imports_tensorflow(samples, tmp_path):
    code = (
        "import sys; from beam_jobs.__main__ import main; "
        f"code = main(['images', '--input', {str(samples / 'images/*/*')!r}, '--output', "
        f"{str(tmp_path / 'out')!r}]); "
        "assert code == 0; assert 'tensorflow' not in sys.modules, 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_checksums_without_native_code_are_refused_loudly(samples, tmp_path):
    code = (
        "import sys; sys.modules['google_crc32c._crc32c'] = None; "
        "from beam_jobs.__main__ import main; "
        f"sys.exit(main(['sensors', '--input', {str(samples / 'sensors/*/*')!r}, '--output', "
        f"{str(tmp_path / 'out')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "error: google-crc32c has no native code here" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


# What a user sees when something is wrong.


def refused(capsys, code, pattern, *arguments):
    """Runs a command that must fail with one line that matches, and leave no dataset."""
    assert run(*arguments) == code
    error = capsys.readouterr().err
    assert re.search(pattern, error), error
    assert "Traceback" not in error
    assert error.startswith("error: ") and error.count("\n") == 1, error


def test_bad_files_are_listed_counted_and_skipped(samples, tmp_path, capsys):
    source = tmp_path / "in"
    shutil.copytree(samples / "images", source)
    (source / "rings" / "empty.jpg").write_bytes(b"")
    (source / "rings" / "text.jpg").write_text("not a picture")
    whole = next((source / "stripes").glob("*.jpg")).read_bytes()
    (source / "stripes" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "out"
    flags = ["--image_size", "16x16", "--num_shards", 2, "--output", out]
    assert run("images", "--input", f"{source}/*/*", *flags) == 0
    manifest = Manifest.read(str(out))
    assert (manifest.splits["train"].records, manifest.rejected) == (30, 3)
    lines = [
        json.loads(line)
        for path in (out / "rejects").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert {line["key"] for line in lines} == {
        "rings/empty.jpg",
        "rings/text.jpg",
        "stripes/cut.jpg",
    }
    assert all(line["stage"] == "decode" and line["error"] for line in lines)
    printed = capsys.readouterr()
    assert "3 rejected" in printed.err and "rejects" in printed.err
    refused(
        capsys,
        1,
        r"(empty|text|cut)\.jpg: .* \(--on_reject fail\)",
        *("images", "--input", f"{source}/*/*", "--output", tmp_path / "o2", "--on_reject", "fail"),
    )
    assert not (tmp_path / "o2" / "manifest.json").exists()


def test_bad_lines_are_listed_and_the_shards_stay_balanced(tmp_path):
    lines = [json.dumps({"text": f"text {n}"}) for n in range(40)]
    bad = ["{", "[1]", '{"text": 5}', '{"other": "x"}', '{"text": "\\ud800"}']
    for number, line in enumerate(bad):
        lines.insert(7 * number, line)
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    out = tmp_path / "out"
    flags = ["--num_shards", 6, "--output", out]
    assert run("text", "--input", tmp_path / "a.jsonl", *flags) == 0
    manifest = assert_consistent(out)
    assert (manifest.splits["train"].records, manifest.rejected) == (40, 6)
    rejected = {
        json.loads(line)["key"]
        for path in (out / "rejects").glob("*")
        for line in path.read_text().splitlines()
    }
    assert rejected == {f"a.jsonl#{n}" for n in (1, 8, 15, 22, 29, 46)}


def test_a_job_whose_inputs_are_all_bad_fails_with_the_first_reason(tmp_path, capsys):
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "x.jpg").write_text("no")
    out = tmp_path / "out"
    arguments = ("images", "--input", f"{tmp_path}/in/*/*", "--output", out)
    refused(capsys, 1, r"all 1 records were rejected.*a/x\.jpg", *arguments)
    assert not (out / "manifest.json").exists()


def test_a_wrong_text_field_fails_with_the_fields_there_are(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n' * 3)
    (tmp_path / "a.csv").write_text("body\nx\n")
    out = tmp_path / "out"
    common = ("--output", out)
    refused(capsys, 1, r"all 3 records.*body", "text", "--input", tmp_path / "a.jsonl", *common)
    refused(
        capsys, 2, r"no column 'text', it has body", "text", "--input", tmp_path / "a.csv", *common
    )
    assert not (out / "manifest.json").exists()


def test_mistakes_end_with_one_line_and_exit_code_2(samples, tmp_path, capsys):
    npy = f"{samples}/sensors/*/*.npy"
    out = tmp_path / "out"
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("")
    for pattern, *arguments in (
        (r"--input .*nothing.* no file matches", "--input", tmp_path / "nothing*.npy"),
        (r"is in no folder", "--input", f"{samples}/sensors/rest/*.npy"),
        (r"shares add up to 0\.9", "--input", npy, "--splits", "train=0.9"),
        (r"'a/b=1'.*split name", "--input", npy, "--splits", "a/b=1"),
        (r"--label what: expected", "--input", npy, "--label", "what"),
        (r"--label csv:.*cannot be read", "--input", npy, "--label", f"csv:{tmp_path}/no.csv"),
        (r"--num_shards 0", "--input", npy, "--num_shards", 0),
        (r"no split 'val'", "--input", npy, "--num_shards", "val=2"),
        (r"--shard_size big", "--input", npy, "--shard_size", "big"),
        (r"--dtpye.*did you mean --dtype", "--input", npy, "--dtpye", "float32"),
        (r"this is a file", "--input", npy, "--output", tmp_path / "file"),
        (r"'thesis.doc', which is not part", "--input", npy, "--output", tmp_path / "full"),
        (r"--seed.*invalid int", "--input", npy, "--seed", "x"),
    ):
        refused(capsys, 2, pattern, "sensors", "--output", out, *arguments)
    assert not out.exists() or not any(out.iterdir())
    refused(capsys, 2, r"images.text.sensors|invalid choice", "movies", "--output", out)


def test_a_missing_label_names_the_file(tmp_path, capsys):
    for name in ("x", "y"):
        np.save(tmp_path / f"{name}.npy", np.ones(3))
    (tmp_path / "labels.csv").write_text("path,label\nx.npy,1\n")
    arguments = ("--output", tmp_path / "out", "--label", f"csv:{tmp_path}/labels.csv")
    refused(
        capsys,
        2,
        r"y\.npy: .*no line for it",
        "sensors",
        "--input",
        f"{tmp_path}/*.npy",
        *arguments,
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.slow(base=["other0", "other1"])
@pytest.mark.parametrize(
    "other", [np.ones((3, 4)), np.ones((3, 3), np.float32), np.ones((3, 3, 3)), np.ones(3)]
)
def test_a_recording_that_does_not_fit_the_rest_names_both_files(tmp_path, capsys, other):
    for n in range(5):
        np.save(tmp_path / f"{n}.npy", np.ones((4, 3)))
    np.save(tmp_path / "odd.npy", other)
    arguments = ("--output", tmp_path / "out", "--label", "none")
    refused(
        capsys,
        2,
        r"odd\.npy: signal .*but 0\.npy has signal float64 \[None, 3\]",
        *("sensors", "--input", f"{tmp_path}/*.npy", *arguments),
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_file_matched_twice_is_a_duplicate_key(samples, tmp_path, capsys):
    arguments = ("--input", f"{samples}/sensors/*/*", "--input", f"{samples}/sensors/rest/0000*")
    refused(
        capsys,
        2,
        r"duplicate key 'rest/0000\.npy'",
        *("sensors", *arguments, "--output", tmp_path / "out"),
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_dataset_is_replaced_only_with_overwrite_and_leaves_nothing_behind(
    samples, tmp_path, capsys
):
    arguments = ("sensors", "--input", f"{samples}/sensors/*/*", "--output", tmp_path / "out")
    assert run(*arguments, "--num_shards", 5) == 0
    before = files_of(tmp_path / "out")
    capsys.readouterr()
    refused(capsys, 2, r"a dataset is here already; add --overwrite", *arguments)
    assert files_of(tmp_path / "out") == before
    assert run(*arguments, "--num_shards", 2, "--overwrite") == 0
    assert sorted(files_of(tmp_path / "out")) == [
        "manifest.json",
        "train-00000-of-00002.tfrecord",
        "train-00000-of-00002.tfrecord.idx",
        "train-00001-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord.idx",
    ]


@pytest.mark.slow
def test_what_a_failed_run_left_is_no_obstacle(samples, tmp_path):
    out = tmp_path / "out"
    arguments = ("sensors", "--input", f"{samples}/sensors/*/*", "--output", out)
    assert run(*arguments, "--num_shards", 3) == 0
    whole = files_of(out)
    (out / "manifest.json").unlink()
    (out / "train-00001-of-00003.tfrecord").write_bytes(b"half")
    (out / ".staging").mkdir()
    (out / ".staging" / "train-00001-of-00003.tfrecord.0123").write_bytes(b"half")
    (out / ".staging" / "UNFINISHED").write_bytes(b"")
    assert run(*arguments, "--num_shards", 3) == 0
    assert files_of(out) == whole


@pytest.mark.slow
def test_fewer_records_than_shards_leave_no_empty_shard(tmp_path):
    (tmp_path / "in" / "a").mkdir(parents=True)
    for n in range(3):
        np.save(tmp_path / "in" / "a" / f"{n}.npy", np.ones(2))
    out = tmp_path / "out"
    flags = ["--num_shards", 16, "--splits", "train=0.99,val=0.01"]
    assert run("sensors", "--input", f"{tmp_path}/in/*/*", "--output", out, *flags) == 0
    manifest = assert_consistent(out)
    assert [len(split.shards) for split in manifest.splits.values()] == [3, 0]


def test_the_number_of_shards_follows_from_their_size(samples, tmp_path):
    out = tmp_path / "out"
    flags = ["--image_size", "64x64", "--shard_size", "50KiB"]
    assert run("images", "--input", f"{samples}/images/*/*", "--output", out, *flags) == 0
    sizes = [shard.bytes for shard in assert_consistent(out).splits["train"].shards]
    assert len(sizes) == -(-sum(sizes) // (50 << 10))


def test_an_input_folder_stands_for_all_files_below_it(samples, tmp_path):
    out = tmp_path / "out"
    assert run("sensors", "--input", samples / "sensors", "--output", out) == 0
    assert Manifest.read(str(out)).splits["train"].records == 30


@pytest.mark.slow
def test_the_key_does_not_depend_on_where_the_inputs_lie(samples, tmp_path):
    shutil.copytree(samples / "sensors", tmp_path / "elsewhere" / "deep")
    for name, source in (("a", samples / "sensors"), ("b", tmp_path / "elsewhere" / "deep")):
        arguments = ("--input", f"{source}/*/*.npy", "--output", tmp_path / name)
        assert run("sensors", *arguments) == 0
    first, second = files_of(tmp_path / "a"), files_of(tmp_path / "b")
    first.pop("manifest.json"), second.pop("manifest.json")  # it tells the inputs as typed
    assert first == second


def test_real_digits_and_photos_come_back_pixel_by_pixel(tmp_path):
    from sklearn.datasets import load_digits, load_sample_images

    digits = load_digits()
    for n, (image, label) in enumerate(zip(digits.images[:300], digits.target, strict=False)):
        folder = tmp_path / "digits" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15).astype(np.uint8)).save(folder / f"{n:04d}.png")
    out = tmp_path / "out"
    flags = ["--channels", 1, "--num_shards", 4, "--image_size", "8x8"]
    assert run("images", "--input", f"{tmp_path}/digits/*/*.png", "--output", out, *flags) == 0
    assert_consistent(out)
    records = records_of(out, "train")
    for record, key in zip(records, keys_of(records), strict=True):
        label, number = key.removesuffix(".png").split("/")
        assert int(record["label"]) == int(label)
        expected = (digits.images[int(number)] * 15).astype(np.uint8)
        np.testing.assert_array_equal(record["image"][..., 0], expected)
    photos = tmp_path / "photos"
    photos.mkdir()
    for n, photo in enumerate(load_sample_images().images):
        Image.fromarray(photo).save(photos / f"{n}.png")
    arguments = ("--input", f"{photos}/*", "--output", tmp_path / "p", "--label", "none")
    assert run("images", *arguments) == 0
    for record in records_of(tmp_path / "p", "train"):
        number = int(record["key"].item().decode()[0])
        np.testing.assert_array_equal(record["image"], load_sample_images().images[number])


def test_shards_of_unknown_origin_are_not_deleted(samples, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "train-00000-of-00001.tfrecord").write_bytes(b"somebody's")
    arguments = ("sensors", "--input", f"{samples}/sensors/*/*", "--output", out)
    refused(capsys, 2, "neither a manifest nor the marks of an unfinished run", *arguments)
    assert (out / "train-00000-of-00001.tfrecord").read_bytes() == b"somebody's"
    assert run(*arguments, "--overwrite") == 0


def test_a_failed_run_may_simply_be_run_again(samples, tmp_path, capsys):
    source = tmp_path / "in"
    shutil.copytree(samples / "sensors", source)
    (source / "rest" / "bad.npy").write_bytes(b"")
    arguments = ("sensors", "--input", f"{source}/*/*", "--output", tmp_path / "out")
    refused(capsys, 1, "on_reject fail", *arguments, "--on_reject", "fail")
    (source / "rest" / "bad.npy").unlink()
    assert run(*arguments) == 0


# Faults that were found by using the jobs; each must not come back.


def test_an_output_path_with_glob_characters_is_refused_before_anything_is_deleted(
    samples, tmp_path, capsys
):
    arguments = ("sensors", "--input", f"{samples}/sensors/*/*")
    assert run(*arguments, "--output", tmp_path / "qXd") == 0
    before = files_of(tmp_path)
    capsys.readouterr()
    refused(
        capsys, 2, r"without \* \? and \[", *arguments, "--output", tmp_path / "q?d", "--overwrite"
    )
    refused(capsys, 2, "--output is empty", *arguments, "--output", "")
    refused(capsys, 2, "--input is empty", "sensors", "--input", "", "--output", tmp_path / "o")
    assert files_of(tmp_path) == before


@pytest.mark.slow
def test_inputs_without_a_record_leave_the_dataset_that_was_to_be_overwritten(
    samples, tmp_path, capsys
):
    (tmp_path / "empty.txt").write_text("\n\n")
    out = tmp_path / "out"
    assert run("text", "--input", samples / "text", "--output", out) == 0
    before = files_of(out)
    capsys.readouterr()
    arguments = ("text", "--input", tmp_path / "empty.txt", "--output", out, "--overwrite")
    refused(capsys, 2, "hold no record", *arguments)
    assert files_of(out) == before


def test_linked_folders_and_files_are_read_and_links_to_nothing_are_rejects(samples, tmp_path):
    source = tmp_path / "in"
    (source / "walk").mkdir(parents=True)
    (source / "rest").symlink_to(samples / "sensors" / "rest")
    (source / "walk" / "a.npy").symlink_to(samples / "sensors" / "walk" / "0001.npy")
    (source / "walk" / "gone.npy").symlink_to(tmp_path / "nowhere.npy")
    (source / "walk" / "loop").symlink_to(source)
    for name, pattern in (("glob", f"{source}/*/*"), ("folder", source)):
        assert run("sensors", "--input", pattern, "--output", tmp_path / name) == 0
        manifest = Manifest.read(str(tmp_path / name))
        assert (manifest.splits["train"].records, manifest.rejected) == (16, 1)


def test_hidden_files_are_no_inputs_unless_the_pattern_spells_the_dot(samples, tmp_path):
    source = tmp_path / "in"
    shutil.copytree(samples / "sensors", source)
    shutil.copytree(samples / "sensors" / "rest", source / ".cache")
    (source / "rest" / ".DS_Store").write_text("x")
    assert run("sensors", "--input", source, "--output", tmp_path / "a") == 0
    manifest = Manifest.read(str(tmp_path / "a"))
    assert (manifest.splits["train"].records, manifest.rejected) == (30, 0)
    assert manifest.label_names == ("rest", "walk")
    assert run("sensors", "--input", f"{source}/.c*/*", "--output", tmp_path / "b") == 0
    assert Manifest.read(str(tmp_path / "b")).splits["train"].records == 15


def test_an_output_below_the_input_is_not_read_as_input(samples, tmp_path):
    source = tmp_path / "in"
    shutil.copytree(samples / "text", source)
    flags = ("--tokens", "words", "--output", source / "shards")
    assert run("text", "--input", source, *flags) == 0
    first = files_of(source / "shards")
    assert run("text", "--input", source, *flags, "--overwrite") == 0
    assert files_of(source / "shards") == first


@pytest.mark.slow
def test_paths_with_glob_characters_that_are_there_are_meant_as_they_stand(samples, tmp_path):
    source = tmp_path / "run [1]*"
    shutil.copytree(samples / "sensors", source)
    for name, pattern in (("a", source), ("b", source / "rest" / "0000.npy")):
        flags = ("--label", "none", "--output", tmp_path / name)
        assert run("sensors", "--input", pattern, *flags) == 0
    assert Manifest.read(str(tmp_path / "a")).splits["train"].records == 30
    assert Manifest.read(str(tmp_path / "b")).splits["train"].records == 1


@pytest.mark.slow
def test_rejects_and_statistics_are_the_same_in_every_run_and_of_written_records_alone(
    samples, tmp_path
):
    source = tmp_path / "in"
    shutil.copytree(samples / "images", source)
    (source / "rings" / "no.jpg").write_text("no picture")
    name = b"bad\xff.jpg".decode("utf-8", "surrogateescape")
    shutil.copy(next((source / "rings").glob("0*.jpg")), source / "rings" / name)
    found = []
    for out in (tmp_path / "a", tmp_path / "b"):
        assert run("images", "--input", source, "--output", out, "--image_size", "8x8") == 0
        found.append(files_of(out))
    assert found[0] == found[1]
    manifest = Manifest.read(str(tmp_path / "a"))
    assert manifest.rejected == 2
    statistics = manifest.splits["train"].statistics
    assert statistics["label"]["count"] == 30
    assert statistics["key"]["lengths"]["bytes"]["count"] == 30


@pytest.mark.slow
def test_a_text_file_whose_name_is_not_utf_8_is_a_reject(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("good")
    (tmp_path / "in" / b"\xff.txt".decode("utf-8", "surrogateescape")).write_text("bad name")
    out = tmp_path / "out"
    assert run("text", "--input", tmp_path / "in", "--output", out) == 0
    manifest = Manifest.read(str(out))
    assert (manifest.splits["train"].records, manifest.rejected) == (1, 1)


def test_an_empty_label_in_a_table_is_refused(samples, tmp_path, capsys):
    (tmp_path / "l.csv").write_text("path,label\n0000.npy,\n")
    arguments = ("--label", f"csv:{tmp_path}/l.csv", "--output", tmp_path / "out")
    refused(
        capsys,
        2,
        "line 2 has an empty label",
        *("sensors", "--input", f"{samples}/sensors/rest/*", *arguments),
    )
