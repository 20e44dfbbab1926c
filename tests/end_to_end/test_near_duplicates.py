"""Jobs drop planted near copies, all of them and nothing else, and keep a test set out."""

import functools
import json
import random
import tarfile
from functools import partial

import numpy as np
import pytest
from PIL import Image
from scipy.signal import resample_poly

from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from tests.readers.format.similarity.lookalikes import (
    drift,
    jpeg,
    noisy,
    resized,
    smooth_picture,
    speech,
)
from tests.support.commands import BEAM_WORKERS, IN_MEMORY, ONE, TWO, refused, run
from tests.support.datasets import files_of, folder_of, order_hash, records_of, write_dataset
from tests.support.images import encoded

HALVES = ["--splits", "train=0.5,test=0.5", "--num_shards", "train=3,test=2"]


def write_png(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def make_pictures(folder):
    """Yields the keys of pictures that are near; the others are alone."""
    for seed in range(16):
        pixels = smooth_picture(seed, 96)
        label = "xy"[seed % 2]
        write_png(folder / label / f"{seed}.png", pixels)
        if seed < 4:
            write_png(folder / "y" / f"small {seed}.png", resized(pixels, 0.7))
            write_png(folder / "x" / f"packed {seed}.png", jpeg(pixels))
            yield [f"{label}/{seed}.png", f"y/small {seed}.png", f"x/packed {seed}.png"]
    for name in ("black", "black too"):
        write_png(folder / "x" / f"{name}.png", np.zeros((50, 50, 3), np.uint8))
    write_png(folder / "x" / "white.png", np.full((50, 50, 3), 255, np.uint8))
    yield ["x/black.png", "x/black too.png"]
    (folder / "x" / "broken.png").write_bytes(b"no picture")


def make_texts(folder):
    drawn = random.Random(0)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2000)]
    texts = [drawn.choices(words, k=60) for _ in range(60)]
    copies = [[*text[:30], "other", *text[31:]] for text in texts[:8]]
    shouted = [[word.upper() for word in text] for text in texts[:3]]
    rows = [*texts, *copies, *shouted, ["short"], ["short"]]
    lines = [json.dumps({"text": " ".join(row), "label": n % 3}) for n, row in enumerate(rows)]
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("\n".join([*lines[:40], "{", *lines[40:60]]))
    (folder / "b.jsonl").write_text("\n".join(lines[60:]))

    def key(number):
        if number >= 60:
            return f"b.jsonl#{number - 59}"
        return f"a.jsonl#{number + (1 if number < 40 else 2)}"

    for number in range(8):
        more = [key(68 + number)] if number < 3 else []
        yield [key(number), key(60 + number), *more]
    yield [key(71), key(72)]


def make_recordings(folder):
    folder.mkdir(parents=True)
    sounds = (speech(seed)[:, None] * [1, -2, 0.5] for seed in range(6))
    made = [*sounds, *(drift(seed, 2000) for seed in range(6))]
    for number, signal in enumerate(made):
        np.save(folder / f"{number}.npy", signal)
        if number % 3 == 0:
            np.save(folder / f"copy {number}.npy", 5 * noisy(signal[2:-3]) + 1)
            np.save(folder / f"half {number}.npy", resample_poly(signal, 1, 2, axis=0))
            yield [f"{number}.npy", f"copy {number}.npy", f"half {number}.npy"]


MAKE = {"images": make_pictures, "text": make_texts, "sensors": make_recordings}
FLAGS = {
    "images": ["--drop_near_duplicates", 0.9, "--encoding", "png"],
    "text": ["--drop_near_duplicates", 0.8, "--label_field", "label"],
    "sensors": ["--drop_near_duplicates", 0.9, "--label", "none"],
}


