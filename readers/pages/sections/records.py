"""Records of each split, and the extremes of the sample, such as the darkest pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import counted, shortened
from readers.pages.markup import element
from readers.pages.numbers import short
from readers.pages.study import Study

# The most records of a split, of all splits, and of an extreme.
_OF_SPLIT, _OF_ALL, _OF_EXTREME = 24, 96, 6

# The most splits, features with extremes, and characters of a name.
_SPLITS, _FEATURES, _NAME = 12, 4, 40

# Kind -> measure, title of its smallest and of its largest values (may be empty), and unit.
_EXTREMES = {
    "picture": (
        ("side", "smallest", "largest", "pixels per side"),
        ("brightness", "darkest", "brightest", "brightness"),
        ("sharpness", "blurriest", "", "sharpness"),
        ("entropy", "least information", "", "bits per pixel"),
    ),
    "text": (("characters", "shortest", "longest", "characters"),),
    "signal": (("steps", "shortest", "longest", "steps"), ("rms", "quietest", "loudest", "RMS")),
}


# Cards that are shown together: their `title`, `words` about them, which may be empty, and their `figures`.
Gallery = dict[str, Any]


def section(study: Study) -> list[Element]:
    """Galleries of records from the sample."""
    splits = list(_drawn(study))
    if not splits:
        return [element("p", "There are no splits.")]
    parts = [_tabs("drawn", "Splits", splits, study.grid)]
    if more := len(study.manifest.splits) - len(splits):
        words = f"Records of {counted(more, 'more split')} are not shown."
        parts.append(element("p", words, class_="soft"))
    if found := list(extremes(study)):
        parts.append(element("h3", "Extreme records in the sample"))
        parts.append(_tabs("extremes", "Extremes", found, study.grid))
    return parts


def _tabs(name: str, about: str, galleries: Sequence[Gallery], grid: str) -> Element:
    parts = list[Element]()
    for number, gallery in enumerate(galleries):
        button = {"type": "radio", "name": name, "id": f"{name}-{number}"}
        words = [element("p", gallery["words"], class_="soft")] if gallery["words"] else []
        shown = element("div", *gallery["figures"], class_=grid)
        parts += [
            element("input", **button, **({} if number else {"checked": ""})),
            element("label", gallery["title"], for_=button["id"]),
            element("div", *words, shown, class_="tab"),
        ]
    return element("div", *parts, class_="tabs", role="group", aria_label=about)


def _drawn(study: Study) -> Iterator[Gallery]:
    """Yields records of each split, drawn from its sample with a fixed seed."""
    names = list(study.facts.samples)[:_SPLITS]
    most = min(_OF_SPLIT, max(1, _OF_ALL // max(1, len(names))))
    for name in names:
        sample, split = study.facts.samples[name], study.manifest.splits[name]
        count = min(most, sample.seen)
        chosen = np.random.default_rng(0).choice(sample.seen, count, replace=False)
        places = [(name, number) for number in sorted(map(int, sample.numbers[chosen]))]
        drawn = f"{count:,} of {counted(split.records, 'record')}, drawn at random"
        figures = study.cards.figures(places, names_splits=False)
        words = drawn if count else "no records"
        yield {"title": shortened(name, _NAME), "words": words, "figures": figures}


def extremes(study: Study) -> Iterator[Gallery]:
    """Yields the records with the smallest and the largest values of each measure, unless all values are equal."""
    features = study.facts.features
    compared = [f for f in features.of_kind(*_EXTREMES) if not features.roles.get(f)][:_FEATURES]
    for feature in compared:
        about = f"{shortened(feature, _NAME)}: " if len(compared) > 1 else ""
        for measure, low, high, unit in _EXTREMES[features.kinds[feature]]:
            values = study.facts.measured(feature, measure)
            good = np.flatnonzero(np.isfinite(values))
            order = good[np.argsort(values[good], kind="stable")]
            if not len(order) or values[order[0]] == values[order[-1]]:
                continue
            for title, numbers in ((low, order), (high, order[::-1])):
                if title:
                    some = numbers[:_OF_EXTREME]
                    # Three digits of a fraction, all digits of a whole number.
                    why = [
                        f"{short(float(f'{v:.3g}') if v % 1 else v)} {unit}" for v in values[some]
                    ]
                    figures = study.cards.figures(study.facts.places(some), why)
                    yield {"title": about + title, "words": "", "figures": figures}
