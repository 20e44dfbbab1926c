"""What must hold of a damaged dataset: verify names the damage, and readers deliver no wrong value."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import readers
from readers.files.files import StoreError
from readers.format.manifest import GENERATIONS, DatasetError
from tests.campaigns.damage.cases import Case, what_is
from tests.campaigns.damage.kinds import Kind
from tests.campaigns.values import trace
from tests.support.indexes import spans

# What the documentation of the readers lists.
DOCUMENTED = (ValueError, FileNotFoundError, StoreError)

# What a reader gave: the key and the trace of each record.
Delivered = list[tuple[object, object]]

# What became of a case, as it is counted, and what must not happen, each as a sentence. "named" and "not named" are
# of verify. "raised", "harmless", "exact" and "elsewhere" are readings: one with an error, one that delivered
# everything, one that lost exactly the damaged records, and one that delivered a record in the place of another.
Verdict = tuple[Counter[str], list[str]]


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
    """What `readers.load` delivers."""
    batches = readers.load(
        directory, split=unit, schema=kind.schema, batch_size=1, batching="ragged",
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
        with_load: Whether the reader with TensorFlow reads, too.
    """

    def __init__(self, kind: Kind, directory: Path, with_load: bool = False) -> None:
        self.kind, self.directory = kind, directory
        for name, data in kind.files.items():
            self._write(name, data)
        asked = [as_numpy, source, *([load] if with_load else [])]
        self._readings = list(itertools.product(asked, kind.units))
        self._expected = {
            (read, unit): read(str(directory), kind, unit, "raise") for read, unit in self._readings
        }
        self._values: dict[Any, dict[object, object]] = {read: {} for read in asked}
        for (read, _), entries in self._expected.items():
            self._values[read].update(entries)

    def _write(self, name: str, data: bytes | None) -> None:
        path = self.directory / name
        if data is None:
            path.unlink()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # A new file each time: what an earlier reader has mapped stays as it was.
        new = self.directory / ".new"
        new.write_bytes(data)
        os.replace(new, path)

    def judge(self, case: Case) -> Verdict:
        """Damages the dataset, asks verify and the readers, and mends it again."""
        for name, data in case.changes.items():
            self._write(name, data)
        try:
            outcomes, faults = Counter[str](), list[str]()
            if self.kind.schema is None:
                outcome = self._verified(case)
                outcomes[outcome] += 1
                if outcome != "named" and not may_be_unnamed(case):
                    faults.append(f"verify: {outcome}")
            for (read, unit), mode in itertools.product(self._readings, ("raise", "skip")):
                outcome = self._read(case, read, unit, mode)
                if outcome in ("raised", "harmless", "exact", "elsewhere"):
                    outcomes[outcome] += 1
                else:
                    faults.append(f"{read.__name__} of {unit}, on_corrupt={mode!r}, {outcome}")
            return outcomes, faults
        finally:
            for name in case.changes:
                self._write(name, self.kind.files[name])

    def _verified(self, case: Case) -> str:
        """What verify said."""
        try:
            text = "\n".join(map(str, readers.verify(self.directory).problems))
        except DatasetError as error:
            text = str(error)
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
        return "named" if any(_names(text, name) for name in case.changes) else "not named"

    def _read(self, case: Case, read: Any, unit: str | None, on_corrupt: str) -> str:
        """What a reading came to: a countable outcome, or a fault in words."""
        lost, expected = self._lost(case, unit), self._expected[read, unit]
        try:
            found = read(str(self.directory), self.kind, unit, on_corrupt)
        except Exception as error:
            if not _is_documented(error, read):
                return f"raised {type(error).__name__}: {error}"
            if str(self.directory) not in str(error):
                return f"raised an error that names no file: {error}"
            if on_corrupt == "skip" and lost is not None and len(lost) < len(expected):
                return f"lost more than {len(lost)} records: {error}"
            return "raised"
        if wrong := [key for key, record in found if self._values[read].get(key) != record]:
            return f"delivered a wrong value: {wrong[0]!r}"
        keys, intact = Counter(key for key, _ in found), Counter(key for key, _ in expected)
        if keys == intact:
            return "harmless"
        if on_corrupt == "skip" and lost is not None:
            left = set(intact) - {expected[number][0] for number in lost}
            return "exact" if set(keys) == left else f"delivered {sorted(map(str, keys))}"
        if case.damage.startswith("swapped") or self.kind.schema is not None:
            return "elsewhere"
        if on_corrupt == "skip" and set(keys) <= set(intact):
            return "exact"
        return f"delivered {len(found)} records without an error"

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
            if data is None or len(data) != len(intact):
                return False
            starts = [start for start, _ in spans(intact)]
            if any(data[at : at + 12] != intact[at : at + 12] for at in starts):
                return False
        return True


def may_be_unnamed(case: Case) -> bool:
    """Whether docs/internals/format.md says that verify does not find a damage: that of rejects, or one manifest of two is gone."""
    of = {what_is(name) for name in case.changes}
    return of <= {"rejects"} or (case.damage == "deleted file" and of <= {"manifest", GENERATIONS})


def _names(text: str, file: str) -> bool:
    """Whether a text names a file: it, and not a longer name that begins with it."""
    return re.search(rf"(?<![\w-]){re.escape(file)}(?!\.index|\w)", text) is not None


def _is_documented(error: Exception, read: Any) -> bool:
    if isinstance(error, DOCUMENTED) or read is not load:
        return isinstance(error, DOCUMENTED)
    import tensorflow as tf

    return isinstance(error, tf.errors.OpError)
