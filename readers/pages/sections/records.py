"""Records of each split, and the extremes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from readers.format.display import counted, shortened
from readers.pages.cards.gallery import Gallery
from readers.pages.section import Section
from readers.pages.sections.odd import extremes
from readers.pages.study import Study

# Records of a split, and of all splits; splits; characters of the name of a split.
_OF_SPLIT, _OF_ALL, _SPLITS, _NAME = 24, 96, 12, 40


def section(study: Study) -> Section:
    """Galleries of records, all of the sample."""
    splits = list(_drawn(study))
    return Section.filled(
        "records",
        splits=splits,
        extremes=list(extremes(study)),
        more=len(study.manifest.splits) - len(splits),
        grid=study.grid,
    )


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
