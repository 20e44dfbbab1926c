"""Leases: which runs are at work in an output directory.

A lease lets a second command stop early if another one is at work. Nothing else depends on it: two runs that
do not see each other both write, and one of them commits.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from beam_jobs.dataset.output import STAGING, Holder, not_writable
from beam_jobs.errors import JobError, UsageError
from beam_jobs.storage.atomic import delete_files, list_files, write_file
from beam_jobs.storage.files import content_of
from readers.files.local import drop_empty_folder
from readers.format.manifest import join

_LEASE = "lease"

# The note with which a job on an engine is found.
_REMOTE = "job"

_RENEWED_SECONDS = 20

# A run on another machine that has not renewed its lease for this long was killed.
_DEAD_SECONDS = 120


class Lease(NamedTuple):
    """The content of a lease.

    Attributes:
        started: Seconds since 1970.
        run: The name of its folder in `STAGING`.
        job: The job's name.
        host: The machine, for people.
        machine: Where process numbers mean the same; see `_machine`.
        pid, began: The process, and its start time; see `_beginning`.
        renewed: Seconds since 1970.
    """

    started: float
    run: str
    job: str
    host: str
    machine: str
    pid: int
    began: str
    renewed: float

    def __str__(self) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        return f"{self.job}, started at {moment} as process {self.pid} of {self.host}"

    @classmethod
    def of_this_process(cls, run: str, job: str) -> Lease:
        now, pid = time.time(), os.getpid()
        return cls(now, run, job, socket.gethostname(), _machine(), pid, _beginning(pid), now)

    @classmethod
    def parse(cls, data: bytes | None) -> Lease | None:
        """The lease in a file; None if the file has none."""
        try:
            started, run, job, host, machine, pid, began, renewed = json.loads(data or b"")
            names = str(run), str(job), str(host), str(machine)
            return cls(float(started), *names, int(pid), str(began), float(renewed))
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None

    def is_alive(self) -> bool:
        """Whether the run's process exists, as far as this process can know."""
        if self.machine == _machine() and self.pid != os.getpid():
            return bool(self.began) and _beginning(self.pid) == self.began
        return abs(time.time() - self.renewed) <= _DEAD_SECONDS


def _machine() -> str:
    """Identifies where a process number is valid: one boot of a machine, or one container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # Not Linux.
        return socket.gethostname()


def _beginning(pid: int) -> str:
    """The start time of a process, as the system states it; empty if the process does not exist."""
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


class _Run(NamedTuple):
    """A run that has a folder in `STAGING`."""

    paths: list[str]  # of its files
    lease: Lease | None
    words: str  # a description if it is at work; empty if it has ended
    begins: bool  # its lease is being written, before it has a name


def _runs(directory: str, but: str = "") -> dict[str, _Run]:
    """The runs of a directory by their names, but one."""
    top = join(directory, f"{STAGING}/")
    paths: dict[str, list[str]] = {}
    for file in list_files(top.rstrip("/")):
        paths.setdefault(file.path[len(top) :].split("/")[0], []).append(file.path)
    return {run: _run(top + run, some) for run, some in paths.items() if run != but}


def _run(folder: str, paths: list[str]) -> _Run:
    path, note = join(folder, _LEASE), join(folder, _REMOTE)
    lease = Lease.parse(content_of(path) if path in paths else None)
    words = ""
    if lease and lease.is_alive():
        words = (
            f"another job is writing here: {lease}; wait for it to end, or name another directory"
        )
    elif note in paths:
        words = _remote_job(content_of(note) or b"")
    begins = path not in paths and any(name.startswith(f"{path}.") for name in paths)
    return _Run(paths, lease, words, begins)


def _remote_job(note: bytes) -> str:
    """A description of a note's job if it runs on its engine; else empty."""
    from beam_jobs.engines.flink import NoAnswer, RemoteJob

    job = RemoteJob.parse(note)
    try:
        if job is None or not job.runs():
            return ""
    except NoAnswer:  # As without a note: usually the engine was stopped, with its jobs.
        return ""
    where = f"; {job.flink.page}; cancel it with `{job.flink.cancel_command}`" if job.flink else ""
    return f"{job} is writing here, though its command has ended; wait for it to end{where}"


def is_lease(name: str, run: str) -> bool:
    """Whether a file of a directory, given its name, is the lease of a run."""
    return name == f"{STAGING}/{run}/{_LEASE}"


def is_busy(directory: str, but: str = "") -> bool:
    """Whether a run is at work in a directory; one run may be excepted."""
    return any(run.words for run in _runs(directory, but).values())


def refuse_if_busy(directory: str) -> None:
    """Raises a UsageError if a run is at work in a directory."""
    for run in _runs(directory).values():
        if run.words:
            raise _refusal(directory, run)


def _refusal(directory: str, run: _Run) -> UsageError:
    return UsageError(f"--output {directory}: {run.words}")


def clear_ended(directory: str, but: str) -> None:
    """Deletes the files of ended runs in `STAGING`; one run is excepted."""
    _delete_ended(_runs(directory, but).values())


def _delete_ended(runs: Iterable[_Run]) -> None:
    ended = (run for run in runs if not (run.words or run.begins))
    delete_files(path for run in ended for path in run.paths)


@contextlib.contextmanager
def leased(output: Holder, job: str, keeps: bool = False) -> Iterator[None]:
    """Holds a lease on an output directory while a job runs; `keeps` its files if an engine continues it afterwards.

    Raises:
        UsageError: Another run is at work there, or the lease cannot be written.
        DataError: The disk is full.
    """
    directory = output.directory
    was_there = os.path.isdir(directory)
    refuse_if_busy(directory)
    lease = Lease.of_this_process(output.run, job)
    ended = threading.Event()
    renewing = threading.Thread(target=_keep_renewing, args=(output, lease, ended), daemon=True)
    try:
        _renew(output, lease)
    except OSError as error:
        raise not_writable(directory, error) from None
    try:
        others = _runs(directory, output.run).values()
        for other in others:
            # If two runs start at the same time, the earlier one continues.
            if other.words and not (other.lease and lease[:2] < other.lease[:2]):
                raise _refusal(directory, other)
        _delete_ended(others)
        renewing.start()
        yield
    finally:
        ended.set()
        if renewing.is_alive():
            renewing.join()
        with contextlib.suppress(OSError, JobError):
            lease_alone = [join(output.staging, _LEASE)]
            delete_files(
                lease_alone if keeps else [file.path for file in list_files(output.staging)]
            )
        # Elsewhere than on a disk, an empty directory does not matter.
        drop_empty_folder(join(directory, STAGING))
        if not was_there:
            drop_empty_folder(directory)


def _renew(output: Holder, lease: Lease) -> None:
    data = json.dumps(lease._replace(renewed=time.time())).encode()
    write_file(join(output.staging, _LEASE), data, output.staging, replace=True)


def _keep_renewing(output: Holder, lease: Lease, ended: threading.Event) -> None:
    while not ended.wait(_RENEWED_SECONDS):
        with contextlib.suppress(OSError, JobError):
            _renew(output, lease)


def note_remote(output: Holder, note: bytes) -> None:
    """Keeps the note that finds a run's job on its engine, if the directory can be written."""
    with contextlib.suppress(OSError, JobError):
        write_file(join(output.staging, _REMOTE), note, output.staging, replace=True)
