"""Splits: what was found, written, rejected and dropped, how even the shards are, and why inputs were rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from readers.checks.splits import wanted_shares
from readers.files.of_path import files_of
from readers.format.display import format_bytes
from readers.format.manifest import join
from readers.format.rejects import reasons_of
from readers.format.splits import Split
from readers.pages.numbers import part, percent
from readers.pages.section import Section
from readers.pages.study import Study

_REASONS = 8


def section(study: Study) -> Section:
    """What became of the inputs of each split, and its shards, in words."""
    splits = study.manifest.splits
    records = sum(split.records for split in splits.values())
    wanted = wanted_shares(str(study.manifest.options.get("splits", "")))
    wanted = wanted if set(wanted) == set(splits) else {}
    rows = [
        {
            "anchor": study.anchor("", name),
            "name": name,
            "records": split.records,
            "share": _share(split.records / records if records else 0.0, wanted.get(name)),
            "shards": _shards(split),
            "found": _found(split),
        }
        for name, split in splits.items()
    ]
    reasons = reasons_of(first_rejects(study.directory, study.manifest.rejects))
    return Section.filled(
        "splits", rows=rows, reasons=reasons[:_REASONS], rejected=study.manifest.rejected
    )


def _share(found: float, wanted: float | None) -> str:
    return percent(found) + ("" if wanted is None else f", asked for {percent(wanted)}")


def _found(split: Split) -> str:
    """What became of the inputs, in words."""
    found = split.records + split.rejected + split.duplicates
    parts = (("rejected", split.rejected), ("dropped as duplicates", split.duplicates))
    words = "".join(f", {part(count, found)} {name}" for name, count in parts if count)
    return f"{found:,} inputs: {split.records:,} written{words or ', none rejected or dropped'}"


def _shards(split: Split) -> str:
    """The number of shards, their records and their bytes, in words."""
    if not split.shards:
        return "no shards"
    if len(split.shards) == 1:
        return f"1 shard of {format_bytes(split.bytes)}"
    records = [shard.records for shard in split.shards]
    sizes = [shard.bytes for shard in split.shards]
    return (
        f"{len(records):,} shards of {min(records):,} to {max(records):,} records, "
        f"{format_bytes(min(sizes))} to {format_bytes(max(sizes))}"
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
