"""Groups of records that are equal or nearly the same, the largest first."""

from __future__ import annotations

from collections import Counter

import numpy as np

from readers.format.display import shortened
from readers.format.similarity.groups import groups_of
from readers.gallery.look import Look
from readers.page.shown import Shown
from readers.page.study import Study

# Groups of a feature, and records of a group.
_GROUPS, _RECORDS = 4, 5

# Characters of the name of a feature, and of a key.
_NAME, _KEY = 40, 24

_CONTENT = ("picture", "text", "signal")


def copies(study: Study, look: Look) -> list[Shown]:
    """The largest groups of records whose pictures, texts or signals are equal or nearly the same.

    The records of a group that are shown are of as many splits as they can be.

    Args:
        study: The dataset.
        look: What its features are.
    """
    features = [f for f in study.facts.features(*_CONTENT) if not look.roles.get(f)]
    return [shown for feature in features for shown in _of(study, feature, len(features) > 1)]


def _of(study: Study, feature: str, several: bool) -> list[Shown]:
    digests, splits = study.facts.digests(feature), study.facts.splits
    _, first, number = np.unique(digests, return_index=True, return_inverse=True)
    firsts = np.where(digests == 0, np.arange(len(digests)), first[number.reshape(-1)])
    pairs = [(firsts, np.arange(len(digests))), study.facts.similar.get(feature, ((), ()))]
    groups = groups_of(len(digests), *np.concatenate(pairs, axis=1).astype(np.int64))
    roots, sizes = np.unique(groups, return_counts=True)
    largest = roots[np.argsort(-sizes, kind="stable")][: min(_GROUPS, int((sizes > 1).sum()))]
    return [
        _group(study, feature, np.flatnonzero(groups == root), splits, digests, several)
        for root in largest
    ]


def _group(
    study: Study,
    feature: str,
    members: np.ndarray,
    splits: np.ndarray,
    digests: np.ndarray,
    several: bool,
) -> Shown:
    names = list(study.samples)
    counts = Counter(splits[members].tolist())
    where = ", ".join(f"{count:,} in {names[split]}" for split, count in sorted(counts.items()))
    is_equal = len(np.unique(digests[members])) == 1
    # The first of each split, then the others.
    first = np.unique(splits[members], return_index=True)[1]
    order = np.concatenate([members[first], np.delete(members, first)])[:_RECORDS]
    words = [
        "" if n == 0 else _compared(digests[order[0]], digests[m]) for n, m in enumerate(order)
    ]
    (name,) = study.facts.names_of_records(order[:1])
    title = f"{shortened(name.rpartition('/')[2], _KEY)} \u00d7{len(members):,}"
    kind = "are equal" if is_equal else "are nearly the same"
    return Shown(
        f"{shortened(feature, _NAME)}: {title}" if several else title,
        f"{len(members):,} records {kind} in {shortened(feature, _NAME)}: {where}",
        tuple(zip(study.facts.places(order), words, strict=True)),
    )


def _compared(first: np.uint64, digest: np.uint64) -> str:
    return "equal to the first" if first == digest else "nearly the same as the first"
