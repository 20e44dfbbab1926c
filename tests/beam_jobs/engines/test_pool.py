"""Pools of processes: results, failures, and killed processes."""

import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing

import numpy as np
import pytest

from beam_jobs import progress
from beam_jobs.engines.pool import Pool, close_shared_pools, shared_pool
from beam_jobs.errors import DataError, RejectError
from tests.engines.services import is_alive
from tests.support import tasks
from tests.support.checkout import ROOT

# No test may hang if one of these processes does.
SECONDS = 60


@pytest.fixture
def pool():
    with closing(Pool(2)) as opened:
        yield opened


def done(futures: list[Future]) -> None:
    assert not wait(futures, SECONDS).not_done, "a future hangs"


def pids_of(pool: Pool) -> set[int]:
    return set(pool.each(os.getpid))


def gone(pids: set[int]) -> bool:
    """Whether processes end within `SECONDS`."""
    end = time.monotonic() + SECONDS
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


@pytest.mark.parametrize(("processes", "count"), [(1, 5), (2, 0), (3, 30)])
def test_results_come_back_in_the_order_of_the_tasks(processes, count):
    given = [((9 - n) % 10 / 500, n) for n in range(count)]
    with closing(Pool(processes)) as pool:
        assert list(pool.map(tasks.echo_after, given)) == list(range(count))


def test_with_one_process_tasks_run_in_this_one_immediately():
    pool = Pool(1)
    drawn = []

    def drawing():
        for n in range(5):
            drawn.append(n)
            yield 0.0, n

    for n, value in enumerate(pool.map(tasks.echo_after, drawing())):
        assert value == n
        assert drawn == list(range(n + 1))
    assert pool.submit(tasks.pid_after, 0).result(0) == os.getpid()


def test_progress_in_the_processes_is_that_of_the_job(pool):
    shown = io.StringIO()
    with progress.display(shown, 0, 0):
        progress.expect("writing", 60, "records")
        done([pool.submit(tasks.advances, n) for n in range(4)])
    last = shown.getvalue().splitlines()[-1]
    assert last.startswith("writing: 60 of 60 records") and last.endswith(", 6 rejected")


def test_the_processes_never_import_beam(pool):
    modules = pool.submit(tasks.loaded_modules).result(SECONDS)
    assert "beam_jobs" in modules
    assert not modules & {"apache_beam", "tensorflow", "grpc"}


def test_threads_may_share_a_pool(pool):
    def run(base: int) -> list[int]:
        return list(pool.map(tasks.doubled, ((base + n,) for n in range(50))))

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(run, range(0, 600, 100)))
    assert found == [[2 * (base + n) for n in range(50)] for base in range(0, 600, 100)]


# Tasks that run ahead.


def test_few_tasks_run_ahead_of_a_result():
    processes = 3
    pool = Pool(processes)
    drawn = 0

    def drawing():
        nonlocal drawn
        for n in range(60):
            drawn += 1
            yield 0.0, n

    for n, _ in enumerate(pool.map(tasks.echo_after, drawing())):
        # Enough that no process idles, few enough that memory is bounded.
        assert min(60, n + 1 + processes) <= drawn <= n + 1 + 3 * processes
    pool.close()


# Failures.


@pytest.mark.parametrize("processes", [1, 2])
def test_an_exception_arrives_as_it_was_raised(processes):
    with closing(Pool(processes)) as pool:
        for kind, expected in tasks.ERRORS.items():
            with pytest.raises(type(expected)) as caught:
                pool.submit(tasks.fail, kind).result(SECONDS)
            assert type(caught.value) is type(expected)
            assert caught.value.args == expected.args
            assert vars(caught.value) == vars(expected)


@pytest.mark.parametrize(
    ("function", "text"),
    [(tasks.fail_unpicklably, "nobody can pickle me"), (tasks.fail_one_way, "one way 3")],
)
def test_an_exception_that_cannot_be_pickled_arrives_as_the_text_of_its_traceback(
    pool, function, text
):
    with pytest.raises(RuntimeError, match=text) as caught:
        pool.submit(function).result(SECONDS)
    assert f"in {function.__name__}" in str(caught.value)
    pickle.loads(pickle.dumps(caught.value))


def test_a_failed_task_does_not_end_the_others(pool):
    futures = [
        pool.submit(*(tasks.fail, "reject") if n % 3 == 1 else (tasks.doubled, n))
        for n in range(30)
    ]
    done(futures)
    for n, future in enumerate(futures):
        if n % 3 == 1:
            assert isinstance(future.exception(), RejectError)
        else:
            assert future.result() == 2 * n


def killed(future: Future) -> bool:
    error = future.exception(SECONDS)
    if error is None:
        return False
    assert isinstance(error, DataError)
    assert "a process that loads records was killed" in error.message
    assert "Run the same command again: it keeps the shards that are done" in error.message
    return True


@pytest.mark.parametrize(
    ("function", "argument"),
    [(tasks.die, None), (tasks.die_while_sending, 1 << 24)],
    ids=["at work", "while sending"],
)
def test_a_killed_process_fails_all_waiting_tasks_and_nothing_hangs(function, argument):
    pool = Pool(2)
    before = [pool.submit(tasks.doubled, n) for n in range(5)]
    done(before)
    futures = [pool.submit(tasks.echo_after, 0.1, 0), pool.submit(function, argument)]
    # Long enough that the other process does not finish them all before this one is dead.
    futures += [pool.submit(tasks.echo_after, 0.5, n) for n in range(60)]
    done(futures)
    assert [f.result() for f in before] == [0, 2, 4, 6, 8]
    assert killed(futures[1]) and killed(futures[-1])
    # All later tasks fail, too.
    later = [pool.submit(tasks.doubled, n) for n in range(9)]
    done(later)
    assert all(map(killed, later))
    with pytest.raises(DataError):
        list(pool.map(tasks.doubled, [(1,)]))
    pool.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_task_or_a_result_that_cannot_be_pickled_fails_instead_of_hanging(pool):
    future = pool.submit(tasks.doubled, threading.Lock())
    assert isinstance(future.exception(SECONDS), TypeError)
    assert pool.submit(threading.Lock).exception(SECONDS) is not None
    assert pool.submit(tasks.doubled, 3).result(SECONDS) == 6


