"""Features: the type, shape, missing values and figures of each, with histograms of values and lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import counted, format_bytes
from readers.format.schema import Feature, format_shape
from readers.measures.sample import LARGEST
from readers.pages.bins import finite
from readers.pages.charts import histogram
from readers.pages.figures import Figures, of_all
from readers.pages.markup import element
from readers.pages.numbers import percent, spread
from readers.pages.study import Study

# The most features with a line, and with details: a page of 2,000 features has less than 5 MB.
_LINES, _OPEN = 1000, 120

# Kind -> measures with a histogram, their titles and definitions. The line shows the first one.
_MEASURES = {
    "picture": (
        ("brightness", "Brightness", "mean luma, 0 is black and 1 white"),
        ("width", "Width", "in pixels"),
        ("height", "Height", "in pixels"),
        ("aspect", "Aspect ratio", "width / height"),
        ("contrast", "Contrast", "standard deviation of the luma"),
        ("sharpness", "Sharpness", "strength of edges at half the size, relative to a quarter"),
        ("entropy", "Information", "entropy of the luma in bits"),
    ),
    "text": (("characters", "Characters", ""), ("words", "Words", "")),
    "signal": (("mean", "Mean of each record", ""), ("rms", "Level", "root mean square")),
}

_BATCH_SIZES = (16, 64, 256)


def section(study: Study) -> list[Element]:
    """A line for each feature, which opens to show histograms."""
    features, checked = list(study.manifest.schema.items()), study.checked
    count, too_large = len(features), sum(s.too_large for s in study.facts.samples.values())
    covered = "all" if checked.seen == checked.records else f"{checked.seen:,} of"
    about = (
        f"{counted(count, 'feature')}. The figures cover all records; histograms cover {covered} "
        f"{counted(checked.records, 'record')}. Click a feature to open its histograms."
    )
    parts = [element("p", about, class_="soft")]
    if too_large:
        words = (
            f" {counted(too_large, 'record')} larger than {format_bytes(LARGEST)}, or with pictures or texts that "
            "are too large when decoded."
        )
        parts.append(element("p", element("span", "left out", class_="tag note"), words))
    titles = (element("span", title) for title in ("feature", *Figures(0, 0).cells()))
    heads = element("div", *titles, class_="row heads", aria_hidden="true")
    lines = enumerate(features[:_LINES])
    rows = (_row(study, name, feature, place < _OPEN) for place, (name, feature) in lines)
    parts.append(element("div", heads, *rows, class_="features"))
    if count > _OPEN:
        left = [element("span", id=study.anchor(name)) for name, _ in features[_LINES:]]
        words = f"Only the first {_OPEN:,} features have histograms."
        if left:
            words += f" {counted(len(left), 'more feature')} left out to keep the page small."
        parts.append(element("p", words, *left))
    return parts


def _row(study: Study, name: str, feature: Feature, is_open: bool) -> Element:
    form = element("span", f"{feature.dtype} {format_shape(feature.shape)}", class_="soft")
    line = [element("span", element("b", name), " ", form, class_="feature")]
    words, drawings = _instead_of_figures(study, name), list[Element]()
    if not words:
        kind = study.facts.features.kinds.get(name, "")
        others = (("mean", "Mean of each record" if feature.shape else "Values", ""),)
        measures = _MEASURES.get(kind, others)
        measure, title, _ = measures[0]
        every = finite(study.measures(name, measure).values())
        if found := of_all(list(study.manifest.splits.values()), name):
            cells = found.cells().items()
            line += [element("span", cell, data_head=head) for head, cell in cells]
        else:
            words = f"{title.lower()}: {spread(every)}" if len(every) else "not in the sample"
        if is_open and len(every):
            drawings = [d for m in measures for d in _drawn(study.measures(name, m[0]), *m[1:])]
            drawings += _lengths(study, name, feature)
    if words:
        line.append(element("span", words, class_="wide soft"))
    if not drawings:
        return element("div", *line, id=study.anchor(name), class_="row")
    summary = element("summary", *line, class_="row")
    charts = element("div", *drawings, class_="charts")
    return element("details", summary, charts, id=study.anchor(name))


def _instead_of_figures(study: Study, name: str) -> str:
    """Text for a feature without useful figures; empty for others."""
    features = study.facts.features
    role = features.roles.get(name)
    if role == "key":
        return "identifies each record"
    if role == "label" and (name == study.facts.label or name in features.classes):
        return "see Labels"
    return "" if name in features.kinds else "not measured"


def _drawn(
    parts: Mapping[str, np.ndarray], title: str, definition: str = "", more: str = ""
) -> Iterator[Element]:
    """Yields the histogram of a measure and text about it; only the text if all values are equal, nothing without values."""
    every = finite(parts.values())
    if len(every):
        drawing = histogram(parts, title) if np.ptp(every / 2) else None
        about = title if drawing is None else definition
        words = f"{about}: {spread(every)}." if about else f"{spread(every)}."
        text = element("p", f"{words[:1].upper()}{words[1:]}{more}", class_="soft")
        yield element("div", *([] if drawing is None else [drawing]), text, class_="half")


def _lengths(study: Study, name: str, feature: Feature) -> Iterator[Element]:
    """Yields the histogram of the lengths of a feature with one unknown size, and the cost of padding."""
    if not feature.has_length or feature.is_image or feature.shape.count(None) != 1:
        return
    others = math.prod(feature.known_sizes) or 1
    parts = {split: sizes / others for split, sizes in study.measures(name, "size").items()}
    title = f"Size of dimension {feature.first_unknown}" if feature.first_unknown else "Length"
    every = np.nan_to_num(np.concatenate([np.empty(0), *parts.values()]))
    shares = [f"{percent(padding(every, size))} at batch size {size}" for size in _BATCH_SIZES]
    yield from _drawn(parts, title, more=f" Padding in shuffled batches: {', '.join(shares)}.")


def padding(lengths: np.ndarray, batch_size: int) -> float:
    """The expected share of padding in batches of shuffled records, given their lengths, float64 [n]; NaN if all are 0."""
    if not lengths.any():
        return math.nan
    # The probability that no record of a batch is longer than this one.
    shares = (np.arange(1, len(lengths) + 1) / len(lengths)) ** batch_size
    longest = float((np.sort(lengths) * np.diff(shares, prepend=0.0)).sum())
    return max(0.0, 1 - float(lengths.mean()) / longest)
