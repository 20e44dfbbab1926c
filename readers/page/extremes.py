"""The records of a sample that are extreme in some way: the darkest pictures, the longest texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from readers.format.display import shortened
from readers.gallery.look import Look
from readers.page.numbers import short
from readers.page.shown import Shown
from readers.page.study import Study

# Records of each kind of extreme.
_MOST = 6

# Features of which extremes are looked for: a dataset may have thousands.
_FEATURES = 4


class _Measure(NamedTuple):
    """A number by which records are compared.

    Attributes:
        low, high: What the records with the smallest and the largest are called; empty for no such list.
        name: The name of the measure.
        words: What is said of a record, given the number.
    """

    low: str
    high: str
    name: str
    words: Callable[[float], str]


_MEASURES = {
    "picture": (
        _Measure("smallest", "largest", "pixels", lambda n: f"{n:,.0f} pixels"),
        _Measure("darkest", "brightest", "brightness", lambda n: f"brightness {n:.2f} of 1"),
        _Measure("blurriest", "", "sharpness", lambda n: f"sharpness {n:.2f}"),
        _Measure("least information", "", "entropy", lambda n: f"{n:.2f} bits a pixel"),
    ),
    "text": (_Measure("shortest", "longest", "characters", lambda n: f"{n:,.0f} characters"),),
    "signal": (
        _Measure("shortest", "longest", "steps", lambda n: f"{n:,.0f} steps"),
        _Measure("quietest", "loudest", "rms", lambda n: f"root mean square {short(n)}"),
    ),
    "spectrogram": (_Measure("shortest", "longest", "steps", lambda n: f"{n:,.0f} frames"),),
    "boxes": (_Measure("", "most boxes", "size", lambda n: f"{n / 4:,.0f} boxes"),),
}


def extremes(study: Study, look: Look) -> list[Shown]:
    """The records of all samples with the smallest and the largest of each number, six of each.

    Numbers that are the same in all records make no extreme.

    Args:
        study: The dataset.
        look: What its features are.
    """
    compared = [(feature, kind) for feature, kind in _kinds(study, look) if kind in _MEASURES][
        :_FEATURES
    ]
    several = sum(kind != "boxes" for _, kind in compared) > 1
    return [
        shown
        for feature, kind in compared
        for measure in _MEASURES[kind]
        for shown in _of(study, feature, measure, several and kind != "boxes")
    ]


def _kinds(study: Study, look: Look) -> Iterator[tuple[str, str]]:
    """The measured features and what they are: what is drawn with others has no extremes."""
    for feature, kind in study.kinds.items():
        role = look.roles.get(feature, "")
        if role in ("boxes", "spectrogram"):
            yield feature, role
        elif not role:
            yield feature, kind


def _of(study: Study, feature: str, measure: _Measure, several: bool) -> Iterator[Shown]:
    values = _values(study, feature, measure.name)
    good = np.flatnonzero(np.isfinite(values))
    if not len(good) or values[good].min() == values[good].max():
        return
    order = good[np.argsort(values[good], kind="stable")]
    for title, numbers in ((measure.low, order), (measure.high, order[::-1])):
        if title:
            some = numbers[:_MOST]
            places = study.facts.places(some)
            words = [measure.words(float(values[number])) for number in some]
            about = f"{shortened(feature, 40)}: {title}" if several else title
            yield Shown(about, "", tuple(zip(places, words, strict=True)))


def _values(study: Study, feature: str, name: str) -> np.ndarray:
    """A number of all records, float64 [records]."""
    if name == "pixels":
        with np.errstate(over="ignore"):
            return _values(study, feature, "width") * _values(study, feature, "height")
    return study.facts.measured(feature, name)
