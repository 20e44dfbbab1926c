"""Compares a dataset with another one, such as an earlier version or production data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from readers.checks.distributions import differences
from readers.checks.facts import EXAMPLES, Facts
from readers.format.findings import Finding
from readers.format.schema import format_shape

# The largest accepted difference in the share of a class.
_MOST_OFF = 0.05

_OTHER = "the other dataset"


def compare(facts: Facts, other: Facts) -> Iterator[Finding]:
    """Yields differences between two datasets: features, classes and distributions."""
    mine, its = facts.manifest.schema, other.manifest.schema
    for name in dict.fromkeys([*mine, *its]):
        if name not in its:
            yield Finding("new_features", "warning", f"{_OTHER} has no such feature", name)
        elif name not in mine:
            yield Finding("missing_features", "warning", f"only {_OTHER} has this feature", name)
        elif mine[name] != its[name]:
            found = [f"{f.dtype} {format_shape(f.shape)}" for f in (mine[name], its[name])]
            words = f"it is {found[0]} here and {found[1]} in {_OTHER}"
            yield Finding("changed_features", "warning", words, name)
    yield from _labels(facts, other)
    # In the other dataset, a feature of the same name and form may be the key.
    theirs = other.features.kinds
    kinds = {
        f: kind
        for f, kind in facts.features.kinds.items()
        if theirs.get(f) == kind and its[f] == mine[f]
    }
    for split, sample in facts.samples.items():
        if former := other.samples.get(split):
            for feature, words in differences(kinds, former, sample, _OTHER):
                yield Finding("drift", "warning", words, feature, split, seen=sample.seen)


def _labels(facts: Facts, other: Facts) -> Iterator[Finding]:
    one, two = _shares(facts), _shares(other)
    if facts.label != other.label or not one or not two:
        return
    off = {name: abs(one.get(name, 0) - two.get(name, 0)) for name in one | two}
    worst = sorted(off, key=lambda name: (-off[name], str(name)))
    if off[worst[0]] > _MOST_OFF:
        words = f"class shares differ from those in {_OTHER} by up to {off[worst[0]]:.0%} of the records"
        examples = tuple(map(str, worst[:EXAMPLES]))
        yield Finding("changed_labels", "warning", words, facts.label, examples=examples)


def _shares(facts: Facts) -> dict[int | str, float]:
    """The share of each class, by name or number; empty without labels."""
    names = facts.features.classes.get(facts.label, ())
    counts = facts.manifest.counts_of(facts.label) or Counter()
    total = counts.total()
    return {
        names[number] if 0 <= number < len(names) else number: count / total
        for number, count in counts.items()
    }
