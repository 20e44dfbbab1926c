"""A report as an HTML document."""

from __future__ import annotations

import datetime

from readers.format import __version__
from readers.pages.section import fill
from readers.pages.sections import alerts, features, labels, origin, overview, records, splits
from readers.pages.study import Study

# In the order of the page. Each returns None if it does not apply to a dataset.
_SECTIONS = {
    "overview": overview.section,
    "records": records.section,
    "alerts": alerts.section,
    "splits": splits.section,
    "labels": labels.section,
    "features": features.section,
    "origin": origin.section,
}


def document(study: Study) -> str:
    """The report on a dataset, as a self-contained HTML page without scripts."""
    sections = {name: section(study) for name, section in _SECTIONS.items()}
    return fill(
        "page",
        name=study.name,
        sections={name: body for name, body in sections.items() if body is not None},
        version=__version__,
        now=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
