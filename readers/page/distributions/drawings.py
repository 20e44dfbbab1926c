"""Histograms of a feature: linear and logarithmic ones as two tabs, and one of the size of a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

import numpy as np

from readers.gallery.markup import element
from readers.page import charts
from readers.page.distributions.bins import Bins, bins_of

_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_BINS = 96, 24, 24


def histograms(parts: Mapping[str, np.ndarray], anchor: str, caption: str) -> Element | None:
    """The histograms of the values of each split, as shares if there are several; None without finite values.

    Args:
        parts: Split -> numbers.
        anchor: An id of the page that no other tabs have.
        caption: What is counted.
    """
    bins = bins_of(list(parts.values()))
    if bins is None:
        return None
    counts = {name: bins.counts(values) for name, values in parts.items()}
    counts = {name: each for name, each in counts.items() if each.any()}
    series: Mapping[str, np.ndarray] = counts
    linear = caption
    if len(counts) > 1:
        # Splits differ in size: in percent, their lines can be compared.
        series = {name: 100.0 * each / each.sum() for name, each in counts.items()}
        linear = f"{caption}, % of each split"
    how = {"is_log_across": bins.is_log}
    return tabs(
        anchor,
        [
            ("Linear", [charts.histogram(series, bins.edges, linear, **how)]),
            ("Logarithmic", [charts.histogram(counts, bins.edges, caption, log=True, **how)]),
        ],
    )


def tabs(anchor: str, pages: Sequence[tuple[str, Sequence[Element]]]) -> Element:
    """Elements of which one page is shown at a time, without a script.

    Args:
        anchor: An id that no other element of the page has.
        pages: The titles, and what each page shows.
    """
    made = list[Element]()
    for number, (title, shown) in enumerate(pages):
        attributes = {"checked": "checked"} if not number else {}
        name = f"{anchor}-tab-{number}"
        made += [
            element("input", type="radio", name=f"{anchor}-tabs", id=name, **attributes),
            element("label", title, for_=name),
            element("div", *shown, class_="tab"),
        ]
    return element("div", *made, class_="tabs")


def spark(parts: Sequence[np.ndarray]) -> Element | None:
    """A histogram without axes of all values together; None without finite values."""
    bins = bins_of(parts)
    if bins is None:
        return None
    counts = sum((bins.counts(part) for part in parts), np.zeros(len(bins.edges) - 1, np.int64))
    counts = _fewer(bins, counts)
    most, width = counts.max(), _SPARK_WIDTH / len(counts)
    marks = list[str]()
    for place, count in enumerate(counts):
        if count:
            height = max(1.0, (_SPARK_HEIGHT - 1) * count / most)
            marks.append(
                f"M{place * width:.1f} {_SPARK_HEIGHT}v-{height:.1f}h{max(1, width - 0.5):.1f}v{height:.1f}z"
            )
    return element(
        "svg",
        element("path", d="".join(marks), class_="bar s0"),
        viewBox=f"0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}",
        width=str(_SPARK_WIDTH),
        height=str(_SPARK_HEIGHT),
        class_="spark",
        aria_hidden="true",
    )


def _fewer(bins: Bins, counts: np.ndarray) -> np.ndarray:
    """The counts of at most 24 bins, of several neighbouring ones each."""
    several = -(-len(counts) // _SPARK_BINS)
    return np.add.reduceat(counts, np.arange(0, len(counts), several))
