"""Splits and slices of splits, such as `train[:10%]`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

_SPLIT = re.compile(r"(?P<name>[A-Za-z0-9_.]+)(?:\[(?P<start>[^:\]]*):(?P<stop>[^:\]]*)\])?")

_BOUND = re.compile(r"(?P<number>[+-]?[0-9][0-9_]*)(?P<percent>%?)")

# A plus sign between two splits; a bound may begin with one.
_PLUS = re.compile(r"\+(?![^\[]*\])")

_FORMS = "'train', 'train[:10%]', 'train[1000:2000]', 'train[-100:]' or 'train[50%:]+val'"


def parse_split(text: str, counts: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """The runs (name, start, stop) of records in a sum of splits and slices, written as for TensorFlow Datasets.

    Percentages are rounded to the closest record, so that `[:10%]` and `[10%:]` do not overlap and
    leave no record out. Source: `tensorflow_datasets/core/splits.py`, rounding "closest".

    Example:
        >>> parse_split("train[-25%:]+val", {"train": 1000, "val": 100})
        [('train', 750, 1000), ('val', 0, 100)]
    """
    terms = _PLUS.split(text) if isinstance(text, str) else [text]
    runs = [_run(term.strip() if len(terms) > 1 else term, counts) for term in terms]
    for (name, _, stop), (following, start, _) in itertools.pairwise(sorted(runs)):
        if name == following and start < stop:
            raise ValueError(
                f"split {text!r}: record {start} of {name} is in two parts of the sum; to read records more "
                "often than others, use readers.Mix"
            )
    return runs


def _run(text: str, counts: Mapping[str, int]) -> tuple[str, int, int]:
    match = _SPLIT.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise ValueError(f"split {text!r}: expected one of the forms {_FORMS}")
    name = match["name"]
    if name not in counts:
        raise ValueError(f"unknown split {name!r}: the dataset has {', '.join(counts) or 'none'}")
    records = counts[name]
    if match["start"] is None:
        return name, 0, records
    if not match["start"].strip() and not match["stop"].strip():
        raise ValueError(f"split {text!r}: the slice is empty; expected one of the forms {_FORMS}")
    start = _bound(text, match["start"], records, default=0)
    stop = _bound(text, match["stop"], records, default=records)
    if start >= stop:
        raise ValueError(f"split {text!r} has no records: {start} to {stop} of {records}")
    return name, start, stop


def _bound(text: str, bound: str, records: int, default: int) -> int:
    """Converts a bound of a slice to the number of a record, from 0 to the number of records."""
    if not bound.strip():
        return default
    match = _BOUND.fullmatch(bound.strip())
    if not match:
        raise ValueError(
            f"split {text!r}: {bound!r} is not a valid bound; expected one of the forms {_FORMS}"
        )
    number = int(match["number"])
    if match["percent"]:
        if abs(number) > 100:
            raise ValueError(
                f"split {text!r}: found {number}%, expected percentages from -100 to 100"
            )
        number = round(number * records / 100)
    if abs(number) > records:
        raise ValueError(f"split {text!r}: {number} is outside its {records} records")
    # The sign in the text matters: -1% of a few records is rounded to 0, but counts from the end.
    return records + number if bound.strip().startswith("-") else number


def shard_ranges(counts: Sequence[int], start: int, stop: int) -> list[tuple[int, int, int]]:
    """(shard, skip, take) for each shard that has some of the records `start` to before `stop` of all shards."""
    ranges, first = [], 0
    for shard, count in enumerate(counts):
        low, high = max(start - first, 0), min(stop - first, count)
        if low < high:
            ranges.append((shard, low, high - low))
        first += count
    return ranges
