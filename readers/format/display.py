"""Sizes, counts and tables as text, for the command lines and for notebooks."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from readers.format.encodings.spec import format_shape
from readers.format.schema import Schema
from readers.format.splits import Split

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}

# Control characters, characters that change the direction of text, and line ends.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")

# In a URL: a user's name and password, or an access key and its secret, which may contain an `@`.
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]*:[^\s/?#]*(?=@)")

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def format_bytes(count: float) -> str:
    """A number of bytes with a unit: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def parse_bytes(text: str) -> int | None:
    """The number of bytes in a text such as `10GiB`, `1.5 GB` or `500k`; None if it is not a size."""
    found = _SIZE.fullmatch(text.strip())
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else None


def format_balance(sizes: list[int], text: Callable[[int], str] = "{:,}".format) -> str:
    """The sizes of the smallest and the largest shard as text: `1,249 to 1,250`, or `1,250` if both are equal."""
    ends = min(sizes, default=0), max(sizes, default=0)
    return " to ".join(dict.fromkeys(map(text, ends)))


def counted(number: int, noun: str) -> str:
    """A number with a noun: `1 shard`, `1,250 shards`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def first_names(names: Sequence[str], most: int | None) -> str:
    """The first of some names, at most `most` or all of them: `cat, dog and 12 more`."""
    rest = len(names) - len(names[:most])
    return ", ".join(map(visible_line, names[:most])) + (f" and {rest:,} more" if rest else "")


def format_table(rows: Iterable[Iterable[str]]) -> str:
    """Formats rows of text as a table with aligned columns. The first row is the header."""
    cells = [list(map(visible_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def features_table(schema: Schema) -> list[tuple[str, ...]]:
    """The rows of a table of features; the first row is the header."""
    rows = [(name, f.dtype, format_shape(f.shape), f.encoding) for name, f in schema.items()]
    return [("feature", "dtype", "shape", "encoding"), *rows]


def splits_table(splits: Mapping[str, Split]) -> list[tuple[str, ...]]:
    """The rows of a table of splits; the first row is the header. Duplicates are a column if there are any."""
    header = ("split", "records", "shards", "records/shard", "bytes", "rejected", "duplicates")
    rows = [
        (
            name,
            f"{split.records:,}",
            f"{len(split.shards):,}",
            format_balance([shard.records for shard in split.shards]),
            format_bytes(split.bytes),
            f"{split.rejected:,}",
            f"{split.duplicates:,}",
        )
        for name, split in splits.items()
    ]
    columns = None if any(split.duplicates for split in splits.values()) else -1
    return [row[:columns] for row in (header, *rows)]


def visible(text: str, kept: str = "\t\n") -> str:
    """Replaces the control characters of a text, except tabs and newlines."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character in kept or unicodedata.category(character) not in _HIDDEN
        else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def visible_line(text: str) -> str:
    """Replaces all control characters of a text; with a newline in it, a name could look like two lines."""
    return visible(text, "")


def without_credentials(text: str) -> str:
    """Replaces each name and password in the URLs of a text by `***`, wherever they occur."""
    for secret in set(_CREDENTIALS.findall(text)) - {":"}:
        text = text.replace(secret, "***")
    return text


def shortened(text: str, most: int) -> str:
    """The first characters of a text, with `...` if there are more."""
    return text if len(text) <= most else f"{text[:most]}..."


def unwritable(target: Path) -> str:
    """Why a page cannot be written to a path; empty if it can."""
    folder = Path(os.path.realpath(target)).parent
    if not folder.is_dir():
        return f"there is no directory {folder}; create it first"
    if target.is_dir():
        return "expected a file, found a directory"
    if target.exists() and not target.is_file():
        return "expected a file, found a device or a pipe"
    return ""
