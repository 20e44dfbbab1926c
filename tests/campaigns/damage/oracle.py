"""What must hold of a damaged dataset: verify names the damage, and readers deliver no wrong value."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import readers
from readers.files.remote import StoreError
from readers.format.manifest import DatasetError
from tests.campaigns.damage.cases import Case, what_is
from tests.campaigns.damage.kinds import Kind, spans, trace

# What the documentation of the readers lists.
DOCUMENTED = (ValueError, FileNotFoundError, StoreError)

# Readers of records never open these files, which one case in 50 checks.
_UNREAD = ("rejects", "vocabulary", "tokenizer")
_SELDOM = 50

# What a reader gave: the key and the trace of each record.
Delivered = list[tuple[object, object]]


class _Inline:
    """An executor that does the work at once: threads cost more than it takes to check such files."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        return [function(value) for value in values]


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Lets verify work in one thread, and readers log nothing."""
    module = importlib.import_module("readers.verify")
    pool, module.ThreadPoolExecutor = module.ThreadPoolExecutor, _Inline  # type: ignore[attr-defined]
    logger = logging.getLogger("readers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        module.ThreadPoolExecutor = pool  # type: ignore[attr-defined]
        logger.setLevel(level)


@dataclass
class Verdict:
    """What became of a case.

    Attributes:
        named: Whether verify named the damage; None if the files have no manifest.
        raised, exact, harmless, elsewhere, renamed: How many readings ended with an error; lost exactly
            the damaged records; delivered everything; delivered a record in the place of another; and
            delivered an empty list for a feature of another name, besides all that kept their names.
        is_unreadable: Whether verify found that there is no manifest, or no whole one.
        faults: What must not happen, each as a sentence.
    """

    named: bool | None = None
    raised: int = 0
    exact: int = 0
    harmless: int = 0
    elsewhere: int = 0
    renamed: int = 0
    is_unreadable: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def is_harmless(self) -> bool:
        """Whether every reading that was made delivered every record."""
        return self.harmless > 0 and not self.raised + self.exact + self.elsewhere + self.renamed


def as_numpy(directory: str, kind: Kind, unit: str | None, on_corrupt: str) -> Delivered:
    """What `readers.as_numpy` delivers, in one batch."""
    batches = readers.as_numpy(
        directory, split=unit, schema=kind.schema, batch_size=64, batching="ragged",
        on_corrupt=on_corrupt,
    )  # fmt: skip
    return [
        _entry(kind, {name: values[row] for name, values in batch.items()})
        for batch in batches
        for row in range(len(next(iter(batch.values()))))
    ]


def source(directory: str, kind: Kind, unit: str | None, on_corrupt: str) -> Delivered:
    """What `readers.RecordSource` delivers, one record at a time."""
    found = readers.RecordSource(directory, unit, schema=kind.schema, on_corrupt=on_corrupt)
    return [_entry(kind, found[number]) for number in range(len(found))]


def load(directory: str, kind: Kind, unit: str | None, on_corrupt: str) -> Delivered:
    """What `readers.load` delivers, as streams if the files are compressed."""
    from readers import load as load_with_tensorflow

    order = "interleave" if kind.name.startswith("gzip") else "global"
    batches = load_with_tensorflow(
        directory, split=unit, schema=kind.schema, batch_size=1, batching="ragged", order=order,
        on_corrupt=on_corrupt,
    )  # fmt: skip
    return [
        _entry(kind, {name: _plain(value) for name, value in batch.items()}) for batch in batches
    ]


def _plain(value: Any) -> Any:
    """The only row of a batch of TensorFlow's, as lists of arrays."""
    row = value[0]
    return row.to_list() if hasattr(row, "to_list") else row.numpy()


def _entry(kind: Kind, record: dict[str, Any]) -> tuple[object, object]:
    traces = {name: trace(value) for name, value in record.items()}
    return traces.get(kind.key), tuple(sorted(traces.items()))


