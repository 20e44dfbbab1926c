"""Starting and stopping the processes of an engine."""

import os
import signal
import sys
import time

import pytest

from tests.engines.services import EngineError, Service, is_alive, pids, start, stop

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    stop(tmp_path)


def services(*names):
    return [Service(name, SLEEPS, lambda: True) for name in names]


def test_what_is_dead_is_started_again_and_the_rest_goes_on(folder):
    assert start(folder, services("one", "two")) == ["one", "two"]
    before = pids(folder)
    os.kill(before["two"], signal.SIGKILL)
    while is_alive(before["two"]):
        time.sleep(0.01)
    assert start(folder, services("one", "two")) == ["two"]
    after = pids(folder)
    assert after["one"] == before["one"] and after["two"] != before["two"]
    assert start(folder, services("one", "two")) == []
    assert stop(folder) == ["two", "one"] and pids(folder) == {}


def test_what_does_not_start_ends_nothing_that_runs(folder):
    start(folder, services("one"))
    before = pids(folder)
    ends = Service("two", [sys.executable, "-c", "print('no memory')"], lambda: False)
    with pytest.raises(EngineError, match=r"two ended; the end of .*\nno memory$"):
        start(folder, [*services("one"), ends])
    assert pids(folder) == before
