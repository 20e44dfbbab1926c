"""Leases: who is at work in a directory, which a second command learns early."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from beam_jobs.dataset import lease
from beam_jobs.dataset.lease import Lease, is_busy, leased, note_remote, refuse_if_busy
from beam_jobs.dataset.output import Output
from beam_jobs.errors import UsageError
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.storage.atomic import list_files, write_file
from readers.format.schema import Schema

NAME = ".staging/first/lease"


def output_of(directory, run="second"):
    return Output(
        str(directory), Schema({"x": ("int64", ())}), Placement(0, Splits()), (1,), run=run
    )


def leave(directory, content=b"", **fields):
    """Writes the lease of another run, which says the same as this process but for some fields."""
    if fields:
        made = Lease.of_this_process("first", "text")._replace(**{"started": 1.0, **fields})
        content = lease.json.dumps(made).encode()
    write_file(f"{directory}/{NAME}", content, f"{directory}/.staging/first")


ELSEWHERE = {"host": "elsewhere", "machine": "another boot"}


@pytest.fixture(params=["disk", "s3", "gcs", pytest.param("azure", marks=pytest.mark.azurite)])
def store_or_disk(request, tmp_path):
    if request.param == "disk":
        return f"{tmp_path}/out"
    return f"{request.getfixturevalue(request.param).url}/out"


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_job_is_refused_in_one_line_that_names_the_first(tmp_path):
    out = tmp_path / "out"
    with leased(output_of(out, "first"), "images", keeps=False):
        for refuse in (
            refuse_if_busy,
            lambda o: leased(output_of(o), "x", keeps=False).__enter__(),
        ):
            with pytest.raises(UsageError) as caught:
                refuse(str(out))
            assert "images, started at 2" in caught.value.message
            assert f"process {os.getpid()} of" in caught.value.message
            assert "\n" not in caught.value.message
        assert [file.path for file in list_files(str(out))] == [f"{out}/{NAME}"]
    refuse_if_busy(str(out))
    assert not out.exists()


def test_a_killed_process_that_nobody_waited_for_keeps_nobody_out(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    began = Path(f"/proc/{process.pid}/stat").read_text().split()[21]
    leave(tmp_path, pid=process.pid, began=began)
    refuse_if_busy(str(tmp_path))
    process.wait()


DEAD = {
    "process": lambda: {"pid": dead_process(), "began": "1"},
    "number of another process": lambda: {"pid": 1, "began": "1"},
    "machine": lambda: {**ELSEWHERE, "renewed": time.time() - 1000},
    "machine whose clock was ahead": lambda: {**ELSEWHERE, "renewed": time.time() + 1000},
    "empty": lambda: {"content": b""},
    "no lease": lambda: {"content": b"{}"},
    "lists in lists": lambda: {"content": b"[" * 100_000},
    "half a lease": lambda: {"content": b'["first", 1'},
    "huge": lambda: {"pid": 10**30},
}


@pytest.mark.parametrize("left", DEAD.values(), ids=DEAD)
def test_what_a_killed_run_left_keeps_nobody_out_and_is_deleted(tmp_path, left):
    leave(tmp_path, **left())
    (tmp_path / ".staging/first/records.1").write_bytes(b"x")
    with leased(output_of(tmp_path), "images", keeps=False):
        with pytest.raises(UsageError, match="another job is writing here: images"):
            refuse_if_busy(str(tmp_path))
        assert len(list_files(str(tmp_path))) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_another_machine_is_left_alone(store_or_disk):
    leave(store_or_disk, pid=1, **ELSEWHERE)
    with (
        pytest.raises(UsageError, match="as process 1 of elsewhere"),
        leased(output_of(store_or_disk), "images", keeps=False),
    ):
        pass
    assert len(list_files(store_or_disk)) == 1


def test_a_run_leaves_nothing_in_a_store_or_on_a_disk(store_or_disk):
    leave(store_or_disk, **ELSEWHERE, renewed=0.0)
    with leased(output_of(store_or_disk), "images", keeps=False):
        assert len(list_files(store_or_disk)) == 1
        write_file(f"{store_or_disk}/.staging/second/x", b"", f"{store_or_disk}/.staging/second")
    assert list_files(store_or_disk) == []


def test_a_process_of_this_machine_is_left_alone_even_if_it_was_stopped_for_long(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = Path(f"/proc/{process.pid}/stat").read_text().split()[21]
    leave(tmp_path, pid=process.pid, began=began, renewed=0.0)
    with pytest.raises(UsageError, match=f"as process {process.pid} of"):
        refuse_if_busy(str(tmp_path))
    process.communicate(b"\n")
    refuse_if_busy(str(tmp_path))


def test_of_two_runs_that_begin_in_one_moment_the_first_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "refuse_if_busy", lambda _: None)  # Neither saw the other.
    with leased(output_of(tmp_path, "first"), "images", keeps=False):
        with (
            pytest.raises(UsageError, match="another job is writing here: images"),
            leased(output_of(tmp_path), "text", keeps=False),
        ):
            pass
        assert is_busy(str(tmp_path))
    leave(tmp_path, **{**ELSEWHERE, "started": time.time() + 100})
    with leased(output_of(tmp_path), "images", keeps=False):
        assert is_busy(str(tmp_path), "second")


def test_of_many_runs_that_begin_together_at_least_one_continues(tmp_path):
    began, refused, wrong = [], [], []
    start, end = threading.Barrier(6), threading.Barrier(6)

    def job(number):
        start.wait()
        try:
            with leased(output_of(tmp_path, str(number)), "images", keeps=False):
                began.append(number)
                end.wait()
        except UsageError:
            refused.append(number)
            end.wait()
        except BaseException as error:
            wrong.append(error)
            end.abort()

    threads = [threading.Thread(target=job, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(began) >= 1
    assert len(began) + len(refused) == 6
    assert list_files(str(tmp_path)) == []


def test_a_lease_is_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "_RENEWED_SECONDS", 0.01)
    with leased(output_of(tmp_path, "first"), "images", keeps=False):
        before = (tmp_path / NAME).read_bytes()
        while (tmp_path / NAME).read_bytes() == before:
            time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_goes_on_without_its_command_keeps_its_files(tmp_path):
    with leased(output_of(tmp_path, "first"), "images", keeps=True):
        note_remote(output_of(tmp_path, "first"), b"no job that can be asked")
    assert [path.name for path in (tmp_path / ".staging/first").iterdir()] == ["job"]
    refuse_if_busy(str(tmp_path))