class Oracle:
    """Judges damages to one kind of dataset, in a directory that holds it.

    Args:
        kind: The intact dataset.
        directory: An empty folder, in memory if possible.
    """

    def __init__(self, kind: Kind, directory: Path) -> None:
        self.kind, self.directory = kind, directory
        for name in kind.files:
            self._write(name, kind.files[name])
        self._read = [as_numpy] if kind.name.startswith("gzip") else [as_numpy, source]
        self._expected: dict[Any, dict[str | None, Delivered]] = {}
        for read in self._read:
            self.expected(read)
        self._seen: Counter[str] = Counter()

    def expected(self, read: Any) -> dict[str | None, Delivered]:
        """What a reader delivers of each split; it is asked first while the dataset is intact."""
        if read not in self._expected:
            self._expected[read] = {
                unit: read(str(self.directory), self.kind, unit, "raise")
                for unit in self.kind.units
            }
        return self._expected[read]

    def _write(self, name: str, data: bytes | None) -> None:
        path = self.directory / name
        if data is None:
            path.unlink()
            return
        path.parent.mkdir(exist_ok=True)
        # A new file each time: what an earlier reader has mapped stays as it was.
        new = self.directory / ".new"
        new.write_bytes(data)
        os.replace(new, path)

    def judge(self, case: Case, with_load: bool = False) -> Verdict:
        """Damages the dataset, asks verify and the readers, and mends it again.

        Args:
            case: The damage.
            with_load: Whether every reader reads it, that with TensorFlow included; else one does.
        """
        if with_load:
            self.expected(load)
        for name, data in case.changes.items():
            self._write(name, data)
        try:
            verdict = Verdict()
            if self.kind.schema is None:
                self._verify(case, verdict)
            for unit, read, on_corrupt in self._readings(case, verdict, with_load):
                self._judge_reading(case, verdict, read, unit, on_corrupt)
            return verdict
        finally:
            for name in case.changes:
                self._write(name, self.kind.files[name])

    def _readings(
        self, case: Case, verdict: Verdict, with_load: bool
    ) -> list[tuple[str | None, Any, str]]:
        """The readings that a damage may change.

        Of a record, which is damaged in several ways at each byte, the readings take turns. Where
        verify found no manifest, readers are asked seldom: they read it with the same function.
        """
        turn = self._seen["readings"]
        self._seen["readings"] += 1
        if verdict.is_unreadable and not with_load and turn % _SELDOM:
            return []
        read = [*self._read, load] if with_load else self._read
        every = list(itertools.product(self._units(case), read, ("raise", "skip")))
        if with_load or case.what == "index" or "swapped" in case.damage:
            return every
        if case.what == "manifest":
            return every[turn % 2 :: 2]
        return every[turn % len(every) :][:1] if every else []

    def _units(self, case: Case) -> list[str | None]:
        """What must be read to see the consequences of a damage."""
        kinds = {what_is(name) for name in case.changes}
        if "manifest" in kinds:
            return self.kind.units
        if kinds <= set(_UNREAD):
            self._seen[case.what] += 1
            return self.kind.units if self._seen[case.what] % _SELDOM == 1 else []
        return sorted(
            {
                self.kind.unit_of(name)
                for name in case.changes
                if what_is(name) in ("shard", "index")
            },
            key=str,
        )

    def _verify(self, case: Case, verdict: Verdict) -> None:
        try:
            text = "\n".join(map(str, readers.verify(self.directory).problems))
        except DatasetError as error:
            text, verdict.is_unreadable = str(error), True
        except Exception as error:
            verdict.faults.append(f"verify raised {type(error).__name__}: {error}")
            return
        verdict.named = any(_names(text, name) for name in case.changes)
        if not (verdict.named or may_be_unnamed(case)):
            verdict.faults.append("verify did not name it")

    def _judge_reading(
        self, case: Case, verdict: Verdict, read: Any, unit: str | None, on_corrupt: str
    ) -> None:
        who = f"{read.__name__} of {unit} with on_corrupt={on_corrupt!r}"
        lost = self._lost(case, unit)
        expected = self.expected(read)[unit]
        try:
            found = read(str(self.directory), self.kind, unit, on_corrupt)
        except Exception as error:
            verdict.raised += 1
            if not _is_documented(error, read):
                verdict.faults.append(f"{who} raised {type(error).__name__}: {error}")
            elif not self._is_named(error, read):
                verdict.faults.append(f"{who} raised an error that names no file: {error}")
            elif on_corrupt == "skip" and lost is not None and len(lost) < len(expected):
                verdict.faults.append(f"{who} lost more than {len(lost)} records: {error}")
            return
        values = dict(entry for entries in self.expected(read).values() for entry in entries)
        wrong = [key for key, record in found if values.get(key) != record]
        if wrong and case.what == "manifest" and _are_renamed(found, values):
            verdict.renamed += 1
            return
        if wrong:
            verdict.faults.append(f"{who} delivered a wrong value: {wrong[0]!r}")
            return
        keys, intact = Counter(key for key, _ in found), Counter(key for key, _ in expected)
        if keys == intact:
            verdict.harmless += 1
        elif on_corrupt == "skip" and lost is not None:
            left = set(intact) - {expected[number][0] for number in lost}
            if set(keys) == left:
                verdict.exact += 1
            else:
                verdict.faults.append(f"{who} delivered {sorted(map(str, keys))}, not {left}")
        elif case.damage.startswith("swapped") or self.kind.schema is not None:
            verdict.elsewhere += 1
        elif on_corrupt == "skip" and set(keys) <= set(intact):
            verdict.exact += 1
        else:
            verdict.faults.append(f"{who} delivered {len(found)} records without an error")

    def _is_named(self, error: Exception, read: Any) -> bool:
        """Whether an error names the dataset; those of TensorFlow's own streams name no file."""
        if read is load and self.kind.name.startswith("gzip"):
            return True
        return str(self.directory) in str(error) or _is_about_split(error)

    def _lost(self, case: Case, unit: str | None) -> set[int] | None:
        """The numbers of the damaged records in a split, if only shards were changed; None otherwise.

        The intact index says where they are, so a record that moved is damaged, too.
        """
        changed = {what_is(name) for name in case.changes}
        if changed != {"shard"} or None in case.changes.values() or "swapped" in case.damage:
            return None
        if self.kind.schema is not None and not self._keeps_headers(case):
            return None
        found, number = set(), 0
        for shard in self.kind.shards:
            if self.kind.unit_of(shard) != unit:
                continue
            intact = self.kind.files[shard]
            data = case.changes.get(shard, intact) or b""
            for start, end in spans(intact):
                if data[start:end] != intact[start:end]:
                    found.add(number)
                number += 1
        return found

    def _keeps_headers(self, case: Case) -> bool:
        """Whether files without an index, by which records are found, still have all headers."""
        for shard, data in case.changes.items():
            intact = self.kind.files[shard]
            if shard.endswith(".gz") or data is None or len(data) != len(intact):
                return False
            starts = [start for start, _ in spans(intact)]
            if any(data[at : at + 12] != intact[at : at + 12] for at in starts):
                return False
        return True


