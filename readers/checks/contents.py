"""The values that should be unique to a record: pictures, texts and signals, or the rows of a table without them.

Many records may share a scalar, or a short text that names a category, such as a city.
"""

from __future__ import annotations

import numpy as np

from readers.checks.facts import Facts

_KINDS = ("picture", "text", "signal")
_COLUMNS = ("floats", "integers", "text")

# Names that occur in ten records on average are categories, and equal ones are not copies.
_RECORDS_A_CATEGORY = 10

# Rows are compared if fewer equal pairs are expected by chance, with independent columns.
_PAIRS_BY_CHANCE = 0.01

# The digest of a row is a polynomial of the digests of its columns.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

# A feature, or empty for all features except the label; and digests of its values, uint64 [records]: equal values have
# equal digests, and empty values 0.
Content = tuple[str, np.ndarray]


def contents_of(facts: Facts) -> list[Content]:
    """Selects the pictures, texts and signals of a dataset, or the rows of its table if it has none of these."""
    features = [name for name in facts.features.of_kind(*_KINDS) if not _names_things(facts, name)]
    return [(name, facts.digests(name)) for name in features] or _rows(facts)


def _names_things(facts: Facts, feature: str) -> bool:
    """Whether the texts of a feature name categories or single records."""
    found = facts.digests(feature)
    different = len(np.unique(found))
    is_category = different * _RECORDS_A_CATEGORY <= len(found)
    return facts.is_name(feature) and (is_category or different == len(found))


def _rows(facts: Facts) -> list[Content]:
    """The rows of a table, without the label and columns that name records; none if equal rows would occur by chance."""
    rows = np.zeros(len(facts.splits), np.uint64)
    pairs = len(rows) ** 2 / 2
    for name in facts.features.of_kind(*_COLUMNS):
        column = facts.digests(name)
        counts = np.unique(column, return_counts=True)[1]
        names_each = facts.features.kinds[name] != "floats" and len(counts) == len(column)
        if name != facts.label and not names_each:
            rows = rows * _FACTOR + column
            pairs *= float(np.square(counts / len(rows)).sum())
    return [("", rows)] if pairs < _PAIRS_BY_CHANCE else []
