"""Calls a function for each of many inputs, in several processes, and encodes the records that it returns.

A task is some of the inputs. When its records are in complete runs, its process notes that in the staging folder,
and the same task of a later call takes them from there. A note is named by a digest of its inputs and counts only
if every block of its runs is intact, so a kill at any moment costs the tasks that were under way.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import inspect
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.shard_writer import unwritable
from beam_jobs.engines.pool import Pool, call_pickled, note_reading
from beam_jobs.errors import DataError, JobError, RejectError, UsageError
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import RunIndex, locate
from beam_jobs.records.spool import Spool, read_blocks
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.atomic import write_file
from beam_jobs.storage.files import read_bytes
from beam_jobs.writing.encode import CURE, Encoded, Rule, RunEncoder
from beam_jobs.writing.rows import rows_of
from readers.format.manifest import join

# A kill costs each process at most this part of all inputs; each task is a file that writers of shards read.
_TASKS = 500


@dataclass(frozen=True)
class InputEncoder:
    """Encodes the records that a function returns for inputs; `notes` finished tasks."""

    output: Output
    function: Callable[[Any], Any]
    key: Rule | None
    group_by: Rule | None
    notes: bool

    def encode(self, inputs: Sequence[Any], pool: Pool) -> Encoded:
        """Encodes the records of all inputs, or takes them from the runs of an earlier call; raises what `write` does."""
        work: Callable[..., Encoded] = self._work
        if pool.processes > 1:
            work = partial(call_pickled, pickle.dumps(work))
        every = Encoded.nothing(self.output)
        for encoded in pool.map(work, _tasks(inputs)):
            every.merge(encoded)
        return every

    def _work(self, name: str, first: int, inputs: list[bytes]) -> Encoded:
        """The encoded records of a task: its name, the number of its first input, and its pickled inputs."""
        path = join(self.output.staging, f"inputs.{name}")
        if self.notes:
            with contextlib.suppress(Exception):  # No note, or whatever may be wrong with one.
                return self._noted(read_bytes(path))
        with contextlib.closing(RunEncoder(self.output, self.key, self.group_by)) as encoder:
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
        return encoded

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
            for end, row in _records_of(self.function(value)):
                encoder.add_row(row, name + end)
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


def _tasks(inputs: Sequence[Any]) -> Iterator[tuple[str, int, list[bytes]]]:
    """Yields (a digest, the number of the first input, pickled inputs); files that inputs name count by size and time."""
    size = -(-len(inputs) // _TASKS)
    for first in range(0, len(inputs), max(size, 1)):
        digest, task = hashlib.blake2b(str(first).encode(), digest_size=16), []
        for value in inputs[first : first + size]:
            try:
                task.append(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
            except Exception as error:  # Pickling raises nearly everything.
                raise UsageError(f"input {value!r:.80} cannot be pickled: {error}") from None
            digest.update(task[-1])
            if isinstance(value, str | os.PathLike):
                with contextlib.suppress(OSError, ValueError):
                    file = os.stat(value)
                    digest.update(f"{file.st_size} {file.st_mtime_ns}".encode())
        yield digest.hexdigest(), first, task


def _records_of(result: Any) -> Iterator[tuple[str, Any]]:
    """Yields (the end of its key, record) for what a function returned: one record, or an iterable of them."""
    is_pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str)
    if isinstance(result, Mapping) or is_pair:
        yield "", result
    else:
        yield from ((f"#{n}", row) for n, row in enumerate(rows_of(result)))


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
