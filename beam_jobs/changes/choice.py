"""The records that a command is given, by a condition or by their numbers, and lists of them."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from beam_jobs.dataset.changes import Change
from beam_jobs.errors import UsageError
from readers.files.of_path import read_file
from readers.format.lookup.stored import flags_where, seen_flags
from readers.format.lookup.where import Where
from readers.format.manifest import Manifest
from readers.format.splits import Split

UTF8 = "utf-8", "surrogateescape"


def add_choice(parser: argparse.ArgumentParser) -> Any:
    """Adds the arguments that choose records; returns the group of those of which one is required."""
    group = parser.add_mutually_exclusive_group(required=True)
    text = "a condition, such as 'label == \"cat\" and len(boxes) > 0'"
    group.add_argument("--where", metavar="EXPR", help=text)
    text = "a file with the number of a record, in its split, on each line"
    group.add_argument("--rows", metavar="FILE", help=text)
    parser.add_argument("--split", metavar="NAME", help="only this split (default: all)")
    return group


def splits_of(manifest: Manifest, parsed: argparse.Namespace) -> list[str]:
    """The names of the splits that are meant; ValueError if there is no such split."""
    if parsed.split:
        manifest.split(parsed.split)
    return [parsed.split] if parsed.split else list(manifest.splits)


def given(parsed: argparse.Namespace, keys: Sequence[str] | None = None) -> dict[str, str]:
    """What a command is given, for the manifest; keys as a digest, because they may have to be forgotten."""
    kind, value = "where", parsed.where
    if value is None:
        text = read_file(parsed.rows) if keys is None else "\n".join(sorted(keys)).encode(*UTF8)
        kind = "rows" if keys is None else "keys"
        value = hashlib.blake2b(text, digest_size=8).hexdigest()
    return {**({"split": parsed.split} if parsed.split else {}), kind: value}


def chosen_rows(
    directory: str, manifest: Manifest, parsed: argparse.Namespace
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each split, and the rows that are chosen of those that readers see, int64 [n], ascending.

    Raises:
        UsageError: A number is wrong.
        ValueError: The condition is wrong, or a file is damaged.
    """
    names = splits_of(manifest, parsed)
    if parsed.rows is not None and len(names) > 1:
        raise UsageError(f"--rows: add --split, because there are {', '.join(names)}")
    for name in names:
        split = manifest.splits[name]
        seen = seen_flags(directory, split)
        if parsed.rows is not None:
            yield name, np.flatnonzero(seen)[_numbers_in(parsed.rows, split.records)]
        else:
            where = Where(parsed.where, manifest.schema, manifest.classes)
            yield name, np.flatnonzero(seen & flags_where(directory, split, where))


def _numbers_in(path: str, records: int) -> np.ndarray:
    try:
        numbers = np.unique(np.array(read_file(path).split(), np.int64))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--rows {path}: expected a number on each line ({error})") from None
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < records:
        ends = f"{numbers[0]} to {numbers[-1]}"
        raise UsageError(f"--rows {path}: numbers from {ends}, but there are {records} records")
    return numbers


def with_rows(change: Change, path: str, split: Split, seen: np.ndarray, is_subset: bool) -> Split:
    """A split of which readers see some rows, bool [stored], after its list is written, whose path lacks an end.

    The list is of these rows if the split is a subset, else of those that are gone.
    """
    kind, listed = ("rows", seen) if is_subset and seen.any() else ("gone", ~seen)
    rows = change.write_rows(f"{path}.{kind}", np.flatnonzero(listed), split.stored)
    return replace(split, **{"gone": None, "rows": None, kind: rows})
