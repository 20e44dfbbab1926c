"""Records of a sample that stand out: extremes, such as the darkest pictures, and those that are equal or nearly the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from readers.format.display import shortened
from readers.format.similarity.pairs import groups_of
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
    for feature, kind in study.facts.features.kinds.items():
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


# Groups of a feature, and records of a group.
_GROUPS, _RECORDS = 4, 5

# Characters of the name of a feature, and of a key.
_NAME, _KEY = 40, 24

_CONTENT = ("picture", "text", "signal")


def copies(study: Study, look: Look) -> list[Shown]:
    """The largest groups of records whose pictures, texts or signals are equal or nearly the same.

    The records of a group that are shown are of as many splits as they can be.
    """
    features = [f for f in study.facts.features.of_kind(*_CONTENT) if not look.roles.get(f)]
    return [shown for feature in features for shown in _groups(study, feature, len(features) > 1)]


def _groups(study: Study, feature: str, several: bool) -> list[Shown]:
    digests = study.facts.digests(feature)
    _, first, number = np.unique(digests, return_index=True, return_inverse=True)
    firsts = np.where(digests == 0, np.arange(len(digests)), first[number.reshape(-1)])
    pairs = [(firsts, np.arange(len(digests))), study.facts.similar.get(feature, ((), ()))]
    groups = groups_of(len(digests), *np.concatenate(pairs, axis=1).astype(np.int64))
    roots, sizes = np.unique(groups, return_counts=True)
    largest = roots[np.argsort(-sizes, kind="stable")][: min(_GROUPS, int((sizes > 1).sum()))]
    return [_group(study, feature, np.flatnonzero(groups == root), several) for root in largest]


def _group(study: Study, feature: str, members: np.ndarray, several: bool) -> Shown:
    digests, splits = study.facts.digests(feature), study.facts.splits[members]
    # The first of each split, then the others.
    numbers, first, counts = np.unique(splits, return_index=True, return_counts=True)
    names = list(study.samples)
    where = ", ".join(f"{n:,} in {names[s]}" for s, n in zip(numbers, counts, strict=True))
    order = np.concatenate([members[first], np.delete(members, first)])[:_RECORDS]
    words = ["", *(_compared(digests[order[0]], digests[member]) for member in order[1:])]
    (name,) = study.facts.names_of_records(order[:1])
    title = f"{shortened(name.rpartition('/')[2], _KEY)} \u00d7{len(members):,}"
    kind = "equal" if len(np.unique(digests[members])) == 1 else "nearly the same"
    return Shown(
        f"{shortened(feature, _NAME)}: {title}" if several else title,
        f"{len(members):,} records are {kind} in {shortened(feature, _NAME)}: {where}",
        tuple(zip(study.facts.places(order), words, strict=True)),
    )


def _compared(first: np.uint64, digest: np.uint64) -> str:
    return "equal to the first" if first == digest else "nearly the same as the first"
