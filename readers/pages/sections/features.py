"""Features: the type, shape, missing values and figures of each, with histograms of values and lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.schema import Feature, format_shape
from readers.measures.sample import LARGEST
from readers.pages.bins import finite
from readers.pages.charts import histogram
from readers.pages.figures import Figures, of_all
from readers.pages.numbers import percent, spread
from readers.pages.section import fill
from readers.pages.study import Study

# The most features with a line, and with details: a page of 2,000 features has less than 5 MB.
_LINES, _OPEN = 1000, 120

# Kind -> measures with a histogram, their titles and definitions. The line shows the first one.
_MEASURES = {
    "picture": (
        ("brightness", "Brightness", "mean luma, 0 is black and 1 white"),
        ("width", "Width", "in pixels"),
        ("height", "Height", "in pixels"),
        ("aspect", "Aspect ratio", "width / height"),
        ("contrast", "Contrast", "standard deviation of the luma"),
        ("sharpness", "Sharpness", "strength of edges at half the size, relative to a quarter"),
        ("entropy", "Information", "entropy of the luma in bits"),
    ),
    "text": (("characters", "Characters", ""), ("words", "Words", "")),
    "signal": (("mean", "Mean of each record", ""), ("rms", "Level", "root mean square")),
}

_BATCH_SIZES = (16, 64, 256)


def section(study: Study) -> str:
    """A line for each feature, which opens to show histograms."""
    features = list(study.manifest.schema.items())
    lines = enumerate(features[:_LINES])
    return fill(
        "features",
        rows=[_row(study, name, feature, place < _OPEN) for place, (name, feature) in lines],
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
    kind = study.facts.features.kinds.get(name, "")
    row: dict[str, Any] = {
        "anchor": study.anchor(name),
        "name": name,
        "type": f"{feature.dtype} {format_shape(feature.shape)}",
        "cells": {},
        "words": _instead_of_figures(study, name),
        "drawings": [],
    }
    if row["words"]:
        return row
    measures = _MEASURES.get(
        kind, (("mean", "Mean of each record" if feature.shape else "Values", ""),)
    )
    measure, title, _ = measures[0]
    every = finite(study.measures(name, measure).values())
    if found := of_all(list(study.manifest.splits.values()), name):
        row["cells"] = found.cells()
    else:
        row["words"] = f"{title.lower()}: {spread(every)}" if len(every) else "not in the sample"
    if is_open and len(every):
        drawings = [drawn for m in measures for drawn in _drawn(study.measures(name, m[0]), *m[1:])]
        row["drawings"] = [*drawings, *_lengths(study, name, feature)]
    return row


def _instead_of_figures(study: Study, name: str) -> str:
    """Text for a feature without useful figures; empty for others."""
    features = study.facts.features
    role = features.roles.get(name)
    if role == "key":
        return "identifies each record"
    if role == "label" and (name == study.facts.label or name in features.classes):
        return "see Labels"
    return "" if name in features.kinds else "not measured"


def _drawn(
    parts: Mapping[str, np.ndarray], title: str, definition: str = ""
) -> Iterator[tuple[Element | None, str]]:
    """Yields the histogram of a measure and text about it; only the text if all values are equal."""
    every = finite(parts.values())
    if len(every):
        drawing = histogram(parts, title) if np.ptp(every / 2) else None
        about = definition if drawing is not None else title
        words = f"{about}: {spread(every)}." if about else f"{spread(every)}."
        yield drawing, words[:1].upper() + words[1:]


def _lengths(study: Study, name: str, feature: Feature) -> Iterator[tuple[Element | None, str]]:
    """Yields the histogram of the lengths of a feature with one unknown size, and the cost of padding."""
    if not feature.has_length or feature.is_image or feature.shape.count(None) != 1:
        return
    others = math.prod(feature.known_sizes) or 1
    parts = {split: sizes / others for split, sizes in study.measures(name, "size").items()}
    title = f"Size of dimension {feature.first_unknown}" if feature.first_unknown else "Length"
    for drawing, words in _drawn(parts, title):
        every = np.nan_to_num(np.concatenate(list(parts.values())))
        shares = [f"{percent(padding(every, size))} at batch size {size}" for size in _BATCH_SIZES]
        yield drawing, f"{words} Padding in shuffled batches: {', '.join(shares)}."


def padding(lengths: np.ndarray, batch_size: int) -> float:
    """The expected share of padding in batches of shuffled records, given their lengths, float64 [n]; NaN if all are 0."""
    if not lengths.any():
        return math.nan
    # The probability that no record of a batch is longer than this one.
    shares = (np.arange(1, len(lengths) + 1) / len(lengths)) ** batch_size
    longest = float((np.sort(lengths) * np.diff(shares, prepend=0.0)).sum())
    return max(0.0, 1 - float(lengths.mean()) / longest)
