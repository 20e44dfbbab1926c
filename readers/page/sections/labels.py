"""Labels: records by class and split, imbalance, classes that a split lacks, and the shares of splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.checks.splits import wanted_shares
from readers.describe import named
from readers.format.display import shortened
from readers.page.charts import bar_cell
from readers.page.numbers import part, short
from readers.page.section import Section
from readers.page.study import Study

# Classes in a table; names of missing ones; characters of a name.
_CLASSES, _MISSING, _NAME = 50, 12, 80


def section(study: Study) -> Section | None:
    """The classes of each feature that holds them, and the shares of splits."""
    tables = [
        _table(study, feature, counts, names, is_all)
        for feature, counts, names, is_all in _counted(study)
    ]
    shares = _shares(study)
    if not tables and not shares:
        return None
    return Section.filled("labels", tables=tables, shares=shares)


_Counts = Mapping[str, Counter[int]]


def _counted(study: Study) -> list[tuple[str, _Counts, Sequence[str], bool]]:
    """(feature, counts by split, names, whether they are those of all records) of features with classes."""
    found = list[tuple[str, _Counts, Sequence[str], bool]]()
    splits = study.manifest.splits
    if study.facts.label:
        counts = {
            name: split.counts_of(study.facts.label) or Counter() for name, split in splits.items()
        }
        if any(counts.values()):
            found.append(
                (
                    study.facts.label,
                    counts,
                    study.facts.features.classes.get(study.facts.label, ()),
                    True,
                )
            )
    for feature, names in study.facts.features.classes.items():
        if feature == study.facts.label or feature not in study.manifest.schema:
            continue
        parts = study.values(feature)
        counts = {split: _counts(values.drawn) for split, values in parts.items()}
        if any(counts.values()):
            found.append((feature, counts, names, False))
    return found


def _counts(numbers: np.ndarray) -> Counter[int]:
    if numbers.dtype.kind not in "iu":
        return Counter()
    values, counts = np.unique(numbers, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _table(
    study: Study, feature: str, counts: _Counts, names: Sequence[str], is_all: bool
) -> dict[str, Any]:
    total = Counter[int]()
    for each in counts.values():
        total.update(each)
    classes = sorted({*total, *range(len(names))}, key=lambda label: (-total[label], label))
    present = [label for label in classes if total[label]]
    most, least = total[present[0]], total[present[-1]]
    facts = [
        ("Classes", f"{len(present):,} of {len(classes):,}" if names else f"{len(present):,}"),
        ("Largest", f"{_name(present[0], names)}: {part(most, total.total())}"),
        ("Smallest", f"{_name(present[-1], names)}: {part(least, total.total())}"),
        ("Imbalance", f"{short(most / least)} times"),
    ]
    shown = classes[:_CLASSES]
    rest = classes[_CLASSES:]
    words = f"{sum(total[label] for label in rest):,} in {len(rest):,} more classes" if rest else ""
    noun = "records" if not study.manifest.schema[feature].shape else "values"
    seen = sum(len(values.sizes) for values in study.values(feature).values())
    return {
        "anchor": study.anchor(feature, kind="classes"),
        "feature": feature,
        "source": f"Counts are those of {'all' if is_all else format(seen, ',')} records.",
        "noun": noun,
        "splits": [split for split in counts if counts[split]],
        "classes": [(_name(label, names), _cells(label, counts, total, most)) for label in shown],
        "rest": words,
        "facts": facts,
        "lacking": [
            (split, len(lacking), [_name(label, names) for label in lacking[:_MISSING]])
            for split, each in counts.items()
            if each and (lacking := [label for label in present if not each[label]])
        ],
    }


def _cells(label: int, counts: _Counts, total: Counter[int], most: int) -> list[Element]:
    """The cells of a class: its records, and its share of each split."""
    cells = [bar_cell(total[label], most, part(total[label], total.total()))]
    splits = [each for each in counts.values() if each]
    for number, each in enumerate(splits if len(splits) > 1 else []):
        words = part(each[label], each.total())
        cells.append(bar_cell(each[label], max(each.values()), words, number))
    return cells


def _name(label: int, names: Sequence[str]) -> str:
    return shortened(named(label, names), _NAME)


def _shares(study: Study) -> list[tuple[str, str, str, str]]:
    """The share of each split beside that of `--splits`; empty if this names others."""
    splits = study.manifest.splits
    wanted = wanted_shares(str(study.manifest.options.get("splits", "")))
    records = sum(split.records for split in splits.values())
    if set(wanted) != set(splits) or not records or len(splits) < 2:
        return []
    return [
        (
            name,
            f"{100 * share:.2f} %",
            f"{100 * splits[name].records / records:.2f} % ({splits[name].records:,})",
            f"{100 * (splits[name].records / records - share):+.2f}",
        )
        for name, share in wanted.items()
    ]
