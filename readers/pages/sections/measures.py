"""Pictures, texts, signals and boxes: facts and histograms of the numbers that describe them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from readers.format.manifest import RESERVED_IDS, UNKNOWN_ID
from readers.pages.numbers import part, percent, spread
from readers.pages.section import Section
from readers.pages.study import Study
from readers.pages.values.histograms import histogram

_FEATURES = 12

# Coordinates are float32: a box that ends at the edge may end this far beyond it.
_ROUNDING = 1e-5

_Parts = Mapping[str, np.ndarray]


class _Measure(NamedTuple):
    """A number of each record.

    Attributes:
        name: Its name among the measures of the sample.
        title: The title of its histogram.
        definition: What it is, if that is not plain; may be empty.
    """

    name: str
    title: str
    definition: str = ""


_MEASURES = {
    "picture": (
        _Measure("width", "Width", "in pixels"),
        _Measure("height", "Height", "in pixels"),
        _Measure("aspect", "Aspect ratio", "width / height"),
        _Measure("brightness", "Brightness", "mean luma, 0 is black and 1 white"),
        _Measure("contrast", "Contrast", "standard deviation of the luma"),
        _Measure(
            "sharpness", "Sharpness", "strength of edges at half the size, relative to a quarter"
        ),
        _Measure("entropy", "Information", "entropy of the luma in bits"),
    ),
    "text": (_Measure("characters", "Characters"), _Measure("words", "Words")),
    "signal": (_Measure("rms", "Level", "root mean square"),),
}

# Facts of each kind: title, the measure, and when a record counts.
_COUNTS: dict[str, tuple[tuple[str, str, Callable[[np.ndarray], np.ndarray]], ...]] = {
    "picture": (("Gray", "gray", lambda values: values == 1),),
    "text": (
        ("Without a word", "words", lambda values: values == 0),
        ("With control characters", "control", lambda values: values > 0),
        ("With markup", "markup", lambda values: values > 0),
    ),
    "signal": (("With NaN or infinity", "missing", lambda values: values > 0),),
}


def _section(study: Study, kind: str, noun: str) -> Section | None:
    """The features of a kind."""
    names = study.facts.features.of_kind(kind)
    shown = [
        _measured(study, name, kind, noun)
        for name in names[:_FEATURES]
        if any(len(values) for values in study.measures(name, _MEASURES[kind][0].name).values())
    ]
    tokens = _tokens(study) if kind == "text" else []
    if not shown and not tokens:
        return None
    left = len(names) - len(names[:_FEATURES])
    return Section.filled(noun, "measures", shown=shown, left=left, tokens=tokens)


def _measured(study: Study, name: str, kind: str, noun: str) -> dict[str, Any]:
    facts = list[tuple[str, str]]()
    drawings = []
    for measure in _MEASURES[kind]:
        parts = {s: _finite(values) for s, values in study.measures(name, measure.name).items()}
        every = _joined(parts)
        if len(np.unique(every)) > 1:
            words = (
                f"{measure.definition}: {spread(every)}" if measure.definition else spread(every)
            )
            drawings.append((histogram(parts, measure.title, noun), words))
        elif len(every):
            facts.append((measure.title, spread(every)))
    for title, measure_name, counts in _COUNTS[kind]:
        every = _joined(study.measures(name, measure_name))
        if count := int(counts(every).sum()):
            facts.append((title, part(count, len(every))))
    anchor = study.anchor(name, kind=kind)
    return {"feature": name, "anchor": anchor, "facts": facts, "drawings": drawings}


def _joined(parts: _Parts) -> np.ndarray:
    return np.concatenate([*parts.values(), np.empty(0)])


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _tokens(study: Study) -> list[tuple[str, ...]]:
    """(split, tokens, unknown ones, padding, different ones) of all records of a dataset with a vocabulary of words or a tokenizer."""
    vocabulary = study.manifest.vocabulary or study.manifest.tokenizer
    feature, found = study.facts.features.named("tokens"), list[tuple[str, ...]]()
    for name, split in study.manifest.splits.items():
        counts = split.counts_of(feature)
        if not counts:
            continue
        total = counts.total()
        # The ids of a tokenizer have meanings of their own.
        reserved = range(RESERVED_IDS if study.manifest.vocabulary else 0)
        used = sum(1 for token in counts if token not in reserved)
        unknown, padding = (
            percent(counts[token] / total) if reserved else "" for token in (UNKNOWN_ID, 0)
        )
        size = f" of {vocabulary:,}" if vocabulary else ""
        found.append((name, f"{total:,}", unknown, padding, f"{used:,}{size}"))
    return found


def _boxes(study: Study) -> Section | None:
    """How many boxes a picture has, for each feature that holds them, and which are no parts of it."""
    shown = []
    for name, role in study.facts.features.roles.items():
        counts = {split: sizes / 4 for split, sizes in study.measures(name, "size").items()}
        number = _joined(counts)
        if role != "boxes" or not number.any():
            continue
        ends = [_joined(study.measures(name, end)) for end in ("min", "max")]
        is_off = (ends[0] < -_ROUNDING) | (ends[1] > 1 + _ROUNDING)
        facts = [
            ("Pictures without boxes", part(int((number == 0).sum()), len(number))),
            ("With boxes beyond the picture", part(int(is_off.sum()), len(number))),
        ]
        drawings = [(histogram(counts, "Boxes per picture", "pictures"), spread(number))]
        anchor = study.anchor(name, kind="boxes")
        shown.append({"feature": name, "anchor": anchor, "facts": facts, "drawings": drawings})
    return Section.filled("boxes", "measures", shown=shown, left=0, tokens=[]) if shown else None


SECTIONS = (
    functools.partial(_section, kind="picture", noun="pictures"),
    _boxes,
    functools.partial(_section, kind="text", noun="texts"),
    functools.partial(_section, kind="signal", noun="signals"),
)
