"""A function over inputs: a call that was killed continues, with the bytes of one that was not."""

import importlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from beam_jobs import DataError, Feature, Schema, UsageError, write
from beam_jobs.writing.inputs import _TASKS
from tests.beam_jobs.writing.test_write import contents
from tests.support.checkout import ROOT
from tests.support.datasets import records_of, rejects_of

SCHEMA = Schema({"n": Feature("int64"), "text": Feature("string"), "key": Feature("string")})
INPUTS = 10_000

PROGRAM = f"""
from beam_jobs import Feature, Schema, write
from beam_jobs.writing import inputs

inputs._SECONDS = 0  # So that tasks have the least size, however fast this machine is.

def function(n):
    with open("calls", "ab", 0) as calls:
        calls.write(b"%d\\n" % n)
    if n % 1000 == 7:
        raise ValueError("seven")
    for k in range(n % 3):
        yield {{"n": n * k, "text": f"{{n}} {{k}}" * (n % 7)}}

if __name__ == "__main__":
    names = {{"n": "int64", "text": "string", "key": "string"}}
    schema = Schema({{name: Feature(dtype) for name, dtype in names.items()}})
    rest = {{"num_shards": 5, "max_rejects": 20, "processes": 2, "seed": 4}}
    write(function, "out", schema, inputs=range({INPUTS}), **rest)
"""


def calls_in(folder):
    path = folder / "calls"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def start(folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "program.py"]
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)


def test_killed_calls_continue_and_end_with_the_same_bytes(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
    assert start(whole).wait() == 0
    assert calls_in(whole) == INPUTS
    noise = random.Random(5)
    for kill in (os.killpg, os.kill, os.killpg, os.killpg):  # The parent, or with its processes.
        process, before = start(killed), calls_in(killed)
        goal = before + noise.randrange(1, 2500)
        while calls_in(killed) < goal and process.poll() is None:
            time.sleep(0.002)
        kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (killed / "out" / "manifest.json").exists()
    process = start(killed)
    assert process.wait() == 0
    assert contents(killed / "out") == contents(whole / "out")
    # Each kill costs two tasks at most. The ten tasks with a reject are done again each time.
    task = INPUTS // _TASKS
    assert INPUTS < calls_in(killed) <= INPUTS + 4 * (2 + 10) * task
    assert len(rejects_of(whole / "out")) == 10
    assert len(records_of(whole / "out", seed=4)) == sum(n % 3 for n in range(INPUTS)) - 10


MODULE = """
calls = []

def function(path):
    calls.append(path.name)
    return {"n": int(path.read_text()), "text": "first"}
"""


@pytest.fixture
def unfinished(tmp_path, monkeypatch):
    """A function that writes the same dataset again, after a first call that failed at its end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "function_of_path.py").write_text(MODULE)
    sys.modules.pop("function_of_path", None)
    module = importlib.import_module("function_of_path")
    inputs = [tmp_path / f"{n}.txt" for n in range(2 * _TASKS)]
    for n, path in enumerate(inputs):
        path.write_text(str(n))

    def again(some=inputs):
        importlib.invalidate_caches()
        importlib.reload(module).calls.clear()
        key = {"key": lambda_free_key}
        write(module.function, tmp_path / "out", SCHEMA, inputs=some, processes=1, **key)
        return module.calls

    monkeypatch.setattr("beam_jobs.writing.inputs._SECONDS", 0)
    with monkeypatch.context() as patch, pytest.raises(DataError, match="disk"):
        patch.setattr("beam_jobs.writing.write.complete", fails)
        again()
    assert len(module.calls) == len(inputs)
    again.inputs = inputs
    return again


def lambda_free_key(record):
    return f"k{record['n']}"


def fails(*_):
    raise DataError("the disk is full")


def test_finished_inputs_are_not_done_again(unfinished, tmp_path):
    assert unfinished() == []
    assert len(records_of(tmp_path / "out")) == 2 * _TASKS
    assert not (tmp_path / "out" / ".staging").exists()


def test_an_input_whose_file_has_changed_is_done_again(unfinished, tmp_path):
    (tmp_path / "5.txt").write_text("-55")
    assert unfinished() == ["4.txt", "5.txt"]
    assert int(records_of(tmp_path / "out")["k-55"]["n"]) == -55


@pytest.mark.parametrize(("first", "stop", "kept"), [(0, 7, 6), (0, 4, 4), (1, 2 * _TASKS, 0)])
def test_a_call_with_other_inputs_keeps_the_tasks_that_are_the_same(
    unfinished, tmp_path, first, stop, kept
):
    inputs = unfinished.inputs[first:stop]
    assert unfinished(inputs) == [path.name for path in inputs[kept:]]
    assert len(records_of(tmp_path / "out")) == len(inputs)


def test_all_inputs_are_done_again_if_the_function_has_changed(unfinished, tmp_path):
    (tmp_path / "function_of_path.py").write_text(MODULE.replace("first", "second"))
    assert len(unfinished()) == 2 * _TASKS
    assert records_of(tmp_path / "out")["k7"]["text"].item() == b"second"


@pytest.mark.parametrize("damage", ["cut", "flip", "unlink", "note"])
def test_inputs_with_damaged_records_are_done_again(unfinished, tmp_path, damage):
    (run,) = (tmp_path / "out" / ".staging").iterdir()
    notes = sorted(run.glob("inputs.*"))
    path = notes[0] if damage == "note" else sorted(run.glob("records.*"))[0]
    assert len(notes) == _TASKS
    data = path.read_bytes()
    if damage == "unlink":
        path.unlink()
    elif damage == "flip":
        at = random.Random(1).randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])
    else:
        path.write_bytes(data[: len(data) // 2])
    assert len(unfinished()) == 2
    assert len(records_of(tmp_path / "out")) == 2 * _TASKS


def numbered(n):
    return f"k{n}", {"n": n, "text": "appended"}


def test_a_repeated_append_compares_its_keys_again(tmp_path):
    write(map(numbered, range(0, 50, 7)), tmp_path, SCHEMA)
    how = {"append": True, "inputs": range(20), "processes": 1}
    for _ in range(2):
        with pytest.raises(UsageError, match="the dataset has 3 of these keys, such as k0"):
            write(numbered, tmp_path, SCHEMA, **how)
    manifest = write(numbered, tmp_path, SCHEMA, existing="skip", **how)
    assert manifest.splits["train"].duplicates == 3
    assert len(records_of(tmp_path)) == 8 + 17
