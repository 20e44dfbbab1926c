"""Labels: records by class and split, and how balanced the classes are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from readers.describe import named
from readers.format.display import shortened
from readers.pages.charts import bar_cell
from readers.pages.numbers import part
from readers.pages.section import Section
from readers.pages.study import Study

# Classes in a table, and characters of a name.
_CLASSES, _NAME = 50, 80


def section(study: Study) -> Section | None:
    """The classes of each feature that holds them."""
    tables = [
        _table(study, feature, counts, is_all)
        for feature, counts, is_all in _counted(study)
        if any(counts.values())
    ]
    return Section.filled("labels", tables=tables) if tables else None


_Counts = Mapping[str, Counter[int]]


def _counted(study: Study) -> Iterator[tuple[str, _Counts, bool]]:
    """Yields (feature, counts by split, whether they are those of all records) of features with classes."""
    label, splits = study.facts.label, study.manifest.splits
    if label:
        yield label, {n: split.counts_of(label) or Counter() for n, split in splits.items()}, True
    for feature in study.facts.features.classes:
        if feature != label and feature in study.manifest.schema:
            samples = study.facts.samples
            yield feature, {n: s.classes.get(feature, Counter()) for n, s in samples.items()}, False


def _table(study: Study, feature: str, counts: _Counts, is_all: bool) -> dict[str, Any]:
    names = study.facts.features.classes.get(feature, ())
    total = Counter[int]()
    for each in counts.values():
        total.update(each)
    classes = sorted({*total, *range(len(names))}, key=lambda label: (-total[label], label))
    present = [label for label in classes if total[label]]
    shown, rest = classes[:_CLASSES], classes[_CLASSES:]
    words = f"{sum(total[label] for label in rest):,} in {len(rest):,} more classes" if rest else ""
    return {
        "anchor": study.anchor(feature, kind="classes"),
        "feature": feature,
        "source": "" if is_all else f"Counted in {study.checked.seen:,} records of the sample.",
        "balance": _balance(present, len(classes), total, names),
        "noun": "records" if not study.manifest.schema[feature].shape else "values",
        "splits": [split for split in counts if counts[split]],
        "classes": [(_name(label, names), _cells(label, counts, total)) for label in shown],
        "rest": words,
    }


def _balance(
    present: Sequence[int], classes: int, total: Counter[int], names: Sequence[str]
) -> str:
    """How many classes there are, and how many of the largest and the smallest."""
    most, least = total[present[0]], total[present[-1]]
    count = f"{len(present):,} of {classes:,}" if classes > len(present) else f"{classes:,}"
    if most == least:
        return f"{count} classes, balanced ({most:,} each)"
    largest, smallest = _name(present[0], names), _name(present[-1], names)
    return f"{count} classes: {most:,} of the largest, {largest}, and {least:,} of the smallest, {smallest}"


def _cells(label: int, counts: _Counts, total: Counter[int]) -> list[Element]:
    """The cells of a class: its records, and its share of each split."""
    most = max(total.values())
    cells = [bar_cell(total[label], most, part(total[label], total.total()))]
    splits = [each for each in counts.values() if each]
    for number, each in enumerate(splits if len(splits) > 1 else []):
        words = part(each[label], each.total())
        cells.append(bar_cell(each[label], max(each.values()), words, number))
    return cells


def _name(label: int, names: Sequence[str]) -> str:
    return shortened(named(label, names), _NAME)
