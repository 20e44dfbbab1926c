"""A report as one HTML document."""

from __future__ import annotations

import datetime

from readers.format.version import __version__
from readers.page.section import fill
from readers.page.sections import (
    alerts,
    boxes,
    features,
    head,
    labels,
    lengths,
    pictures,
    records,
    signals,
    splits,
    texts,
)
from readers.page.study import Study

# In the order of the page. Each returns None if it has nothing to say about a dataset.
SECTIONS = (
    head.section,
    alerts.section,
    splits.section,
    records.section,
    labels.section,
    features.section,
    lengths.section,
    pictures.section,
    boxes.section,
    texts.section,
    signals.section,
)


def document(study: Study) -> str:
    """The report on a dataset, as HTML that needs no other file and runs no script."""
    sections = [made for make in SECTIONS if (made := make(study)) is not None]
    return str(
        fill(
            "page.html",
            name=study.name,
            sections=sections,
            version=__version__,
            now=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )
