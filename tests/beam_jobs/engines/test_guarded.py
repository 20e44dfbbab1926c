"""A library that crashes ends a process of its own, and the file becomes a reject."""

import os
import pickle
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from beam_jobs.engines.guarded import _none_started, guarded
from beam_jobs.errors import DataError, RejectError
from beam_jobs.jobs.sensors.formats.registry import read_recording
from beam_jobs.jobs.sensors.read_options import ReadOptions
from tests.support import guarded_calls as calls
from tests.support.checkout import ROOT

MIB = 1 << 20

# An HDF5 file in which a few bytes were changed: version 1.14 of the library crashes on it.
CRASHES = (ROOT / "tests/corpus/hostile/crashes_hdf5.h5").read_bytes()


@pytest.mark.parametrize("size", [0, 65, 3 * MIB])
def test_results_are_those_of_a_call_and_can_be_written(size):
    data = np.random.default_rng(size).bytes(size)
    found, text, empty = guarded(calls.shifted, data, 3, memory=64 * MIB)
    expected = calls.shifted(data, 3)
    np.testing.assert_array_equal(found["a"], expected[0]["a"])
    np.testing.assert_array_equal(found["b"], expected[0]["b"])
    assert (text, empty.shape, empty.dtype) == (expected[1], (0, 3), np.float32)
    for array in (*found.values(), empty):
        assert array.flags.writeable and array.flags.aligned
    kept = found["a"].copy()
    guarded(calls.shifted, bytes(size), 5, memory=64 * MIB)
    np.testing.assert_array_equal(found["a"], kept)  # The next call has memory of its own.


def test_a_default_timeout_of_sockets_changes_nothing():
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.01)
    try:
        found, _, _ = guarded(calls.shifted, bytes(9 * MIB), 3, memory=64 * MIB)
        assert found["a"].size == 9 * MIB
    finally:
        socket.setdefaulttimeout(before)


def test_the_answer_to_an_interrupted_call_is_not_that_to_the_next(monkeypatch):
    def interrupted(connection):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("beam_jobs.engines.guarded._receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            guarded(calls.allocate, b"", 7, memory=0)
    assert guarded(calls.allocate, b"", 8, memory=0) == 8


def test_one_process_answers_all_calls_and_it_is_another():
    pids = {guarded(calls.pid, b"", memory=0) for _ in range(5)}
    assert len(pids) == 1 and os.getpid() not in pids


def test_threads_are_answered_at_the_same_time_by_at_most_a_process_for_each_processor(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("beam_jobs.engines.guarded.processors", lambda: 2)
    monkeypatch.setattr("beam_jobs.engines.guarded._guards", guards := _none_started())
    name = str(tmp_path / "pids").encode()
    with ThreadPoolExecutor(5) as threads:
        found = list(threads.map(lambda _: guarded(calls.meet, name, 2, memory=0), range(5)))
    assert len(set(found)) == 2 and os.getpid() not in found
    for guard in (guards.get(), guards.get()):
        guard.kill()


@pytest.mark.parametrize("error", [RejectError("no"), KeyError("k")])
def test_errors_arrive(error):
    with pytest.raises(type(error), match=str(error.args[0])):
        guarded(calls.fail, b"", pickle.dumps(error), memory=0)
    assert guarded(calls.pid, b"", memory=0)


def test_a_crash_is_a_reject_after_a_second_try_and_the_next_call_is_answered(tmp_path):
    tries = tmp_path / "tries"
    with pytest.raises(RejectError, match=r"crashed twice \(SIGBUS\)"):
        guarded(calls.die, str(tries).encode(), signal.SIGBUS, 2, memory=0)
    assert tries.read_text() == "xx"
    assert guarded(calls.pid, b"", memory=0)


def test_one_crash_alone_is_no_reject(tmp_path):
    tries = tmp_path / "tries"
    assert guarded(calls.die, str(tries).encode(), signal.SIGKILL, 1, memory=0) == 2


def test_a_process_that_is_killed_twice_fails_the_job(tmp_path):
    with pytest.raises(DataError, match="killed twice, perhaps for lack of memory"):
        guarded(calls.die, str(tmp_path / "tries").encode(), signal.SIGKILL, 2, memory=0)


def test_a_process_that_cannot_start_states_why(tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho first >&2; echo 'no such library' >&2; exit 7")
    script.chmod(0o755)
    monkeypatch.setattr("beam_jobs.engines.guarded._guards", _none_started())
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(DataError, match="ended with exit code 7: no such library"):
        guarded(calls.pid, b"", memory=0)


def test_memory_is_bounded():
    assert guarded(calls.allocate, b"", 1024 * MIB, memory=1024 * MIB) == 1024 * MIB
    with pytest.raises(MemoryError):
        guarded(calls.allocate, b"", 2048 * MIB, memory=512 * MIB)
    assert guarded(calls.allocate, b"", 2048 * MIB, memory=2048 * MIB) == 2048 * MIB


def test_a_forked_process_has_a_guard_of_its_own():
    before = guarded(calls.pid, b"", memory=0)
    assert calls.in_a_fork(lambda: guarded(calls.pid, b"", memory=0)) != before
    assert guarded(calls.pid, b"", memory=0) == before


def test_a_file_that_crashes_hdf5_is_a_reject():
    with pytest.raises(RejectError, match="the library that reads it crashed twice"):
        read_recording("a.h5", CRASHES, ReadOptions())


def test_a_job_error_names_the_file_whose_process_was_killed(monkeypatch):
    def killed(*arguments, memory):
        raise DataError("killed twice")

    monkeypatch.setattr("beam_jobs.engines.guarded.guarded", killed)
    with pytest.raises(DataError, match=r"^folder/a\.h5: killed twice$"):
        read_recording("folder/a.h5", CRASHES, ReadOptions())
