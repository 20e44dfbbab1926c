"""Remarks about the inputs of a split: what was not read of them, and what was taken for what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The number of texts that are kept, the first in alphabetical order; and the characters of a text, and of a key.
_MOST, _MOST_CHARACTERS = 50, 300


class Remarks(dict[str, tuple[int, str]]):
    """Text -> (the number of records of inputs with this remark, the smallest key of one of them).

    The counts are exact, in whatever order remarks are added and merged.
    """

    def add(self, text: str, key: str, records: int = 1) -> None:
        """Adds a remark about the input of one record or more."""
        # Names in files may hold lone surrogates, which the manifest cannot state.
        text, key = (
            each.encode("utf-8", "backslashreplace").decode()[:_MOST_CHARACTERS]
            for each in (text, key)
        )
        known, first = self.get(text, (0, key))
        self[text] = known + records, min(first, key)
        if len(self) > _MOST:
            del self[max(self)]

    def merge(self, others: Mapping[str, tuple[int, str]]) -> None:
        """Adds the remarks of others."""
        for text, (records, key) in others.items():
            self.add(text, key, records)

    def lines(self) -> list[str]:
        """A line for each remark, the most frequent first."""
        order = sorted(self.items(), key=lambda item: (-item[1][0], item[0]))
        return [f"{records:,}: {text}, such as {key}" for text, (records, key) in order]

    def to_json(self) -> list[dict[str, Any]]:
        """The remarks in alphabetical order, as the manifest states them."""
        return [
            {"text": text, "records": records, "example": key}
            for text, (records, key) in sorted(self.items())
        ]

    @classmethod
    def from_json(cls, value: Any) -> Remarks:
        """The remarks that `to_json` returned; KeyError, TypeError or ValueError if a value is missing or wrong."""
        remarks = cls()
        for each in value:
            text, records, key = each["text"], each["records"], each["example"]
            if [type(text), type(records), type(key)] != [str, int, str] or records < 1:
                raise ValueError("remarks: expected a text, a number of records, and an example")
            remarks.add(text, key, records)
        return remarks
