"""Checks of labels: how often classes occur, and which simple numbers give them away."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from readers.checks.facts import EXAMPLES, Check, Facts
from readers.describe import named
from readers.format.findings import Finding

# Ratios of the largest class to the smallest.
_UNEQUAL, _VERY_UNEQUAL = 10, 100

# The most classes, and the fewest records of each in the sample, for which labels count as classes and not as numbers.
_MOST_CLASSES, _RECORDS_A_CLASS = 1000, 10

# The share of a number's variance that the class explains, above which the number gives the class away.
_TELLING = 0.5

# Properties of a record that should not determine its class.
_GIVEAWAYS = {
    "picture": ("brightness", "contrast", "width", "height", "aspect"),
    "text": ("characters",),
    "signal": ("steps", "rms"),
}

# The least difference of a share, and in standard deviations: of a class, and of neighbours with the same label.
_LEAST_OFF, _SHARE_DEVIATIONS, _DEVIATIONS = 0.05, 4, 6


def _counts(facts: Facts) -> dict[str, Counter[int]]:
    """The number of records of each class in each split; empty unless labels are classes."""
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
    """A finding about the labels of a split, or of all, that names the first of some classes."""
    names = facts.features.classes.get(facts.label, ())
    examples = tuple(named(number, names) for number in classes[:EXAMPLES])
    return Finding(check, severity, words, facts.label, split, examples=examples)


def _missing(facts: Facts) -> Iterator[Finding]:
    counts = _counts(facts)
    everywhere = _total(counts)
    for split, found in counts.items():
        missing = sorted(everywhere.keys() - found.keys())
        if missing and facts.manifest.splits[split].records:
            words = f"{len(missing):,} of {len(everywhere):,} classes have no records"
            yield _finding(facts, "missing_classes", "warning", words, split, missing)


def _unused(facts: Facts) -> Iterator[Finding]:
    names, used = facts.features.classes.get(facts.label, ()), _total(_counts(facts))
    unused = [number for number in range(len(names)) if number not in used]
    if unused:
        words = f"{len(unused):,} of {len(names):,} named classes have no records in any split"
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
    """Finds splits with a different share of a class than all records."""
    counts = _counts(facts)
    total = _total(counts)
    for split, found in counts.items():
        size = found.total()
        off = dict[int, float]()
        for number, count in total.items() if size and len(counts) > 1 else ():
            share = count / total.total()
            difference = abs(found[number] / size - share)
            deviation = math.sqrt(share * (1 - share) / size)
            if difference > max(_LEAST_OFF, _SHARE_DEVIATIONS * deviation):
                off[number] = difference
        if off:
            worst = sorted(off, key=lambda number: (-off[number], number))
            words = (
                f"class shares differ from those of the whole dataset by up to {off[worst[0]]:.0%} of the "
                f"records (L-infinity), for {len(off):,} of {len(total):,} classes"
            )
            yield _finding(facts, "label_drift", "warning", words, split, worst)


def _giveaways(facts: Facts) -> Iterator[Finding]:
    found = [sample.labels for sample in facts.samples.values() if sample.labels is not None]
    if not _counts(facts) or not found:
        return
    labels = np.concatenate(found)
    for feature in facts.features.of_kind(*_GIVEAWAYS):
        for measure in _GIVEAWAYS[facts.features.kinds[feature]]:
            share = _explained(facts.measured(feature, measure), labels)
            if share > _TELLING:
                words = f"the class explains {share:.0%} of the variance of its {measure}"
                yield Finding("telling_numbers", "warning", words, feature, seen=len(labels))


def _explained(values: np.ndarray, labels: np.ndarray) -> float:
    """The share of the variance of numbers that their classes explain, adjusted for the number of classes."""
    good = np.isfinite(values)
    values, labels = values[good], labels[good]
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(counts) < 2 or len(values) < _RECORDS_A_CLASS * len(counts) or not values.std():
        return 0.0
    means = np.bincount(classes, values) / counts
    within = float(((values - means[classes]) ** 2).sum() / (len(values) - len(counts)))
    return 1 - within / float(values.var(ddof=1))


def _sorted(facts: Facts) -> Iterator[Finding]:
    """Finds labels whose neighbours are equal more often than in a random order."""
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
                f"{found:.0%} of neighbouring records have the same label, but {expected:.0%} would in a "
                "random order: read with shuffle=True"
            )
            yield Finding("sorted_labels", "warning", words, facts.label, split, seen=sample.seen)


CHECKS: dict[str, Check] = {
    "missing_classes": _missing,
    "unused_classes": _unused,
    "imbalance": _imbalance,
    "label_drift": _drift,
    "telling_numbers": _giveaways,
    "sorted_labels": _sorted,
}
