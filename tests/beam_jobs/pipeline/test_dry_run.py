"""A dry run: it writes nothing, and reports what the job then does."""

import csv
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn import datasets

from beam_jobs.cli.report import format_findings, next_step
from beam_jobs.cli.run import survey_job
from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.dry_run import (
    Findings,
    SplitSurvey,
    check_findings,
    count_repeated,
    findings_of,
)
from beam_jobs.pipeline.tried_encodings import try_encodings
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.plan.summary import FIRST_REJECTS, Summary
from beam_jobs.records.rejects import MaxRejects, Reject
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from tests.support.commands import parse_command, refused, run
from tests.support.datasets import rejects_of

ONE = ["--direct_num_workers", "1"]
SCHEMA = Schema({"key": Feature("string"), "x": Feature("float32", (None, 3))})
FEATURES = [
    "feature  dtype    shape      encoding",
    "key      string   []         text",
    "x        float32  [None, 3]  tensor",
    "",
]


def reject(key: str, error: str = "broken") -> Reject:
    return Reject(key, "decode", error)


def findings(*splits: SplitSurvey, labels=None, rejects=(), tried=0, failed=()) -> Findings:
    return Findings(splits, labels or {}, tuple(rejects), tried, tuple(failed), SCHEMA)


TWO = (SplitSurvey("train", 10_001, 3, 3 << 20, 2, 0), SplitSurvey("val", 0, 0, 0, 1, 0))


def test_findings_are_counted_from_the_plan_and_the_summary():
    summary = Summary.empty(2)
    summary.add_reject(1, reject("r"))
    for number in range(3):
        summary.add_reject(0, reject(f"u{number}"))
    summary.splits[1].duplicates = 4
    summary.add_labels({"a": 6, "b": 1})
    summary.add_labels({"box": 2}, "box_labels")
    summary.labels["empty"] = Counter()
    none = np.empty(0, np.uint64)
    plan = Plan((SplitPlan(7, 3, 100, 1, none), SplitPlan(5, 1, 7, 1, none)))
    splits = Splits.parse("train=0.5,val=0.5")
    output = Output("", SCHEMA, Placement(0, splits), (0, 0), feature_names={"x": "signal"})
    measured = [100, reject("z"), 90, reject("b")]
    assert findings_of(output, plan, summary, measured, Learned(SCHEMA, {})) == Findings(
        (SplitSurvey("train", 7, 1, 700, 3, 0), SplitSurvey("val", 5, 1, 35, 1, 4)),
        {"label": {"a": 6, "b": 1}, "box_labels": {"box": 2}},
        (reject("r"), reject("u0"), reject("u1"), reject("u2")),
        4,
        (reject("b"), reject("z")),
        Schema({"key": SCHEMA["key"], "signal": SCHEMA["x"]}),
    )


def test_the_tables_list_features_and_splits():
    assert format_findings(findings(*TWO)).splitlines() == [
        *FEATURES,
        "split  records  shards  records/shard   bytes (est.)  bytes/shard  rejects",
        "train  10,001   3       3,333 to 3,334  3.0 MiB       1.0 MiB      2",
        "val    0        0       0               0 B           0 B          1",
    ]


def test_the_next_step_names_the_directory_as_a_shell_takes_it():
    expected = "written to /my data; beam-shards head '/my data' shows records"
    assert next_step("/my data") == expected


def test_the_most_frequent_labels_are_printed_first():
    labels = {"label": {"b": 1, "a": 1, "c": 12_345}, "box_labels": {str(n): n for n in range(30)}}
    boxes, classes = format_findings(findings(*TWO, labels=labels)).splitlines()[-2:]
    assert classes == "labels: 3 (c: 12,345, a: 1, b: 1)"
    assert boxes.startswith("box_labels: 30 (29: 29, 28: 28, ")
    assert boxes.endswith(" 10: 10 and 10 more)")
    twenty = {"label": dict.fromkeys(map(str, range(20)), 1)}
    assert format_findings(findings(*TWO, labels=twenty)).endswith(" 9: 1)")


def test_rejects_are_printed_once_and_those_of_tried_records_separately():
    known, tried = reject("a"), reject("b", "worse")
    text = format_findings(findings(*TWO, rejects=[known], tried=32, failed=[tried, known]))
    assert text.splitlines()[len(FEATURES) + 3 :] == [
        "first rejects:",
        "  a: broken",
        "32 records tried, 2 of them rejected",
        "  b: worse",
    ]


def test_a_name_with_a_newline_does_not_look_like_two_lines():
    labels = {"label": {"cat\nnothing was rejected": 3}}
    text = format_findings(findings(*TWO, labels=labels, rejects=[reject("a\nb: fine")]))
    assert "labels: 1 (cat\N{REPLACEMENT CHARACTER}nothing was rejected: 3)" in text.splitlines()
    assert "  a\N{REPLACEMENT CHARACTER}b: fine: broken" in text.splitlines()


def test_the_dry_run_fails_if_the_job_would():
    some, none = SplitSurvey("a", 2, 1, 9, 0, 0), SplitSurvey("a", 0, 1, 0, 3, 0)
    check_findings(findings(some, rejects=[reject("x")], failed=[reject("y")]))
    for found, message in (
        (findings(none, rejects=[reject("x")]), "the job would reject all records; the first"),
        (findings(some, tried=2, failed=[reject("y"), reject("z")]), "the first: y: broken"),
    ):
        with pytest.raises(DataError) as caught:
            check_findings(found)
        assert message in caught.value.message
        assert caught.value.exit_code == 1
    known = findings(some, replace(none, records=1), rejects=[reject("x")])
    check_findings(known, MaxRejects.parse("3"))
    with pytest.raises(
        DataError, match=r"3 of 6 inputs are rejected, .* 0\.49: the job would fail; "
    ):
        check_findings(known, MaxRejects.parse("0.49"))


@given(st.lists(st.integers(0, 20) | st.integers(0, 2**64 - 1), max_size=60), st.integers(0, 60))
def test_repeated_keys_are_counted_once(hashes, cut):
    parts = [np.array(part, "<u8").tobytes() for part in (hashes[:cut], hashes[cut:])]
    assert count_repeated(parts) == sum(n > 1 for n in Counter(hashes).values())


# The dry run compared with the job.


def write_pictures(root: Path) -> None:
    """Pictures, and a table that names them, with some rows that cannot be records."""
    rows = []
    for label in ("china", "flower"):
        (root / label).mkdir(parents=True)
        for number in range(60):
            name = f"{label}/{number:02d}.jpg"
            Image.new("RGB", (64, 64), (number, 9, 200)).save(root / name)
            rows.append({"path": name, "what": label})
    for row in rows[10:40:5]:
        row["what"] = ""
    for row in rows[70:74]:
        row["path"] += ".gone"
    rows[80]["path"] = "../" + rows[80]["path"]
    with (root / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_texts(path: Path) -> None:
    """Paragraphs of descriptions of datasets, with duplicates and broken lines."""
    lines = []
    for file in sorted((Path(datasets.__file__).parent / "descr").glob("*.rst")):
        for paragraph in file.read_text().split("\n\n"):
            row = {"text": paragraph, "label": file.stem, "size": len(paragraph)}
            lines.append(json.dumps(row))
    lines += lines[::9] + ['{"text": 3, "label": "x", "size": 1}', "{", '{"text": "x"}']
    path.write_text("\n".join(lines))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_pictures(root / "pics")
    write_texts(root / "texts.jsonl")
    flags = ["--input", f"{root}/pics/*/*.jpg", "--num_shards", "3"]
    assert run("images", *flags, *ONE, "--output", root / "shards") == 0
    shutil.copytree(root / "shards", root / "other")
    return root


SPLITS = ["--splits", "train=0.7,val=0.3", "--num_shards", "train=4,val=2"]
JOBS = {
    "images": ["--table", "{data}/pics/t.csv", "--label", "column:what", "--stratify", *SPLITS],
    "text": ["--input", "{data}/texts.jsonl", "--label_field", "label", "--drop_duplicates"]
    + ["--tokens", "words", "--extra_features", "size:int64", *SPLITS],
    "reshard": ["--input", "{data}/shards", "--group_by", "#.*[0-4]$", "--seed", "3", *SPLITS],
}


def command_of(data, name, *more):
    return [
        name,
        *(part.replace("{data}", str(data)) for part in JOBS[name]),
        *("--max_rejects", "all"),
        *ONE,
        *map(str, more),
    ]


def counted_labels(manifest: Manifest) -> Counter[str]:
    """Label -> number of records with it."""
    found: Counter[str] = Counter()
    for split in manifest.splits.values():
        for number, count in split.statistics.get("label", {}).get("values", {}).items():
            found[manifest.label_names[int(number)]] += count
    return found


@pytest.mark.slow(base=["text"])
@pytest.mark.parametrize("name", JOBS)
def test_a_dry_run_reports_what_the_job_then_does(data, tmp_path, name):
    found = survey_job(parse_command(command_of(data, name, "--dry_run")))
    assert run(*command_of(data, name, "--output", tmp_path / "out")) == 0
    manifest = Manifest.read(str(tmp_path / "out"))
    rejects = sorted(rejects_of(tmp_path / "out").items())
    assert found.schema == manifest.schema
    assert [split.name for split in found.splits] == list(manifest.splits)
    for split, written in zip(found.splits, manifest.splits.values(), strict=True):
        counts = [shard.records for shard in written.shards]
        assert (split.records, split.shards) == (sum(counts), len(counts))
        assert (split.rejected, split.duplicates) == (written.rejected, written.duplicates)
        assert split.bytes == pytest.approx(written.bytes, rel=0.1)
    assert [(reject.key, reject.error) for reject in found.rejects] == rejects[:FIRST_REJECTS]
    assert sum(split.rejected for split in found.splits) == len(rejects)
    assert not found.failed
    if name in ("images", "text"):
        assert counted_labels(manifest) == found.labels["label"]
    # Every kind of reject is among them.
    assert len(rejects) == {"images": 11, "text": 3, "reshard": 60}[name]
    if name == "text":
        assert sum(split.duplicates for split in found.splits) > 20


def tree(*roots: Path) -> dict[str, tuple]:
    """Path -> kind, size, modification time and contents of files and folders."""
    found = {}
    for root in roots:
        for path in [root, *sorted(root.rglob("*"))]:
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else None
            found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, content)
    return found


