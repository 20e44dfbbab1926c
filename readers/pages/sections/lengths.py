"""Lengths: how they are distributed, and what padding costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from readers.pages.numbers import percent
from readers.pages.section import Section
from readers.pages.study import Study
from readers.pages.values.histograms import histogram

_BATCH_SIZES = (16, 32, 64, 128, 256)

_FEATURES = 12


def section(study: Study) -> Section | None:
    """The lengths of features with one dimension of unknown size; pictures have a section of their own."""
    features = study.facts.features
    names = [f for f in features.of_kind("signal", "floats", "integers") if _has_length(study, f)]
    shown = [_lengths(study, name) for name in names[:_FEATURES] if study.measures(name, "size")]
    left = len(names) - len(names[:_FEATURES])
    return Section.filled("lengths", shown=shown, sizes=_BATCH_SIZES, left=left) if shown else None


def _has_length(study: Study, name: str) -> bool:
    feature = study.manifest.schema[name]
    return feature.has_length and not feature.is_image and feature.shape.count(None) == 1


def _lengths(study: Study, name: str) -> dict[str, Any]:
    feature = study.manifest.schema[name]
    others = math.prod(feature.known_sizes) or 1
    parts = {split: sizes / others for split, sizes in study.measures(name, "size").items()}
    every = np.concatenate(list(parts.values()))
    return {
        "feature": name,
        "anchor": study.anchor(name, kind="length"),
        "seen": len(every),
        "drawing": histogram(parts, f"Size of dimension {feature.first_unknown}", "records"),
        "is_constant": bool(np.ptp(every) == 0),
        "wastes": [
            (split, [percent(padding(seen, size)) for size in _BATCH_SIZES])
            for split, seen in parts.items()
        ],
    }


def padding(lengths: np.ndarray, batch_size: int) -> float:
    """The expected share of cells that are padding in full batches of shuffled records; NaN without cells.

    Args:
        lengths: The lengths of records, float64 [n].
        batch_size: Records in a batch, which is padded to its longest.
    """
    if not lengths.any():
        return math.nan
    # The chance that none of a batch is longer than this record.
    shares = (np.arange(1, len(lengths) + 1) / len(lengths)) ** batch_size
    longest = float((np.sort(lengths) * np.diff(shares, prepend=0.0)).sum())
    return max(0.0, 1 - float(lengths.mean()) / longest)
