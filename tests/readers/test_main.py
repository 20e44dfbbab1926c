"""`python -m readers`: its output, errors and exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import readers
from readers.__main__ import main
from readers.format.manifest import File, Manifest
from readers.format.schema import Feature, Schema
from readers.head import summary
from tests.support.datasets import damage, flip, write_dataset, write_numbers, write_signals
from tests.support.images import encoded


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
        tokenizer=99,
        files={"vocabulary.txt": File("vocabulary.txt", 0), "tokenizer.json": File("a/b.json", 0)},
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
        "val 3 1 3",
        "labels 40: class0, class1,",
        "class11 and 28 more",
        "vocabulary 1,234 tokens",
        "tokenizer 99 ids, in a/b.json",
        "rejected 3",
        "written by beam-shards 0.1",
        "statistics of train feature of count min max mean std id values 20 0 19 9.5",
    ):
        assert expected in words


def table_in(out, first):
    """The words of the lines that follow the line which begins with this word, up to an empty one."""
    lines = [" ".join(line.split()) for line in out.splitlines()]
    (start,) = [number for number, line in enumerate(lines) if line.split()[:1] == [first]]
    return lines[start : [*lines, ""].index("", start)]


@pytest.mark.parametrize(
    ("values", "classes", "lines"),
    [
        ({"0": 2, "1": 1}, 2, "labels 2 whole numbers, 0 to 1 classes 2 rejected"),
        ({"1": 2, "2": 1, "5": 9}, 6, "1 to 5 3 of 0 to 5 have no records, such as 0 classes 6"),
        ({"0": 2, "9" * 18: 1}, 10**18, "0 to 9"),
        ({"-1": 2, "1": 1}, None, "-1 to 1 some are negative: convert them for a loss that needs"),
        (None, 6, "labels whole numbers, 1 to 5 classes 6 rejected"),
        ({"0": 1, str(10**15): 2}, 10**15 + 1, "have no records, such as 1 classes 1,000,000,000,"),
    ],
)
def test_info_shows_the_number_of_classes(tmp_path, capsys, values, classes, lines):
    path = write_signals(tmp_path / "signals")
    manifest = Manifest.read(str(path))
    numbers = list(map(int, values or ["1", "5"]))
    statistics = {
        "min": min(numbers),
        "max": max(numbers),
        **({"values": values} if values else {}),
    }
    splits = {"train": replace(manifest.splits["train"], statistics={"label": statistics})}
    manifest = replace(manifest, splits=splits)
    assert manifest.num_classes == classes
    (path / "manifest.json").write_bytes(manifest.to_bytes())
    _, out, _ = run("info", str(path), capsys=capsys)
    assert lines in " ".join(out.split())


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


def test_head_warns_of_no_damaged_exif(tmp_path, capsys):
    image = encoded(np.zeros((4, 4, 3), np.uint8), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x28\0")
    schema = Schema({"image": Feature("uint8", (None, None, 3), "source")})
    write_dataset(tmp_path / "d", schema, {"train": [[{"image": image}]]})
    with pytest.warns(UserWarning, match="Corrupt EXIF data"):
        Image.open(io.BytesIO(image))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["head", f"{tmp_path}/d"]) == 0
    assert "[4, 4, 3]" in capsys.readouterr().out


def test_long_arrays_and_texts_are_abbreviated():
    assert summary(np.arange(9)) == "int64 [9]  0, 1, 2, 3, 4, ...  (0 to 8)"
    assert summary(np.arange(5)) == "int64 [5]  0, 1, 2, 3, 4  (0 to 4)"
    assert summary(np.zeros((0, 2), "f4")) == "float32 [0, 2]"
    assert summary(np.array(b"x" * 200, object)) == f"string []  '{'x' * 100}'..."
    parts = [np.zeros(n, np.int32) for n in range(1, 5)]
    assert summary(parts) == "4 arrays: int32 [1]  0; ..."
    assert summary(np.array([b"x" * 200] * 9, object)).count("x") == 100


def test_numbers_have_the_digits_of_their_own_dtype():
    values = np.array([-0.7105175852775574, 0.1, 1 / 3], np.float32)
    assert summary(values) == "float32 [3]  -0.7105176, 0.1, 0.33333334  (-0.7105176 to 0.33333334)"
    assert summary(values[1].astype(np.float16)) == "float16 []  0.1"


def test_ranges_leave_out_nan_and_count_it():
    values = np.array([np.nan, 2, -1, np.inf, np.nan], np.float32)
    assert summary(values).endswith("(-1.0 to inf, 2 NaN)")
    assert summary(np.full(3, np.nan)).endswith("(all NaN)")


def test_classes_are_shown_with_their_names():
    names = ("cat", "dog")
    assert summary(np.array(1), names) == "int64 []  1 (dog)"
    assert summary(np.array([1, 0, -1, 7]), names) == "int64 [4]  1 (dog), 0 (cat), -1, 7"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "{tmp}/nowhere"), "nowhere: no such directory"),
        (("head", "{tmp}"), "no manifest.json here"),
        (
            ("info", "{data}/train-00000-of-00004.tfrecord"),
            "is a file: expected the directory of a dataset, {data}; or",
        ),
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
    assert message.format(data=dataset) in err


def test_an_invalid_command_gives_exit_code_2(capsys):
    for arguments in ([], ["heads"], ["info"], ["head", "x", "-n", "y"]):
        code, out, error = run(*arguments, capsys=capsys)
        assert (code, out) == (2, "")
        assert error.startswith("error: ") and error.endswith(" --help\n")
        code, out, error = run(*arguments, "--json", capsys=capsys)
        assert (code, error) == (2, f"error: {json.loads(out)['error']}\n")


def test_the_command_imports_nothing_heavy(dataset):
    code = (
        "import sys, runpy; sys.argv = ['readers', 'info', sys.argv[1]]\n"
        "try: runpy.run_module('readers', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'tensorflow', 'apache_beam', 'PIL', 'pandas', 'torch', 'jax'} & {*sys.modules}\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, dataset], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_gives_no_traceback(tmp_path):
    path = write_signals(tmp_path, lengths=[3] * 3000)
    command = f"{sys.executable} -m readers head {path} -n 3000 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("train, record 0")
    assert done.stderr == ""


LABELLED = Schema(
    {
        "kind": ("int64", ()),
        "box_labels": ("int64", (None,)),
        "signal": ("float32", (None,)),
        "text": ("string", ()),
    }
)
NAMES = tuple(f"class{i}" for i in range(15))


@pytest.fixture
def labelled(tmp_path):
    """A dataset of two splits with a renamed label, classes of boxes, NaN and text."""
    signal = np.array([0.1, np.nan], np.float32)
    record = {"kind": 3, "box_labels": np.array([1, 0]), "signal": signal, "text": "Grüße"}
    path = write_dataset(
        tmp_path / "labelled",
        LABELLED,
        {"train": [[record]], "val": [[record]]},
        label_names=NAMES,
        class_names={"box_labels": ("car", "tree")},
    )
    manifest = Manifest.read(str(path))
    counts = {"train": {"0": 1203, "3": 1}, "val": {"3": 5}}
    splits = {
        name: replace(split, statistics={"kind": {"count": 3, "values": counts[name]}})
        for name, split in manifest.splits.items()
    }
    (path / "manifest.json").write_bytes(replace(manifest, splits=splits).to_bytes())
    return str(path)


def test_info_counts_the_labels_of_each_split_by_name(labelled, capsys):
    _, out, _ = run("info", labelled, capsys=capsys)
    table = table_in(out, "records")
    assert table[:5] == [
        "records by kind train val",
        "0 (class0) 1,203 0",
        "1 (class1) 0 0",
        "2 (class2) 0 0",
        "3 (class3) 1 5",
    ]
    assert table[12:] == ["11 (class11) 0 0", "and 3 more; --labels shows all"]
    assert "box_labels  2: car, tree\n" in out
    _, out, _ = run("info", labelled, "--labels", capsys=capsys)
    assert table_in(out, "records")[-1] == "14 (class14) 0 0"


def test_head_shows_the_names_of_classes(labelled, capsys):
    _, out, _ = run("head", labelled, capsys=capsys)
    assert out.splitlines() == [
        "train, record 0 of 1",
        "  box_labels  int64 [2]  1 (tree), 0 (car)",
        "  kind        int64 []  3 (class3)",
        "  signal      float32 [2]  0.1, nan  (0.1 to 0.1, 1 NaN)",
        "  text        string []  'Grüße'",
    ]


def test_every_command_prints_json(labelled, capsys):
    _, out, _ = run("info", labelled, "--json", capsys=capsys)
    assert json.loads(out) == json.loads(Path(labelled, "manifest.json").read_bytes())
    _, out, _ = run("head", labelled, "--json", capsys=capsys)
    record = {"kind": 3, "box_labels": [1, 0], "signal": [0.1, None], "text": "Grüße"}
    assert [json.loads(line) for line in out.splitlines()] == [record]
    code, out, _ = run("verify", labelled, "--json", capsys=capsys)
    report = json.loads(out)
    assert (code, report["ok"], report["records"], report["problems"]) == (0, True, 2, [])
    shard = Path(labelled, "val-00000-of-00001.tfrecord")
    flip(shard, 20)
    code, out, _ = run("verify", labelled, "--json", capsys=capsys)
    problem = {"file": str(shard), "message": "damaged", "record": 0, "offset": 0}
    assert (code, json.loads(out)["problems"]) == (1, [problem])


def test_errors_are_json_too(tmp_path, capsys):
    code, out, error = run("head", str(tmp_path), "--json", capsys=capsys)
    found = json.loads(out)
    assert (code, found["exit_code"], error) == (2, 2, f"error: {found['error']}\n")


def test_head_ends_its_json_lines_with_the_error_of_a_damaged_record(dataset, capsys):
    damage(Path(dataset, "train-00000-of-00004.tfrecord"), 1)
    code, out, error = run("head", dataset, "--json", capsys=capsys)
    record, found = map(json.loads, out.splitlines())
    assert (code, record["id"]) == (1, 0)
    assert found == {"error": error.removeprefix("error: ").rstrip(), "exit_code": 1}


def test_json_and_labels_of_info_exclude_each_other(capsys):
    code, _, error = run("info", "x", "--json", "--labels", capsys=capsys)
    assert code == 2
    assert "--labels: not allowed with argument --json" in error


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert (end.value.code, capsys.readouterr().out) == (0, f"beam-shards {readers.__version__}\n")


def test_nothing_of_a_dataset_controls_the_terminal(tmp_path, capsys):
    schema = Schema({"text": Feature("string")})
    path = write_dataset(
        tmp_path, schema, {"train": [[{"text": b"a"}]]}, label_names=("\x1b[31mred\x07",)
    )
    assert main(["info", str(path)]) == 0
    assert "\N{REPLACEMENT CHARACTER}[31mred" in (shown := capsys.readouterr().out)
    assert not {"\x1b", "\x07"} & set(shown)
    assert main(["info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label_names"] == ["\x1b[31mred\x07"]


def test_credentials_in_a_url_are_not_shown(capsys):
    assert main(["info", "nowhere://me:SEC@RET@host/data", "--json"]) == 2
    shown = capsys.readouterr()
    assert "nowhere://***@host/data" in shown.err
    assert "RET" not in shown.err + shown.out


def test_other_programs_get_paths(tmp_path, capsys):
    path = write_numbers(tmp_path / "d", (2, 0, 3))
    shards = [f"{path}/train-0000{number}-of-00003.tfrecord" for number in range(3)]
    shards.append(f"{path}/val-00000-of-00001.tfrecord")
    assert run("files", str(path), capsys=capsys)[:2] == (0, "\n".join([*shards, ""]))
    assert (
        run("files", str(path), "--split", "val", "--json", capsys=capsys)[1]
        == json.dumps({"files": shards[3:]}) + "\n"
    )
    code, _, error = run("files", str(path), "--split", "test", capsys=capsys)
    assert code == 2 and "unknown split 'test': the dataset has train, val" in error
