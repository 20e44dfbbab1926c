"""Renders the sections of a report from templates."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

from readers.format.display import counted, format_bytes, visible
from readers.pages.markup import to_html

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent / "templates"


def fill(template: str, **values: Any) -> str:
    """Renders a template of `readers/pages/templates` as HTML; elements are markup, other values are escaped."""
    return templates().get_template(f"{template}.html").render(values)


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
