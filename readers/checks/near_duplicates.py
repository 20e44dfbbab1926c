"""Checks of pictures, texts and signals that are nearly the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from readers.checks.contents import is_name
from readers.checks.facts import EXAMPLES, Check, Facts
from readers.format.findings import Finding
from readers.format.similarity.pairs import Pairs, near_pairs
from readers.format.similarity.pictures import (
    PICTURE_CORRELATION,
    PICTURE_DIFFERENCE,
    PICTURE_DISTANCE,
    alike_pictures,
)
from readers.format.similarity.recordings import (
    RECORDING_CORRELATION,
    RECORDING_DISTANCE,
    alike_recordings,
)
from readers.format.similarity.signatures import similar_pairs
from readers.format.similarity.texts import TEXT_SIMILARITY


def similar_records(facts: Facts) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields features, and the records of all samples that are near duplicates but not equal, in pairs."""
    samples = list(facts.samples.values())
    for feature in facts.features("picture"):
        there = np.flatnonzero(np.concatenate([s.hashed[feature] for s in samples]))
        hashes = np.concatenate([s.hashes[feature] for s in samples])[there]
        lumas = np.concatenate([s.lumas[feature] for s in samples])[there]
        pairs = near_pairs(hashes, PICTURE_DISTANCE)
        likeness = alike_pictures(lumas[pairs.first], lumas[pairs.second])
        alike = (likeness.correlation >= PICTURE_CORRELATION) & (
            likeness.difference <= PICTURE_DIFFERENCE
        )
        yield _of_records(facts, feature, there, Pairs(*(part[alike] for part in pairs)))
    for feature in facts.features("signal"):
        there = np.flatnonzero(np.concatenate([s.hashed[feature] for s in samples]))
        hashes = np.concatenate([s.hashes[feature] for s in samples])[there]
        portraits = np.concatenate([s.portraits[feature] for s in samples])[there]
        pairs = near_pairs(hashes, RECORDING_DISTANCE)
        alike = (
            alike_recordings(portraits[pairs.first], portraits[pairs.second])
            >= RECORDING_CORRELATION
        )
        yield _of_records(facts, feature, there, Pairs(*(part[alike] for part in pairs)))
    for feature in (name for name in facts.features("text") if not is_name(facts, name)):
        signatures = np.concatenate([s.signatures[feature] for s in samples])
        there = np.flatnonzero(signatures.any(axis=1))
        found = similar_pairs(signatures[there], TEXT_SIMILARITY)
        yield _of_records(facts, feature, there, found)


def _of_records(
    facts: Facts, feature: str, there: np.ndarray, found: Pairs
) -> tuple[str, np.ndarray, np.ndarray]:
    digests = facts.digests(feature)
    first, second = there[found.first], there[found.second]
    differ = digests[first] != digests[second]
    return feature, first[differ], second[differ]


def _found(facts: Facts, name: str, words: str, in_one_split: bool) -> Iterator[Finding]:
    splits = facts.splits
    for feature, first, second in similar_records(facts) if facts.samples else ():
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
