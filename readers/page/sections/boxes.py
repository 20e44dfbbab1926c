"""Boxes: how many a picture has, how large they are, where they are, and which are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from readers.page import charts
from readers.page.distributions.drawings import histograms
from readers.page.numbers import percent, short
from readers.page.section import Section, fill
from readers.page.study import Study

_CELLS = 24

# Coordinates are float32: a box that ends at the edge may end this far beyond it.
_ROUNDING = 1e-5


def section(study: Study) -> Section | None:
    """The boxes of each feature that holds any."""
    names = [name for name, role in study.facts.roles.items() if role == "boxes"]
    found = [_boxes(study, name) for name in names]
    shown = [each for each in found if each is not None]
    return Section("boxes", "Boxes", fill("boxes.html", shown=shown)) if shown else None


def _boxes(study: Study, name: str) -> dict[str, Any] | None:
    parts = study.values(name)
    if not any(values.drawn.size for values in parts.values()):
        return None
    is_xyxy = study.manifest.options.get("box_order") == "xyxy"
    counts = {split: values.shapes[:, 0] for split, values in parts.items()}
    corners = {split: _corners(values.drawn, is_xyxy) for split, values in parts.items()}
    every = np.concatenate(list(corners.values()))
    top, left, bottom, right = every.T
    height, width = bottom - top, right - left
    is_good = np.isfinite(every).all(axis=1) & (height > 0) & (width > 0)
    is_off = (every < -_ROUNDING).any(axis=1) | (every > 1 + _ROUNDING).any(axis=1)
    number = np.concatenate(list(counts.values()))
    anchor = study.anchor(name, "").replace("feature", "boxes")
    facts = [
        ("Boxes a picture", f"{short(float(number.mean()))} (0 to {int(number.max()):,})"),
        ("Pictures without", _of(int((number == 0).sum()), len(number))),
        ("Without area, or NaN", _of(int((~is_good).sum()), len(every))),
        ("Beyond the picture", _of(int(is_off.sum()), len(every))),
    ]
    drawings = [
        histograms(counts, f"{anchor}-count", "Pictures by their number of boxes"),
        histograms(
            {split: np.sqrt(_area(found)) for split, found in corners.items()},
            f"{anchor}-size",
            "Boxes by size, the root of their share of the picture",
        ),
        histograms(
            {split: _aspect(found) for split, found in corners.items()},
            f"{anchor}-aspect",
            "Boxes by aspect of the picture's sides, width / height",
        ),
    ]
    # Coordinates in pixels are shown, too, on the scale of the largest.
    scale = max(1.0, float(every[is_good].max(initial=1.0)))
    heat, _, _ = np.histogram2d(
        ((top + bottom) / 2)[is_good] / scale,
        ((left + right) / 2)[is_good] / scale,
        _CELLS,
        [[0, 1], [0, 1]],
    )
    drawn = [each for each in drawings if each is not None]
    source = f"Of {len(number):,} pictures and {len(every):,} of their boxes, in the sample."
    return {
        "feature": name,
        "anchor": anchor,
        "facts": facts,
        "source": source,
        "drawings": [*drawn, charts.heat_map(heat, "Centres of boxes")],
    }


def _of(count: int, total: int) -> str:
    return f"{count:,} ({percent(count / total)})" if total else "0"


def _corners(drawn: np.ndarray, is_xyxy: bool) -> np.ndarray:
    """Boxes as top, left, bottom and right, float64 [n, 4]."""
    corners = drawn.astype(np.float64)
    return corners[:, [1, 0, 3, 2]] if is_xyxy else corners


def _good(corners: np.ndarray) -> np.ndarray:
    top, left, bottom, right = corners.T
    return corners[np.isfinite(corners).all(axis=1) & (bottom > top) & (right > left)]


def _area(corners: np.ndarray) -> np.ndarray:
    top, left, bottom, right = _good(corners).T
    return np.asarray((bottom - top) * (right - left))


def _aspect(corners: np.ndarray) -> np.ndarray:
    top, left, bottom, right = _good(corners).T
    return np.asarray((right - left) / (bottom - top))
