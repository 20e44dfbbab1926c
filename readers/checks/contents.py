"""Which features hold what was made for each record, so that a copy is a fault: pictures, texts and signals.

A scalar has the value of many records, and so has a short text that names a category, such as a city.
"""

from __future__ import annotations

import numpy as np

from readers.checks.facts import Facts

_KINDS = ("picture", "text", "signal")

# Texts that are all shorter than this are names, such as those of cities or patients: similar ones are no
# copies, and if each is in ten records on average, equal ones are none either.
_NAME = 32
_RECORDS_A_CATEGORY = 10


def contents(facts: Facts) -> list[str]:
    """The features of which equal values are copies."""
    return [name for name in facts.features(*_KINDS) if not _is_category(facts, name)]


def is_name(facts: Facts, feature: str) -> bool:
    """Whether all texts of a feature are as short as names are."""
    lengths = facts.measured(feature, "characters")
    return bool(len(lengths)) and bool((lengths < _NAME).all())


def _is_category(facts: Facts, feature: str) -> bool:
    if feature not in facts.features("text") or not is_name(facts, feature):
        return False
    digests = np.concatenate([sample.digests[feature] for sample in facts.samples.values()])
    return len(np.unique(digests)) * _RECORDS_A_CATEGORY <= len(digests)
