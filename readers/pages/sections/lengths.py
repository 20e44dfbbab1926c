"""Lengths: how they are distributed, and what padding costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from readers.format.schema import Feature
from readers.pages.numbers import percent
from readers.pages.section import Section
from readers.pages.study import Study
from readers.pages.values.histograms import histogram

_BATCH_SIZES = (16, 32, 64, 128, 256)

_FEATURES = 12


def section(study: Study) -> Section | None:
    """The lengths of features with a dimension of unknown size; pictures have a section of their own."""
    names = [name for name, feature in study.manifest.schema.items() if _has_length(feature)]
    shown = [_lengths(study, name) for name in names[:_FEATURES] if study.values(name)]
    if not shown:
        return None
    left = len(names) - len(names[:_FEATURES])
    return Section.filled("lengths", shown=shown, sizes=_BATCH_SIZES, left=left)


def _has_length(feature: Feature) -> bool:
    return feature.has_length and not feature.is_image and feature.shape.count(None) == 1


def _lengths(study: Study, name: str) -> dict[str, Any]:
    dimension = study.manifest.schema[name].first_unknown
    parts = {split: values.shapes[:, dimension] for split, values in study.values(name).items()}
    every = np.concatenate(list(parts.values()))
    return {
        "feature": name,
        "anchor": study.anchor(name, kind="length"),
        "seen": len(every),
        "drawing": histogram(parts, f"Size of dimension {dimension}", "records"),
        "is_constant": bool(np.ptp(every) == 0),
        "wastes": [
            (split, [percent(padding(seen, size)) for size in _BATCH_SIZES])
            for split, seen in parts.items()
        ],
    }


def padding(lengths: np.ndarray, batch_size: int) -> float:
    """The expected share of cells that are padding in full batches of shuffled records; NaN without cells.

    Args:
        lengths: The lengths of records, int64 [n].
        batch_size: Records in a batch, which is padded to its longest.
    """
    if not lengths.any():
        return math.nan
    # The chance that none of a batch is longer than this record.
    shares = (np.arange(1, len(lengths) + 1) / len(lengths)) ** batch_size
    longest = float((np.sort(lengths) * np.diff(shares, prepend=0.0)).sum())
    return max(0.0, 1 - float(lengths.mean()) / longest)
