"""A store in memory whose requests fail as a seed says, and which may end the job."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c

from beam_jobs.storage.files import JobErrors
from readers.files.files import ChangedError, ExistsError, FileInfo, Stat
from readers.files.stores.ahead import Part
from readers.files.stores.errors import SignIn
from readers.files.stores.store import Store, Upload


class Died(BaseException):
    """A process ends here. No code of the project may catch it."""


@dataclass(frozen=True)
class Faults:
    """How often each fault strikes, as a probability.

    Attributes:
        dies: A request ends the attempt that makes it.
        refused: A request fails for good before it has an effect.
        unanswered: A request has its effect, and fails all the same.
        full: A write finds no room.
        crash: A request ends the whole job.
        retried: An attempt fails between two elements.
        zombie: An attempt is believed dead, and runs beside the next.
        lost, repeated: An element between two steps.
    """

    dies: float = 0
    refused: float = 0
    unanswered: float = 0
    full: float = 0
    crash: float = 0
    retried: float = 0
    zombie: float = 0
    lost: float = 0
    repeated: float = 0


class Crash(BaseException):
    """The whole job ends here: driver, workers and all."""


class Zombie:
    """An attempt that is believed dead, in a thread that stops before each of its requests until it may continue.

    Args:
        attempt: Runs the attempt; what it raises is ignored.
    """

    current = threading.local()

    def __init__(self, attempt: Callable[[], Any]) -> None:
        self._attempt, self._ended = attempt, False
        self._may_run, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def step(self) -> bool:
        """Lets it run to its next request; returns whether it has ended instead."""
        self._may_run.release()
        self._stands.acquire()
        return self._ended

    def pause(self) -> None:
        """Waits, in its own thread, until it may make its next request."""
        self._stands.release()
        self._may_run.acquire()

    def _run(self) -> None:
        self.current.zombie = self
        self._may_run.acquire()
        with contextlib.suppress(BaseException):
            self._attempt()
        self._ended = True
        self._stands.release()


_WRITES = ("put", "add", "finish")


class World(Store):
    """All objects of a store, and the faults of one run.

    Requests come from several threads, so what strikes one follows from its kind, its path and how often
    it was made, not from the order among all.

    Attributes:
        before_request: Called before each request of the thread that made the world.
        after_change: Called with the path of each object that was written or deleted.
    """

    def __init__(self) -> None:
        super().__init__(JobErrors(SignIn("", "", "")))
        self.contents: dict[str, bytes] = {}
        self.uploads: dict[int, str] = {}
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self.before_request: Callable[[], None] = lambda: None
        self.after_change: Callable[[str], None] = lambda _: None
        self.calm()

    def calm(self) -> None:
        """Ends all faults."""
        self.disturb(0, Faults())

    def disturb(self, seed: int, faults: Faults) -> None:
        """Begins a run with these faults."""
        self.faults, self._seed = faults, seed
        self.struck: Counter[str] = Counter()
        self._made: Counter[tuple[str, str]] = Counter()

    def _request(self, kind: str, path: str) -> str:
        """Raises if a fault strikes before the request; returns "unanswered" if one does after it."""
        if zombie := getattr(Zombie.current, "zombie", None):
            zombie.pause()
        elif threading.get_ident() == self._thread:
            self.before_request()
        with self._lock:
            self._made[kind, path] += 1
            drawn = f"{self._seed} {kind} {path} {self._made[kind, path]}"
        chance = random.Random(hashlib.sha256(drawn.encode()).digest()).random()
        for name in ("crash", "dies", "refused", "unanswered", "full"):
            chance -= getattr(self.faults, name)
            if chance < 0:
                break
        else:
            return ""
        if name == "full" and kind not in _WRITES:
            return ""
        self.struck[name] += 1
        if name == "crash":
            raise Crash(path)
        if name == "dies":
            raise Died(path)
        if name == "refused":
            raise self.errors.failing(path, f"503 {kind}")
        if name == "full":
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return name

    def _answer(self, fault: str, path: str) -> None:
        if fault:
            raise self.errors.failing(path, "the connection broke")

    def _ask(self, kind: str, path: str) -> None:
        """A request without an effect."""
        self._answer(self._request(kind, path), path)

    def content(self, path: str) -> bytes:
        """The content of an object, without a request."""
        if path not in self.contents:
            raise FileNotFoundError(f"{path}: no such object")
        return self.contents[path]

    def objects(self, prefix: str) -> Iterator[FileInfo]:
        self._ask("list", prefix)
        for path in sorted(self.contents):
            if path.startswith(prefix):
                yield FileInfo(path, len(self.contents[path]), 0)

    def request(self, path: str, start: int, size: int | None, version: Any) -> Part:
        self._ask("read", path)
        data = self.content(path)
        if version is not None and version != google_crc32c.value(data):
            raise ChangedError(f"{path}: it was replaced while it was read")
        stop = len(data) if size is None else start + size
        return Part(data[start:stop], len(data), google_crc32c.value(data))

    def stat(self, path: str) -> Stat:
        self._ask("stat", path)
        data = self.content(path)
        return Stat(len(data), google_crc32c.value(data), google_crc32c.value(data))

    def put(self, path: str, data: bytes, replace: bool) -> None:
        fault = self._request("put", path)
        self.appear(path, data, replace)
        self._answer(fault, path)

    def appear(self, path: str, data: bytes, replace: bool) -> None:
        """Makes an object appear, without a request."""
        if path in self.contents and not replace:
            raise ExistsError(f"{path}: an object of this name exists")
        self.contents[path] = bytes(data)
        self.after_change(path)

    def upload(self, path: str, replace: bool) -> Upload:
        self._ask("upload", path)
        return _Upload(self, path, replace)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:  # In this order, whatever threads there are.
            self.delete_object(path)

    def delete_object(self, path: str) -> None:
        fault = self._request("delete", path)
        self.contents.pop(path, None)
        self.after_change(path)
        self._answer(fault, path)

    def drop_uploads(self, prefix: str) -> None:
        self._ask("drop", prefix)
        for number, path in list(self.uploads.items()):
            if path.startswith(prefix):
                del self.uploads[number]


class _Upload:
    def __init__(self, world: World, path: str, replace: bool) -> None:
        self._world, self._path, self._replace = world, path, replace
        self._parts: list[bytes] = []
        world.uploads[id(self)] = path

    def add(self, data: bytes) -> None:
        self._world._answer(self._world._request("add", self._path), self._path)
        self._parts.append(bytes(data))

    def finish(self) -> None:
        fault = self._world._request("finish", self._path)
        if id(self) not in self._world.uploads:
            raise self._world.errors.aborted(self._path)
        self._world.appear(self._path, b"".join(self._parts), self._replace)
        del self._world.uploads[id(self)]
        self._world._answer(fault, self._path)

    def give_up(self) -> None:
        self._world._request("give_up", self._path)
        self._world.uploads.pop(id(self), None)
