"""Whatever a path leads to, a terminal can show, or an interrupt cuts off, a command ends with one line."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from PIL import Image

from beam_jobs import __main__ as command
from beam_jobs.cli import parser
from readers.format.schema import Feature, Schema
from tests.support.commands import only_error, refused
from tests.support.datasets import write_dataset
from tests.support.rights import as_any_user

LONG = "a" * 300


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(2):
        Image.new("RGB", (4, 4)).save(folder / f"{number}.png")
    (folder / "t.csv").write_text("path,label\n0.png,a\n1.png,b\n")
    return folder


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be entered."""
    folder = tmp_path / "closed"
    (folder / "in").mkdir(parents=True)
    folder.chmod(0)
    with as_any_user():
        yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("flag", ["--input", "--table", "--output", "--config"])
def test_a_folder_that_may_not_be_entered_is_named(closed, pictures, capsys, flag):
    flags = {"--input": pictures, "--output": pictures.parent / "out", flag: closed / "in/deeper"}
    pattern = rf"{closed}/in.*Permission denied"
    refused(capsys, 2, pattern, "images", "--label", "none", *chain.from_iterable(flags.items()))


@pytest.mark.parametrize("flag", ["--input", "--table", "--output", "--config"])
def test_a_name_that_is_too_long_is_named(pictures, tmp_path, capsys, flag):
    flags = {"--input": pictures, "--output": tmp_path / "out", flag: tmp_path / LONG}
    line = refused(
        capsys, 2, LONG, "images", "--label", "none", *chain.from_iterable(flags.items())
    )
    assert "File name too long" in line or "no file matches" in line


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_before_the_job_starts_is_one_line(capsys, monkeypatch, as_json):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(parser, "parse_flags", interrupted)
    flags = ["--json"] * as_json
    assert command.main(["images", *flags]) == 130
    shown = capsys.readouterr()
    line = only_error(shown.err, "interrupted before the job started; nothing was written")
    if as_json:
        assert json.loads(shown.out) == {
            "error": line.removeprefix("error: "),
            "warnings": [],
            "exit_code": 130,
        }


