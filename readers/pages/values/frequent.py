"""The most frequent values of a feature, and how many different ones there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from readers.describe import named
from readers.format.display import shortened
from readers.pages.charts import bar_cell
from readers.pages.numbers import part, short

SHOWN = 10

# If most values are different, those that fewer than one in a thousand are occur twice by chance.
_DIFFERENT, _RARE = 0.5, 0.001

# Characters of a value that are shown.
_CHARACTERS = 80


class Frequent(NamedTuple):
    """Values by how often they occur.

    Attributes:
        total: How many values there are.
        distinct: How many different ones.
        top: The most frequent ones as text, with their numbers.
    """

    total: int
    distinct: int
    top: list[tuple[str, int]]

    @property
    def rows(self) -> list[tuple[str, Element]]:
        """The most frequent values, each with a cell of its number; none if hardly any occurs twice."""
        most = self.top[0][1]
        if most == 1 or (self.distinct > _DIFFERENT * self.total and most < _RARE * self.total):
            return []
        return [(text, bar_cell(n, most, part(n, self.total))) for text, n in self.top]


def frequent_numbers(numbers: np.ndarray, names: Sequence[str] = ()) -> Frequent:
    """The most frequent of some numbers; all NaN are one value.

    Args:
        numbers: Numbers of a real dtype, at least one.
        names: The names of classes by id, if the numbers are such ids.
    """
    values, counts = np.unique(numbers, return_counts=True)
    order = np.lexsort((values, -counts))[:SHOWN]
    top = [(_text(values[place], names), int(counts[place])) for place in order]
    return Frequent(int(counts.sum()), len(values), top)


def frequent_strings(texts: Sequence[bytes]) -> Frequent:
    """The most frequent of some strings, which are shown as UTF-8 and shortened."""
    counts = Counter(texts)
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
    shown = [(shortened(text.decode("utf-8", "replace"), _CHARACTERS), n) for text, n in top]
    return Frequent(len(texts), len(counts), shown)


def _text(value: np.generic, names: Sequence[str]) -> str:
    """A number with all of its digits if it is whole, or the name of its class."""
    if value.dtype.kind == "f":
        return short(float(value))
    if value.dtype.kind == "b":
        return str(value)
    return shortened(named(int(value), names), _CHARACTERS) if names else f"{value:,}"
