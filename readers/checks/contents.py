"""What was made for each record, so that a copy is a fault: pictures, texts and signals, or else the rows of a table.

A scalar has the value of many records, and so has a short text that names a category, such as a city.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from readers.checks.facts import Facts
from readers.describe import counted_label

_KINDS = ("picture", "text", "signal")
_COLUMNS = ("floats", "integers", "text")

# Texts that are all shorter than this are names, such as those of cities or patients: similar ones are no
# copies, and if each is in ten records on average, equal ones are none either.
_NAME = 32
_RECORDS_A_CATEGORY = 10

# Rows are compared if fewer pairs of them than this would be equal by chance, were their columns independent.
_PAIRS_BY_CHANCE = 0.01

# Digests of columns are joined by a polynomial, whose coefficients they are.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Content(NamedTuple):
    """What the records of the samples have, of which equal values are copies.

    Attributes:
        feature: The feature; empty if it is all features but the label.
        digests: Digests of the values, uint64 [records]; equal values have equal ones, and empty values 0.
    """

    feature: str
    digests: np.ndarray


def contents(facts: Facts) -> list[Content]:
    """The features of which equal values are copies; if there is none, the rows of which they are."""
    features = [name for name in facts.features(*_KINDS) if not _names_things(facts, name)]
    return [Content(name, digests(facts, name)) for name in features] or _rows(facts)


def digests(facts: Facts, feature: str) -> np.ndarray:
    """Digests of a feature's values in all samples, uint64 [records]."""
    found = [sample.digests[feature] for sample in facts.samples.values()]
    return np.concatenate([*found, np.empty(0, np.uint64)])


def is_name(facts: Facts, feature: str) -> bool:
    """Whether all texts of a feature are as short as names are."""
    lengths = facts.measured(feature, "characters")
    return bool(len(lengths)) and bool((lengths < _NAME).all())


def _names_things(facts: Facts, feature: str) -> bool:
    """Whether a feature names categories, or each record."""
    if feature not in facts.features("text") or not is_name(facts, feature):
        return False
    found = digests(facts, feature)
    return len(np.unique(found)) * _RECORDS_A_CATEGORY <= len(found) or _differ(found)


def _differ(values: np.ndarray) -> bool:
    return len(np.unique(values)) == len(values)


def _rows(facts: Facts) -> list[Content]:
    """The rows of a table, unless it has so few different values that chance makes equal ones.

    Columns that name each record, and the label, may differ between copies.
    """
    label, numbers = counted_label(facts.manifest), facts.features("floats")
    columns = [
        digests(facts, name)
        for name in facts.features(*_COLUMNS)
        if name in numbers or (name != label and not _differ(digests(facts, name)))
    ]
    if not columns or not len(columns[0]):
        return []
    rows = np.zeros_like(columns[0])
    pairs = len(rows) ** 2 / 2
    for column in columns:
        rows = rows * _FACTOR + column
        counts = np.unique(column, return_counts=True)[1]
        pairs *= float(np.square(counts / len(rows)).sum())
    return [Content("", rows)] if pairs < _PAIRS_BY_CHANCE else []