def first_of(keys):
    """The one that is kept: the first in the global order."""
    return min(keys, key=partial(order_hash, 0))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Job -> (its folder, groups of keys that are near)."""
    base = tmp_path_factory.mktemp("inputs")
    return {name: (base / name, list(make(base / name))) for name, make in MAKE.items()}


def keys_of(job, folder):
    """The keys of all records, whatever is dropped."""
    if job == "text":
        lines = {path.name: len(path.read_text().splitlines()) for path in folder.iterdir()}
        keys = {f"{name}#{n}" for name, count in lines.items() for n in range(1, count + 1)}
        return keys - {"a.jsonl#41"}
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    return files - {"x/broken.png"}


def command(job, inputs):
    return [job, "--input", inputs[job][0], *FLAGS[job]]


@pytest.fixture(scope="module")
def written(inputs, tmp_path_factory):
    """Job -> the dataset that it writes with one process."""

    @functools.cache
    def write(job):
        out = tmp_path_factory.mktemp("written") / "out"
        assert run(*command(job, inputs), *HALVES, *ONE, "--output", out) == 0
        return out

    return write


@pytest.mark.slow(base=["images", "text"])
@pytest.mark.parametrize("job", MAKE)
def test_all_near_copies_are_dropped_and_nothing_else(job, inputs, written):
    folder, groups = inputs[job]
    gone = {key for keys in groups for key in keys if key != first_of(keys)}
    assert set(records_of(written(job))) == keys_of(job, folder) - gone
    manifest = Manifest.read(written(job))
    assert manifest.duplicates == len(gone)
    assert manifest.rejected == (job != "sensors")
    assert manifest.options["drop_near_duplicates"] == str(FLAGS[job][1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "worker_flags"), [("images", TWO), ("text", BEAM_WORKERS), ("sensors", IN_MEMORY)]
)
def test_every_worker_drops_the_same(job, worker_flags, inputs, written, tmp_path):
    assert run(*command(job, inputs), *HALVES, *worker_flags, "--output", tmp_path / "two") == 0
    assert files_of(tmp_path / "two") == files_of(written(job))


def test_a_dry_run_shows_what_would_be_dropped(inputs, capsys):
    groups = inputs["text"][1]
    assert run("plan", *command("text", inputs), *HALVES, *ONE, "--json") == 0
    splits = json.loads(capsys.readouterr().out)["splits"].values()
    dropped = sum(map(len, groups)) - len(groups)
    assert sum(split["duplicates"] for split in splits) == dropped


@pytest.mark.slow
def test_a_label_of_which_every_record_is_dropped_is_no_label(tmp_path):
    """Strata know the labels of records that are kept alone; dropped ones have a split all the same."""
    pixels = [smooth_picture(seed, 64) for seed in range(8)]
    keys = [f"a/{n}.png" for n in range(8)]
    later = [f"copies/{n}.png" for n in range(40)]
    for number, key in enumerate(keys):
        write_png(tmp_path / "in" / key, pixels[number])
        copy = next(name for name in later if order_hash(0, name) > order_hash(0, key))
        later.remove(copy)
        write_png(tmp_path / "in" / copy, resized(pixels[number], 0.5))
    flags = [*FLAGS["images"], "--stratify", *HALVES[:2], *ONE]
    for inputs, out in (("in", "files"), ("packed/in.tgz", "archive")):
        (tmp_path / "packed").mkdir(exist_ok=True)
        with tarfile.open(tmp_path / "packed" / "in.tgz", "w:gz") as archive:
            archive.add(tmp_path / "in", "in")
        args = ["images", "--input", tmp_path / inputs, *flags, "--output", tmp_path / out]
        assert run(*args) == 0
        manifest = Manifest.read(tmp_path / out)
        assert manifest.duplicates == 8
    assert [split.records for split in manifest.splits.values()] == [4, 4] or out == "archive"


@pytest.mark.slow
def test_windows_that_are_near_are_dropped_one_by_one(tmp_path):
    signal = np.concatenate([drift(seed, 500) for seed in (0, 1, 0, 2, 1)])
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "a.npy", signal)
    np.save(tmp_path / "in" / "b.npy", 3 * signal[500:1500])
    flags = ["--label", "none", "--window", 500, "--drop_near_duplicates", 0.9, *ONE]
    for split in ([], [*HALVES[:2], "--exact_splits"]):
        out = tmp_path / f"out{len(split)}"
        assert run("sensors", "--input", tmp_path / "in", *flags, *split, "--output", out) == 0
        keys = [["a.npy#1", "a.npy#3", "b.npy#2"], ["a.npy#2", "a.npy#5", "b.npy#1"], ["a.npy#4"]]
        assert set(records_of(out)) == set(map(first_of, keys))
        assert Manifest.read(out).duplicates == 4


def test_records_that_are_near_those_of_other_datasets_are_kept_out(tmp_path, capsys):
    for seed in range(6):
        for name in (f"{seed}.png", f"{seed} again.png"):
            write_png(tmp_path / "in" / name, smooth_picture(seed, 96))
    copies = [jpeg(resized(smooth_picture(seed, 96), 0.8)) for seed in range(3)]
    others = {"image": ("jpeg", copies[:2]), "pixels": ("tensor", copies[2:])}
    for name, (encoding, pictures) in others.items():
        schema = Schema({name: Feature("uint8", (None, None, 3), encoding)})
        if encoding == "jpeg":
            pictures = [encoded(pixels, "JPEG") for pixels in pictures]
        write_dataset(tmp_path / name, schema, {"test": [[{name: each} for each in pictures]]})
    both = f"{tmp_path / 'image'},{tmp_path / 'pixels'}"
    flags = ["--label", "none", "--keep_out", both, *HALVES[:2], *ONE]
    out = tmp_path / "out"
    assert run("images", "--input", tmp_path / "in", *flags, "--output", out) == 0
    kept = {f"{seed}{again}.png" for seed in range(3, 6) for again in ("", " again")}
    assert set(records_of(out)) == kept
    assert Manifest.read(out).duplicates == 6
    error = capsys.readouterr().err
    assert "warning: --keep_out: 6 records dropped, nearly the same" in error
    flags = ["--input", tmp_path / "in/0.png", *flags, "--output", tmp_path / "none"]
    refused(capsys, 2, "all 1 records are near those of --keep_out: no dataset", "images", *flags)


def test_a_dataset_is_written_anew_without_near_duplicates(inputs, tmp_path):
    folder, groups = inputs["text"]
    schema = Schema({"key": Feature("string"), "text": Feature("string")})
    records = [
        {"key": f"{path.name}#{number}", "text": json.loads(line)["text"]}
        for path in folder.iterdir()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line != "{"
    ]
    write_dataset(tmp_path / "all", schema, {"train": [records[:50], records[50:]]})
    (kept_out,) = (record for record in records if record["key"] == groups[0][0])
    write_dataset(tmp_path / "other", schema, {"test": [[kept_out]]})
    flags = ["--drop_near_duplicates", 0.8, "--keep_out", tmp_path / "other", *ONE]
    flags += ["--output", tmp_path / "out"]
    assert run("reshard", "--input", tmp_path / "all", *flags) == 0
    left = set(records_of(tmp_path / "out"))
    gone = sum(map(len, groups)) - len(groups) + 1
    assert Manifest.read(tmp_path / "out").duplicates == gone == len(records) - len(left)
    assert [len(left & set(keys)) for keys in groups] == [0] + [1] * (len(groups) - 1)


def test_mistakes_name_the_flag(inputs, written, tmp_path, capsys):
    images = ["images", "--input", inputs["images"][0], "--output", tmp_path / "out"]
    near = "--drop_near_duplicates"
    refused(capsys, 2, r"near_duplicates x: expected a similarity such as 0.8", *images, near, "x")
    refused(capsys, 2, r"0.8: expected a similarity of pictures from 0.9 to 1", *images, near, 0.8)
    refused(capsys, 2, r"nan: expected a similarity of pictures", *images, near, "nan")
    out = ["--keep_out", tmp_path / "none"]
    refused(capsys, 2, r"--keep_out .*none: no dataset: .*no such file or folder", *images, *out)
    out = ["--keep_out", inputs["sensors"][0]]
    refused(capsys, 2, r"--keep_out .*sensors: no dataset", *images, *out)
    texts = written("text")
    out = ["--keep_out", texts]
    refused(capsys, 2, r"its records have label, text, expected a picture in image", *images, *out)
    sensors = ["sensors", "--input", inputs["sensors"][0] / "?.npy", "--output", tmp_path / "out"]
    rows = [*sensors, "--label", "none", "--record", "row"]
    refused(capsys, 2, r"compare signals .*: drop --record row", *rows, near, 0.9)
    (tmp_path / "bare").mkdir()
    shard = folder_of(texts) / "train-00000-of-00003.tfrecord"
    (tmp_path / "bare" / shard.name).write_bytes(shard.read_bytes())
    bare = ["reshard", "--input", tmp_path / "bare", "--output", tmp_path / "out"]
    refused(capsys, 2, r"need to know the features .* add --schema", *bare, near, 0.9)
