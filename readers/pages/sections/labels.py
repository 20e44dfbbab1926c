"""Labels: the records of each class and split, and the balance of the classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from readers.describe import named
from readers.format.display import shortened
from readers.pages.charts import bar_cell
from readers.pages.markup import element, table
from readers.pages.numbers import part
from readers.pages.study import Study

# The most classes in a table, and characters of a name.
_CLASSES, _NAME = 50, 80

_Counts = Mapping[str, Counter[int]]


def section(study: Study) -> list[Element]:
    """The classes of each feature that has classes."""
    some = [counted for counted in _counted(study) if any(counted[1].values())]
    return [part for counted in some for part in _classes(study, *counted)]


def _counted(study: Study) -> Iterator[tuple[str, _Counts, str]]:
    """Yields (feature, counts by split, the source of counts that do not cover all records) of features with classes."""
    label, splits = study.facts.label, study.manifest.splits
    if label:
        yield label, {n: split.counts_of(label) or Counter() for n, split in splits.items()}, ""
    source = f"Counted in a sample of {study.checked.seen:,} records."
    for feature in study.facts.features.classes:
        if feature != label and feature in study.manifest.schema:
            samples = study.facts.samples.items()
            yield feature, {n: s.classes.get(feature, Counter()) for n, s in samples}, source


def _classes(study: Study, feature: str, counts: _Counts, source: str) -> Iterator[Element]:
    names = study.facts.features.classes.get(feature, ())
    total = sum(counts.values(), Counter[int]())
    classes = sorted({*total, *range(len(names))}, key=lambda label: (-total[label], label))
    shown, rest = classes[:_CLASSES], classes[_CLASSES:]
    counts = {split: found for split, found in counts.items() if found}
    yield element("h3", feature)
    yield element("p", f"{_balance(classes, total, names)}. {source}")
    noun = "records" if not study.manifest.schema[feature].shape else "values"
    titles = "Class", f"All {noun}", *(counts if len(counts) > 1 else ())
    rows = (
        [element("th", _name(label, names), scope="row"), *_cells(label, counts, total)]
        for label in shown
    )
    found = table([element("th", title, scope="col") for title in titles], rows)
    about = f"Classes of {feature}"
    yield element("div", found, class_="scroll", tabindex="0", role="region", aria_label=about)
    if rest:
        yield element("p", f"{sum(total[c] for c in rest):,} in {len(rest):,} more classes.")


def _balance(classes: Sequence[int], total: Counter[int], names: Sequence[str]) -> str:
    """The number of classes, and the sizes of the largest and the smallest."""
    present = [label for label in classes if total[label]]
    most, least = total[present[0]], total[present[-1]]
    count = f"{len(present):,} of " if len(classes) > len(present) else ""
    if most == least:
        return f"{count}{len(classes):,} classes, balanced ({most:,} each)"
    largest, smallest = _name(present[0], names), _name(present[-1], names)
    ends = f"the largest, {largest}, has {most:,}, the smallest, {smallest}, has {least:,}"
    return f"{count}{len(classes):,} classes: {ends}"


def _cells(label: int, counts: _Counts, total: Counter[int]) -> list[Element]:
    """The cells of a class: its records, also of each split if there are several."""
    cells = []
    for place, each in enumerate([total, *(counts.values() if len(counts) > 1 else ())]):
        words = part(each[label], each.total())
        cells.append(bar_cell(each[label], max(each.values()), words, max(place - 1, 0)))
    return cells


def _name(label: int, names: Sequence[str]) -> str:
    return shortened(named(label, names), _NAME)
