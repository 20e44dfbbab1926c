"""Labels: where a record's label comes from, and the integer it becomes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.files import is_local, read_bytes

PATH_COLUMNS = ("path", "file", "filename", "key", "image", "name")
LABEL_COLUMNS = ("label", "class")

# More distinct labels than this are a wrong field, not classes.
MAX_LABELS = 100_000

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def label_text(value: Any) -> str:
    """The canonical text of a label read from a field.

    Raises:
        RejectError: It is neither text nor a whole number.
    """
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int):  # bool included: true is 1
        return str(int(value))
    raise RejectError(f"label {value!r:.80}: expected text or a whole number")


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """The names of all labels by id; none where every label is itself an integer.

    Integers stay what they are (a folder called 10 is label 10), anything else is numbered in
    the order of the names.
    """
    found = sorted(set(labels))
    return () if all(map(_is_integer, found)) else tuple(found)


def _is_integer(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) and -(2**63) <= int(text) < 2**63


class LabelIds:
    """The integer of each label, given the names of all.

    Args:
        names: As `label_names` gives them.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._ids = {name: id_ for id_, name in enumerate(names)}

    def __getitem__(self, text: str) -> int:
        return self._ids[text] if self._ids else int(text)


@dataclass(frozen=True)
class Labels:
    """Where the label of a file comes from.

    Attributes:
        mode: "parent" for the name of its folder, "none", or "csv".
        table: With "csv", the path of the table.
    """

    mode: str = "none"
    table: str = ""

    @classmethod
    def parse(cls, text: str) -> Labels:
        """The labels that a `--label` flag asks for.

        Raises:
            UsageError: It is none of `parent`, `none`, `csv:FILE`.
        """
        if text in ("parent", "none"):
            return cls(text)
        mode, _, table = text.partition(":")
        if mode != "csv" or not table:
            raise UsageError(f"--label {text}: expected parent, none or csv:FILE")
        labels = cls("csv", str(Path(table).absolute()) if is_local(table) else table)
        labels._by_key  # noqa: B018  (read it now: a missing table is a mistake to name at once)
        return labels

    @cached_property
    def _by_key(self) -> dict[str, str]:
        try:
            text = read_bytes(self.table).decode("utf-8-sig")
            rows = iter(list(csv.reader(io.StringIO(text, newline=""))))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"--label csv:{self.table}: cannot be read ({error})") from None
        header = [name.strip().lower() for name in next(rows, [])]
        path = next((header.index(n) for n in PATH_COLUMNS if n in header), None)
        label = next((header.index(n) for n in LABEL_COLUMNS if n in header), None)
        if path is None or label is None:
            raise UsageError(
                f"--label csv:{self.table}: its first line must name a column "
                f"{'/'.join(PATH_COLUMNS)} and a column {'/'.join(LABEL_COLUMNS)}, "
                f"it has {', '.join(header) or 'none'}"
            )
        table: dict[str, str] = {}
        for number, row in enumerate(rows, 2):
            if not row:
                continue
            if len(row) <= max(path, label):
                raise UsageError(f"--label csv:{self.table}: line {number} has too few columns")
            row[label] = row[label].strip()
            if not row[label]:
                raise UsageError(f"--label csv:{self.table}: line {number} has an empty label")
            if table.setdefault(row[path], row[label]) != row[label]:
                raise UsageError(
                    f"--label csv:{self.table}: line {number} labels {row[path]!r} {row[label]!r}, "
                    f"an earlier line labels it {table[row[path]]!r}"
                )
        return table

    def __getstate__(self) -> tuple[str, str]:
        return self.mode, self.table

    def __setstate__(self, state: tuple[str, str]) -> None:
        self.__dict__.update(mode=state[0], table=state[1])

    def of(self, key: str) -> str | None:
        """The label of a file, None with mode "none".

        Raises:
            UsageError: The file has no folder below the root, or the table has no line for it.
        """
        if self.mode == "none":
            return None
        if self.mode == "parent":
            if "/" not in key:
                raise UsageError(
                    f"{key}: it lies in no folder below the inputs' common root, so it has no "
                    "label; use a pattern like 'photos/*/*.jpg', --label csv:FILE or --label none"
                )
            return key.rsplit("/", 2)[-2]
        label = self._by_key.get(key, self._by_key.get(key.rsplit("/", 1)[-1]))
        if label is None:
            raise UsageError(f"{key}: --label csv:{self.table} has no line for it")
        return label
