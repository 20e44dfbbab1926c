"""Pictures: sizes, modes, levels of channels, and sharpness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from readers.format.schema import Feature
from readers.measures.sample import Measures
from readers.page import charts
from readers.page.distributions.drawings import histograms
from readers.page.numbers import short
from readers.page.section import Section
from readers.page.study import Study

_FEATURES = 12

_MEASURES = (
    ("width", "Pictures by width in pixels"),
    ("height", "Pictures by height in pixels"),
    ("aspect", "Pictures by aspect, width / height"),
    ("brightness", "Pictures by brightness, the mean of their luma"),
    ("contrast", "Pictures by contrast, the standard deviation of their luma"),
    ("sharpness", "Pictures by sharpness, edges relative to those at half the size"),
    ("entropy", "Pictures by entropy of their luma, in bits"),
)


def section(study: Study) -> Section | None:
    """The pictures of each feature that holds them."""
    names = study.facts.features.of_kind("picture")
    found = [_pictures(study, name) for name in names[:_FEATURES]]
    shown = [each for each in found if each is not None]
    if not shown:
        return None
    left = len(names) - len(names[:_FEATURES])
    return Section.filled("pictures", shown=shown, left=left)


def _pictures(study: Study, name: str) -> dict[str, Any] | None:
    parts = {
        split: sample.measures[name]
        for split, sample in study.samples.items()
        if "width" in sample.measures[name]
    }
    if not parts:
        return None
    anchor = study.anchor(name, kind="picture")
    width, height = (_joined(parts, side) for side in ("width", "height"))
    drawings = [
        histograms({s: m[measure] for s, m in parts.items()}, f"{anchor}-{measure}", caption)
        for measure, caption in _MEASURES
        if len(np.unique(_joined(parts, measure))) > 1
    ]
    source, moments = _moments(study, name, next(iter(parts)))
    feature = study.manifest.schema[name]
    return {
        "feature": name,
        "anchor": anchor,
        "seen": len(width),
        "facts": [
            ("Width", _ends(width)),
            ("Height", _ends(height)),
            ("Aspect", _ends(width / height)),
            ("Megapixels", _ends(width * height / 1e6)),
        ],
        "drawings": [drawing for drawing in drawings if drawing is not None],
        "modes": charts.strip(_modes(feature, parts), f"Modes of {len(width):,} pictures"),
        "channels": [(str(n), short(mean), short(std)) for n, (mean, std) in enumerate(moments)],
        "source": source,
    }


def _joined(parts: Mapping[str, Measures], measure: str) -> np.ndarray:
    """A measure of all pictures that have it."""
    values = np.concatenate([measures[measure] for measures in parts.values()])
    return values[np.isfinite(values)]


def _ends(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    if low == high:
        return short(low)
    return f"{short(low)} to {short(high)}, median {short(float(np.median(values)))}"


def _modes(feature: Feature, parts: Mapping[str, Measures]) -> dict[str, int]:
    """How many pictures are gray and in colour."""
    depth = " of 16 bits" if feature.dtype == "uint16" else ""
    channels = feature.shape[2] if len(feature.shape) == 3 else 1
    seen = len(_joined(parts, "width"))
    if channels == 1:
        return {f"gray{depth}": seen}
    gray = int((_joined(parts, "gray") == 1).sum())
    name = "RGB and alpha" if channels == 4 else "RGB"
    return {f"{name}{depth}": seen - gray, f"gray in {name}{depth}": gray}


def _moments(study: Study, name: str, split: str) -> tuple[str, list[tuple[float, float]]]:
    """Where mean and std of each channel come from, and what they are."""
    figures = study.manifest.splits[split].statistics.get(name)
    channels = figures.get("channels") if isinstance(figures, Mapping) else None
    if isinstance(channels, Mapping):
        pairs = [channels.get(key) for key in ("mean", "std")]
        if all(isinstance(each, list) and all(type(n) is float for n in each) for each in pairs):
            return f"Of all records of {split}.", list(zip(*pairs, strict=False))
    values = study.values(name)[split]
    drawn = values.drawn.astype(np.float64)
    source = f"Of {len(values.sizes):,} records of {split}, at most {values.each:,} pixels of each."
    finite = [column[np.isfinite(column)] for column in drawn.T]
    return source, [
        (float(column.mean()), float(column.std())) if len(column) else (math.nan, math.nan)
        for column in finite
    ]
