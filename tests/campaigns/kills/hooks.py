"""What runs in the process of a job that will be killed: it knows each step, and kills at one of them.

A step is a call of a function at which something becomes durable: renames, links, deletions, folders,
files that are opened for writing, parts of files, and requests to a store that change something. A phase
that begins, a task of the pool and an input that is read are steps, too. The hooks are around these
functions, so the product knows nothing of them.

For a loss of power the changes of the disk are logged, with what they destroy, in `ops` (see power.py).
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.campaigns.kills.steps import Step, thing_at

VARIABLE = "BEAM_JOBS_KILLS"

# Small enough for shards of small jobs to be uploaded in parts; Google takes multiples of this.
_PART_BYTES = 256 << 10

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_watch: Watch | None = None


class Watch:
    """Follows the steps of a process.

    Args:
        role: "driver" or "worker".
        folder: Where the processes of a job log what they do.
        root: The output directory, a path or a URL.
        fatal: The step at which something is killed; None for no such step.
        way: "driver", "worker" or "both".
        power: Whether the disk's changes are logged.
    """

    def __init__(
        self, role: str, folder: str, root: str, fatal: Step | None, way: str, power: bool
    ) -> None:
        self.folder, self.root = folder, root
        self.fatal, self.way, self.power = fatal, way, power
        self._graves = 0
        self.become(role)

    def become(self, role: str) -> None:
        """Makes it that of a process that has just begun or was forked."""
        self.role = role
        self._lock, self._within = threading.RLock(), threading.local()
        self._counts: Counter[tuple[str, str]] = Counter()
        with self.unwatched():
            name = f"{self.folder}/{role}-{os.getpid()}"
            self._log = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """What this thread does in the context is no step."""
        self._within.here = True
        try:
            yield
        finally:
            self._within.here = False

    @property
    def watches(self) -> bool:
        """Whether what this thread does may be a step."""
        return not getattr(self._within, "here", False)

    def name_of(self, path: Any, dir_fd: int | None = None) -> str | None:
        """What is at a path; None if it is not in the output directory."""
        text = self.whole(path, dir_fd)
        if text == self.root:
            return thing_at("")
        below = f"{self.root}/"
        return thing_at(text.removeprefix(below)) if text.startswith(below) else None

    def whole(self, path: Any, dir_fd: int | None = None) -> str:
        """The absolute path of a file."""
        if isinstance(path, int):
            with self.unwatched():
                return os.readlink(f"/proc/self/fd/{path}")
        text = os.fsdecode(path)
        if dir_fd is not None and not text.startswith("/"):
            with self.unwatched():
                return f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{text}"
        return text.rstrip("/")

    def reached(self, name: str, edge: str) -> None:
        """Notes a moment, and kills if it is the fatal one."""
        with self._lock, self.unwatched():
            self._counts[name, edge] += 1
            step = Step(self.role, name, edge, self._counts[name, edge])
            self.note("steps", *step)
            if step == self.fatal:
                self._kill()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step that takes as long as the context."""
        self.reached(name, "before")
        yield
        self.reached(name, "after")

    def in_halves(
        self, name: str, write: Callable[[], Any], write_half: Callable[[], Any] | None
    ) -> None:
        """A step that may end when half of its bytes are written; None if nothing can write half of them."""
        self.reached(name, "before")
        # A process that survives its step writes all of the bytes, and once.
        if write_half and (self.way != "worker" or self.role == "worker"):
            if self.fatal == (self.role, name, "half", self._counts[name, "half"] + 1):
                write_half()
            self.reached(name, "half")
        write()
        self.reached(name, "after")

    def around(self, owner: Any, method: str, name_of: Callable[..., str | None]) -> None:
        """Makes calls of a function or method steps, whose names follow from its arguments; None names no step."""
        original = getattr(owner, method)

        @functools.wraps(original)
        def watched(*given: Any, **options: Any) -> Any:
            name = name_of(*given, **options)
            with self.step(name) if name else contextlib.nullcontext():
                return original(*given, **options)

        setattr(owner, method, watched)

    def note(self, kind: str, *what: Any) -> None:
        """Writes a line to the log of this process."""
        os.write(self._log, json.dumps([kind, *what]).encode() + b"\n")

    def _kill(self) -> None:
        try:
            os.close(os.open(f"{self.folder}/fired", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        pids = {
            role: [int(n.split("-")[1]) for n in os.listdir(self.folder) if n.startswith(role)]
            for role in ("worker", "driver")
        }
        if self.way == "worker":
            # A worker that reaches the step dies itself; a driver kills the first one.
            chosen = [os.getpid()] if self.role == "worker" else sorted(pids["worker"])[:1]
        else:
            chosen = [*(pids["worker"] if self.way == "both" else []), *pids["driver"]]
        for pid in sorted(chosen, key=lambda pid: pid == os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # What a loss of power may undo.

    @contextlib.contextmanager
    def changing(
        self, kind: str, *paths: str, buries: str = "", copies: bool = False
    ) -> Iterator[None]:
        """Logs a change of the disk, and keeps what it destroys.

        Args:
            kind: The system call.
            paths: Its paths.
            buries: The file that it removes or changes, if there is one.
            copies: Whether the file is changed, and not only its name.
        """
        if not self.power:
            yield
            return
        with self._lock:
            grave = self._bury(buries, copies) if buries else ""
            yield
            with self.unwatched():
                self.note("ops", kind, grave, *paths)

    def _bury(self, path: str, copies: bool) -> str:
        with self.unwatched():
            if not os.path.isfile(path):
                return ""
            self._graves += 1
            grave = f"{self.folder}/grave-{os.getpid()}-{self._graves}"
            if copies:
                shutil.copyfile(path, grave)
            else:
                os.link(path, grave)
            return grave


def prepare() -> None:
    """Begins to watch this process as `VARIABLE` says, as the driver of a job."""
    _begin("driver")
    _hook_driver()
    if json.loads(os.environ[VARIABLE])["quick"]:
        from tests.campaigns.kills.engine import take_over

        take_over()


def _begin(role: str) -> Watch:
    global _watch
    plan = json.loads(os.environ[VARIABLE])
    fatal = Step(*plan["fatal"]) if plan["fatal"] else None
    _watch = Watch(role, plan["folder"], plan["root"], fatal, plan["way"], plan["power"])
    _hook_disk(_watch)
    _hook_files(_watch)
    if "://" in _watch.root:
        _hook_stores(_watch)
    return _watch


# Functions that change the disk or make a change durable -> the verb; those of two paths are a rename or a link.
_CALLS = {"rename": "renamed", "replace": "renamed", "link": "linked", "unlink": "deleted"}
_CALLS |= {"remove": "deleted", "mkdir": "made", "rmdir": "removed"}
_CALLS |= {"fsync": "synced"}


def _hook_disk(watch: Watch) -> None:
    for name in _CALLS:
        setattr(os, name, _watched_call(watch, name, getattr(os, name)))

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not arguments[2] & _WRITES or not watch.watches:
            return
        path = arguments[0]
        if isinstance(path, int) or (thing := watch.name_of(path)) is None:
            return
        watch.reached(f"{thing}: opened", "before")
        whole = watch.whole(path)
        with watch.changing("open", whole, buries=whole, copies=True):
            pass

    sys.addaudithook(opened)


def _watched_call(watch: Watch, name: str, call: Callable[..., Any]) -> Any:
    @functools.wraps(call)
    def watched(path: Any, *more: Any, **options: Any) -> Any:
        if not watch.watches:
            return call(path, *more, **options)
        path = path.fileno() if hasattr(path, "fileno") else path
        dir_fd = options.get("dir_fd")
        thing = watch.name_of(path, dir_fd)
        paths = [watch.whole(path, dir_fd)]
        if _CALLS[name] in ("renamed", "linked"):
            paths.append(watch.whole(more[0]))
            thing = watch.name_of(more[0]) or thing
        if thing is None or (name == "mkdir" and Path(paths[0]).exists()):
            return call(path, *more, **options)
        buries = paths[-1] if name not in ("mkdir", "rmdir", "link", "fsync") else ""
        kind = {"replace": "rename", "remove": "unlink"}.get(name, name)
        with (
            watch.step(f"{thing}: {_CALLS[name]}"),
            watch.changing(kind, *paths, buries=buries),
            watch.unwatched(),
        ):
            return call(path, *more, **options)

    return watched


def _hook_files(watch: Watch) -> None:
    """Steps within files: half of their bytes are there, all are, or they were closed."""
    from beam_jobs.records import spool
    from readers.files.stores import store

    append = spool.SpoolFile.append

    def watched_append(file: Any, block: Any) -> None:
        def half() -> None:
            draft, size, written = file._file, file.size, io.BytesIO()
            file._file = written
            append(file, block)
            file._file, file.size = draft, size
            data = written.getvalue()
            draft._file.write(data[: len(data) // 2])
            draft._file.flush()

        on_disk = hasattr(file._file, "_file")
        name = "run of records: appended to"
        watch.in_halves(name, lambda: append(file, block), half if on_disk else None)

    spool.SpoolFile.append = watched_append
    watch.around(spool.SpoolFile, "publish", lambda *_: "run of records: completed")
    store.PART_BYTES = _PART_BYTES


def _hook_driver() -> None:
    """Steps that a driver alone has."""
    from beam_jobs import progress
    from beam_jobs.engines import pool
    from beam_jobs.pipeline import commit_dataset
    from beam_jobs.storage import atomic

    watch = _watch
    assert watch is not None
    watch.around(progress, "begin", lambda phase: f"phase: {phase}")
    watch.around(pool, "_start", lambda *_: "pool: process started")
    watch.around(pool.Pool, "submit", lambda *_: "pool: task submitted")
    watch.around(pool.Pool, "each", lambda *_: "pool: all asked")
    watch.around(pool.Pool, "close", lambda *_: "pool: closed")
    watch.around(
        commit_dataset,
        "apply_change",
        lambda _, change: f"top-up of {thing_at(change.shard.path)}: written",
    )

    fork_context = pool.fork_context
    pool.fork_context = lambda preload: fork_context([__name__, *preload])

    write = atomic.NewFile.write

    def watched_write(file: Any, data: bytes) -> None:
        staged = getattr(getattr(file._draft, "_draft", None), "_file", None)

        def half() -> None:
            staged.write(data[: len(data) // 2])
            staged.flush()

        name = f"{watch.name_of(file._path)}: written"
        watch.in_halves(name, lambda: write(file, data), half if staged is not None else None)

    atomic.NewFile.write = watched_write


# boto3's methods that change something -> the verb.
_S3_CALLS = {
    "put_object": "put",
    "create_multipart_upload": "upload begun",
    "upload_part": "part sent",
    "complete_multipart_upload": "upload completed",
    "abort_multipart_upload": "upload dropped",
    "delete_object": "deleted",
}

# Methods of the store and of its uploads -> the verb.
_GCS_CALLS = {"put": "put", "delete_object": "deleted"}
_GCS_UPLOAD_CALLS = {
    "_initiate_upload": "upload begun",
    "_upload_chunks_from_buffer": "part sent",
    "finish": "upload completed",
}


def _hook_stores(watch: Watch) -> None:
    """Requests that change something."""

    def name_of(path: str, verb: str | None) -> str | None:
        thing = watch.name_of(path)
        return f"{thing}: {verb}" if verb and thing is not None else None

    if watch.root.startswith("s3://"):
        from readers.files.stores.s3 import S3Store

        watch.around(
            S3Store, "call", lambda _, method, path, **more: name_of(path, _S3_CALLS.get(method))
        )
        return
    from readers.files.stores import gcs

    gcs.PART_BYTES = _PART_BYTES
    for method, verb in _GCS_CALLS.items():
        watch.around(
            gcs.GcsStore, method, lambda _, path, *more, verb=verb, **named: name_of(path, verb)
        )
    for method, verb in _GCS_UPLOAD_CALLS.items():
        watch.around(
            gcs._ResumableUpload, method, lambda file, *_, verb=verb: name_of(file._path, verb)
        )


def _hook_worker() -> None:
    """In the process that forks the workers, which imports this module first."""
    from beam_jobs.engines import pool

    watch = _begin("server")
    os.register_at_fork(after_in_child=lambda: watch.become("worker"))
    watch.around(pool, "note_reading", lambda name: "task: input read" if name else "task: ended")


if VARIABLE in os.environ and sys.argv[0] == "-c":
    _hook_worker()
