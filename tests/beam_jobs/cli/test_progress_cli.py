"""Progress of a running job on a terminal and elsewhere, and its counters."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter

from beam_jobs import Feature, Schema, WriteShards, progress
from beam_jobs.cli.command import parse_command
from readers.format.manifest import Manifest
from tests.support.checkout import ROOT
from tests.support.commands import run
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


def on_a_terminal(arguments, columns=100):
    """Runs a command with a terminal as its standard error; returns its output and exit code."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "beam_jobs", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    written = b""
    readable = select.poll()
    readable.register(controller, select.POLLIN)
    while readable.poll(60_000):
        try:
            data = os.read(controller, 65536)
        except OSError:  # Linux reports the closed terminal as an error
            break
        if not data:
            break
        written += data
    os.close(controller)
    return written.decode(), process.wait(60)


@pytest.mark.slow
def test_a_terminal_shows_a_bar_with_records_rate_and_time_left(tmp_path):
    write_recordings(tmp_path / "in", [3000] * 2500)
    arguments = ["sensors", "--input", f"{tmp_path}/in/*/*.npy", "--num_shards", 30]
    arguments += ["--direct_num_workers", 1]
    shown, code = on_a_terminal([*arguments, "--output", tmp_path / "out"])
    assert code == 0, shown
    bars = re.findall(
        r"\rwriting: +(\d+)%\|[^|\r]*\| (\d+)/2500 \[(\d\d:\d\d)<(\d\d:\d\d|\?), +([\d.]+|\?) records/s\]",
        shown,
    )
    assert len(bars) >= 2, shown
    done = [int(bar[1]) for bar in bars]
    assert done == sorted(done) and 0 < done[-1] <= 2500
    assert any(rate != "?" and left != "?" for _, _, _, left, rate in bars)
    shown, _, _ = shown.partition("started ")
    last = shown.rsplit("\r", 1)[-1]
    assert not last, "the bar is wiped away when the job is done"
    assert all(len(part) <= 100 for part in re.split(r"[\r\n]", shown))


def test_a_terminal_shows_at_once_that_the_command_starts():
    shown, code = on_a_terminal(["text"])
    assert code == 2
    assert re.fullmatch(r"(starting \.\.\.\r *\r){2}error: --output is missing: .+\r\n", shown)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "phases"),
    [
        ("sensors", ["listing", "writing"]),
        ("text", ["reading", "encoding", "writing"]),
        ("every pass", ["comparing", "counting", "sampling", "reading", "encoding", "writing"]),
    ],
)
def test_plain_lines_report_progress_without_a_terminal(
    inputs, tmp_path, monkeypatch, capsys, job, phases
):
    monkeypatch.setattr(progress.display.__wrapped__, "__defaults__", (0.0,))
    assert run(*inputs[job], *IN_MEMORY, "--output", tmp_path / "out") == 0
    error = capsys.readouterr().err
    assert "\r" not in error and "\x1b" not in error
    lines = [
        line
        for line in error.splitlines()
        if not re.search("rejected, listed|^  |^started |^the same shape |^written to ", line)
    ]
    plain = re.compile(
        r"(\w+): ([\d.,]+)(?: [KM]?i?B)?( of ([\d.,]+)(?: [KM]?i?B)?)?( files| records|)"
        r"(, [\d.,]+(?: [KM]?i?B)?/s(, \d\d:\d\d left)?)?(, ([\d,]+) rejected)?"
    )
    found = [plain.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    assert list(dict.fromkeys(match[1] for match in found)) == phases
    writing = [match for match in found if match[1] == "writing"]
    done = [int(match[2].replace(",", "")) for match in writing]
    assert done == sorted(done) and done[-1] == 1000
    assert all(match[4] == "1,000" and match[5] == " records" for match in writing)
    assert all(match[7] for match in writing if match[2] != "0")
    rejected = Manifest.read(str(tmp_path / "out")).rejected
    assert int(writing[-1][9]) == rejected > 0


def test_a_resumed_run_reports_all_records(inputs, tmp_path, monkeypatch, capsys):
    arguments = [*inputs["sensors"], *IN_MEMORY, "--output", tmp_path / "out"]
    with monkeypatch.context() as patch:
        patch.setattr("beam_jobs.pipeline.commit.check_files", lambda *_: 1 / 0)
        assert run(*arguments) == 1
    monkeypatch.setattr(progress.display.__wrapped__, "__defaults__", (0.0,))
    capsys.readouterr()
    assert run(*arguments) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("writing")]
    assert lines[-1].startswith("writing: 1,000 of 1,000 records, ")


def counters(*arguments):
    """Name -> value of every counter of a job, after a run in this process."""
    parsed = parse_command([str(argument) for argument in arguments])
    pipeline = beam.Pipeline(options=parsed.beam)
    pipeline | parsed.transform
    return counted(pipeline)


def counted(pipeline):
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
    source = Path(inputs["text"][2]).parent
    assert found == {
        "files/chunks": 4,
        "files/bytes": sum(path.stat().st_size for path in source.iterdir()),
        "parts/found": 1000,
        "parts/encoded": 992,
        "shards/written": 10,
        "shards/records": 992,
        "shards/bytes": manifest.bytes,
        "shards/rejected": 8,
    }


def test_counters_of_write_shards(tmp_path):
    schema = Schema({"x": Feature("float32", (None,))})
    records = [(f"r{n}", {"x": np.ones(n % 5, "f4")}) for n in range(100)] + [("bad", {"x": "x"})]
    pipeline = beam.Pipeline()
    write = WriteShards(str(tmp_path / "out"), schema, num_shards=4, on_reject="skip")
    pipeline | beam.Create(records) | write
    found = counted(pipeline)
    assert found["shards/written"] == 4
    assert found["shards/records"] == 100
    assert found["shards/rejected"] == 1
    assert found["shards/bytes"] == Manifest.read(str(tmp_path / "out")).splits["train"].bytes
