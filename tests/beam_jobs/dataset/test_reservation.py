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
from beam_jobs.errors import UsageError
from beam_jobs.storage.atomic import list_files, write_file


def note(**fields):
    first = {
        "id": "first",
        "job": "text",
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "started": "2026-01-02 03:04:05",
        "refreshed": time.time(),
    }
    return json.dumps(first | fields).encode()


@pytest.fixture(params=["disk", "s3", "gcs"])
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


def test_nothing_but_the_note_is_removed(tmp_path):
    with reservation.reserved(str(tmp_path), "images"):
        assert len(list_files(str(tmp_path))) == 1
    assert tmp_path.is_dir() and not list(tmp_path.iterdir())
    (tmp_path / ".staging").mkdir()
    (tmp_path / ".staging/shard.done").touch()
    with reservation.reserved(str(tmp_path), "images"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == [".staging", "shard.done"]


def test_a_killed_process_that_nobody_waited_for_keeps_nobody_out(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    write_file(str(tmp_path), RUNNING, note(pid=process.pid))
    reservation.refuse_if_running(str(tmp_path))
    process.wait()


@pytest.mark.parametrize(
    "left",
    [
        lambda: note(pid=dead_process()),
        lambda: note(host="elsewhere", refreshed=time.time() - 1000),
        lambda: b"",
        lambda: b"[]",
        lambda: b'{"id": "first"}',
    ],
)
def test_the_note_of_a_killed_job_keeps_nobody_out(store_or_disk, left):
    write_file(store_or_disk, RUNNING, left())
    with reservation.reserved(store_or_disk, "images"):
        pass
    assert list_files(store_or_disk) == []


def test_a_job_on_another_machine_is_left_alone(store_or_disk):
    write_file(store_or_disk, RUNNING, note(host="elsewhere", pid=1))
    with (
        pytest.raises(UsageError, match="as process 1 of elsewhere"),
        reservation.reserved(store_or_disk, "images"),
    ):
        pass
    assert len(list_files(store_or_disk)) == 1


# The emulator of Google's store ignores conditions.
@pytest.mark.parametrize("store_or_disk", ["disk", "s3"], indirect=True)
def test_of_many_jobs_that_begin_together_one_runs(store_or_disk):
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


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match="cannot be written"),
        reservation.reserved(f"{tmp_path}/file/out", "images"),
    ):
        pass
