"""Checks of values that several records share, exactly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from readers.checks.finding import Check, Facts, Finding

# Values of a scalar are shared by many records; those of these kinds are not.
_CONTENT = ("picture", "text", "signal")

# A text of which so many records are copies is a phrase, such as an answer that is always the same.
_FEWEST_COPIES, _MOST_COPIES = 10, 0.01


def _splits(facts: Facts) -> np.ndarray:
    """The number of the split of each record of the samples."""
    seen = [sample.seen for sample in facts.samples.values()]
    return np.repeat(np.arange(len(seen)), seen)


def _digests(facts: Facts, feature: str) -> tuple[np.ndarray, np.ndarray]:
    """The number of the value of each record of the samples, and how many records have each value."""
    digests = [sample.digests[feature] for sample in facts.samples.values()]
    _, numbers, counts = np.unique(
        np.concatenate([*digests, np.empty(0, np.uint64)]), return_inverse=True, return_counts=True
    )
    return numbers.reshape(-1), counts


def _duplicates(facts: Facts) -> Iterator[Finding]:
    splits = _splits(facts)
    for feature in facts.features(*_CONTENT):
        numbers, counts = _digests(facts, feature)
        first = np.unique(numbers * len(facts.samples) + splits, return_index=True)[1]
        again = np.ones(len(numbers), bool)
        again[first] = False
        count = int(again.sum())
        if count:
            words = (
                f"{count:,} of {len(numbers):,} records have the value of another in their split"
            )
            examples = facts.names_of(counts[numbers] > 1)
            yield Finding(
                "duplicates", "warning", words, feature, "", count, len(numbers), examples
            )


def _leaks(facts: Facts) -> Iterator[Finding]:
    splits = _splits(facts)
    for feature in facts.features(*_CONTENT):
        numbers, counts = _digests(facts, feature)
        low, high = np.full(len(counts), len(facts.samples)), np.full(len(counts), -1)
        np.minimum.at(low, numbers, splits)
        np.maximum.at(high, numbers, splits)
        shared = (low < high)[numbers]
        count = int(shared.sum())
        if count:
            words = f"{count:,} of {len(numbers):,} records have a value that is in several splits"
            examples = facts.names_of(shared)
            yield Finding("leaks", "error", words, feature, "", count, len(numbers), examples)


def _contradictions(facts: Facts) -> Iterator[Finding]:
    samples = [sample.labels for sample in facts.samples.values() if sample.labels is not None]
    if len(samples) < len(facts.samples) or not samples:
        return
    labels = np.unique(np.concatenate(samples), return_inverse=True)[1].reshape(-1)
    for feature in facts.features(*_CONTENT):
        numbers, counts = _digests(facts, feature)
        low, high = np.full(len(counts), np.iinfo(np.int64).max), np.full(len(counts), -1)
        np.minimum.at(low, numbers, labels)
        np.maximum.at(high, numbers, labels)
        several = (low < high)[numbers]
        count = int(several.sum())
        if count:
            words = (
                f"{count:,} of {len(numbers):,} records have the value of one with another label"
            )
            examples = facts.names_of(several)
            yield Finding(
                "contradictions", "warning", words, feature, "", count, len(numbers), examples
            )


def _phrases(facts: Facts) -> Iterator[Finding]:
    for feature in facts.features("text"):
        numbers, counts = _digests(facts, feature)
        if len(counts) < 2:
            continue
        most = int(counts.max())
        if most >= max(_FEWEST_COPIES, _MOST_COPIES * len(numbers)):
            words = f"{most:,} of {len(numbers):,} texts are the same"
            examples = facts.names_of(numbers == counts.argmax())[:1]
            yield Finding(
                "repeated_texts", "warning", words, feature, "", most, len(numbers), examples
            )


def _constant(facts: Facts) -> Iterator[Finding]:
    for feature in facts.features(*_CONTENT, "floats", "integers"):
        numbers, counts = _digests(facts, feature)
        if len(counts) == 1 and len(numbers) > 1:
            words = f"all {len(numbers):,} records have the same value"
            yield Finding("constant_features", "warning", words, feature, seen=len(numbers))


def _identifiers(facts: Facts) -> Iterator[Finding]:
    for feature in facts.features("integers", "text"):
        numbers, counts = _digests(facts, feature)
        schema = facts.manifest.schema[feature]
        if schema.shape or len(numbers) < 100:
            continue
        is_word = schema.dtype != "string" or bool((facts.measured(feature, "words") == 1).all())
        if is_word and len(counts) == len(numbers):
            words = (
                f"all {len(numbers):,} records have different values: a model can only memorise it"
            )
            yield Finding("identifiers", "note", words, feature, seen=len(numbers))


CHECKS = (
    Check("duplicates", "pictures, texts and signals that occur twice in a split", _duplicates),
    Check("leaks", "pictures, texts and signals that are in several splits", _leaks),
    Check(
        "contradictions", "equal pictures, texts and signals with different labels", _contradictions
    ),
    Check("repeated_texts", "a text that is 1 % of all, and ten or more", _phrases),
    Check("constant_features", "features with one value in all records", _constant),
    Check(
        "identifiers",
        "whole numbers and words that differ in all of 100 records or more",
        _identifiers,
    ),
)
