"""How figures are printed, by the jobs and by the readers."""

from __future__ import annotations

from collections.abc import Iterable


def format_bytes(count: float) -> str:
    """A size as people read it: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_balance(records: list[int]) -> str:
    """Fewest and most records in a shard."""
    return f"{min(records, default=0):,} to {max(records, default=0):,}"


def format_table(rows: Iterable[Iterable[str]]) -> str:
    """Rows in aligned columns, the first row being the header."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
