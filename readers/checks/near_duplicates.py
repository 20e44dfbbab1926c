"""Checks of pictures and texts that are nearly the same.

Signals are left out: the hashes of short ones that are little more than a tone or two are alike by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from readers.checks.contents import is_name
from readers.checks.facts import EXAMPLES, Check, Facts
from readers.checks.finding import Finding
from readers.similarity.pairs import Pairs, near_pairs
from readers.similarity.pictures import PICTURE_CORRELATION, PICTURE_DISTANCE, correlations
from readers.similarity.signatures import similar_pairs
from readers.similarity.texts import TEXT_SIMILARITY


def _pairs(facts: Facts) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields features, and the records of all samples that are near duplicates but not equal, in pairs."""
    samples = list(facts.samples.values())
    for feature in facts.features("picture"):
        there = np.flatnonzero(np.concatenate([s.hashed[feature] for s in samples]))
        hashes = np.concatenate([s.hashes[feature] for s in samples])[there]
        lumas = np.concatenate([s.lumas[feature] for s in samples])[there]
        pairs = near_pairs(hashes, PICTURE_DISTANCE)
        alike = correlations(lumas[pairs.first], lumas[pairs.second]) >= PICTURE_CORRELATION
        yield _of_records(facts, feature, there, Pairs(*(part[alike] for part in pairs)))
    for feature in (name for name in facts.features("text") if not is_name(facts, name)):
        signatures = np.concatenate([s.signatures[feature] for s in samples])
        there = np.flatnonzero(signatures.any(axis=1))
        found = similar_pairs(signatures[there], TEXT_SIMILARITY)
        yield _of_records(facts, feature, there, found)


def _of_records(
    facts: Facts, feature: str, there: np.ndarray, found: Pairs
) -> tuple[str, np.ndarray, np.ndarray]:
    digests = np.concatenate([sample.digests[feature] for sample in facts.samples.values()])
    first, second = there[found.first], there[found.second]
    differ = digests[first] != digests[second]
    return feature, first[differ], second[differ]


def _found(facts: Facts, name: str, words: str, in_one_split: bool) -> Iterator[Finding]:
    seen = [sample.seen for sample in facts.samples.values()]
    splits = np.repeat(np.arange(len(seen)), seen)
    for feature, first, second in _pairs(facts) if seen else ():
        chosen = (splits[first] == splits[second]) == in_one_split
        mask = np.zeros(len(splits), bool)
        mask[first[chosen]] = mask[second[chosen]] = True
        for finding in facts.of_records(
            name, "warning", feature, mask, f"are nearly the same as {words}"
        ):
            yield replace(finding, examples=_names_of_pairs(facts, first[chosen], second[chosen]))


def _names_of_pairs(facts: Facts, first: np.ndarray, second: np.ndarray) -> tuple[str, ...]:
    pairs = [
        facts.names_of_records(pair)
        for pair in zip(first[:EXAMPLES], second[:EXAMPLES], strict=True)
    ]
    return tuple(" = ".join(pair) for pair in pairs)


def _duplicates(facts: Facts) -> Iterator[Finding]:
    yield from _found(facts, "near_duplicates", "another in their split", True)


def _leaks(facts: Facts) -> Iterator[Finding]:
    yield from _found(facts, "near_leaks", "one in another split", False)


CHECKS = (
    Check(
        "near_duplicates",
        "pictures and texts that are nearly the same as another in their split, but not equal",
        _duplicates,
    ),
    Check(
        "near_leaks",
        "pictures and texts that are nearly the same as one in another split, but not equal",
        _leaks,
    ),
)
