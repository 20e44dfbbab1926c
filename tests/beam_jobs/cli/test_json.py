"""`--json`: one object on stdout, whatever becomes of the job."""

import json
import subprocess
import sys

import numpy as np
import pytest

from beam_jobs.cli import run as running
from beam_jobs.errors import DataError
from readers.format.manifest import Manifest
from tests.support.commands import IN_MEMORY, run


@pytest.fixture
def recordings(tmp_path):
    """Ten recordings, of which two are damaged and one is no array."""
    for number in range(10):
        np.save(tmp_path / f"{number}.npy", np.zeros(number + 1, np.float32))
    for name in ("5.npy", "6.npy"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1])
    (tmp_path / "7.npy").write_bytes(b"")
    return tmp_path


def printed(capsys, *arguments):
    """Runs a command with --json; returns (exit code, the object on stdout, stderr)."""
    capsys.readouterr()
    code = run(*arguments, "--json")
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 1
    return code, json.loads(shown.out), shown.err


def test_a_job_prints_what_it_wrote(recordings, capsys):
    out = recordings / "out"
    flags = ["sensors", "--input", f"{recordings}/*.npy", "--label", "none", "--output", out]
    flags += ["--max_rejects", "all"]
    code, found, error = printed(capsys, *flags, "--splits", "a=0.999999,b=0.000001", *IN_MEMORY)
    assert code == 0, error
    manifest = Manifest.read(str(out))
    assert found.pop("seconds") >= sum(found["phases"].values()) > 0
    assert list(found.pop("phases")) == ["starting", "listing", "writing", "checking"]
    (warning,) = found["warnings"]
    assert f"warning: {warning}\n" in error and warning.startswith("split b is empty")
    (many, one) = found.pop("rejects")
    assert (many["count"], one["count"]) == (2, 1)
    assert many["example"] in ("5.npy", "6.npy") and one["example"] == "7.npy"
    assert f"  1: {one['reason']}, such as 7.npy\n" in error
    assert found == {
        "job": "sensors",
        "directory": str(out),
        "splits": {
            "a": {
                **{"records": 7, "shards": 1, "bytes": manifest.splits["a"].bytes},
                **{"rejected": 3, "duplicates": 0},
            },
            "b": {"records": 0, "shards": 0, "bytes": 0, "rejected": 0, "duplicates": 0},
        },
        "kept_shards": 0,
        "warnings": [warning],
        "exit_code": 0,
    }


def test_a_job_that_was_complete_prints_the_same_and_changes_nothing(recordings, capsys):
    def files():
        paths = [path for path in sorted(out.rglob("*")) if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    out = recordings / "out"
    flags = ["sensors", "--input", f"{recordings}/*.npy", "--label", "none", "--output", out]
    flags += ["--max_rejects", "all"]
    first, before = printed(capsys, *flags, *IN_MEMORY)[1], files()
    code, again, error = printed(capsys, *flags, *IN_MEMORY)
    assert code == 0
    assert f"{out} is complete already, from the same options" in error
    assert (first.get("was_complete"), again["was_complete"]) == (None, True)
    for name in ("directory", "splits", "rejects", "exit_code"):
        assert again[name] == first[name]
    assert files() == before
    code, found, _ = printed(capsys, *flags, *IN_MEMORY, "--seed", 1)
    assert code == 2
    assert found["error"].endswith(
        "a dataset is here already; add --overwrite to replace it, or --append to add to it"
    )
    np.save(recordings / "9.npy", np.zeros(3, np.float32))
    code, changed, _ = printed(capsys, *flags, *IN_MEMORY)
    assert (code, changed["error"]) == (2, found["error"])
    assert files() == before


@pytest.mark.slow
def test_a_plan_prints_what_a_job_would_write_also_if_that_would_fail(recordings, capsys):
    flags = ["plan", "sensors", "--input", f"{recordings}/*.npy", "--label", "none"]
    flags += ["--max_rejects", "all"]
    code, found, _ = printed(capsys, *flags)
    assert (code, found["exit_code"], found["dry_run"], found["tried"]) == (0, 0, True, 10)
    assert found["splits"]["train"]["records"] == 10
    assert found["schema"]["signal"]["dtype"] == "float32"
    assert sum(reason["count"] for reason in found["rejects"]) == 3
    tried = [(each["encoding"], each["tried"], each["chosen"]) for each in found["encodings"]]
    others = [(name, 7, False) for name in ("raw", "list", "zlib", "zlib_shuffled")]
    assert tried == [("tensor", 7, True), *others]
    code, failed, error = printed(capsys, *flags, "--max_rejects", "0")
    assert (code, failed["exit_code"]) == (1, 1)
    assert error.endswith(f"error: {failed.pop('error')}\n")
    assert failed | {"exit_code": 0, "encodings": found["encodings"]} == found


def test_a_missing_package_is_in_the_object(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "beam_jobs.cli.command")
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    code, found, error = printed(capsys, "sensors", "--input", __file__, "--output", "o")
    expected = "apache_beam is missing: pip install 'beam-shards[beam]'"
    assert found == {"error": expected, "warnings": [], "exit_code": code} and code == 2
    assert error == f"error: {expected}\n"


def test_a_command_that_changes_a_dataset_asks_for_no_more_than_it_needs(tmp_path):
    program = (
        "import sys; sys.modules['tqdm'] = None; from beam_jobs.__main__ import main; "
        "sys.exit(main(['compact', '.']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr == "error: tqdm is missing: pip install 'beam-shards[write]'\n"
    assert done.returncode == 2


def test_errors_are_in_the_object_and_on_stderr(recordings, capsys, monkeypatch):
    code, found, error = printed(capsys, "sensors", "--input", recordings / "5.npy")
    assert (code, found["exit_code"]) == (2, 2)
    assert error == f"error: {found['error']}\n"
    assert found["error"].startswith("--output is missing")
    for raised, expected in (
        (DataError("lost"), (1, "lost")),
        (KeyboardInterrupt("^C"), (130, "^C")),
    ):

        def fails(*_, raised=raised):
            raise raised

        monkeypatch.setattr(running, "run_job", fails)
        flags = ["--input", recordings / "1.npy", "--label", "none", "--output", recordings / "o"]
        code, found, error = printed(capsys, "sensors", *flags)
        assert (code, found["error"]) == expected == (found["exit_code"], found["error"])
        assert error == f"error: {expected[1]}\n"


def test_the_object_has_the_bytes_of_names_and_no_credentials(tmp_path, capsys):
    code, found, error = printed(
        capsys, "images", "--input", f"{tmp_path}/\udce9.png", "--output", "o"
    )
    assert code == 2
    assert "/\udce9.png" in found["error"] and "\udce9" not in error
    secret = "s3://user:secret@bucket/x.png"
    _, found, error = printed(
        capsys, "images", "--input", secret, "--output", "o", "--append", "--seed", "x"
    )
    assert "secret" not in found["error"] + error
