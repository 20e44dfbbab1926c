"""Checks of pictures, texts and signals that are nearly the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from readers.checks.facts import EXAMPLES, Check, Facts
from readers.format.findings import Finding


def _found(facts: Facts, name: str, words: str, in_one_split: bool) -> Iterator[Finding]:
    splits = facts.splits
    for feature, (first, second) in facts.similar.items():
        chosen = (splits[first] == splits[second]) == in_one_split
        mask = np.zeros(len(splits), bool)
        mask[first[chosen]] = mask[second[chosen]] = True
        for finding in facts.of_records(
            name, "warning", feature, mask, f"are nearly the same as {words}"
        ):
            pairs = np.stack([first[chosen], second[chosen]], axis=1)[:EXAMPLES]
            examples = tuple(" = ".join(facts.names_of_records(pair)) for pair in pairs)
            yield replace(finding, examples=examples, places=facts.places(pairs.reshape(-1)))


def _duplicates(facts: Facts) -> Iterator[Finding]:
    yield from _found(facts, "near_duplicates", "another in their split", True)


def _leaks(facts: Facts) -> Iterator[Finding]:
    yield from _found(facts, "near_leaks", "one in another split", False)


CHECKS = (
    Check(
        "near_duplicates",
        "pictures, texts and signals that are nearly the same as another in their split, but not equal",
        _duplicates,
    ),
    Check(
        "near_leaks",
        "pictures, texts and signals that are nearly the same as one in another split, but not equal",
        _leaks,
    ),
)
