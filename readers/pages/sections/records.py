"""Records of each split, and those of the sample that stand out, such as the darkest pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import counted, shortened
from readers.pages.numbers import short
from readers.pages.section import Section
from readers.pages.study import Study

# Records of a split, of all splits, and of an extreme.
_OF_SPLIT, _OF_ALL, _OF_EXTREME = 24, 96, 6

# Splits, features of which there are extremes, and characters of their names.
_SPLITS, _FEATURES, _NAME = 12, 4, 40

# Kind -> measure, what the records with the smallest and the largest are called, or empty, and what follows the number.
_EXTREMES = {
    "picture": (
        ("side", "smallest", "largest", "pixels a side"),
        ("brightness", "darkest", "brightest", "brightness"),
        ("sharpness", "blurriest", "", "sharpness"),
        ("entropy", "least information", "", "bits a pixel"),
    ),
    "text": (("characters", "shortest", "longest", "characters"),),
    "signal": (
        ("steps", "shortest", "longest", "steps"),
        ("rms", "quietest", "loudest", "root mean square"),
    ),
}


class Gallery(NamedTuple):
    """Cards that are shown together, a line about them, which may be empty, and what they have in common."""

    title: str
    words: str
    figures: list[Element]


def section(study: Study) -> Section:
    """Galleries of records, all of the sample."""
    splits = list(_drawn(study))
    more = len(study.manifest.splits) - len(splits)
    found = list(extremes(study))
    return Section.filled("records", splits=splits, extremes=found, more=more, grid=study.grid)


def _drawn(study: Study) -> Iterator[Gallery]:
    """Yields records of each split, drawn from its sample by a fixed seed."""
    names = list(study.facts.samples)[:_SPLITS]
    most = min(_OF_SPLIT, max(1, _OF_ALL // max(1, len(names))))
    for name in names:
        sample, split = study.facts.samples[name], study.manifest.splits[name]
        count = min(most, sample.seen)
        chosen = np.random.default_rng(0).choice(sample.seen, count, replace=False)
        places = [(name, number) for number in sorted(map(int, sample.numbers[chosen]))]
        words = f"{count:,} of {counted(split.records, 'record')}, drawn at random"
        figures = study.cards.figures(places, names_splits=False)
        yield Gallery(shortened(name, _NAME), words if count else "no records", figures)


def extremes(study: Study) -> Iterator[Gallery]:
    """Yields the records of all samples with the smallest and the largest of each number, unless all are the same."""
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
                    # Three digits of each number, or all of a whole one.
                    why = [
                        f"{short(float(f'{v:.3g}') if v % 1 else v)} {unit}" for v in values[some]
                    ]
                    figures = study.cards.figures(study.facts.places(some), why)
                    yield Gallery(about + title, "", figures)
