"""Records of a sample that stand out: extremes, such as the darkest pictures, and those that are equal or nearly the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from readers.format.display import shortened
from readers.format.similarity.pairs import groups_of
from readers.pages.cards.gallery import Gallery
from readers.pages.numbers import short
from readers.pages.study import Study

# Records of each kind of extreme.
_MOST = 6

# Features of which extremes are looked for: a dataset may have thousands.
_FEATURES = 4

# Groups of a feature, and records of a group; characters of the name of a feature, and of a key.
_GROUPS, _RECORDS = 4, 5
_NAME, _KEY = 40, 24


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


def copies(study: Study) -> Iterator[Gallery]:
    """Yields the largest groups of records whose pictures, texts or signals are equal or nearly the same.

    The records of a group that are shown are of as many splits as they can be.
    """
    features = study.facts.features
    compared = [f for f in features.of_kind(*_MEASURES) if not features.roles.get(f)]
    for feature in compared:
        yield from _groups(study, feature, len(compared) > 1)


def _groups(study: Study, feature: str, several: bool) -> Iterator[Gallery]:
    digests = study.facts.digests(feature)
    _, first, number = np.unique(digests, return_index=True, return_inverse=True)
    firsts = np.where(digests == 0, np.arange(len(digests)), first[number.reshape(-1)])
    pairs = [(firsts, np.arange(len(digests))), study.facts.similar.get(feature, ((), ()))]
    groups = groups_of(len(digests), *np.concatenate(pairs, axis=1).astype(np.int64))
    roots, sizes = np.unique(groups, return_counts=True)
    largest = roots[np.argsort(-sizes, kind="stable")][: min(_GROUPS, int((sizes > 1).sum()))]
    for root in largest:
        yield _group(study, feature, np.flatnonzero(groups == root), several)


def _group(study: Study, feature: str, members: np.ndarray, several: bool) -> Gallery:
    digests, splits = study.facts.digests(feature), study.facts.splits[members]
    # The first of each split, then the others.
    numbers, first, counts = np.unique(splits, return_index=True, return_counts=True)
    names = list(study.facts.samples)
    where = ", ".join(f"{n:,} in {names[s]}" for s, n in zip(numbers, counts, strict=True))
    order = np.concatenate([members[first], np.delete(members, first)])[:_RECORDS]
    words = ["", *(_compared(digests[order[0]], digests[member]) for member in order[1:])]
    (name,) = study.facts.names_of_records(order[:1])
    title = f"{shortened(name.rpartition('/')[2], _KEY)} \N{MULTIPLICATION SIGN}{len(members):,}"
    kind = "equal" if len(np.unique(digests[members])) == 1 else "nearly the same"
    return Gallery(
        f"{shortened(feature, _NAME)}: {title}" if several else title,
        f"{len(members):,} records are {kind} in {shortened(feature, _NAME)}: {where}",
        study.cards.figures(study.facts.places(order), words),
    )


def _compared(first: np.uint64, digest: np.uint64) -> str:
    return "equal to the first" if first == digest else "nearly the same as the first"
