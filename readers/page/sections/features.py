"""Features: type, shape, missing values, figures, histograms and the most frequent values of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from readers.format.schema import Feature, format_shape
from readers.measures.values import Values, channels_of, has_numbers
from readers.measures.visits import LARGEST
from readers.page.distributions.drawings import histograms, spark
from readers.page.distributions.figures import Figures, counted, joint, sampled
from readers.page.distributions.frequent import frequent_numbers, frequent_strings
from readers.page.numbers import percent, short
from readers.page.section import Section
from readers.page.study import Study

# Features with a line, and features of these that open: a page of 2,000 features has less than 5 MB.
_LINES, _OPEN = 1000, 120

_HEADS = ("missing", "zeros", "min", "median", "max", "mean", "std")
_COLUMNS = (
    *("values", "missing", "NaN", "infinite", "zeros", "min"),
    *("5 %", "25 %", "median", "75 %", "95 %", "max", "mean", "std"),
)


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
        columns=_COLUMNS,
        left=[study.anchor(name) for name, _ in features[_LINES:]],
        opened=_OPEN,
        count=len(features),
        seen=study.checked.seen,
        too_large=sum(sample.too_large for sample in study.samples.values()),
        largest=LARGEST,
        records=study.checked.records,
    )


def _row(study: Study, name: str, feature: Feature, is_open: bool) -> dict[str, Any]:
    parts = study.values(name)
    numbers = [values.drawn for values in parts.values()] if has_numbers(feature) else []
    # Texts, and sequences of complex numbers, have lengths in place of numbers.
    drawn = numbers or [values.shapes[:, 0] for values in parts.values()]
    cells = list[tuple[str, str]]()
    if has_numbers(feature):
        found = sampled(np.concatenate([*numbers, np.empty((0, channels_of(feature)))]))
        cells = list(zip(_HEADS, _cells(found, _of_all(study, name)), strict=True))
    return {
        "anchor": study.anchor(name),
        "name": name,
        "type": f"{feature.dtype} {format_shape(feature.shape)}",
        "spark": spark(drawn),
        "cells": cells,
        "words": "" if cells else _words(feature, parts),
        "details": _details(study, name, feature, parts) if is_open else None,
    }


def _words(feature: Feature, parts: dict[str, Values]) -> str:
    """The line of a feature without numbers."""
    sizes = np.concatenate([*(values.shapes[:, 0] for values in parts.values()), np.empty(0)])
    if not len(sizes):
        return "no record was seen"
    noun = "bytes" if not feature.shape else "of the first dimension"
    low, high = float(sizes.min()), float(sizes.max())
    ends = short(low) if low == high else f"{short(low)} to {short(high)}"
    texts = [text for values in parts.values() for text in values.texts]
    different = f", {len(set(texts)):,} different of {len(texts):,}" if texts else ""
    return f"{ends} {noun}{different}"


def _of_all(study: Study, name: str) -> Figures | None:
    return counted(list(study.manifest.splits.values()), name)


def _cells(found: Figures, of_all: Figures | None) -> list[str]:
    """The figures of a line."""
    best = joint(found, of_all)
    return [
        percent(best.missing),
        percent(found.zero),
        *map(short, (best.low, found.quantiles[2], best.high, best.mean, best.std)),
    ]


def _details(study: Study, name: str, feature: Feature, parts: dict[str, Values]) -> dict[str, Any]:
    shown, anchor = {"source": _source(study, name, parts)}, study.anchor(name)
    if not has_numbers(feature):
        lengths = {split: values.shapes[:, 0] for split, values in parts.items()}
        what = "bytes" if not feature.shape else "the size of their first dimension"
        drawing = histograms(lengths, anchor, f"Records by {what}")
        texts = [text for values in parts.values() for text in values.texts]
        is_text = feature.dtype == "string"
        note = "" if is_text else "Complex numbers have no histogram: only their shapes are shown."
        frequent = frequent_strings(texts) if texts else None
        return {**shown, "drawing": drawing, "tables": [], "frequent": frequent, "note": note}
    drawn = {split: values.drawn for split, values in parts.items()}
    together = np.concatenate([*drawn.values(), np.empty((0, channels_of(feature)), np.bool_)])
    rows = [
        (split, _figures(sampled(values), counted([study.manifest.splits[split]], name)))
        for split, values in drawn.items()
    ]
    tables = [{"title": "Split", "rows": rows}]
    if together.shape[1] > 1:
        channels = [
            (str(channel), _figures(sampled(together[:, channel]), None))
            for channel in range(together.shape[1])
        ]
        tables.append({"title": "Channel, of the sample", "rows": channels})
    drawing = histograms(drawn, anchor, "Values, of the sample")
    found = (
        frequent_numbers(together, study.facts.features.classes.get(name, ()))
        if together.size
        else None
    )
    note = "" if drawing else "No finite value was seen."
    return {**shown, "drawing": drawing, "tables": tables, "frequent": found, "note": note}


def _figures(found: Figures, of_all: Figures | None) -> list[str]:
    """The cells of a table."""
    best = joint(found, of_all)
    return [
        f"{best.count:,}",
        *map(percent, (best.missing, found.nan, found.infinite, found.zero)),
        *map(short, (best.low, *found.quantiles, best.high, best.mean, best.std)),
    ]


def _source(study: Study, name: str, parts: dict[str, Values]) -> str:
    """Where the figures come from."""
    seen = sum(len(values.sizes) for values in parts.values())
    empty = sum(int((values.sizes == 0).sum()) for values in parts.values())
    words = f"{seen:,} records of the sample"
    if any(values.drawn.size for values in parts.values()):
        each = max(values.each for values in parts.values())
        is_whole = all(values.is_whole for values in parts.values())
        words += ", with all of their values" if is_whole else f", at most {each:,} places of each"
    if _of_all(study, name):
        words = (
            "The numbers of values, missing, min, max, mean and std of splits are those of all records; "
            f"all else is of {words}"
        )
    else:
        words = f"All figures are those of {words}"
    return f"{words}." + (f" {empty:,} of these records are empty." if empty else "")
