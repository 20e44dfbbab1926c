"""Records of a sample that stand out, such as the darkest pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from readers.format.display import shortened
from readers.pages.cards.gallery import Gallery
from readers.pages.numbers import short
from readers.pages.study import Study

# Records of each kind of extreme.
_MOST = 6

# Features of which extremes are looked for: a dataset may have thousands.
_FEATURES = 4

# Characters of the name of a feature.
_NAME = 40


class _Measure(NamedTuple):
    """A number by which records are compared.

    Attributes:
        low, high: What the records with the smallest and the largest are called; empty for no such list.
        name: The name of the measure.
        unit: What follows the number.
    """

    low: str
    high: str
    name: str
    unit: str


_MEASURES = {
    "picture": (
        _Measure("smallest", "largest", "side", "pixels a side"),
        _Measure("darkest", "brightest", "brightness", "brightness"),
        _Measure("blurriest", "", "sharpness", "sharpness"),
        _Measure("least information", "", "entropy", "bits a pixel"),
    ),
    "text": (_Measure("shortest", "longest", "characters", "characters"),),
    "signal": (
        _Measure("shortest", "longest", "steps", "steps"),
        _Measure("quietest", "loudest", "rms", "root mean square"),
    ),
}


def extremes(study: Study) -> Iterator[Gallery]:
    """Yields the records of all samples with the smallest and the largest of each number, six of each.

    Numbers that are the same in all records make no extreme.
    """
    features = study.facts.features
    compared = [f for f in features.of_kind(*_MEASURES) if not features.roles.get(f)][:_FEATURES]
    for feature in compared:
        for measure in _MEASURES[features.kinds[feature]]:
            yield from _of(study, feature, measure, len(compared) > 1)


def _of(study: Study, feature: str, measure: _Measure, several: bool) -> Iterator[Gallery]:
    values = study.facts.measured(feature, measure.name)
    good = np.flatnonzero(np.isfinite(values))
    if not len(good) or values[good].min() == values[good].max():
        return
    order = good[np.argsort(values[good], kind="stable")]
    for title, numbers in ((measure.low, order), (measure.high, order[::-1])):
        if title:
            some = numbers[:_MOST]
            words = [f"{_rounded(float(values[number]))} {measure.unit}" for number in some]
            about = f"{shortened(feature, _NAME)}: {title}" if several else title
            yield Gallery(about, "", study.cards.figures(study.facts.places(some), words))


def _rounded(value: float) -> str:
    """A number with three digits that count, or all of a whole one."""
    return short(value if value.is_integer() else float(f"{value:.3g}"))
