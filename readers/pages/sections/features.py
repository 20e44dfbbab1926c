"""Features: type, shape, missing values, figures and a histogram of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from readers.format.schema import Feature, format_shape
from readers.measures.sample import LARGEST
from readers.pages.numbers import short, spread
from readers.pages.section import Section
from readers.pages.study import Study
from readers.pages.values.figures import Figures, of_all, of_sample
from readers.pages.values.histograms import histogram, spark

# Features with a line, and features of these that open: a page of 2,000 features has less than 5 MB.
_LINES, _OPEN = 1000, 120

# Figures of ids and of names say nothing.
_WITHOUT_FIGURES = {"key": "names each record", "label": "counted under Labels"}

# Kind -> the measure of each record of which there is a histogram, and its title.
_SHOWN = {"picture": ("brightness", "Brightness"), "text": ("characters", "Characters")}


def section(study: Study) -> Section | None:
    """A line for each feature, which opens to its figures."""
    features = list(study.manifest.schema.items())
    rows = [
        _row(study, name, feature, place < _OPEN)
        for place, (name, feature) in enumerate(features[:_LINES])
    ]
    return Section.filled(
        "features",
        rows=rows,
        heads=list(Figures(0, 0).cells()),
        left=[study.anchor(name) for name, _ in features[_LINES:]],
        opened=_OPEN,
        count=len(features),
        seen=study.checked.seen,
        too_large=sum(sample.too_large for sample in study.facts.samples.values()),
        largest=LARGEST,
        records=study.checked.records,
    )


def _row(study: Study, name: str, feature: Feature, is_open: bool) -> dict[str, Any]:
    features = study.facts.features
    kind, role = features.kinds.get(name, ""), features.roles.get(name, "")
    row: dict[str, Any] = {
        "anchor": study.anchor(name),
        "name": name,
        "type": f"{feature.dtype} {format_shape(feature.shape)}",
        "spark": None,
        "cells": {},
        "words": _WITHOUT_FIGURES.get(role, "" if kind else "not measured"),
        "details": None,
    }
    if row["words"]:
        return row
    measure, title = _SHOWN.get(
        kind, ("mean", "Mean of each record" if feature.shape else "Values")
    )
    parts = study.measures(name, measure)
    row["spark"] = spark(list(parts.values()))
    splits = list(study.manifest.splits)
    if found := _figures(study, name, splits):
        row["cells"] = found.cells()
    else:
        every = np.concatenate([*parts.values(), np.empty(0)])
        row["words"] = f"{title.lower()}: {spread(every)}" if len(every) else "no record was seen"
    if is_open and row["spark"] is not None:
        figures = {split: _figures(study, name, [split]) for split in splits}
        row["details"] = {
            "drawing": histogram(parts, title, "records"),
            "splits": [(s, list(f.cells().values())) for s, f in figures.items() if f is not None],
            "channels": list(_channels(study, name)),
        }
    return row


def _figures(study: Study, name: str, splits: Sequence[str]) -> Figures | None:
    """The figures of a feature in some splits; None if its values are not measured as numbers."""
    if found := of_all([study.manifest.splits[split] for split in splits], name):
        return found
    if study.facts.features.kinds[name] in _SHOWN:
        return None
    sizes = [study.measures(name, "size").get(split) for split in splits]
    seen = [split for split, size in zip(splits, sizes, strict=True) if size is not None]
    names = dict.fromkeys(m for split in seen for m in study.facts.samples[split].measures[name])
    joined = {}
    for measure in names:
        parts = study.measures(name, measure)
        missing = {split: np.full(study.facts.samples[split].seen, np.nan) for split in seen}
        joined[measure] = np.concatenate([(missing | parts)[split] for split in seen])
    return of_sample(joined) if joined else None


def _channels(study: Study, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yields (split and channel, mean and std) of all records, as far as the manifest has them."""
    for split_name, split in study.manifest.splits.items():
        figures = split.statistics.get(name)
        channels = figures.get("channels") if isinstance(figures, Mapping) else None
        if not isinstance(channels, Mapping):
            continue
        pairs = [channels.get(key) for key in ("mean", "std")]
        if all(isinstance(each, list) and all(type(n) is float for n in each) for each in pairs):
            for channel, levels in enumerate(zip(*pairs, strict=False)):
                yield f"{split_name}, {channel}", list(map(short, levels))
