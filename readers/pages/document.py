"""A report as one HTML document."""

from __future__ import annotations

import datetime

from readers.format.version import __version__
from readers.pages.section import fill
from readers.pages.sections import (
    alerts,
    features,
    labels,
    lengths,
    measures,
    origin,
    overview,
    records,
    splits,
)
from readers.pages.study import Study

# In the order of the page. Each returns None if it has nothing to say about a dataset.
SECTIONS = (
    overview.section,
    records.section,
    alerts.section,
    splits.section,
    labels.section,
    features.section,
    lengths.section,
    *measures.SECTIONS,
    origin.section,
)


def document(study: Study) -> str:
    """The report on a dataset, as HTML that needs no other file and runs no script."""
    return str(
        fill(
            "page.html",
            name=study.name,
            sections=[made for make in SECTIONS if (made := make(study)) is not None],
            version=__version__,
            now=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )
