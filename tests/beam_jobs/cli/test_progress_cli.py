"""Progress of a running job on a terminal and elsewhere, and its counters."""

import re

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter

from beam_jobs import progress
from readers.format.manifest import Manifest
from tests.support.commands import parse_command, run
from tests.support.datasets import write_recordings

IN_MEMORY = ["--direct_running_mode", "in_memory"]


def write_texts(source):
    source.mkdir(parents=True)
    for name in "abcd":
        rows = [f'{{"text": "{name} {n % 7} {n}"}}' for n in range(250)]
        rows[3] = rows[77] = "{"
        (source / f"{name}.jsonl").write_text("\n".join(rows))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    base = tmp_path_factory.mktemp("inputs")
    write_recordings(base / "sensors", [1 + n % 40 for n in range(1000)], bad=range(50, 90))
    write_texts(base / "text")
    passes = ["--drop_duplicates", "--tokens", "bpe", "--vocabulary_size", 270, "--stratify"]
    passes += ["--label", "csv:" + str(base / "labels.csv"), "--splits", "train=0.5,val=0.5"]
    labels = "".join(f"{name}.jsonl,{name}\n" for name in "abcd")
    (base / "labels.csv").write_text("path,label\n" + labels)
    return {
        "every pass": ["text", "--input", f"{base}/text/*", "--num_shards", 10, *passes],
        "sensors": ["sensors", "--input", f"{base}/sensors/*/*.npy", "--num_shards", 10],
        "text": ["text", "--input", f"{base}/text/*", "--num_shards", 10, "--tokens", "words"],
    }


def test_a_command_says_that_it_starts_if_that_takes_long(monkeypatch, capsys):
    with progress.early("starting"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    with progress.early("starting"):
        shown = ""
        while not shown:
            shown = capsys.readouterr().err
    assert shown == "starting ...\n"


@pytest.mark.slow
def test_plain_lines_report_every_pass_without_a_terminal(inputs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress.display.__wrapped__, "__defaults__", (0.0, 0.0))
    assert run(*inputs["every pass"], *IN_MEMORY, "--output", tmp_path / "out") == 0
    error = capsys.readouterr().err
    assert "\r" not in error and "\x1b" not in error
    phases = dict.fromkeys(re.findall(r"^(\w+): [\d.,]+", error, re.M))
    passes = ["comparing", "counting", "sampling", "reading", "encoding", "writing"]
    assert list(phases) == ["listing", *passes]
    rejected = Manifest.read(str(tmp_path / "out")).rejected
    writing = re.findall(r"^writing: ([\d,]+) of 1,000 records.*, ([\d,]+) rejected$", error, re.M)
    assert writing[-1] == ("1,000", str(rejected)) and rejected > 0


def test_a_resumed_run_reports_all_records(inputs, tmp_path, monkeypatch, capsys):
    arguments = [*inputs["sensors"], *IN_MEMORY, "--output", tmp_path / "out"]
    with monkeypatch.context() as patch:
        patch.setattr("beam_jobs.writing.commit.check_files", lambda *_: 1 / 0)
        assert run(*arguments) == 1
    monkeypatch.setattr(progress.display.__wrapped__, "__defaults__", (0.0, 0.0))
    capsys.readouterr()
    assert run(*arguments) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("writing")]
    assert lines[-1].startswith("writing: 1,000 of 1,000 records, ")


def counters(*arguments):
    """Name -> value of every counter of a job, after a run in this process."""
    parsed = parse_command([str(argument) for argument in arguments])
    pipeline = beam.Pipeline(options=parsed.beam)
    pipeline | parsed.transform
    result = pipeline.run()
    result.wait_until_finish()
    found = {}
    for counter in result.metrics().query(MetricsFilter())["counters"]:
        name = f"{counter.key.metric.namespace}/{counter.key.metric.name}"
        found[name] = found.get(name, 0) + counter.result
    return found


BEAM = ["--runner", "DirectRunner", "--allow_unsafe_triggers"]


def test_counters_of_every_stage_of_a_job_of_files(inputs, tmp_path):
    arguments = [*inputs["sensors"], *BEAM, *IN_MEMORY, "--output", tmp_path / "out"]
    found = counters(*arguments)
    manifest = Manifest.read(str(tmp_path / "out")).splits["train"]
    assert manifest.records == 960
    assert found.pop("shards/bytes") == manifest.bytes
    assert found.pop("shards/records_moved") >= 1
    assert found.pop("summary/input_bytes") > 0
    assert found == {
        "files/found": 1000,
        "files/planned": 1000,
        "shards/written": 10,
        "shards/records": 960,
        "shards/rejected": 40,
    }


def test_counters_of_every_stage_of_the_text_job(inputs, tmp_path):
    arguments = [*inputs["text"], *BEAM, "--output", tmp_path / "out"]
    found = counters(*arguments)
    manifest = Manifest.read(str(tmp_path / "out")).splits["train"]
    assert found.pop("summary/input_bytes") > 0
    assert found == {
        "files/found": 4,
        "parts/found": 1000,
        "parts/encoded": 992,
        "shards/written": 10,
        "shards/records": 992,
        "shards/bytes": manifest.bytes,
        "shards/rejected": 8,
    }
