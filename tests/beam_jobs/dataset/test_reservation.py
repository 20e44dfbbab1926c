import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from beam_jobs.dataset import reservation
from beam_jobs.dataset.directory import RUNNING
from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage.atomic import create_file, list_files, write_file


def note(**fields):
    """The note of a job that runs in this process, but for some fields."""
    made = reservation._Note.of_this_process("text")
    return made._replace(started="2026-01-02 03:04:05", id="first")._replace(**fields).to_bytes()


def elsewhere(**fields):
    return note(host="elsewhere", machine="another boot", **fields)


AZURE = pytest.param("azure", marks=pytest.mark.azurite)


@pytest.fixture(params=["disk", "s3", "gcs", AZURE])
def store_or_disk(request, tmp_path):
    if request.param == "disk":
        return f"{tmp_path}/out"
    return f"{request.getfixturevalue(request.param).url}/out"


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_job_is_refused_in_one_line_that_names_the_first(tmp_path):
    out = str(tmp_path / "out")
    with reservation.reserved(out, "images"):
        for refuse in (
            reservation.refuse_if_running,
            lambda o: reservation.reserved(o, "x").__enter__(),
        ):
            with pytest.raises(UsageError) as caught:
                refuse(out)
            assert "images, started at 2" in caught.value.message
            assert f"process {os.getpid()} of" in caught.value.message
            assert "\n" not in caught.value.message
    reservation.refuse_if_running(out)
    assert not (tmp_path / "out").exists()


def test_a_killed_process_that_nobody_waited_for_keeps_nobody_out(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    began = Path(f"/proc/{process.pid}/stat").read_text().split()[21]
    write_file(str(tmp_path), RUNNING, note(pid=process.pid, began=began))
    reservation.refuse_if_running(str(tmp_path))
    process.wait()


DEAD = {
    "process": lambda: note(pid=dead_process(), began="1"),
    "number of another process": lambda: note(pid=1, began="1"),
    "machine": lambda: elsewhere(refreshed=time.time() - 1000),
    "machine whose clock was ahead": lambda: elsewhere(refreshed=time.time() + 1000),
    "empty": lambda: b"",
    "not a note": lambda: b"[]",
    "lists in lists": lambda: b"[" * 100_000,
    "half a note": lambda: b'{"id": "first"}',
    "a path as its name": lambda: elsewhere(id="../../x"),
    "huge": lambda: note(pid=10**30),
}


@pytest.mark.parametrize("left", DEAD.values(), ids=DEAD)
def test_the_note_of_a_killed_job_keeps_nobody_out(tmp_path, left):
    out = str(tmp_path)
    write_file(out, RUNNING, left())
    with reservation.reserved(out, "images"):
        with pytest.raises(UsageError, match="another job is writing here: images"):
            reservation.refuse_if_running(out)
        assert len(list_files(out)) == 2
    assert list_files(out) == []


def test_notes_of_several_killed_jobs_are_followed_and_deleted(store_or_disk):
    write_file(store_or_disk, RUNNING, elsewhere(id="a", refreshed=0))
    write_file(store_or_disk, f"{RUNNING}.a", elsewhere(id="b", refreshed=0))
    with reservation.reserved(store_or_disk, "images"):
        assert len(list_files(store_or_disk)) == 3
        with pytest.raises(UsageError, match="another job is writing here: images"):
            reservation.refuse_if_running(store_or_disk)
    assert list_files(store_or_disk) == []


def test_a_job_on_another_machine_is_left_alone(store_or_disk):
    write_file(store_or_disk, RUNNING, elsewhere(pid=1))
    with (
        pytest.raises(UsageError, match="as process 1 of elsewhere"),
        reservation.reserved(store_or_disk, "images"),
    ):
        pass
    assert len(list_files(store_or_disk)) == 1


def test_a_job_of_this_machine_is_left_alone_even_if_it_was_stopped_for_long(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = Path(f"/proc/{process.pid}/stat").read_text().split()[21]
    write_file(str(tmp_path), RUNNING, note(pid=process.pid, began=began, refreshed=0))
    with pytest.raises(UsageError, match=f"as process {process.pid} of"):
        reservation.refuse_if_running(str(tmp_path))
    process.communicate(b"\n")
    reservation.refuse_if_running(str(tmp_path))


def test_a_job_whose_first_request_was_answered_too_late_finds_its_own_note(tmp_path, monkeypatch):
    def answered_late(*arguments):
        create_file(*arguments)
        return False  # of the retry

    monkeypatch.setattr(reservation, "create_file", answered_late)
    with reservation.reserved(str(tmp_path), "images"):
        pass
    assert list_files(str(tmp_path)) == []


def test_a_disk_without_hard_links_has_notes_too(tmp_path, monkeypatch):
    def refuses(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuses)
    with reservation.reserved(str(tmp_path), "images"):
        with pytest.raises(UsageError, match="images, started at"):
            reservation.refuse_if_running(str(tmp_path))
        assert len(list_files(str(tmp_path))) == 1
    assert list_files(str(tmp_path)) == []


def test_a_job_that_was_taken_for_dead_ends_and_leaves_the_other_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(reservation, "_REFRESH_SECONDS", 0.01)
    out = str(tmp_path)
    with (
        pytest.raises(DataError, match="another job took the directory"),
        reservation.reserved(out, "images"),
    ):
        (running,) = list_files(out)
        own = json.loads(Path(running.path).read_bytes())["id"]
        write_file(out, f"{RUNNING}.{own}", elsewhere())
        time.sleep(30)
    assert len(list_files(out)) == 2


# The emulator of Google's store ignores conditions.
@pytest.mark.parametrize("store_or_disk", ["disk", "s3", AZURE], indirect=True)
def test_of_many_jobs_that_begin_together_one_runs(store_or_disk):
    write_file(store_or_disk, RUNNING, elsewhere(refreshed=0))
    began, refused = [], []
    start, end = threading.Barrier(6), threading.Barrier(6)

    def job():
        start.wait()
        try:
            with reservation.reserved(store_or_disk, "images"):
                began.append(1)
                end.wait()
        except UsageError:
            refused.append(1)
            end.wait()

    threads = [threading.Thread(target=job) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(began), len(refused)) == (1, 5)
    assert list_files(store_or_disk) == []


def test_a_running_job_refreshes_its_note(tmp_path, monkeypatch):
    monkeypatch.setattr(reservation, "_REFRESH_SECONDS", 0.01)
    with reservation.reserved(str(tmp_path), "images"):
        before = (tmp_path / RUNNING).read_bytes()
        while (tmp_path / RUNNING).read_bytes() == before:
            time.sleep(0.01)
    assert not list(tmp_path.iterdir())
