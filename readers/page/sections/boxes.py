"""Boxes: how many a picture has, how large they are, where they are, and which are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from readers.page import charts
from readers.page.distributions.drawings import histograms
from readers.page.numbers import part, short
from readers.page.section import Section
from readers.page.study import Study

_CELLS = 24

# Coordinates are float32: a box that ends at the edge may end this far beyond it.
_ROUNDING = 1e-5


def section(study: Study) -> Section | None:
    """The boxes of each feature that holds any."""
    names = [name for name, role in study.facts.features.roles.items() if role == "boxes"]
    found = [_boxes(study, name) for name in names]
    shown = [each for each in found if each is not None]
    return Section.filled("boxes", shown=shown) if shown else None


def _boxes(study: Study, name: str) -> dict[str, Any] | None:
    parts = study.values(name)
    if not any(values.drawn.size for values in parts.values()):
        return None
    is_xyxy = study.manifest.options.get("box_order") == "xyxy"
    counts = {split: values.shapes[:, 0] for split, values in parts.items()}
    corners = {split: _corners(values.drawn, is_xyxy) for split, values in parts.items()}
    good = {split: each[_has_area(each)] for split, each in corners.items()}
    sides = {split: each[:, 2:] - each[:, :2] for split, each in good.items()}
    every, right = (np.concatenate(list(each.values())) for each in (corners, good))
    is_off = (every < -_ROUNDING).any(axis=1) | (every > 1 + _ROUNDING).any(axis=1)
    number = np.concatenate(list(counts.values()))
    anchor = study.anchor(name, kind="boxes")
    facts = [
        ("Boxes a picture", f"{short(float(number.mean()))} (0 to {int(number.max()):,})"),
        ("Pictures without", part(int((number == 0).sum()), len(number))),
        ("Without area, or NaN", part(len(every) - len(right), len(every))),
        ("Beyond the picture", part(int(is_off.sum()), len(every))),
    ]
    drawings = [
        histograms(counts, f"{anchor}-count", "Pictures by their number of boxes"),
        histograms(
            {split: np.sqrt(each.prod(axis=1)) for split, each in sides.items()},
            f"{anchor}-size",
            "Boxes by size, the root of their share of the picture",
        ),
        histograms(
            {split: each[:, 1] / each[:, 0] for split, each in sides.items()},
            f"{anchor}-aspect",
            "Boxes by aspect of the picture's sides, width / height",
        ),
    ]
    # Coordinates in pixels are shown, too, on the scale of the largest.
    down, across = ((right[:, :2] + right[:, 2:]) / 2 / max(1.0, right.max(initial=1.0))).T
    heat, _, _ = np.histogram2d(down, across, _CELLS, [[0, 1], [0, 1]])
    drawn = [each for each in drawings if each is not None]
    source = f"Of {len(number):,} pictures and {len(every):,} of their boxes, in the sample."
    return {
        "feature": name,
        "anchor": anchor,
        "facts": facts,
        "source": source,
        "drawings": [*drawn, charts.heat_map(heat, "Centres of boxes")],
    }


def _corners(drawn: np.ndarray, is_xyxy: bool) -> np.ndarray:
    """Boxes as top, left, bottom and right, float64 [n, 4]."""
    corners = drawn.astype(np.float64)
    return corners[:, [1, 0, 3, 2]] if is_xyxy else corners


def _has_area(corners: np.ndarray) -> np.ndarray:
    """Which boxes have one, bool [n]."""
    has_area = (corners[:, 2:] > corners[:, :2]).all(axis=1)
    return np.asarray(has_area & np.isfinite(corners).all(axis=1))