def _are_renamed(found: Delivered, values: Mapping[object, object]) -> bool:
    """Whether records lack a feature, and have an empty list of another name instead, and no other fault.

    docs/reading.md: if a record lacks a variable-length list, it is read as empty.
    """
    for key, record in found:
        here, intact = dict(record), dict(values.get(key, ()))  # type: ignore[call-overload]
        new = here.keys() - intact.keys()
        kept = {name: intact[name] for name in here.keys() - new}
        if len(new) != 1 or len(kept) != len(intact) - 1 or not _is_empty(here[min(new)]):
            return False
        if any(here[name] != value for name, value in kept.items()):
            return False
    return True


def _is_empty(traced: object) -> bool:
    """Whether the trace of a value is that of an empty list, or of an array without values."""
    return traced == () or (isinstance(traced, tuple) and len(traced) == 3 and traced[2] == b"")


def may_be_unnamed(case: Case) -> bool:
    """Whether docs/format.md says that verify does not find a damage: that of lists of rejects."""
    return {what_is(name) for name in case.changes} <= {"rejects"}


def _names(text: str, file: str) -> bool:
    """Whether a text names a file: it, and not a longer name that begins with it."""
    return re.search(rf"(?<![\w-]){re.escape(file)}(?!\.idx|\w)", text) is not None


def _is_documented(error: Exception, read: Any) -> bool:
    if isinstance(error, DOCUMENTED):
        return True
    if read is not load:
        return False
    import tensorflow as tf

    return isinstance(error, tf.errors.OpError)


def _is_about_split(error: Exception) -> bool:
    return str(error).startswith(("unknown split", "name one with split="))
