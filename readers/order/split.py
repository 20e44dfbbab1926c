"""Which records a text such as `train[:10%]` asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SPLIT = re.compile(r"(?P<name>[A-Za-z0-9_.]+)(?:\[(?P<start>[^:\]]*):(?P<stop>[^:\]]*)\])?")

_BOUND = re.compile(r"(?P<number>[+-]?[0-9][0-9_]*)(?P<percent>%?)")

_FORMS = "'train', 'train[:10%]', 'train[1000:2000]', 'train[-100:]' or 'train[50%:]'"


def split_name(text: str) -> str:
    """The name of the split that a text such as `train[:10%]` asks for.

    Raises:
        ValueError: The text has none of the forms; the message shows them.
    """
    match = _SPLIT.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise ValueError(f"split {text!r}: expected one of the forms {_FORMS}")
    return match["name"]


def parse_split(text: str, counts: Mapping[str, int]) -> tuple[str, int, int]:
    """The (name, start, stop) of the records that a split text asks for, as TFDS reads it.

    Percents are rounded to the closest record, so that `[:10%]` and `[10%:]` share none and lose
    none. Source: `tensorflow_datasets/core/splits.py`, rounding "closest".

    Args:
        text: `"train"`, or with a slice in records or percents; negative ones count from the end.
        counts: Split name -> its number of records.

    Raises:
        ValueError: The text has none of the forms, the split is unknown, or the slice lies
            outside of it or holds no record.

    Example:
        >>> parse_split("train[-25%:]", {"train": 1000})
        ('train', 750, 1000)
    """
    name = split_name(text)
    if name not in counts:
        raise ValueError(f"unknown split {name!r}: the dataset has {', '.join(counts)}")
    records = counts[name]
    match = _SPLIT.fullmatch(text)
    if not match or match["start"] is None:
        return name, 0, records
    if not match["start"].strip() and not match["stop"].strip():
        raise ValueError(f"split {text!r}: the slice is empty; one of the forms {_FORMS}")
    start = _bound(text, match["start"], records, default=0)
    stop = _bound(text, match["stop"], records, default=records)
    if start >= stop:
        raise ValueError(f"split {text!r} holds no record: {start} to {stop} of {records}")
    return name, start, stop


def _bound(text: str, bound: str, records: int, default: int) -> int:
    if not bound.strip():
        return default
    match = _BOUND.fullmatch(bound.strip())
    if not match:
        raise ValueError(f"split {text!r}: {bound!r} is no bound; one of the forms {_FORMS}")
    number = int(match["number"])
    if match["percent"]:
        if abs(number) > 100:
            raise ValueError(f"split {text!r}: percents go from -100 to 100, found {number}")
        number = round(number * records / 100)
    if abs(number) > records:
        raise ValueError(f"split {text!r}: {number} lies outside of its {records} records")
    # By the sign as written: -1% of a few records, rounded to 0, is still counted from the end.
    return records + number if bound.strip().startswith("-") else number


def shard_ranges(counts: Sequence[int], start: int, stop: int) -> list[tuple[int, int, int]]:
    """The (shard, skip, take) whose records, one after another, are those from start to stop.

    Args:
        counts: Records of each shard.
        start, stop: The range over all of them; shards outside of it, or empty, are left out.
    """
    ranges = []
    first = 0
    for shard, count in enumerate(counts):
        low, high = max(start - first, 0), min(stop - first, count)
        if low < high:
            ranges.append((shard, low, high - low))
        first += count
    return ranges