def test_an_interrupt_while_modules_are_imported_is_one_line():
    code = """
import sys
from beam_jobs import __main__ as command

def interrupted(_):
    raise KeyboardInterrupt

sys.exit(command.program(interrupted))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    only_error(done.stderr, "interrupted before the job started; nothing was written")


def test_readers_need_no_streams(tmp_path):
    schema = Schema({"text": Feature("string")})
    path = write_dataset(tmp_path, schema, {"train": [[{"text": b"a"}]]})
    command = [sys.executable, "-m", "readers", "info", path]
    done = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *command], capture_output=True)
    assert done.returncode == 0


def test_a_job_fails_with_one_line_if_stdout_is_full(pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "stdout", io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
    )
    flags = ["--input", f"{pictures}/*.png", "--output", tmp_path / "out", "--label", "none"]
    line = refused(capsys, 1, "^error: stdout cannot be written: ", "images", *flags)
    assert line.endswith("[Errno 28] No space left on device; everything else was done")
    assert (tmp_path / "out/manifest.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [">&- 2>&-", "2>&1 | head -1"])
def test_a_job_ends_though_its_report_cannot_be_written(lost, pictures, tmp_path):
    flags = ["--input", f"{pictures}/*.png", "--output", str(tmp_path / "out")]
    job = [sys.executable, "-m", "beam_jobs", "images", *flags, "--label", "none"]
    line = f'{{ "$@"; echo $? >{tmp_path}/code; }} {lost}'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *job], capture_output=True, text=True, timeout=300
    )
    assert (tmp_path / "code").read_text() == "0\n"
    assert (tmp_path / "out/manifest.json").exists()
    assert "Traceback" not in done.stderr


def test_readers_fail_if_stdout_is_full(tmp_path):
    schema = Schema({"text": Feature("string")})
    path = write_dataset(tmp_path, schema, {"train": [[{"text": b"a"}]]})
    command = [sys.executable, "-m", "readers", "info", "--json", path]
    done = subprocess.run(["sh", "-c", '"$@" >/dev/full', "sh", *command], capture_output=True)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["error: [Errno 28] No space left on device"]


@pytest.mark.parametrize(
    ("lost", "code", "error"),
    [
        ("| true", 0, ""),
        (">/dev/full", 1, "error: stdout cannot be written: [Errno 28] No space left on device\n"),
    ],
)
def test_help_that_cannot_be_written_ends_without_a_traceback(lost, code, error):
    help_ = [sys.executable, "-m", "beam_jobs", "images", "--help-all"]
    line = f'{{ "$@"; echo $? >&2; }} {lost}'
    done = subprocess.run(["sh", "-c", line, "sh", *help_], capture_output=True, text=True)
    assert done.stderr == f"{error}{code}\n"


def test_an_error_that_cannot_be_written_keeps_its_exit_code(tmp_path):
    command = [sys.executable, "-m", "readers", "info", str(tmp_path / "nothing")]
    done = subprocess.run(["sh", "-c", '"$@" 2>/dev/full', "sh", *command], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_working_directory_that_was_removed_is_named(tmp_path):
    line = f'cd "{tmp_path}/gone" && rmdir "{tmp_path}/gone" && "$@"'
    (tmp_path / "gone").mkdir()
    job = [sys.executable, "-m", "beam_jobs", "images", "--input", "in", "--output", "out"]
    done = subprocess.run(
        ["sh", "-c", line, "sh", *job],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last == "error: the working directory no longer exists; change to another one"


def test_a_warning_that_beam_logs_when_it_is_imported_is_not_printed(pictures, tmp_path):
    # Without `apache-beam[gcp]`, Beam logs one.
    code = "import sys; sys.modules['apitools'] = None; from beam_jobs.__main__ import main; "
    job = ["images", "--input", pictures, "--label", "none", "--output", tmp_path / "out"]
    command = [sys.executable, "-c", f"{code}sys.exit(main(sys.argv[1:]))", *job]
    command += ["--map", "json:nothing"]  # It is imported after Beam.
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    only_error(done.stderr, "has no function 'nothing'")


@pytest.mark.slow
def test_a_name_in_utf_8_is_rejected_in_an_ascii_locale_with_the_cure(tmp_path):
    (tmp_path / "é.txt").write_text("a")
    job = [sys.executable, "-m", "beam_jobs", "text", "--input", str(tmp_path)]
    job += ["--output", str(tmp_path / "out")]
    ascii_ = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(job, capture_output=True, text=True, env={**os.environ, **ascii_})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "the file's name is not UTF-8: rename it; or, as this locale is ascii, set PYTHONUTF8=1"
    )
    cured = subprocess.run(
        job, capture_output=True, env={**os.environ, **ascii_, "PYTHONUTF8": "1"}
    )
    assert cured.returncode == 0


def ascii_stdout(monkeypatch) -> io.BytesIO:
    """Gives the process the stdout of a locale that is ASCII; returns what is written there."""
    written = io.BytesIO()
    stdout = io.TextIOWrapper(written, "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", stdout)
    return written


def test_a_label_that_a_terminal_cannot_show_is_escaped(pictures, tmp_path, monkeypatch):
    (pictures / "ä.csv").write_text("path,label\n0.png,ä\n1.png,b\n")
    flags = ["plan", "images", "--input", pictures, "--table", pictures / "ä.csv"]
    monkeypatch.setattr(
        sys, "argv", ["", *map(str, flags), "--image_size", "4x4", "--label", "column:label"]
    )
    written = ascii_stdout(monkeypatch)
    assert command.program() == 0
    assert rb"labels: 2 (b: 1, \xe4: 1)" in written.getvalue()
