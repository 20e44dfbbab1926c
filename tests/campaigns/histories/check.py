"""Compares datasets with the model, as readers see them."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import readers
from readers.format.manifest import Manifest
from tests.campaigns.histories.model import Seen, State, Values
from tests.campaigns.values import read_files
from tests.support.datasets import parse_tfrecord

_CHANGING = re.compile(r"/manifest\.json$|/\.staging/|\.done$")


class Checker:
    """Checks the datasets in a folder after each command.

    A generation is read when it is new, and at the end of the history; in between, its files must not change.

    Attributes:
        files: Path -> content of each file, which must never change.
        batches: Generation and split -> the batches of a shuffled epoch, which must never change.
        paths: Generation -> its files.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self.chance = root, chance
        self.files: dict[str, bytes] = {}
        self.batches: dict[tuple[str, str], Any] = {}
        self.paths: dict[int, set[str]] = {}

    def check(self, state: State, every: bool = False) -> None:
        """Checks all files, and what is new, or everything."""
        files = read_files(self.root)
        for name in [n for n in self.files if n.startswith("photos/tags/") and n not in files]:
            del self.files[name]  # A purge frees the name.
        for name, data in files.items():
            if not _CHANGING.search(name):
                if name not in self.files and name.endswith(".tfrecord"):
                    parse_tfrecord(data)
                assert self.files.setdefault(name, data) == data, f"{name} has two contents"
        found = {int(name[19:-5]) for name in files if name.startswith("photos/generations/")}
        assert found == state.generations.keys()
        newest = f"photos/generations/{state.newest}.json"
        assert files["photos/manifest.json"] == files[newest]
        tags = {
            n[12:]: int(data.split()[0]) for n, data in files.items() if n[:12] == "photos/tags/"
        }
        # Those of generations that are gone may be left.
        ours = {name: number for name, number in tags.items() if name[0] == "t" and number in found}
        assert ours == {name: n for name, n in state.tags.items() if name[0] == "t" and n in found}
        assert {*tags.values()} & found == {*state.tags.values()} & found
        if every or state.newest not in self.paths:
            self.newest(state)
        for number in found - {state.newest} if every else found - self.paths.keys():
            self._read(f"photos@{number}", state.generations[number])
        for number in found & self.paths.keys():
            assert {f"photos/{path}" for path in self.paths[number]} <= files.keys()
        for name in [*state.others] if every else [*state.others][-1:]:
            if every or (name, "train") not in self.batches:
                self._read(name, state.others[name][0])
                assert readers.verify(str(self.root / name)).ok
        for number in found - self.paths.keys():
            self.paths[number] = Manifest.read(str(self.root / f"photos@{number}")).paths

    def newest(self, state: State) -> None:
        """Checks the newest generation."""
        report = readers.verify(str(self.root / "photos"))
        assert report.ok, report.problems
        self._read("photos", state.seen, f"photos@{state.newest}")

    def _read(self, name: str, seen: Seen, known: str = "") -> None:
        path = str(self.root / name)
        manifest = Manifest.read(path)
        values = json.loads(manifest.to_bytes())
        needs = {n for split in values["splits"].values() for n in split if n in ("gone", "rows")}
        needs |= {name for name in ("families", "base") if values.get(name)}
        needs |= {"indexes"} if name[:5] == "index" else set()
        assert {*values["requires"]} == needs
        names = {"key", "label", "x", *seen.features, *seen.families}
        assert manifest.schema.keys() == names
        assert {*manifest.splits} == ({seen.only} if seen.only else {"train", "val"})
        for split, part in manifest.splits.items():
            records = seen.split(split)
            assert part.records == len(records), split
            _compare_statistics(part.statistics, [*records.values()], seen)
            if records:
                self._read_split(path, split, records, known or name)

    def _read_split(self, path: str, split: str, records: dict[str, Values], name: str) -> None:
        found = readers.as_numpy(
            path, 7, split=split, shuffle=True, batching="ragged", remainder="short"
        )
        batches = [
            {n: [np.array(v).tolist() for v in column] for n, column in b.items()} for b in found
        ]
        assert self.batches.setdefault((name, split), batches) == batches
        rows = [
            dict(zip(batch, row, strict=False))
            for batch in batches
            for row in zip(*batch.values(), strict=False)
        ]
        assert {row.pop("key").decode(): row for row in rows} == records
        if (
            name[:5] == "index"
        ):  # Its records are not ordered by their keys, as far as readers know.
            return
        source, keys = readers.RecordSource(path, split), [*records]
        in_order = readers.as_numpy(path, 7, split=split, columns=["key"], remainder="short")
        assert [key.decode() for batch in in_order for key in batch["key"]] == keys
        row = self.chance.randrange(len(keys))
        assert source.find(keys[row]) == row
        record = {name: np.array(value).tolist() for name, value in source[row].items()}
        assert (record.pop("key").decode(), record) == (keys[row], records[keys[row]])
        if (other := f"k{self.chance.randrange(90)}") not in records:
            with pytest.raises(KeyError):
                source.find(other)


def _compare_statistics(found: dict[str, Any], records: list[Values], seen: Seen) -> None:
    if not records:
        return
    scalars = [n for n in records[0] if n != "x" and (seen.whole or n not in seen.families)]
    for name in scalars:
        _compare(found[name], [record[name] for record in records], seen.exact)
    labels = [record["label"] for record in records]
    assert found["label"]["values"] == {str(n): labels.count(n) for n in sorted({*labels})}
    _compare(found["x"]["lengths"]["0"], [len(record["x"]) for record in records], seen.exact)
    if seen.whole:
        _compare(found["x"], [each for record in records for each in record["x"]], seen.exact)
    else:
        assert "sum" not in found["x"]


def _compare(found: dict[str, Any], numbers: list[float], exact: bool) -> None:
    assert found.get("count", 0) == len(numbers)
    if not numbers:
        return
    total = sum(map(Fraction, numbers)), sum(Fraction(n) ** 2 for n in numbers)
    assert tuple(Fraction(float.fromhex(found[n])) for n in ("sum", "squares")) == total
    low, high = min(numbers), max(numbers)
    assert found["min"] <= low <= high <= found["max"]
    assert not exact or (found["min"], found["max"]) == (low, high)
