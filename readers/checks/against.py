"""Compares a dataset with another one, such as its former version or the data in production."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from readers.checks.distributions import differences
from readers.checks.facts import Facts
from readers.format.findings import Finding
from readers.format.schema import format_shape
from readers.measures.sample import SplitSample

# The Jensen-Shannon divergence of the shares of classes, in bits, and the largest difference of a share.
_MOST_DIVERGENT, _MOST_OFF = 0.02, 0.1

_OTHER = "the other dataset"


def compare(facts: Facts, other: Facts) -> Iterator[Finding]:
    """Yields what is different in two datasets: features, classes and distributions."""
    mine, its = facts.manifest.schema, other.manifest.schema
    for name in [*mine, *(name for name in its if name not in mine)]:
        if name not in its:
            yield Finding("new_features", "warning", f"{_OTHER} has no such feature", name)
        elif name not in mine:
            yield Finding("missing_features", "warning", f"only {_OTHER} has this feature", name)
        elif mine[name] != its[name]:
            found = [f"{f.dtype} {format_shape(f.shape)}" for f in (mine[name], its[name])]
            words = f"it is {found[0]}, and in {_OTHER} {found[1]}"
            yield Finding("changed_features", "warning", words, name)
    yield from _labels(facts, other)
    alike = {name for name in mine if its.get(name) == mine[name]}
    for split, sample in facts.samples.items():
        if split in other.samples:
            yield from _drift(facts, sample, other.samples[split], split, alike)


def _drift(
    facts: Facts, sample: SplitSample, former: SplitSample, split: str, alike: set[str]
) -> Iterator[Finding]:
    def features(kind: str) -> list[str]:
        return [name for name in facts.features.of_kind(kind) if name in alike]

    for feature, words in differences(features, former, sample, _OTHER):
        yield Finding("drift", "warning", words, feature, split, seen=sample.seen)


def _labels(facts: Facts, other: Facts) -> Iterator[Finding]:
    """The difference of the shares of classes, which are compared by their names if they have any."""
    label = facts.label
    if not label or other.label != label:
        return
    one, two = (_shares(each, label) for each in (facts, other))
    names = sorted({*one, *two}, key=str)
    if not one or not two:
        return
    p, q = (np.array([shares.get(name, 0.0) for name in names]) for shares in (one, two))
    divergence, farthest = _jensen_shannon(p, q), float(np.abs(p - q).max())
    if divergence > _MOST_DIVERGENT or farthest > _MOST_OFF:
        words = (
            f"the shares of the classes differ from those in {_OTHER}: Jensen-Shannon divergence "
            f"{divergence:.3f} bits, L-infinity {farthest:.2f}"
        )
        worst = np.argsort(-np.abs(p - q), kind="stable")[:5]
        examples = tuple(str(names[number]) for number in worst)
        yield Finding("changed_labels", "warning", words, label, examples=examples)


def _shares(facts: Facts, label: str) -> dict[int | str, float]:
    names = facts.features.classes.get(label, ())
    counts = facts.manifest.counts_of(label) or Counter()
    total = sum(counts.values())
    return {
        names[number] if 0 <= number < len(names) else number: count / total
        for number, count in counts.items()
    }


def _jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """The Jensen-Shannon divergence of two distributions, in bits: 0 to 1."""
    middle = (p + q) / 2

    def divergence(one: np.ndarray) -> float:
        some = one > 0
        return float((one[some] * np.log2(one[some] / middle[some])).sum())

    return (divergence(p) + divergence(q)) / 2
