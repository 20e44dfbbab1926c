"""One job at a time in an output directory: a note names the running job, which refreshes it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beam_jobs.dataset.directory import RUNNING, not_writable
from beam_jobs.errors import JobError, UsageError
from beam_jobs.storage.atomic import (
    STAGING,
    create_file,
    delete_files,
    drop_empty_directory,
    write_file,
)
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.paths import is_local
from readers.format.manifest import join

_REFRESH_SECONDS = 20

# A job on another machine that has not refreshed its note for so long was killed.
_DEAD_SECONDS = 120


@contextlib.contextmanager
def reserved(directory: str, job: str) -> Iterator[None]:
    """Keeps other jobs out of a directory while this one runs.

    Args:
        directory: The output directory, on any filesystem.
        job: The job's name, for the error of another job.

    Raises:
        UsageError: Another job is running there, or the directory cannot be written.
        DataError: The disk is full.
    """
    was_there = is_local(directory) and Path(directory).is_dir()
    note = {
        "id": uuid.uuid4().hex,
        "job": job,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    try:
        _take(directory, note)
    except OSError as error:
        raise not_writable(directory, error) from None
    ended = threading.Event()
    refresher = threading.Thread(target=_refresh, args=(directory, note, ended), daemon=True)
    refresher.start()
    try:
        yield
    finally:
        ended.set()
        refresher.join()
        _release(directory, note)
        drop_empty_directory(join(directory, STAGING))
        if not was_there:
            drop_empty_directory(directory)


def refuse_if_running(directory: str) -> None:
    """Refuses a directory in which another job is running.

    Raises:
        UsageError: Another job is running there.
    """
    first = _read(directory)
    if first and _is_alive(first):
        raise UsageError(
            f"--output {directory}: another job is writing here: {first['job']}, started at "
            f"{first['started']} as process {first['pid']} of {first['host']}; wait for it to end, or "
            f"name another directory"
        )


def _take(directory: str, note: dict[str, Any]) -> None:
    refuse_if_running(directory)
    data = _fresh(note)
    if not create_file(directory, RUNNING, data):
        refuse_if_running(directory)
        write_file(directory, RUNNING, data)  # The job that left its note was killed.
    # Another job may have done the same at this moment, and some stores ignore conditions.
    if (found := _read(directory)) and found["id"] != note["id"]:
        refuse_if_running(directory)


def _refresh(directory: str, note: dict[str, Any], ended: threading.Event) -> None:
    while not ended.wait(_REFRESH_SECONDS):
        with contextlib.suppress(OSError, JobError):
            write_file(directory, RUNNING, _fresh(note))


def _release(directory: str, note: dict[str, Any]) -> None:
    with contextlib.suppress(OSError, JobError):
        found = _read(directory)
        if found and found["id"] == note["id"]:
            delete_files([join(directory, RUNNING)])


def _fresh(note: dict[str, Any]) -> bytes:
    return json.dumps(note | {"refreshed": time.time()}).encode()


def _read(directory: str) -> dict[str, Any] | None:
    """The note of the job that runs in a directory, or that was killed there."""
    try:
        note = json.loads(read_bytes(join(directory, RUNNING)))
        wanted = ("id", "job", "host", "pid", "started", "refreshed")
        return {name: note[name] for name in wanted}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_alive(note: dict[str, Any]) -> bool:
    if time.time() - note["refreshed"] > _DEAD_SECONDS:
        return False
    return note["host"] != socket.gethostname() or _is_process(note["pid"])


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # A process of another user.
        pass
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # Not Linux.
        return True
    return state != "Z"  # Killed, though its parent has not noticed.
