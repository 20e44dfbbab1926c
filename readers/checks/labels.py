"""Checks of labels: how often classes are, and what else would tell them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from readers.checks.facts import EXAMPLES, Check, Facts
from readers.describe import named
from readers.format.findings import Finding

# How many times rarer than the most frequent class the rarest is.
_UNEQUAL, _VERY_UNEQUAL = 10, 100

# Classes, and records of each in the sample, from which on labels are classes and not numbers.
_MOST_CLASSES, _RECORDS_A_CLASS = 1000, 10

# The share of the variance of a number that its class explains, above which the number tells the class.
_TELLING = 0.5

# What a model should not need to know of a record.
_GIVEAWAYS = {
    "picture": ("brightness", "contrast", "width", "height", "aspect"),
    "text": ("characters",),
    "signal": ("steps", "rms"),
}

# By how much a share is off, and by how many standard deviations: of a class, and of neighbours with the same label.
_LEAST_OFF, _SHARE_DEVIATIONS, _DEVIATIONS = 0.05, 4, 6


def _counts(facts: Facts) -> dict[str, Counter[int]]:
    """The number of records of each class in each split; empty without labels that are classes."""
    splits = facts.manifest.splits
    counts = {name: split.counts_of(facts.label) or Counter() for name, split in splits.items()}
    records = sum(split.records for split in splits.values())
    few = min(_MOST_CLASSES, max(2, records // _RECORDS_A_CLASS))
    is_class = facts.label in facts.features.classes or len(_total(counts)) <= few
    return counts if facts.label and is_class else {}


def _total(counts: dict[str, Counter[int]]) -> Counter[int]:
    """The number of records of each class in all splits."""
    return sum(counts.values(), Counter())


def _finding(
    facts: Facts, check: str, severity: str, words: str, split: str, classes: Sequence[int] = ()
) -> Finding:
    """A finding about the labels of a split, or of all, with the first of some classes."""
    names = facts.features.classes.get(facts.label, ())
    examples = tuple(named(number, names) for number in classes[:EXAMPLES])
    return Finding(check, severity, words, facts.label, split, examples=examples)


def _missing(facts: Facts) -> Iterator[Finding]:
    counts = _counts(facts)
    everywhere = _total(counts)
    for split, found in counts.items():
        missing = sorted(everywhere.keys() - found.keys())
        if missing and facts.manifest.splits[split].records:
            words = f"{len(missing):,} of {len(everywhere):,} classes have no record"
            yield _finding(facts, "missing_classes", "warning", words, split, missing)


def _unused(facts: Facts) -> Iterator[Finding]:
    names, used = facts.features.classes.get(facts.label, ()), _total(_counts(facts))
    unused = [number for number in range(len(names)) if number not in used]
    if unused:
        words = f"{len(unused):,} of {len(names):,} named classes have no record in any split"
        yield _finding(facts, "unused_classes", "note", words, "", unused)


def _imbalance(facts: Facts) -> Iterator[Finding]:
    for split, found in _counts(facts).items():
        if len(found) < 2:
            continue
        most, fewest = max(found.values()), min(found.values())
        if most >= _UNEQUAL * fewest:
            severity = "warning" if most >= _VERY_UNEQUAL * fewest else "note"
            words = f"the largest class has {most:,} records, the smallest {fewest:,}"
            rare = sorted(found, key=lambda number: (found[number], number))
            yield _finding(facts, "imbalance", severity, words, split, rare)


def _drift(facts: Facts) -> Iterator[Finding]:
    """Splits whose share of a class differs from that of all records."""
    counts = _counts(facts)
    total = _total(counts)
    for split, found in counts.items():
        size = found.total()
        off = dict[int, float]()
        for number, count in total.items() if size and len(counts) > 1 else ():
            share = count / total.total()
            difference = abs(found[number] / size - share)
            if difference > max(
                _LEAST_OFF, _SHARE_DEVIATIONS * math.sqrt(share * (1 - share) / size)
            ):
                off[number] = difference
        if off:
            worst = sorted(off, key=lambda number: (-off[number], number))
            words = (
                f"the share of {len(off):,} of {len(total):,} classes differs by up to "
                f"{off[worst[0]]:.0%} of the records (L-infinity) from that in all splits"
            )
            yield _finding(facts, "label_drift", "warning", words, split, worst)


def _giveaways(facts: Facts) -> Iterator[Finding]:
    found = [sample.labels for sample in facts.samples.values() if sample.labels is not None]
    if not _counts(facts) or not found:
        return
    labels = np.concatenate(found)
    pairs = [
        (f, m)
        for kind in _GIVEAWAYS
        for f in facts.features.of_kind(kind)
        for m in _GIVEAWAYS[kind]
    ]
    for feature, measure in pairs:
        share = _explained(facts.measured(feature, measure), labels)
        if share > _TELLING:
            words = f"the class explains {share:.0%} of the variance of its {measure}"
            yield Finding("telling_numbers", "warning", words, feature, seen=len(labels))


def _explained(values: np.ndarray, labels: np.ndarray) -> float:
    """The share of the variance of numbers that their classes explain, adjusted for their number."""
    good = np.isfinite(values)
    values, labels = values[good], labels[good]
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(counts) < 2 or len(values) < _RECORDS_A_CLASS * len(counts) or not values.std():
        return 0.0
    means = np.bincount(classes, values) / counts
    within = float(((values - means[classes]) ** 2).sum() / (len(values) - len(counts)))
    return 1 - within / float(values.var(ddof=1))


def _sorted(facts: Facts) -> Iterator[Finding]:
    """Labels whose neighbours are alike more often than if they were in any order."""
    for split, sample in facts.samples.items() if _counts(facts) else ():
        labels = sample.labels
        if labels is None or len(labels) < 2:
            continue
        shares = np.unique(labels, return_counts=True)[1] / len(labels)
        expected = float((shares**2).sum())
        found = float((labels[1:] == labels[:-1]).mean())
        deviation = math.sqrt(expected * (1 - expected) / (len(labels) - 1))
        if found - expected > max(_LEAST_OFF, _DEVIATIONS * deviation):
            words = (
                f"{found:.0%} of neighbouring records have the same label, where {expected:.0%} "
                "would in a random order: read with shuffle=True"
            )
            yield Finding("sorted_labels", "warning", words, facts.label, split, seen=sample.seen)


CHECKS = (
    Check("missing_classes", "classes of another split without a record in this one", _missing),
    Check("unused_classes", "named classes without a record in any split", _unused),
    Check(
        "imbalance",
        "splits whose largest class has ten times the records of the smallest; a warning at a hundred",
        _imbalance,
    ),
    Check(
        "label_drift",
        "splits in which the share of a class is off that in all splits by 5% of the records, and by "
        "four standard deviations",
        _drift,
    ),
    Check(
        "telling_numbers",
        "brightness, contrast, size, length or loudness of which the class explains half of the variance",
        _giveaways,
    ),
    Check(
        "sorted_labels",
        "neighbouring records with the same label more often than in a random order, by 5% and by six "
        "standard deviations",
        _sorted,
    ),
)
