"""Runs commands on the datasets in a folder, which may be killed or overtaken before each change of a file."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from beam_jobs.changes.command import change
from beam_jobs.dataset import generations, lease
from beam_jobs.errors import JobError
from beam_jobs.writing.write import write
from readers.files import processors
from readers.files.local import LocalFiles
from readers.format.schema import Schema
from tests.campaigns.histories.model import SEED, SPLITS, values

_SCHEMA = {"key": ("string", ()), "label": ("int64", ()), "x": ("float32", (None,))}


class Killed(BaseException):
    """The process has died: nothing that it does afterwards has an effect."""


class Steps:
    """Counts the changes of files, and does something before one of them."""

    def __init__(self) -> None:
        self.count, self.at, self.strike = 0, -1, lambda: None
        self.dead = False

    def __call__(self) -> None:
        if self.dead:
            raise Killed
        self.count += 1
        if self.count - 1 == self.at:
            self.strike()


STEPS = Steps()


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Counts changes of files, and syncs nothing."""

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            STEPS()
            return original(*arguments)

        return call

    delete = LocalFiles.delete

    def one_by_one(files: LocalFiles, paths: list[str]) -> None:
        for path in paths:
            STEPS()
            delete(files, [path])

    with (
        mock.patch.object(LocalFiles, "begin", before(LocalFiles.begin)),
        mock.patch.object(LocalFiles, "rename", before(LocalFiles.rename)),
        mock.patch.object(LocalFiles, "delete", one_by_one),
        mock.patch.object(generations, "sync_names", before(lambda *_: None)),
        mock.patch.object(processors.os, "sched_getaffinity", lambda _: {0}),
        mock.patch("os.fsync", lambda _: None),
    ):
        yield


class Datasets:
    """The datasets in a folder, on which the lines of a history call methods as `d`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(
        self, numbers: list[int], salt: int, features: tuple[str, ...] = (), **how: Any
    ) -> None:
        """Writes records, whose keys are k0, k1 and so on."""
        schema = Schema({**_SCHEMA, **dict.fromkeys(features, ("int64", ()))})
        records = [(f"k{n}", _arrays(values(n, salt, features))) for n in numbers]
        path = self.root / how.pop("to", "photos")
        write(records, path, schema, splits=SPLITS, seed=SEED, num_shards=2, processes=1, **how)

    def change(self, *arguments: object) -> str:
        """Runs a command of `beam-shards`; arguments that begin with `./` are paths in the folder."""
        texts = map(str, arguments)
        return change([str(self.root / text) if text[:2] == "./" else text for text in texts])

    def file(self, *lines: object) -> Path:
        """A file with some lines, the same for copies of the folder."""
        data = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        path = self.root.parent / f"{hashlib.sha256(data.encode()).hexdigest()[:8]}.jsonl"
        path.write_text(data)
        return path

    def run(
        self, line: str, at: int = -1, other: str = "", sees: bool = False
    ) -> list[BaseException | None]:
        """Runs a line; returns its error, and that of the other line.

        Before step `at`, the process is killed, or it runs the other line. Neither sees the lease of the other, but a
        purge does: it deletes what is unfinished, so nothing else protects a run in its last steps.
        """
        sees = sees or "'purge'" in other
        STEPS.count, STEPS.at, others = 0, at, list[BaseException | None]()

        def strike() -> None:
            if not other:
                STEPS.dead = True
                raise Killed
            others.extend(self.run(other, sees=sees))

        STEPS.strike = strike
        error: BaseException | None = None
        try:
            with (
                mock.patch.object(lease, "_DEAD_SECONDS", 120 if sees else -1),
                mock.patch.object(lease, "_runs", lease._runs if sees or not other else _none),
            ):
                eval(line, {"d": self})
        except (JobError, ValueError, OSError, Killed) as caught:
            error = caught
        finally:
            STEPS.at, STEPS.dead = -1, False
        return [error, *(others or (self.run(other) if other else []))]


def _none(*_: str) -> dict[str, Any]:
    return {}


def _arrays(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "x": np.array(record["x"], np.float32)}