# Closing.


def test_closing_ends_the_processes_and_the_threads():
    before = set(threading.enumerate())
    pool = Pool(2)
    pids = pids_of(pool)
    pool.close()
    assert gone(pids)
    assert set(threading.enumerate()) <= before
    pool.close()
    assert killed(pool.submit(tasks.doubled, 3))


def test_closing_ends_running_tasks_and_fails_waiting_ones(tmp_path):
    pool = Pool(2)
    paths, never = [f"{tmp_path}/{n}" for n in range(2)], tmp_path / "never"
    futures = [pool.submit(tasks.touch_and_wait, path, str(never)) for path in paths]
    while not all(map(os.path.exists, paths)):  # They have begun.
        time.sleep(0.01)
    futures += [pool.submit(tasks.doubled, n) for n in range(10)]
    pool.close()
    assert all(future.done() for future in futures)
    assert all(map(killed, futures))


def test_processes_leave_ctrl_c_to_their_parent(pool):
    pids = pids_of(pool)
    busy = [pool.submit(tasks.echo_after, 0.1, n) for n in range(2)]
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    assert [future.result(SECONDS) for future in busy] == [0, 1]
    assert pids_of(pool) == pids


PARENT = """
import os, sys, time
from multiprocessing import forkserver
from beam_jobs import progress
from beam_jobs.engines.pool import Pool
from tests.support import tasks

if __name__ == "__main__":
    pool = Pool(2)
    pids = pool.each(os.getpid)
    traces, end = sys.argv[1:]
    futures = [pool.submit(tasks.touch_and_wait, f"{traces}/{n}", end) for n in range(9)]
    while len(os.listdir(traces)) < 2:
        time.sleep(0.01)
    print(*pids, forkserver._forkserver._forkserver_pid, flush=True)
    time.sleep(100)
"""


def test_no_process_outlives_a_parent_that_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    traces = tmp_path / "traces"
    traces.mkdir()
    root = str(ROOT)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py"), str(traces), str(tmp_path / "end")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
        text=True,
    )
    with parent:
        pids = set(map(int, parent.stdout.readline().split()))
        assert len(pids) == 3 and all(map(is_alive, pids))
        parent.kill()
        parent.wait()
        (tmp_path / "end").touch()
        assert gone(pids)
        assert parent.stderr.read() == ""
    # No task has begun after those two.
    assert sorted(path.name for path in traces.iterdir()) == ["0", "1"]


# Shared pools.


def test_processes_start_if_the_folder_for_temporary_files_has_a_long_path(tmp_path):
    folder = tmp_path / ("x" * 60) / ("y" * 60)
    folder.mkdir(parents=True)
    code = (
        "import tempfile; from beam_jobs.engines.pool import Pool; pool = Pool(2); "
        "print(pool.submit(abs, -1).result(), tempfile.gettempdir()); pool.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"1 {folder}\n", done.stderr
    assert not os.listdir(folder)


def test_a_pool_is_shared_until_it_is_closed():
    close_shared_pools()
    one, two = shared_pool(1), shared_pool(2)
    assert shared_pool(2) is two and shared_pool(1) is one is not two
    pids = pids_of(two)
    close_shared_pools()
    assert gone(pids)
    again = shared_pool(2)
    assert again is not two
    assert not pids_of(again) & pids
    close_shared_pools()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGSEGV, "crashed while it read 'a/ü\\\\xff.png' (SIGSEGV)"),
        (
            signal.SIGKILL,
            "was killed while it read 'a/ü\\\\xff.png', perhaps for lack of memory",
        ),
    ],
)
def test_the_error_names_the_input_that_a_killed_process_read(number, expected):
    pool = Pool(2)
    done([pool.submit(tasks.doubled, n) for n in range(4)])
    waiting = [pool.submit(tasks.die_reading, "a/ü\udcff.png", number)]
    waiting += [pool.submit(tasks.doubled, n) for n in range(30)]
    errors = [str(future.exception(SECONDS)) for future in waiting if future.exception(SECONDS)]
    assert errors and all(expected in error for error in errors)
    pool.close()


def test_what_jobs_hand_to_the_processes_never_imports_beam(tmp_path):
    """A process would import it for a second before its first task."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("some text")
    np.save(tmp_path / "in" / "a.npy", np.zeros((3, 2), np.float32))
    code = """if __name__ == "__main__":
    import sys
    from beam_jobs.engines import launch
    from beam_jobs.__main__ import main
    from beam_jobs.pipeline.steps import loading_pool
    from tests.support import tasks

    def shown():
        found = loading_pool(2).each(tasks.loaded_modules)
        print(*({"apache_beam", "tensorflow"} & set.union(*found)))
        close()

    close, launch.close_shared_pools = launch.close_shared_pools, shown
    main(sys.argv[1:])
"""
    (tmp_path / "job.py").write_text(code)
    for kind, pattern in (("text", "*.txt"), ("sensors", "*.npy")):
        flags = [kind, "--input", str(tmp_path / "in" / pattern), "--label", "none"]
        flags += ["--output", str(tmp_path / kind), "--direct_num_workers", "2"]
        done = subprocess.run(
            [sys.executable, str(tmp_path / "job.py"), *flags],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == ""
