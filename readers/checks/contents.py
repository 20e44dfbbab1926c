"""What is made for each record, so that a copy is a fault: pictures, texts and signals, or the rows of a table without them.

A scalar has the value of many records, and so has a short text that names a category, such as a city.
"""

from __future__ import annotations

import numpy as np

from readers.checks.facts import Facts

_KINDS = ("picture", "text", "signal")
_COLUMNS = ("floats", "integers", "text")

# Names that are each in ten records on average are categories, of which equal ones are no copies.
_RECORDS_A_CATEGORY = 10

# Rows are compared if chance makes fewer equal pairs than this, were the columns independent.
_PAIRS_BY_CHANCE = 0.01

# The digest of a row is a polynomial of those of its columns.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


# A feature, or empty for all features but the label; and digests of its values, uint64 [records]: equal values have
# equal ones, and empty values 0.
Content = tuple[str, np.ndarray]


def contents_of(facts: Facts) -> list[Content]:
    """The pictures, texts and signals of a dataset; the rows of its table if it has none of these."""
    features = [name for name in facts.features.of_kind(*_KINDS) if not _names_things(facts, name)]
    return [(name, facts.digests(name)) for name in features] or _rows(facts)


def _names_things(facts: Facts, feature: str) -> bool:
    """Whether a feature names categories, or each record."""
    found = facts.digests(feature)
    different = len(np.unique(found))
    is_category = different * _RECORDS_A_CATEGORY <= len(found)
    return facts.is_name(feature) and (is_category or different == len(found))


def _rows(facts: Facts) -> list[Content]:
    """The rows of a table, but for the label and columns that name records; none if its values are so few that chance makes equal rows."""
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
