"""A report as an HTML document."""

from __future__ import annotations

import datetime

from readers.format import __version__
from readers.pages.section import fill
from readers.pages.sections import alerts, features, labels, origin, overview, records, splits
from readers.pages.study import Study

# In the order of the page. Each returns None if it does not apply to a dataset.
_SECTIONS = (overview, records, alerts, splits, labels, features, origin)


def document(study: Study) -> str:
    """The report on a dataset, as a self-contained HTML page without scripts."""
    sections = [module.section(study) for module in _SECTIONS]
    return str(
        fill(
            "page.html",
            name=study.name,
            sections=[section for section in sections if section is not None],
            version=__version__,
            now=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )
