"""`python -m readers`: its output, errors and exit codes."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from readers.__main__ import main
from readers.describe import summary
from readers.format.display import format_bytes
from readers.format.manifest import Manifest, Split
from tests.support.datasets import write_numbers, write_signals


@pytest.fixture
def dataset(tmp_path):
    path = write_numbers(tmp_path / "numbers")
    manifest = Manifest.read(str(path))
    statistics = {"id": {"count": 20, "min": 0, "max": 19, "mean": 9.5}}
    train = replace(manifest.splits["train"], rejected=3, statistics=statistics)
    labels = tuple(f"class{i}" for i in range(40))
    manifest = replace(
        manifest,
        splits={**manifest.splits, "train": train},
        label_names=labels,
        vocabulary=1234,
        versions={"beam-shards": "0.1"},
    )
    (path / "manifest.json").write_bytes(manifest.to_bytes())
    return str(path)


def run(*arguments, capsys):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_info_describes_a_dataset(dataset, capsys):
    code, out, _ = run("info", dataset, capsys=capsys)
    assert code == 0
    words = " ".join(out.split())
    for expected in (
        "vector float32 [3] tensor",
        "train 20 4 4 to 7",
        "val 3 1 3 to 3",
        "labels 40: class0, class1,",
        "class11 and 28 more",
        "vocabulary 1,234 tokens",
        "rejected 3",
        "written by beam-shards 0.1",
        "statistics of train feature of count min max mean std id values 20 0 19 9.5",
    ):
        assert expected in words


@pytest.mark.parametrize(
    ("statistics", "line"),
    [
        ({"min": -1, "max": 5, "values": {"-1": 2, "5": 1}}, "labels 3 whole numbers, -1 to 7"),
        ({"min": -1, "max": 5}, "labels whole numbers, -1 to 7"),
        ({}, "labels whole numbers, 2 to 7"),
        ({"lengths": {}}, "labels whole numbers, 2 to 7"),
    ],
)
def test_info_counts_labels_that_are_numbers(tmp_path, capsys, statistics, line):
    path = write_signals(tmp_path / "signals")
    manifest = Manifest.read(str(path))
    known = {"label": {"min": 2, "max": 7, "values": {"5": 3, "7": 1}}}
    train = replace(manifest.splits["train"], statistics={"label": statistics})
    splits = {"train": train, "val": Split((), statistics=known), "empty": Split(())}
    manifest = replace(manifest, splits=splits)
    (path / "manifest.json").write_bytes(manifest.to_bytes())
    code, out, _ = run("info", str(path), capsys=capsys)
    assert code == 0
    assert line in " ".join(out.split())


def test_head_shows_the_first_records(dataset, capsys):
    code, out, _ = run("head", dataset, "--split", "train[5:]", "-n", "2", capsys=capsys)
    assert code == 0
    assert out.splitlines() == [
        "train[5:], record 0 of 15",
        "  id      int64 []  5",
        "  name    string []  'record 5'",
        "  vector  float32 [3]  5.0, 5.0, 5.0  (5.0 to 5.0)",
        "train[5:], record 1 of 15",
        "  id      int64 []  6",
        "  name    string []  'record 6'",
        "  vector  float32 [3]  6.0, 6.0, 6.0  (6.0 to 6.0)",
    ]


def test_head_shows_all_records_if_there_are_fewer(dataset, capsys):
    _, out, _ = run("head", dataset, "--split", "val", "-n", "99", capsys=capsys)
    assert out.count("record") == 6


def test_long_arrays_and_texts_are_abbreviated():
    assert summary(np.arange(9)) == "int64 [9]  0, 1, 2, 3, 4, ...  (0 to 8)"
    assert summary(np.zeros((0, 2), "f4")) == "float32 [0, 2]"
    assert summary(np.array(b"x" * 200, object)) == f"string []  '{'x' * 100}'..."
    parts = [np.zeros(n, np.int32) for n in range(1, 5)]
    assert summary(parts).startswith("4 arrays: int32 [1]  0; int32 [2]")
    assert summary(parts).endswith("; ...")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 41, "2.0 TiB")],
)
def test_sizes_are_human_readable(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "{tmp}/nowhere"), "no manifest.json here"),
        (("head", "{tmp}/nowhere"), "no manifest.json here"),
        (("head", "{data}", "--split", "dev"), "unknown split 'dev': the dataset has train, val"),
        (("head", "{data}", "--split", "train["), "expected one of the forms"),
        (("head", "{data}", "-n", "0"), "-n 0: expected a number of at least 1"),
        (("info", "nosuch://place"), "nosuch"),
    ],
)
def test_a_mistake_gives_one_line_and_exit_code_2(dataset, tmp_path, capsys, arguments, message):
    arguments = [a.format(tmp=tmp_path, data=dataset) for a in arguments]
    code, out, err = run(*arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_missing_shard_gives_one_line_and_exit_code_2(dataset, tmp_path, capsys):
    (tmp_path / "numbers" / "train-00000-of-00004.tfrecord").unlink()
    code, _, err = run("head", dataset, capsys=capsys)
    assert code == 2
    assert "the manifest lists this shard, but it is missing" in err


def test_an_invalid_command_gives_exit_code_2(capsys):
    for arguments in ([], ["heads"], ["info"]):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 2
    capsys.readouterr()


def test_the_command_starts_quickly_and_imports_nothing_heavy(dataset):
    code = (
        "import sys, runpy; sys.argv = ['readers', 'info', sys.argv[1]]\n"
        "try: runpy.run_module('readers', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'tensorflow', 'apache_beam', 'PIL', 'pandas', 'torch', 'jax'} & {*sys.modules}\n"
        "assert not heavy, heavy"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, dataset], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The aim is one second, but machines that run tests can be slow.
    assert time.monotonic() - start < 5


def test_a_closed_pipe_gives_no_traceback(tmp_path):
    path = write_signals(tmp_path, lengths=[3] * 3000)
    command = f"{sys.executable} -m readers head {path} -n 3000 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("train, record 0")
    assert done.stderr == ""
