"""Pictures, texts, signals and boxes: facts and histograms of the numbers that describe them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from readers.format.manifest import RESERVED_IDS, UNKNOWN_ID
from readers.pages.numbers import part, percent, short, spread
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
    facts += _moments(study, name) if kind == "picture" else []
    anchor = study.anchor(name, kind=kind)
    return {"feature": name, "anchor": anchor, "facts": facts, "drawings": drawings}


def _joined(parts: _Parts) -> np.ndarray:
    return np.concatenate([*parts.values(), np.empty(0)])


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _moments(study: Study, name: str) -> Iterator[tuple[str, str]]:
    """Yields mean and std of each channel of the first split: of all records if the manifest has them."""
    for split, values in list(study.values(name).items())[:1]:
        figures = study.manifest.splits[split].statistics.get(name)
        channels = figures.get("channels") if isinstance(figures, Mapping) else None
        stated = channels if isinstance(channels, Mapping) else {}
        columns = [_finite(column.astype(np.float64)) for column in values.drawn.T]
        for title, function in (("mean", np.mean), ("std", np.std)):
            levels = stated.get(title)
            if not isinstance(levels, list) or not all(type(n) is float for n in levels):
                levels = [float(function(column)) for column in columns if len(column)]
            if levels:
                yield f"Channel {title}s of {split}", ", ".join(map(short, levels))


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


def _boxes_section(study: Study) -> Section | None:
    """The boxes of each feature that holds any: how many a picture has, how large they are, and which are wrong."""
    names = [name for name, role in study.facts.features.roles.items() if role == "boxes"]
    shown = [
        _boxes(study, name)
        for name in names
        if any(v.drawn.size for v in study.values(name).values())
    ]
    return Section.filled("boxes", "measures", shown=shown, left=0, tokens=[]) if shown else None


def _boxes(study: Study, name: str) -> dict[str, Any]:
    parts = study.values(name)
    is_xyxy = study.manifest.options.get("box_order") == "xyxy"
    counts = {split: values.shapes[:, 0] for split, values in parts.items()}
    corners = {
        split: values.drawn.astype(np.float64)[:, [1, 0, 3, 2] if is_xyxy else slice(None)]
        for split, values in parts.items()
    }
    good = {split: each[_has_area(each)] for split, each in corners.items()}
    sides = {split: each[:, 2:] - each[:, :2] for split, each in good.items()}
    every, number = np.concatenate(list(corners.values())), _joined(counts)
    is_off = (every < -_ROUNDING).any(axis=1) | (every > 1 + _ROUNDING).any(axis=1)
    sizes = {split: np.sqrt(each.prod(axis=1)) for split, each in sides.items()}
    aspects = {split: each[:, 1] / each[:, 0] for split, each in sides.items()}
    drawings = [
        (histogram(counts, "Boxes per picture", "pictures"), ""),
        (histogram(sizes, "Size", "boxes"), "square root of the share of the picture"),
        (histogram(aspects, "Aspect ratio", "boxes"), "width / height, as parts of the picture"),
    ]
    facts = [
        ("Boxes per picture", spread(number)),
        ("Pictures without boxes", part(int((number == 0).sum()), len(number))),
        ("Without area, or NaN", part(int((~_has_area(every)).sum()), len(every))),
        ("Beyond the picture", part(int(is_off.sum()), len(every))),
    ]
    anchor, shown = study.anchor(name, kind="boxes"), [d for d in drawings if d[0] is not None]
    return {"feature": name, "anchor": anchor, "facts": facts, "drawings": shown}


def _has_area(corners: np.ndarray) -> np.ndarray:
    """Which boxes, as top, left, bottom and right, have an area, bool [n]."""
    has_area = (corners[:, 2:] > corners[:, :2]).all(axis=1)
    return np.asarray(has_area & np.isfinite(corners).all(axis=1))


SECTIONS = (
    functools.partial(_section, kind="picture", noun="pictures"),
    _boxes_section,
    functools.partial(_section, kind="text", noun="texts"),
    functools.partial(_section, kind="signal", noun="signals"),
)
