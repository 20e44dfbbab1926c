"""Lengths: how they are distributed, what padding costs, and the buckets with which it costs less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.format.schema import Feature
from readers.page.distributions.drawings import histograms
from readers.page.section import Section
from readers.page.study import Study

_BATCH_SIZES = (16, 32, 64, 128, 256)

# Buckets are suggested for batches of this size, if they save this share of the cells.
_BATCH_SIZE, _WORTH = 64, 0.01

# The shares of the records at which a bucket begins. Fewer records fill too few batches of each.
_SHARES = (0.25, 0.5, 0.75, 0.95)
_FEWEST = 20 * _BATCH_SIZE

_FEATURES = 12


def section(study: Study) -> Section | None:
    """The lengths of features with a dimension of unknown size; pictures have a section of their own."""
    names = [name for name, feature in study.manifest.schema.items() if _has_length(feature)]
    shown = [_lengths(study, name) for name in names[:_FEATURES] if study.values(name)]
    if not shown:
        return None
    left = len(names) - len(names[:_FEATURES])
    return Section.filled("lengths", shown=shown, left=left)


def _has_length(feature: Feature) -> bool:
    return feature.has_length and not feature.is_image and feature.shape.count(None) == 1


def _lengths(study: Study, name: str) -> dict[str, Any]:
    dimension = study.manifest.schema[name].first_unknown
    parts = {split: values.shapes[:, dimension] for split, values in study.values(name).items()}
    anchor = study.anchor(name, kind="length")
    split, seen = next(iter(parts.items()))
    boundaries = suggested_boundaries(seen)
    buckets = {name: boundaries}
    arguments = f"batch_size={_BATCH_SIZE}, batching=readers.Padded(buckets={buckets!a})"
    return {
        "feature": name,
        "anchor": anchor,
        "split": split,
        "seen": len(seen),
        "records": study.manifest.splits[split].records,
        "drawing": histograms(parts, anchor, f"Records by the size of dimension {dimension}"),
        "is_constant": bool(np.ptp(np.concatenate(list(parts.values()))) == 0),
        "wastes": [
            (size, _percent(padding(seen, size)), _percent(padding(seen, size, boundaries)))
            for size in _BATCH_SIZES
        ],
        "boundaries": boundaries,
        "suggestion": f"readers.as_numpy({study.directory!a}, split={split!a}, {arguments})",
    }


def suggested_boundaries(lengths: np.ndarray) -> list[int]:
    """Quantiles as boundaries of buckets; empty for few records, or if buckets save less than 1 % of the cells."""
    if len(lengths) < _FEWEST:
        return []
    ends = np.unique(np.quantile(lengths, _SHARES, method="inverted_cdf"))
    boundaries = [int(end) + 1 for end in ends if end < lengths.max()]
    saved = padding(lengths, _BATCH_SIZE) - padding(lengths, _BATCH_SIZE, boundaries)
    return boundaries if saved >= _WORTH else []


def padding(lengths: np.ndarray, batch_size: int, boundaries: Sequence[int] = ()) -> float:
    """The expected share of cells that are padding in full batches of shuffled records; NaN without cells.

    Args:
        lengths: The lengths of records, int64 [n].
        batch_size: Records in a batch, which is padded to its longest.
        boundaries: The lengths at which a bucket begins, as `buckets` of `readers.Padded`.
    """
    cells, places = 0.0, np.searchsorted(np.asarray(boundaries), lengths, side="right")
    for place in np.unique(places):
        bucket = np.sort(lengths[places == place])
        # The chance that none of a batch is longer than this record.
        shares = (np.arange(1, len(bucket) + 1) / len(bucket)) ** batch_size
        cells += len(bucket) * float((bucket * np.diff(shares, prepend=0.0)).sum())
    return max(0.0, 1 - float(lengths.sum()) / cells) if cells else math.nan


def _percent(share: float) -> str:
    """A share to be compared with others, with one digit more than elsewhere."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
