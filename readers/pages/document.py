"""A report as an HTML document."""

from __future__ import annotations

import datetime
import html
from pathlib import Path
from string import Template

from readers.format import __version__
from readers.format.display import visible
from readers.pages.markup import element, to_html
from readers.pages.sections import alerts, features, labels, origin, overview, records, splits
from readers.pages.study import Study

_FOLDER = Path(__file__).parent / "templates"

# In the order of the page. Each has no parts if it does not apply to a dataset.
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
    links, bodies = list[str](), list[str]()
    for name, section in _SECTIONS.items():
        if parts := section(study):
            link = element("a", name.capitalize(), href=f"#{name}")
            links.append(to_html(element("li", link)))
            title = element("h2", name.capitalize(), id=f"{name}-title")
            body = element("section", title, *parts, id=name, aria_labelledby=f"{name}-title")
            bodies.append(to_html(body))
    now = datetime.datetime.now(datetime.timezone.utc)
    return Template((_FOLDER / "page.html").read_text(encoding="utf-8")).substitute(
        name=html.escape(visible(study.name)),
        style=(_FOLDER / "style.css").read_text(encoding="utf-8"),
        links="\n".join(links),
        sections="\n".join(bodies),
        version=__version__,
        now=now.strftime("%Y-%m-%d %H:%M UTC"),
    )
