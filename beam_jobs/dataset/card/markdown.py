"""Text that comes from data, such as names of classes, as Markdown that shows it and does nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Whatever begins markup inside a line, a cell of a table, an HTML tag, an entity, or a link that
# GitHub makes by itself.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|~&:@$!^]|(?<=www)\.", re.IGNORECASE)

_MOST_CHARACTERS = 100


def escaped(text: str, most: int = _MOST_CHARACTERS) -> str:
    """A text as one line of Markdown.

    Args:
        text: Any text.
        most: How many of its characters are shown.
    """
    shown = "".join(map(_visible, text[:most])).strip()
    return _MARKUP.sub(r"\\\g<0>", shown) + ("…" if len(text) > most else "")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table.

    Args:
        header: The names of the columns.
        rows: Cells that are Markdown already.
    """
    rule = ["---"] * len(header)
    return [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]


def _visible(character: str) -> str:
    """A character that neither ends the line nor turns the text around it."""
    if character.isprintable():
        return character
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
