"""Finds the record with a key among those of a plan, by the hashes in the indexes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from readers.format.lookup.keys import matches
from readers.format.lookup.rows import SeenRows
from readers.format.manifest import DatasetError
from readers.format.schema import Schema
from readers.shards.records import Records


def find(records: Records, key: str | bytes) -> int:
    """The number of the first record with a key, in the first dataset that has it.

    Raises:
        KeyError: There is no such record.
        DatasetError: (a ValueError) The records have no keys, or are not ordered by them.
    """
    plan, end = records.plan, 0
    octets = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    for keys, group in itertools.groupby(plan.parts, lambda part: part.keys):
        parts = list(group)
        if keys is None:
            raise DatasetError(
                f"{plan.name}: its records have no keys, or are ordered by other ones, as those of reshard are"
            )
        first, end = end, end + sum(part.take for part in parts)
        starts = first + np.cumsum([0, *(part.take for part in parts)])
        schema = Schema({keys.name: keys.feature})
        keyed = records.of_plan(replace(plan, schema=schema, work=None, decoders={}))
        indexes, smallest = [p.index for p in parts], [p.smallest_hash for p in parts]
        for number, rows in matches(indexes, smallest, keys.seed, [octets]):
            rows = rows - parts[number].skip
            rows = starts[number] + rows[(rows >= 0) & (rows < parts[number].take)]
            for found in _numbers(plan.rows, rows).tolist():
                if keyed.record(found)[keys.name].item() == octets:
                    return int(found)
    raise KeyError(f"no record of {plan.name} has the key {key!r}")


def _numbers(seen: SeenRows | None, rows: np.ndarray) -> np.ndarray:
    """The numbers of those among some rows that a reader sees."""
    if seen is None:
        return rows
    if not seen.are_gone:  # Those of several subsets do not ascend.
        return np.flatnonzero(np.isin(seen.listed, rows))
    numbers = seen.numbers_of(rows)
    return numbers[numbers >= 0]
