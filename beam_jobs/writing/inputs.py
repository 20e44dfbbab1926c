"""Calls a function for each of many inputs, in several processes, and encodes the records that it returns.

A task is some of the inputs. When its records are in complete runs, its process notes that in the staging folder,
and a later call takes them from there. A note is named by its inputs and counts only if every block of its runs is
intact, so a kill at any moment costs the tasks that were under way.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import inspect
import json
import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.shard_writer import unwritable
from beam_jobs.engines.pool import Pool, call_pickled, note_reading
from beam_jobs.errors import DataError, JobError, RejectError, UsageError
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import RunIndex, locate
from beam_jobs.records.spool import Spool, read_blocks
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.atomic import list_files, write_file
from beam_jobs.storage.files import read_bytes
from beam_jobs.writing.encode import CURE, Encoded, Rule, RunEncoder
from beam_jobs.writing.rows import rows_of
from readers.format.encode.records import Encoder
from readers.format.manifest import join

# The most tasks without notes of an earlier call: each is a file that writers of shards read.
_TASKS = 500

# A task takes at least this many seconds, unless a process would get too few: a task costs milliseconds.
_SECONDS = 0.1

# The least tasks of a process, so that all end at about the same time.
_EACH = 16

_NOTE = re.compile(r".*/(inputs\.([0-9]{1,18})-([0-9]{1,18})\.[0-9a-f]{32})")


@dataclass
class _Sizes:
    """How many inputs the next task has, and the limits of that."""

    now: int
    least: int
    most: int

    @classmethod
    def of(cls, inputs: int, processes: int) -> _Sizes:
        """The sizes for a number of inputs."""
        least = -(-inputs // _TASKS) or 1
        return cls(least, least, max(inputs // (_EACH * processes), least))

    def adapt(self, seconds: float, rejects: bool) -> None:
        """Learns the time of a task, and whether it had rejects: then a later call does all of it again."""
        if rejects:
            self.now = max(self.now // 2, self.least)
        elif seconds < _SECONDS:
            self.now = min(2 * self.now, self.most)


class _Task(NamedTuple):
    """Some inputs, pickled; its name has the number of the first, of the one after the last, and their digest."""

    name: str
    first: int
    inputs: list[bytes]

    @classmethod
    def of(cls, inputs: Sequence[Any], first: int, stop: int) -> _Task:
        """The task of a range of inputs; UsageError if one cannot be pickled. Files count by size and time."""
        pickled, files = list[bytes](), list[bytes]()
        for value in inputs[first:stop]:
            try:
                pickled.append(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
            except Exception as error:  # Pickling raises nearly everything.
                raise UsageError(f"input {value!r:.80} cannot be pickled: {error}") from None
            if isinstance(value, (str, os.PathLike)):
                files.append(_size_and_time(value))
        digest = hashlib.blake2b(b"".join([*pickled, *files]), digest_size=16)
        return cls(f"inputs.{first}-{stop}.{digest.hexdigest()}", first, pickled)


def _size_and_time(path: str | os.PathLike[str]) -> bytes:
    try:
        file = os.stat(path)
    except (OSError, ValueError):
        return b"- "
    return b"%d %d " % (file.st_size, file.st_mtime_ns)


@dataclass(frozen=True)
class InputEncoder:
    """Encodes the records that a function returns for inputs; `notes` finished tasks."""

    output: Output
    function: Callable[[Any], Any]
    key: Rule | None
    group_by: Rule | None
    notes: bool

    @functools.cached_property
    def _checks(self) -> Encoder:
        return Encoder(self.output.schema)  # It learns the layouts of records.

    def encode(self, inputs: Sequence[Any], pool: Pool) -> Encoded:
        """Encodes the records of all inputs, or takes them from the runs of an earlier call; raises what `write` does."""
        work: Callable[..., tuple[Encoded, float]] = self._work
        if pool.processes > 1:
            work = functools.partial(call_pickled, pickle.dumps(work))
        every, sizes = Encoded.nothing(self.output), _Sizes.of(len(inputs), pool.processes)
        for encoded, seconds in pool.map(work, self._tasks(inputs, sizes)):
            every.merge(encoded)
            sizes.adapt(seconds, bool(encoded.summary.rejects))
        return every

    def _tasks(self, inputs: Sequence[Any], sizes: _Sizes) -> Iterator[_Task]:
        """Yields tasks that have notes, and tasks of the inputs between them."""
        first, end = 0, len(inputs)
        files = list_files(self.output.staging) if self.notes else []
        names = [match for file in files if (match := _NOTE.fullmatch(file.path))]
        notes = sorted((int(name[2]), int(name[3]), name[1]) for name in names)
        for start, stop, name in [*(note for note in notes if note[1] <= end), (end, end, "")]:
            if start < first:
                continue
            while first < start:
                yield (task := _Task.of(inputs, first, min(first + sizes.now, start)))
                first += len(task.inputs)
            task = _Task.of(inputs, start, stop)
            if task.name == name:
                yield task
                first = stop

    def _work(self, name: str, first: int, inputs: list[bytes]) -> tuple[Encoded, float]:
        """The encoded records of a task, and the seconds that it took."""
        path, begin = join(self.output.staging, name), time.monotonic()
        if self.notes:
            with contextlib.suppress(Exception):  # No note, or whatever may be wrong with one.
                return self._noted(read_bytes(path)), _SECONDS
        encoding = RunEncoder(self.output, self.key, self.group_by, self._checks)
        with contextlib.closing(encoding) as encoder:
            for number, pickled in enumerate(inputs, first):
                self._encode(number, pickle.loads(pickled), encoder)
            encoded = encoder.finish()
        found = encoded.summary
        dropped = any(split.duplicates for split in found.splits)
        # A later call tries rejected inputs again, and counts keys again that a dataset to append to has.
        if self.notes and not (found.rejects or found.existing or dropped):
            runs = [base64.b64encode(run.pack()).decode() for run in encoded.runs]
            note = [runs, [(split, some.state()) for split, some in encoded.statistics]]
            data = json.dumps(note).encode()
            with unwritable(self.output.staging, "inputs"):
                write_file(path, _crc(data) + data, self.output.staging, replace=True)
        return encoded, time.monotonic() - begin

    def _noted(self, note: bytes) -> Encoded:
        """The encoded records of a note; an error of any kind if the note or a block of a run is damaged."""
        if note[:4] != _crc(note[4:]):
            raise ValueError("the note is damaged")
        encoded, (runs, statistics) = Encoded.nothing(self.output), json.loads(note[4:])
        encoded.runs += [RunIndex.unpack(base64.b64decode(run)) for run in runs]
        for run in encoded.runs:
            places = [locators for _, locators in locate(run, lambda splits, _: 0 * splits)]
            for block in read_blocks(Spool(self.output.staging), places):
                encoded.add(block)
        schema = self.output.schema
        encoded.statistics += [(n, Statistics.of_state(schema, state)) for n, state in statistics]
        return encoded

    def _encode(self, number: int, value: Any, encoder: RunEncoder) -> None:
        name = str(value) if isinstance(value, str | os.PathLike) else f"{number:08d}"
        note_reading(name)
        try:
            result = self.function(value)
            is_pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str)
            if is_pair or isinstance(result, Mapping):
                encoder.add_row(result, name)
            else:
                for n, row in enumerate(rows_of(result)):
                    encoder.add_row(row, None if type(row) is tuple else f"{name}#{n}")
        except JobError:
            raise
        except Exception as error:
            kind = "" if isinstance(error, RejectError) else f"{type(error).__name__}: "
            reject = Reject.of(name, "read", f"{kind}{error}")
            if self.output.max_rejects.limit == 0:
                raise DataError(f"input {reject}; {CURE}") from error
            encoder.reject(reject)


def _crc(data: bytes) -> bytes:
    return google_crc32c.value(data).to_bytes(4, "little")


def identity_of(output: Output, *rules: Rule | None) -> str:
    """A digest of what determines encoded records, the files of functions included: 16 hex digits, or none."""
    placement = output.placement
    parts: list[Any] = [output.versions(), output.schema.to_json(), output.parent]
    parts += [repr(placement), placement.existing]
    for rule in rules:
        try:
            parts.append(pickle.dumps(rule))
            if callable(rule):
                module = sys.modules[getattr(rule, "func", rule).__module__]  # Of a partial, too.
                parts.append(Path(inspect.getfile(module)).read_bytes())
        except Exception:  # A function of a notebook, or a lambda.
            return ""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
