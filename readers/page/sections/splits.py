"""Splits: what was found, written, rejected and dropped, and how even the shards are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

import numpy as np

from readers.files.of_path import files_of
from readers.format.manifest import join
from readers.format.rejects import reasons_of
from readers.format.splits import Split
from readers.page import charts
from readers.page.section import Section
from readers.page.study import Study

# Bars of shards; of more shards, each bar is the largest of several.
_BARS = 200

_REASONS = 8


def section(study: Study) -> Section:
    """A strip of found = written + rejected + duplicates for each split, and its shards as bars."""
    splits = study.manifest.splits
    records = sum(split.records for split in splits.values())
    rows = [
        {
            "anchor": study.anchor("", name),
            "name": name,
            "split": split,
            "share": split.records / records if records else 0.0,
            "strip": _strip(split),
            "shards": _shards(split),
            "spread": _spread(split),
        }
        for name, split in splits.items()
    ]
    rejects = first_rejects(study.directory, study.manifest.rejects)
    reasons = reasons_of(rejects)
    return Section.filled(
        "splits", rows=rows, reasons=reasons[:_REASONS], rejected=study.manifest.rejected
    )


def _strip(split: Split) -> Element:
    parts = {
        "written": split.records,
        "rejected": split.rejected,
        "duplicates dropped": split.duplicates,
    }
    found = sum(parts.values())
    return charts.strip(parts, f"{found:,} found = written + rejected + duplicates")


def _shards(split: Split) -> list[Element]:
    """The records and the bytes of each shard as bars from 0; none for a single shard."""
    if len(split.shards) < 2:
        return []
    several = -(-len(split.shards) // _BARS)
    what = "a shard" if several == 1 else f"the largest of {several} shards"
    return [
        charts.histogram(
            {"": _largest_of(np.array(values, np.float64), several)},
            np.linspace(0, len(split.shards), -(-len(split.shards) // several) + 1),
            f"{noun} of {what}, by its number",
            are_apart=True,
        )
        for noun, values in (
            ("Records", [shard.records for shard in split.shards]),
            ("Bytes", [shard.bytes for shard in split.shards]),
        )
    ]


def _largest_of(values: np.ndarray, several: int) -> np.ndarray:
    """The largest value of each run of `several` neighbours."""
    return np.maximum.reduceat(values, np.arange(0, len(values), several))


def _spread(split: Split) -> str:
    """How much shards differ, in words; empty for a single shard."""
    if not split.records:
        return "no records"
    if len(split.shards) < 2:
        return ""
    records = [shard.records for shard in split.shards]
    sizes = [shard.bytes for shard in split.shards]
    mean = sum(sizes) / len(sizes) or 1.0
    return (
        f"{min(records):,} to {max(records):,} records a shard (difference "
        f"{max(records) - min(records):,}); the largest has {max(sizes) / mean:.3f} times the mean of the bytes"
    )


# Files and bytes that are read: enough for the reasons, whatever the number of rejects.
_FILES, _BYTES = 64, 8 << 20

# Characters of a key, and of an error.
_LONGEST = 500


def first_rejects(directory: str, lists: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (key, error) of the first rejects in the lists of a dataset, as far as they can be read."""
    for line in _lines([join(directory, path) for path in lists[:_FILES]]):
        try:
            found = json.loads(line)
            yield str(found["key"])[:_LONGEST], str(found["error"])[:_LONGEST]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue


def _lines(files: Sequence[str]) -> list[bytes]:
    """The whole lines at the beginning of some files."""
    try:
        size = _BYTES // max(len(files), 1)
        data = [files_of(file).read(file, 0, size) for file in files]
    except (OSError, ValueError):
        return []
    return [line for each in data for line in each[: each.rfind(b"\n") + 1].splitlines()]
