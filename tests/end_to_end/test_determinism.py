"""Every worker writes the same bytes; the bytes of two small datasets are pinned."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from beam_jobs.engines.direct import processes_of
from readers.files.processors import processors
from readers.format.manifest import Manifest
from tests.support.commands import run
from tests.support.datasets import files_of, npy, write_recordings
from tests.support.lazily import Lazily

SPLITS = ["--splits", "train=0.6,val=0.3,test=0.1", "--num_shards", "train=4,val=2,test=2"]
LETTERS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
LETTERS += ["eta", "theta", "iota", "kappa", "lambda", "mu"]


def run_in_a_process(*arguments):
    """Runs a command in a separate process, where quick_beam.py replaces nothing in Beam."""
    command = [sys.executable, "-m", "beam_jobs", *map(str, arguments)]
    return subprocess.run(command).returncode


def make_sensors(source):
    write_recordings(source, [1 + n % 17 for n in range(90)], bad=(3, 4, 30, 31, 32, 33, 77))
    (source / "b" / "notes.txt").write_text("no recording")


def make_images(source):
    for label in ("x", "y"):
        (source / label).mkdir(parents=True)
    for n in range(40):
        y, x = np.mgrid[: 9 + n % 7, : 12 + n % 5]
        pixels = np.stack([x * n % 256, y * 20 % 256, (x + y) * 9 % 256], -1).astype(np.uint8)
        suffix = "png" if n % 3 else "jpg"
        Image.fromarray(pixels).save(source / "xy"[n % 2] / f"{n}.{suffix}")
    for n in range(4):
        (source / "x" / f"bad{n}.png").write_text("no picture")


def make_text(source):
    source.mkdir(parents=True)

    def texts(name, count):
        for n in range(count):
            words = [LETTERS[(n * n + k * len(name)) % len(LETTERS)] for k in range(1 + n % 9)]
            yield " ".join(words), "even" if n % 2 == 0 else "odd"

    for name in ("a", "b", "c", "d"):
        lines = [json.dumps({"text": t, "label": label}) for t, label in texts(name, 60)]
        lines[7] = '{"text": 7, "label": "odd"}'
        lines[20] = "{"
        lines[21] = '{"text": "no label"}'
        (source / f"{name}.jsonl").write_text("\n".join(lines))
    rows = "".join(f"{t},{label}\n" for t, label in texts("table", 50))
    (source / "e.csv.gz").write_bytes(gzip.compress(b"text,label\n" + rows.encode() + b"short\n"))
    (source / "f.doc").write_text("no text")


JOBS = {
    "sensors": (make_sensors, []),
    "images": (make_images, ["--image_size", "8x8"]),
    "pictures": (make_images, []),
    "text": (make_text, ["--label_field", "label", "--tokens", "words", "--vocabulary_size", 9]),
}
MODES = [
    ["--direct_num_workers", 1],
    ["--direct_num_workers", 4],
    ["--direct_running_mode", "in_memory"],  # always with one Beam worker
    ["--direct_running_mode", "multi_threading", "--direct_num_workers", 4],
    ["--direct_running_mode", "multi_processing", "--direct_num_workers", 2],
]


@pytest.fixture(scope="module")
def by_default(tmp_path_factory):
    """Job -> (its arguments, the files of the default run)."""

    def default_run(name):
        make, flags = JOBS[name]
        job = "images" if name == "pictures" else name
        source, out = tmp_path_factory.mktemp(name) / "in", tmp_path_factory.mktemp(name) / "out"
        make(source)
        arguments = [job, "--input", source, *SPLITS, *flags, "--max_rejects", "all"]
        assert run(*arguments, "--output", out) == 0
        manifest = Manifest.read(str(out))
        assert [len(split.shards) for split in manifest.splits.values()] == [4, 2, 2]
        assert manifest.rejected >= 4
        return arguments, files_of(out)

    return Lazily(default_run)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(map(str, mode[1::2])))
@pytest.mark.parametrize("job", JOBS)
def test_all_modes_write_the_files_of_the_default_run(by_default, tmp_path, job, mode):
    arguments, expected = by_default[job]
    assert run(*arguments, *mode, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_files_listed_in_another_order_give_the_same_records(by_default, tmp_path):
    arguments, expected = by_default["text"]
    inputs = [arguments[2] / name for name in ("f.doc", "e.csv.gz", "[b-d].jsonl", "a.jsonl")]
    flags = [flag for path in inputs for flag in ("--input", path)]
    assert run("text", *flags, *arguments[3:], "--output", tmp_path / "out") == 0
    found = files_of(tmp_path / "out")
    typed = dict.fromkeys(["manifest.json", "generations/1.json"])  # They hold the inputs as typed.
    assert found | typed == expected | typed


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], processors()),
        (["--direct_num_workers", "3"], 3),
        (["--direct_num_workers", "0"], processors()),
        (["--direct_running_mode", "in_memory", "--direct_num_workers", "4"], 1),
        (["--runner", "FlinkRunner", "--direct_num_workers", "4"], 1),
    ],
)
def test_the_number_of_processes_follows_from_the_flags(flags, expected):
    assert processes_of(PipelineOptions(flags), flags) == expected


GOLDEN = {
    "sensors": {
        "FOLDER/rejects/val-00000-of-00002.jsonl": "1df0a9f94e2dcf9bc2991b2ff44a338b17967a6f3ad8d80fb3c450e5c8d54399",
        "FOLDER/train-00000-of-00003.tfrecord": "1c73e60b5e3b9e2d3c9352dd8189851551f873341b41c1108fdc0b7da311a41b",
        "FOLDER/train-00000-of-00003.tfrecord.index": "47050177f1ca7fa38d1a8e1a6e63c03979846e2445403247d3668dd809c2d101",
        "FOLDER/train-00001-of-00003.tfrecord": "9adfcd7a8200b0f914862149cac92093539658c3fa368f92cf561e0a032a9c27",
        "FOLDER/train-00001-of-00003.tfrecord.index": "3ad8e4c0806f26f602c4764b6a3f4adf293e1ce6a2705b3915d0d9e4ee88ab3f",
        "FOLDER/train-00002-of-00003.tfrecord": "df5ead37e74ca0c67abe5c4d2aaaf12447b08cc09df478a067aa24bfa2146620",
        "FOLDER/train-00002-of-00003.tfrecord.index": "b8c97c5faf569b4a7abcc868b6a89b44ea8cf0ba4a90c6acfee1941ce06b7700",
        "FOLDER/val-00000-of-00002.d6d7ae35.tfrecord": "78631df1b221846fb2c9b2a1acad85b10c502b0354bb64b48d1ebe76a7eff898",
        "FOLDER/val-00000-of-00002.d6d7ae35.tfrecord.index": "e26848e66ca08f5e78586deb25e7a83c71055bc3f96cc3ea87f87aab495763cb",
        "FOLDER/val-00001-of-00002.74c5bc1d.tfrecord": "3e01cb55d6d5acd2bb51395150246008dcad5b018406960b7953346539625100",
        "FOLDER/val-00001-of-00002.74c5bc1d.tfrecord.index": "b67f382d11caa4983653fd3041570da5cabcf5023143005b7585d4f20f61fa63",
        "generations/1.json": "a317040224bf9b4abcfb8fb83cf633f19b193052445dc41e24566dcccc4397c9",
        "manifest.json": "a317040224bf9b4abcfb8fb83cf633f19b193052445dc41e24566dcccc4397c9",
    },
    "text": {
        "FOLDER/rejects/train-00001-of-00003.jsonl": "ef92243254fa53e52f04c833f2e34c3c4880e9d3f4bf7bd98428d35619ed1713",
        "FOLDER/train-00000-of-00003.tfrecord": "727091b8a48ae9ce5cbc4afc8f566c57781e8bce945d89c8f9ea87fe2b3846f2",
        "FOLDER/train-00000-of-00003.tfrecord.index": "d2a9e14cf1936883f2cdbb42fa68992a5c3049deccd37fabde9203b3139f081f",
        "FOLDER/train-00001-of-00003.tfrecord": "2513d6c211b30cd88ac79e90a731de43f0da539c31e6a27ba3fad39d5a6f2d69",
        "FOLDER/train-00001-of-00003.tfrecord.index": "23091c13067e04148002711466bb588259e5fd1b66c2bdc98e9614aa37b7cdbf",
        "FOLDER/train-00002-of-00003.tfrecord": "e08609a3962b069f6b51cb4979297c13588c8f5c10fd94553d36aedb1a5d578e",
        "FOLDER/train-00002-of-00003.tfrecord.index": "25dddb4f745df0c931d0acef16c20d34f73484bd5557a13dd769d9c5821bd274",
        "FOLDER/val-00000-of-00002.tfrecord": "cc6e705508379178c25f1c970b62e9f5a73a102b1530be48e6ad2fe9fcc66324",
        "FOLDER/val-00000-of-00002.tfrecord.index": "5ee1fa9635695299eb124e13a32496fbd7bcc151d854d8d30a212e8cda248f43",
        "FOLDER/val-00001-of-00002.tfrecord": "402de450d80f852304b1e4bc69ba265cdeaca5e063a5a046d5e0352512f612ce",
        "FOLDER/val-00001-of-00002.tfrecord.index": "8c886de659386737dfcaa7bcf853fd45d0e6c26b48d1d347d4b8cd959a26015a",
        "FOLDER/vocabulary.txt": "5b6a39d025d8d291bc1b07d3bd4c55af397b5f658d6b52bb7b8a95b60503df00",
        "generations/1.json": "04013112fa6201d8eb20eef08ac1586d72a18ba1762c67f8331c3fc2bf159052",
        "manifest.json": "04013112fa6201d8eb20eef08ac1586d72a18ba1762c67f8331c3fc2bf159052",
    },
}


@pytest.mark.slow(base=["run"])
@pytest.mark.parametrize("run", [run, run_in_a_process])
def test_the_bytes_of_a_small_sensors_dataset_are_pinned(tmp_path, monkeypatch, run):
    for label in ("rest", "walk"):
        (tmp_path / "in" / label).mkdir(parents=True)
        for n in range(9):
            values = bytes(range(10 * n, 10 * n + 6)) * (n + 1)
            (tmp_path / "in" / label / f"{n}.npy").write_bytes(npy("|u1", (n + 1, 6), values))
    (tmp_path / "in" / "walk" / "notes.txt").write_text("no recording")
    monkeypatch.chdir(tmp_path)  # the manifest holds the inputs as typed
    flags = ["--splits", "train=0.7,val=0.3", "--num_shards", "train=3,val=2", "--seed", 5]
    flags += ["--max_rejects", "all"]
    assert run("sensors", "--input", "in/*/*", "--output", "out", *flags) == 0
    assert files_of(tmp_path / "out") == GOLDEN["sensors"]


@pytest.mark.slow(base=["run"])
@pytest.mark.parametrize("run", [run, run_in_a_process])
def test_the_bytes_of_a_small_text_dataset_are_pinned(tmp_path, monkeypatch, run):
    lines = [
        f'{{"text": "{LETTERS[n % 12]} {LETTERS[n % 5]}", "label": {n % 3}}}' for n in range(30)
    ]
    lines[11] = '{"text": null, "label": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:17]))
    rows = "".join(f"{LETTERS[n % 7]} é {n},{n % 3}\n" for n in range(13))
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbftext,label\r\n" + rows.encode())
    monkeypatch.chdir(tmp_path)
    flags = ["--splits", "train=0.7,val=0.3", "--num_shards", "train=3,val=2", "--seed", 5]
    flags += ["--tokens", "words", "--label_field", "label", "--vocabulary_size", 12]
    assert run("text", "--input", "[ab].*", "--output", "out", *flags) == 0
    assert files_of(tmp_path / "out") == GOLDEN["text"]
