"""A section of a report, and the templates that render it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree.ElementTree import Element

from readers.format.display import counted, format_bytes, visible
from readers.pages.markup import to_html

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_FOLDER = Path(__file__).parent / "templates"


class Section(NamedTuple):
    """A section of a report: its heading, which is also the id of its element and never comes from the data, and its body."""

    name: str
    body: Markup

    @classmethod
    def filled(cls, name: str, **values: Any) -> Section:
        """Renders a template with values."""
        return cls(name, fill(f"{name}.html", **values))


def fill(template: str, **values: Any) -> Markup:
    """Renders a template of `readers/pages/templates`; only `Markup` and elements are markup, other text is escaped."""
    filled = templates().get_template(template).render(values)

    from markupsafe import Markup

    return Markup(filled)


@functools.cache
def templates() -> Environment:
    """Loads the templates of a report; raises ImportError if Jinja2 is not installed."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("a report needs Jinja2: pip install 'beam-shards[report]'") from error

    def shown(value: Any) -> Any:
        if isinstance(value, Element):
            return Markup(to_html(value))
        return value if hasattr(value, "__html__") else visible(str(value))

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": "{:,}".format, "size": format_bytes}
    environment.globals |= {"counted": counted}
    return environment
