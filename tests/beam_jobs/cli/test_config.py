"""Flags of a job from a file, and datasets that are made again from their manifests."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from beam_jobs.cli.config import with_config
from beam_jobs.errors import UsageError
from tests.support.commands import IN_MEMORY, run

YAML = """\
job: sensors
input:
  - b.npy
  - 'a file.npy'
splits: train=0.8,val=0.2
label: none       # text, though YAML 1.1 reads nulls, numbers and times into such values
stride: 400:50
seed: 010
stratify: true
sequence: FALSE
"""
FLAGS = [
    *["--input=b.npy", "--input=a file.npy", "--splits=train=0.8,val=0.2", "--label=none"],
    *["--stride=400:50", "--seed=010", "--stratify"],
]

# Lists of ten lists each, which hold a million texts.
BOMB = ["&a0 x", *(f"&a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7))]


def write(path, text):
    path.write_text(text)
    return str(path)


def test_a_file_gives_its_values_as_they_are_typed_on_a_command_line(tmp_path):
    path = write(tmp_path / "job.yaml", YAML)
    assert with_config(["--config", path]) == ["sensors", *FLAGS]
    assert with_config(["sensors", f"--config={path}", "--dry_run"]) == [
        *["sensors", *FLAGS, "--dry_run"]
    ]
    values = {"job": "text", "seed": -3, "drop_duplicates": True, "stratify": False, "input": "x"}
    path = write(tmp_path / "job.json", json.dumps(values))
    assert with_config(["--config", path]) == [
        "text",
        "--seed=-3",
        "--drop_duplicates",
        "--input=x",
    ]


def test_other_arguments_keep_their_values_and_order(tmp_path):
    path = write(tmp_path / "job.yaml", "job: sensors")
    rest = ["--input", "a", "-", "b", "--rate", "-6dB", "--new", "--seed=-1"]
    assert with_config(["sensors", *rest[:4], "--config", path, *rest[4:]]) == ["sensors", *rest]


def test_flags_of_the_command_line_replace_those_of_the_file(tmp_path):
    path = write(tmp_path / "job.yaml", YAML)
    typed = ["--input", "c.npy", "--seed=5", "--output", "out", "--direct_num_workers", "2"]
    found = with_config([*typed, "--config", path])
    kept = [flag for flag in FLAGS if not flag.startswith(("--input", "--seed"))]
    assert found == ["sensors", *kept, *typed]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job: text\nsplit: a=1", "split is not a flag of text; did you mean splits?"),
        ("job: text\nimage_size: 3x3", "image_size is not a flag of text; "),
        (
            "job: text\nrunner: x",
            "runner is not a flag of text; Beam's options stay on the command",
        ),
        ("job: text\nconfig: x", "give --config on the command line"),
        ("job: text\njson: true", "give --json on the command line"),
        ("job: text\nseed: 1\nseed: 2", "seed is repeated; expected each name once"),
        (
            "seed: 1",
            "expected a job, images, text, sensors, reshard: add a line such as job: images",
        ),
        ("job: text\nstratify: 1", "stratify: 1: expected true or false"),
        ("job: text\nlabel_field: [a, b]", r"label_field: \['a', 'b'\]: expected text"),
        ("job: text\ninput: {a: b}", r"input: {'a': 'b'}: expected text, or a list of texts"),
        ("- a", "expected lines of a flag's name and its value, such as seed: 1"),
        ("job: [", "line 1: expected the node content"),
        ("job: \x01", "unacceptable character #x0001: special characters"),
        ("[" * 1500, "a list in a list: expected text, or a list of texts"),
        *(
            (f"{before}[{', '.join(BOMB)}]", message)
            for before, message in (
                ("job: text\nseed: ", r"seed: \[.{,90}: expected text$"),
                ("job: text\nstratify: ", r"stratify: \[.{,90}: expected true or false$"),
                ("job: ", r"expected a job, .{,90}: add a line such as job: images; found \["),
            )
        ),
    ],
)
def test_a_file_with_anything_else_is_refused(tmp_path, text, message):
    with pytest.raises(UsageError, match=f"^--config {tmp_path}/job.yaml: {message}"):
        with_config(["--config", write(tmp_path / "job.yaml", text)])


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for name, message in (
        ("no.yaml", "no.yaml is missing; expected a .yaml or .json file, or the directory of a"),
        (
            "no",
            "no/manifest.json is missing; expected a .yaml or .json file, or the directory of a",
        ),
        ("bad.json", "Expecting value: line 1 column 1"),
        ("twice.json", "seed is repeated; expected each name once"),
        ("deep.json", "a list in a list: expected text"),
        ("bad.json/x", "bad.json/x/manifest.json is missing; expected a .yaml or .json file"),
        ("bytes.yaml", "'utf-8' codec can't decode byte 0xff"),
    ):
        (tmp_path / "bad.json").write_text("job: text")
        (tmp_path / "twice.json").write_text('{"seed": 1, "seed": 2}')
        (tmp_path / "deep.json").write_text("[" * 100_000)
        (tmp_path / "bytes.yaml").write_bytes(b"\xff")
        with pytest.raises(UsageError, match=message):
            with_config(["--config", str(tmp_path / name)])
    for typed in (["--config"], ["--config="], ["--config", "--seed=1"]):
        with pytest.raises(UsageError, match=r"^--config: expected a value, FILE or DIR"):
            with_config(["images", *typed])
    path = write(tmp_path / "job.yaml", "job: text")
    with pytest.raises(UsageError, match="it is for the job text, and the command is images"):
        with_config(["images", "--config", path])


def files(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in Path(directory).rglob("*")
        if path.is_file()
    }


def command_of(job, root):
    """A command of a job with repeated inputs, a table, or flags that differ from their defaults."""
    splits = ["--splits", "a=0.5,b=0.5", "--seed", "7"]
    if job == "images":
        for number in range(6):
            image = Image.fromarray(np.full((4, 5), number, np.uint8))
            image.save(root / f"{number}.png")
        rows = "".join(f"{number}.png;{'cat' if number % 2 else 'dog'}\n" for number in range(6))
        (root / "t.csv").write_text("path;kind\n" + rows)
        table = ["--table", root / "t.csv", "--delimiter", ";", "--label", "column:kind"]
        return [*table, "--image_size", "8x8", "--jpeg_exact", "--stratify", *splits]
    for name in "ab":
        (root / f"{name}.txt").write_text("".join(f"{name} {n}\n" for n in range(5)))
    inputs = ["--input", root / "a.txt", "--input", root / "b.txt"]
    return [*inputs, "--tokens", "words", "--group_by", r"(\d)", *splits]


@pytest.mark.parametrize("job", ["images", "text"])
def test_a_dataset_is_made_again_from_its_manifest(tmp_path, job):
    command = command_of(job, tmp_path)
    assert run(job, *command, *IN_MEMORY, "--output", tmp_path / "first") == 0
    assert run("--config", tmp_path / "first", *IN_MEMORY, "--output", tmp_path / "again") == 0
    assert files(tmp_path / "again") == files(tmp_path / "first")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("overwrite", True),
        ("output", "o"),
        ("map", "os:remove"),
    ],
)
def test_a_manifest_does_not_say_where_a_job_runs_or_what_else_it_writes(tmp_path, name, value):
    options = {"job": "text", "seed": 3, name: value}
    # The second one is no manifest, but it is where one should be.
    for content in ({"options": options}, options):
        (tmp_path / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(UsageError, match=f"give --{name} on the command line, not in a file$"):
            with_config(["--config", str(tmp_path)])
    typed = f"--{name}" if value is True else f"--{name}={value}"
    assert with_config(["--config", str(tmp_path), typed]) == ["text", "--seed=3", typed]


def test_facts_of_a_manifest_are_no_flags(tmp_path):
    options = {"job": "sensors", "window": "2s", "sample_rate": 16.0, "map_sha256": "ab"}
    (tmp_path / "manifest.json").write_text(json.dumps({"options": options}))
    assert with_config(["--config", str(tmp_path)]) == ["sensors", "--window=2s"]
