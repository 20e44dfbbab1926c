"""Checks of distributions: outliers, unknown tokens, and drift between splits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from readers.checks.facts import Check, Facts
from readers.format.findings import Finding
from readers.format.manifest import UNKNOWN_ID
from readers.measures.sample import SplitSample

# The measures to look for outliers in, on a logarithmic scale.
_LENGTHS = {"text": "characters", "signal": "steps"}
_LEVELS = {"signal": "rms", "floats": "max"}
_SIDES = {"picture": "side"}

_FEWEST = 100

# Interquartile ranges beyond the quartiles: 4.7 standard deviations of a normal distribution.
_RANGES = 3

# The narrowest interquartile range that counts, as a logarithm: equal values have none. Pictures of one camera have
# two or three sizes; the outliers of interest, such as previews, are far from all of them.
_NARROWEST, _NARROWEST_SIDES = math.log(1.05), math.log(3) / _RANGES

_MOST_UNKNOWN = 0.05

# A distance of distributions counts if it is this large and would occur by chance once in 100,000.
_FARTHEST, _CHANCE = 0.1, 1e-5

_COMPARED = {
    "picture": ("brightness", "contrast", "sharpness", "entropy", "width", "height"),
    "text": ("characters", "words", "letters"),
    "signal": ("steps", "mean", "std", "missing"),
    "floats": ("mean", "missing"),
    "integers": ("mean",),
}


def _outliers(
    name: str, noun: str, measures: dict[str, str], narrowest: float = _NARROWEST
) -> Check:
    def find(facts: Facts) -> Iterator[Finding]:
        for feature in facts.features.of_kind(*measures):
            values = facts.measured(feature, measures[facts.features.kinds[feature]])
            mask, low, high = _far_out(values, narrowest)
            words = f"have {noun} far from the others, which are between {_shown(low)} and {_shown(high)}"
            yield from facts.of_records(name, "warning", feature, mask, words)

    return find


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _far_out(values: np.ndarray, narrowest: float) -> tuple[np.ndarray, float, float]:
    """A mask of values far from the others, and the bounds of the others; empty if values are few, mostly equal or not positive."""
    nothing = np.zeros(len(values), bool)
    good = np.isfinite(values) & (values > 0)
    if good.sum() < _FEWEST:
        return nothing, 0.0, 0.0
    low, high = np.percentile(np.log(values[good]), (25, 75))
    reach = _RANGES * max(high - low, narrowest)
    ends = math.exp(low - reach), math.exp(high + reach)
    return good & ((values < ends[0]) | (values > ends[1])), *ends


def _unknown(facts: Facts) -> Iterator[Finding]:
    tokens = facts.features.named("tokens")
    for name, split in facts.manifest.splits.items() if facts.manifest.vocabulary else ():
        counts = split.counts_of(tokens) or Counter()
        total = counts.total()
        if counts[UNKNOWN_ID] > _MOST_UNKNOWN * total:
            share = counts[UNKNOWN_ID] / total
            words = f"{share:.1%} of {total:,} tokens are not in the vocabulary"
            yield Finding("unknown_tokens", "warning", words, tokens, name)


def _drift(facts: Facts) -> Iterator[Finding]:
    """Finds features with a different distribution in a split than in the first one."""
    for split in list(facts.samples)[1:]:
        first, two = next(iter(facts.samples)), facts.samples[split]
        for feature, words in differences(facts.features.kinds, facts.samples[first], two, first):
            yield Finding("split_drift", "warning", words, feature, split, seen=two.seen)


def differences(
    kinds: Mapping[str, str], one: SplitSample, two: SplitSample, name: str
) -> Iterator[tuple[str, str]]:
    """Yields each feature that is distributed differently in the second sample than in the first, called `name`, and how."""
    for feature, kind in kinds.items():
        for measure in _COMPARED[kind]:
            found = [_finite(sample.measures[feature], measure) for sample in (one, two)]
            distance = kolmogorov_smirnov(*found)
            if distance > max(_FARTHEST, by_chance(*map(len, found))):
                middle = [float(np.median(values)) for values in found]
                yield (
                    feature,
                    f"its {measure} is distributed differently than in {name} (Kolmogorov-Smirnov "
                    f"distance {distance:.2f}; medians {middle[1]:.4g} here and {middle[0]:.4g} there)",
                )


def _finite(measures: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    values = measures.get(name, np.empty(0))
    return np.sort(values[np.isfinite(values)])


def kolmogorov_smirnov(one: np.ndarray, two: np.ndarray) -> float:
    """The largest difference between the distribution functions of two sorted samples; 0 if one is empty."""
    if not len(one) or not len(two):
        return 0.0
    values = np.concatenate([one, two])
    shares = [np.searchsorted(s, values, side="right") / len(s) for s in (one, two)]
    return float(np.abs(shares[0] - shares[1]).max())


def by_chance(one: int, two: int) -> float:
    """The distance that two samples of the same distribution exceed once in 100,000 times; 1 if one is empty."""
    if not one or not two:
        return 1.0
    return math.sqrt(-math.log(_CHANCE / 2) / 2 * (one + two) / (one * two))


CHECKS: dict[str, Check] = {
    "outlier_lengths": _outliers("outlier_lengths", "lengths", _LENGTHS),
    "outlier_levels": _outliers("outlier_levels", "levels", _LEVELS),
    "outlier_sizes": _outliers("outlier_sizes", "sides", _SIDES, _NARROWEST_SIDES),
    "unknown_tokens": _unknown,
    "split_drift": _drift,
}
