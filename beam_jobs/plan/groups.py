"""Groups of records that must share a split."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.labels import column_text
from beam_jobs.sources.source import COLUMN


@dataclass(frozen=True)
class Groups:
    """How the group of a record is found; by default each record is its own group.

    Attributes:
        pattern: A regular expression searched in the key: the record's group is the expression's
            first group, or its whole match.
        column: A column that holds the group.
    """

    pattern: str = ""
    column: str = ""

    @classmethod
    def parse(cls, text: str) -> Groups:
        """Parses the value of `--group_by`.

        Raises:
            UsageError: The value is neither a regular expression nor `column:NAME`.
        """
        if text == COLUMN:
            raise UsageError(f"--group_by {text}: expected {COLUMN}NAME")
        if text.startswith(COLUMN):
            return cls(column=text.removeprefix(COLUMN))
        try:
            re.compile(text)
        except re.error as error:
            raise UsageError(
                f"--group_by {text}: not a regular expression ({error}); expected one, or "
                f"{COLUMN}NAME"
            ) from None
        return cls(pattern=text)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def of(self, key: str, row: Mapping[str, Any]) -> str:
        """The group of a record, from its key and its columns.

        Raises:
            RejectError: The record has no group.
        """
        if self.column:
            try:
                return column_text(row, self.column)
            except RejectError as error:
                raise RejectError(f"--group_by {COLUMN}{self.column}: {error}") from None
        if not self.pattern:
            return key
        found = self._regex.search(key)
        group = found and found[min(found.re.groups, 1)]
        if not group:
            # An empty match is not a group: all records with one would share a split.
            raise RejectError(f"--group_by {self.pattern} finds nothing in the key")
        return group

    def __bool__(self) -> bool:
        return bool(self.pattern or self.column)