@pytest.mark.slow(base=["text"])
@pytest.mark.parametrize("name", JOBS)
def test_a_dry_run_leaves_no_trace(data, tmp_path, monkeypatch, capsys, name):
    (tmp_path / "temporary").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = tree(data, tmp_path)
    assert run("plan", *command_of(data, name, "--output", "new/deep")) == 0
    flags = command_of(data, name, "--output", data / "other", "--overwrite")
    assert run("plan", *flags) == 0
    assert tree(data, tmp_path) == {
        **before,
        # The folder for temporary files was used, and is empty again.
        str(tmp_path / "temporary"): tree(tmp_path / "temporary")[str(tmp_path / "temporary")],
    }
    assert not os.listdir(tmp_path / "temporary")
    printed = capsys.readouterr()
    plans = re.sub(r"(x +)[\d,]+", r"\1", printed.out)  # Rates of decoding differ.
    first, second = plans.split("feature  ")[1:]
    assert first == second
    assert printed.err.count("nothing was written: this was a dry run\n") == 2


@pytest.mark.parametrize(
    ("flags", "encodings"),
    [
        (["--image_size", "48x32", "--channels", "4"], ["png", "tensor*", "raw", "list", "zlib"]),
        (
            ["--encodings", "image=jpeg"],
            ["source", "jpeg*", "png", "tensor", "raw", "list", "zlib"],
        ),
    ],
)
def test_a_dry_run_knows_the_sizes_of_the_encodings_that_the_flags_allow(
    data, tmp_path, flags, encodings
):
    inputs = ["images", "--input", f"{data}/pics/china/*1.jpg", "--label", "none", *ONE]
    command = parse_command([*inputs, *flags, "--dry_run"])
    encoded = partial(command.flags.job.encoded_job, command.job)
    tried = list(try_encodings(survey_job(command), command.output, encoded))
    assert [each.encoding + "*" * each.chosen for each in tried] == encodings
    for each in tried[:: len(tried) - 2]:  # Two are enough for the time of a test.
        out, chosen = tmp_path / each.encoding, ["--encodings", f"image={each.encoding}"]
        assert run(*inputs, *flags[:4], *chosen, "--output", out) == 0
        written = Manifest.read(str(out)).splits["train"]
        assert (each.tried, each.bytes) == (written.records, written.bytes)
        assert each.record_bytes == each.bytes / each.tried
        assert each.decoded_per_second > 0


def test_a_dry_run_refuses_an_existing_dataset_like_the_job(data, capsys):
    flags = command_of(data, "images", "--output", data / "shards", "--seed", 9)
    refused(capsys, 2, "a dataset is here already; add --overwrite", "plan", *flags)


def test_broken_pictures_are_named_among_tried_records(data, tmp_path, capsys):
    for number in range(20):
        kind = "broken" if number < 5 else "whole"
        source = data / "pics" / "china" / f"{number:02d}.jpg"
        path = tmp_path / "in" / kind / source.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no picture" if kind == "broken" else source.read_bytes())
    plan = ["plan", "images", *ONE, "--label", "none", "--input"]
    assert run(*plan, tmp_path / "in") == 1
    out, error = capsys.readouterr()
    assert "error: 5 of 20 inputs are rejected, more than 5%: the job would fail; " in error
    assert "20 records tried, 5 of them rejected\n" in out
    assert out.count(": cannot be decoded: unknown image format") == 5
    assert run(*plan, tmp_path / "in/broken") == 1
    error = capsys.readouterr().err
    assert "error: the job would reject all records; the first: 00.jpg: cannot" in error


def test_inputs_without_a_record_are_refused_like_by_the_job(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("path\n")
    flags = ["--table", tmp_path / "t.csv", "--label", "none", *ONE]
    refused(capsys, 2, "the inputs have no records: no dataset was", "plan", "images", *flags)
