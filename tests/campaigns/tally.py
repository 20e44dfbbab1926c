"""What a campaign prints: a table of what came of its cases, and its faults."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tally:
    """Counts the cases of a campaign, and lists its faults.

    Args:
        log: A file to which each case and each fault is added as a line of JSON; None for no log.

    Attributes:
        rows: The counts of each row of the table.
        faults: What must not happen.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self.rows: dict[str, Counter[str]] = {}
        self.faults: list[str] = []

    def add(self, counts: Mapping[str, float], *rows: str, **case: Any) -> None:
        """Adds the counts of a case to some rows, and the case to the log."""
        for row in rows:
            self.rows.setdefault(row, Counter()).update(counts)  # type: ignore[arg-type]
        self._note(counts=dict(counts), **case)

    def fault(self, text: str) -> None:
        """Adds a fault, and prints it at once."""
        self.faults.append(text)
        print(f"FAULT: {text}", flush=True)
        self._note(fault=text)

    def _note(self, **line: Any) -> None:
        if self._log:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, default=str) + "\n")

    def table(self) -> str:
        """The rows in the order of their names, with a column for everything that was counted."""
        columns = list(dict.fromkeys(name for row in self.rows.values() for name in row))
        first = max(map(len, self.rows), default=0)
        wide = {name: max(len(name), 9) + 2 for name in columns}
        lines = [" " * first + "".join(f"{name:>{wide[name]}}" for name in columns)]
        for name, row in sorted(self.rows.items()):
            cells = (f"{round(row[column]):>{wide[column]},}" for column in columns)
            lines.append(f"{name:<{first}}" + "".join(cells))
        return "\n".join(lines)

    def end(self) -> int:
        """Prints the table and the number of faults; returns the exit code, 1 if there is a fault."""
        print(f"{self.table()}\nfaults: {len(self.faults) or 'none'}", flush=True)
        return int(bool(self.faults))
