"""Features: type, shape, missing values, figures, histograms and the most frequent values of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from readers.format.schema import Feature, format_shape
from readers.measures.sample import LARGEST
from readers.pages.numbers import spread
from readers.pages.section import Section
from readers.pages.study import Study
from readers.pages.values.collected import Values, channels_of, has_numbers
from readers.pages.values.figures import Figures, are_figures, sampled, with_all
from readers.pages.values.frequent import frequent_numbers, frequent_strings
from readers.pages.values.histograms import histogram, spark

# Features with a line, and features of these that open: a page of 2,000 features has less than 5 MB.
_LINES, _OPEN = 1000, 120

_HEADS = ("missing", "zeros", "min", "median", "max", "mean", "std")

# Figures of ids and of names say nothing.
_WITHOUT_FIGURES = {"key": "names each record", "label": "counted under Labels"}


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
        heads=_HEADS,
        columns=list(Figures(0, 0, 0).cells()),
        left=[study.anchor(name) for name, _ in features[_LINES:]],
        opened=_OPEN,
        count=len(features),
        seen=study.checked.seen,
        too_large=sum(sample.too_large for sample in study.facts.samples.values()),
        largest=LARGEST,
        records=study.checked.records,
    )


def _row(study: Study, name: str, feature: Feature, is_open: bool) -> dict[str, Any]:
    role = study.facts.features.roles.get(name, "")
    row: dict[str, Any] = {
        "anchor": study.anchor(name),
        "name": name,
        "type": f"{feature.dtype} {format_shape(feature.shape)}",
        "spark": None,
        "cells": [],
        "words": _WITHOUT_FIGURES.get(role, ""),
        "details": None,
    }
    if role in _WITHOUT_FIGURES:
        return row
    parts = study.values(name)
    if has_numbers(feature):
        drawn = {split: values.drawn for split, values in parts.items()}
        splits = list(study.manifest.splits.values())
        cells = with_all(sampled(_together(feature, parts)), splits, name).cells()
        row["cells"] = [(head, cells[head]) for head in _HEADS]
    else:
        # Texts, and sequences of complex numbers, have lengths in place of numbers.
        drawn = {split: values.shapes[:, 0] for split, values in parts.items()}
        row["words"] = _words(feature, parts)
    row["spark"] = spark(list(drawn.values()))
    row["details"] = _details(study, name, feature, parts, drawn) if is_open else None
    return row


def _together(feature: Feature, parts: dict[str, Values]) -> np.ndarray:
    """The numbers of all splits, [n, channels]."""
    empty = np.empty((0, channels_of(feature)), np.bool_)
    return np.concatenate([*(values.drawn for values in parts.values()), empty])


def _words(feature: Feature, parts: dict[str, Values]) -> str:
    """The line of a feature without numbers."""
    sizes = np.concatenate([*(values.shapes[:, 0] for values in parts.values()), np.empty(0)])
    if not len(sizes):
        return "no record was seen"
    texts = [text for values in parts.values() for text in values.texts]
    different = f"; {len(set(texts)):,} different of {len(texts):,}" if texts else ""
    return f"{_noun(feature)}: {spread(sizes)}{different}"


def _noun(feature: Feature) -> str:
    return "bytes" if not feature.shape else "size of the first dimension"


def _details(
    study: Study,
    name: str,
    feature: Feature,
    parts: dict[str, Values],
    drawn: dict[str, np.ndarray],
) -> dict[str, Any]:
    """What a line opens to."""
    details: dict[str, Any] = {"source": _source(study, name, parts), "tables": []}
    if not has_numbers(feature):
        texts = [text for values in parts.values() for text in values.texts]
        details["drawing"] = histogram(drawn, _noun(feature).capitalize(), "records")
        details["frequent"] = frequent_strings(texts) if texts else None
        return details
    together, classes = _together(feature, parts), study.facts.features.classes.get(name, ())
    details["drawing"] = histogram(drawn, "Values", "values of the sample")
    details["frequent"] = frequent_numbers(together, classes) if together.size else None
    rows = [
        (split, with_all(sampled(values), [study.manifest.splits[split]], name).cells())
        for split, values in drawn.items()
    ]
    details["tables"].append(("Split", rows))
    if together.shape[1] > 1:
        channels = [(str(n), sampled(channel).cells()) for n, channel in enumerate(together.T)]
        details["tables"].append(("Channel", channels))
    return details


def _source(study: Study, name: str, parts: dict[str, Values]) -> str:
    """Where the figures come from."""
    seen = sum(len(values.sizes) for values in parts.values())
    empty = sum(int((values.sizes == 0).sum()) for values in parts.values())
    drawn = sum(values.drawn.size for values in parts.values())
    words = f"{seen:,} records of the sample"
    if 0 < drawn < sum(int(values.sizes.sum()) for values in parts.values()):
        words = f"{drawn:,} values, drawn at random from {words}"
    stated = [s.statistics.get(name) for s in study.manifest.splits.values() if s.records]
    if stated and all(map(are_figures, stated)):
        words = (
            "Values, missing, min, max, mean and std of splits are those of all records; all else is of "
            + words
        )
    else:
        words = f"Of {words}"
    return f"{words}." + (f" {empty:,} of these records are empty." if empty else "")
