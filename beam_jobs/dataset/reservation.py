"""One job at a time in an output directory: a note names the running job, which refreshes it.

No note replaces another one. That of a killed job stays until a later job ends well: its successor
creates a note whose name follows from it, and of several successors one creates it first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from beam_jobs.dataset.directory import RUNNING, not_writable
from beam_jobs.errors import DataError, JobError, UsageError
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

_ID = re.compile(r"\w{1,64}")


class _Note(NamedTuple):
    """What the note of a job states.

    Attributes:
        id: A name that no other note has.
        job: The job's name.
        host: The machine, for people.
        machine: Where process numbers mean the same; see `_machine`.
        pid, began: The process, and when it began in the words of the system; see `_beginning`.
        started: When the job started, for people.
        refreshed: Seconds since 1970.
    """

    id: str
    job: str
    host: str
    machine: str
    pid: int
    began: str
    started: str
    refreshed: float

    @classmethod
    def of_this_process(cls, job: str) -> _Note:
        return cls(
            id=uuid.uuid4().hex,
            job=job,
            host=socket.gethostname(),
            machine=_machine(),
            pid=os.getpid(),
            began=_beginning(os.getpid()),
            started=time.strftime("%Y-%m-%d %H:%M:%S"),
            refreshed=time.time(),
        )

    @classmethod
    def parse(cls, data: bytes) -> _Note | None:
        """Returns None for anything but a note."""
        try:
            note = cls(**json.loads(data))
        except (ValueError, TypeError, RecursionError):
            return None
        texts = (note.id, note.job, note.host, note.machine, note.began, note.started)
        numbers = (note.pid, note.refreshed)
        fits = all(isinstance(text, str) for text in texts) and _ID.fullmatch(note.id)
        return note if fits and all(isinstance(n, int | float) for n in numbers) else None

    def to_bytes(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    def is_alive(self) -> bool:
        """Whether the job runs, as far as this process can know."""
        if self.machine == _machine() and self.pid != os.getpid():
            return bool(self.began) and _beginning(self.pid) == self.began
        return abs(time.time() - self.refreshed) <= _DEAD_SECONDS


def _machine() -> str:
    """Names the processes that a process number may mean: a boot of a machine, or a container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # Not Linux.
        return socket.gethostname()


def _beginning(pid: int) -> str:
    """When a process began, in the words of the system; empty if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]  # Killed, though its parent has not noticed.
    except (OSError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return ""
    except OSError:  # A process of another user.
        pass
    return "unknown"


@contextlib.contextmanager
def reserved(directory: str, job: str) -> Iterator[None]:
    """Keeps other jobs out of a directory while this one runs.

    Args:
        directory: The output directory, on any filesystem.
        job: The job's name, for the error of another job.

    Raises:
        UsageError: Another job is running there, or the directory cannot be written.
        DataError: The disk is full, or another job took this one for dead.
    """
    was_there = is_local(directory) and Path(directory).is_dir()
    note = _Note.of_this_process(job)
    try:
        names = _take(directory, note)
    except OSError as error:
        raise not_writable(directory, error) from None
    ended, taken_over = threading.Event(), threading.Event()
    refresher = threading.Thread(
        target=_refresh, args=(directory, names[-1], note, ended, taken_over), daemon=True
    )
    refresher.start()
    try:
        yield
    except BaseException:
        if taken_over.is_set():
            raise DataError(
                f"--output {directory}: this job could not refresh its note for "
                f"{_DEAD_SECONDS // 60} minutes, and another job took the directory; wait for that to "
                "end, and run the command again"
            ) from None
        raise
    finally:
        ended.set()
        refresher.join()
        if not taken_over.is_set():
            _release(directory, names, note.id)
        drop_empty_directory(join(directory, STAGING))
        if not was_there:
            drop_empty_directory(directory)


def refuse_if_running(directory: str) -> None:
    """Refuses a directory in which another job is running.

    Raises:
        UsageError: Another job is running there, or the directory cannot be read.
    """
    try:
        _, holder = _find(directory)
    except OSError as error:
        raise not_writable(directory, error) from None
    if holder:
        raise _refusal(directory, holder)


def _refusal(directory: str, holder: _Note) -> UsageError:
    return UsageError(
        f"--output {directory}: another job is writing here: {holder.job}, started at {holder.started} "
        f"as process {holder.pid} of {holder.host}; wait for it to end, or name another directory"
    )


def _find(directory: str) -> tuple[list[str], _Note | None]:
    """The names of the notes of killed jobs, then that of the running one; and the running one's note.

    If no job runs, the last name is the one that the next note must have.
    """
    names = [RUNNING]
    while (data := _content(directory, names[-1])) is not None:
        note = _Note.parse(data)
        if note and note.is_alive():
            return names, note
        damaged = sha256(names[-1].encode() + data).hexdigest()
        follower = f"{RUNNING}.{note.id if note else damaged}"
        if follower in names:
            raise OSError(f"{join(directory, follower)} is damaged; delete it if no job is running")
        names.append(follower)
    return names, None


def _take(directory: str, note: _Note) -> list[str]:
    """Creates the note, as the only running job; returns what `_find` does."""
    while True:
        names, holder = _find(directory)
        if holder:
            raise _refusal(directory, holder)
        create_file(directory, names[-1], note.to_bytes())
        # A job that ended in this moment may have deleted the notes that this one follows.
        found, holder = _find(directory)
        if holder and holder.id == note.id:
            return found
        _delete_own(directory, names[-1], note.id)


def _refresh(
    directory: str,
    name: str,
    note: _Note,
    ended: threading.Event,
    taken_over: threading.Event,
) -> None:
    while not ended.wait(_REFRESH_SECONDS):
        with contextlib.suppress(OSError, JobError):
            if _content(directory, f"{RUNNING}.{note.id}") is not None:
                taken_over.set()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return
            if not _is_own(directory, name, note.id):  # The dataset is complete.
                return
            write_file(directory, name, note._replace(refreshed=time.time()).to_bytes())


def _release(directory: str, names: list[str], id_: str) -> None:
    """Deletes the note of a job that ends, and first those of the killed jobs before it."""
    with contextlib.suppress(OSError, JobError):
        _, holder = _find(directory)
        for name in names if holder and holder.id == id_ else []:
            delete_files([join(directory, name)])


def _delete_own(directory: str, name: str, id_: str) -> None:
    with contextlib.suppress(OSError, JobError):
        if _is_own(directory, name, id_):
            delete_files([join(directory, name)])


def _is_own(directory: str, name: str, id_: str) -> bool:
    note = _Note.parse(_content(directory, name) or b"")
    return note is not None and note.id == id_


def _content(directory: str, name: str) -> bytes | None:
    """The bytes of a file; None if it is missing."""
    path = join(directory, name)
    try:
        return read_bytes(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # Or the filesystem is unknown.
        return None
    except OSError:
        if is_local(path):
            raise
        return None  # Beam's filesystems have one error for all.
