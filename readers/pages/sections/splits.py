"""Splits: their inputs, records and shards, and why inputs were rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from readers.files.of_path import files_of
from readers.format.display import counted, format_balance, format_bytes
from readers.format.manifest import divided, join
from readers.format.rejects import reasons_of
from readers.format.splits import Split
from readers.pages.markup import element, table
from readers.pages.numbers import part, percent
from readers.pages.study import Study

_REASONS = 8

# Files and bytes to read: enough to find the reasons of any number of rejects.
_FILES, _BYTES = 64, 8 << 20

# The most characters of a key, and of an error.
_LONGEST = 500


def section(study: Study) -> list[Element]:
    """The inputs, records and shards of each split, in words."""
    splits, parts = study.manifest.splits, list[Element]()
    records = sum(split.records for split in splits.values()) or 1
    for name, split in splits.items():
        count = f"{counted(split.records, 'record')} ({percent(split.records / records)})"
        parts.append(element("h3", name, id=study.anchor("", name)))
        parts.append(element("p", f"{count} in {_shards(split)}. {_found(split)}."))
    return [*parts, *_reasons(study)] if study.manifest.rejected else parts


def _reasons(study: Study) -> Iterator[Element]:
    """Yields why inputs were rejected, as far as the lists of rejects say so."""
    rejected = study.manifest.rejected
    yield element("h3", "Why inputs were rejected")
    reasons = reasons_of(_rejects(study.directory, study.manifest.rejects))
    if not reasons:
        yield element("p", "The lists in ", element("code", "rejects/"), " cannot be read.")
        return
    heads = (
        element("th", "Inputs", scope="col", class_="number"),
        element("th", "Reason", scope="col"),
    )
    rows = (
        (
            element("td", f"{reason.count:,}", class_="number"),
            element("td", f"{reason.reason}, such as ", element("code", reason.example)),
        )
        for reason in reasons[:_REASONS]
    )
    yield table(heads, rows)
    counted_in = sum(reason.count for reason in reasons)
    if counted_in < rejected:
        yield element("p", f"Counted in {counted_in:,} of {rejected:,} rejects.")


def _found(split: Split) -> str:
    """The number of inputs that were written, rejected and dropped, in words."""
    found = split.records + split.rejected + split.duplicates
    parts = (("rejected", split.rejected), ("dropped as duplicates", split.duplicates))
    words = "".join(f", {part(count, found)} {name}" for name, count in parts if count)
    return f"{found:,} inputs: {split.records:,} written{words or ', none rejected or dropped'}"


def _shards(split: Split) -> str:
    """The number of shards, their records and their bytes, in words."""
    if len(split.shards) < 2:
        return f"1 shard of {format_bytes(split.bytes)}" if split.shards else "no shards"
    records = format_balance([shard.records for shard in split.shards])
    sizes = format_balance([shard.bytes for shard in split.shards], format_bytes)
    return f"{len(split.shards):,} shards, each with {records} records ({sizes})"


def _rejects(directory: str, lists: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (key, error) of the first rejects in the lists of a dataset that can be read."""
    try:
        size = _BYTES // max(len(lists[:_FILES]), 1)
        files = [join(divided(directory)[0], path) for path in lists[:_FILES]]
        data = [files_of(file).read(file, 0, size) for file in files]
    except (OSError, ValueError):
        return
    for line in (line for each in data for line in each[: each.rfind(b"\n") + 1].splitlines()):
        try:
            found = json.loads(line)
            yield str(found["key"])[:_LONGEST], str(found["error"])[:_LONGEST]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
