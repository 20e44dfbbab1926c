"""Compares a dataset with another one, such as its former version or the data in production."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from readers.checks.distributions import differences
from readers.checks.facts import EXAMPLES, Facts
from readers.format.findings import Finding
from readers.format.schema import format_shape
from readers.measures.sample import SplitSample

# The largest difference of the share of a class.
_MOST_OFF = 0.05

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
    if not one or not two:
        return
    off = {name: abs(one.get(name, 0) - two.get(name, 0)) for name in one | two}
    worst = sorted(off, key=lambda name: (-off[name], str(name)))
    if off[worst[0]] > _MOST_OFF:
        words = (
            f"the shares of the classes differ from those in {_OTHER} by up to {off[worst[0]]:.0%}"
        )
        examples = tuple(map(str, worst[:EXAMPLES]))
        yield Finding("changed_labels", "warning", words, label, examples=examples)


def _shares(facts: Facts, label: str) -> dict[int | str, float]:
    names = facts.features.classes.get(label, ())
    counts = facts.manifest.counts_of(label) or Counter()
    total = sum(counts.values())
    return {
        names[number] if 0 <= number < len(names) else number: count / total
        for number, count in counts.items()
    }
