"""Why inputs were rejected: reasons of the lines in `rejects/`, counted."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

# The folder of a dataset with a list of rejects for each shard, as lines of JSON.
REJECTS = "rejects"

# The characters in which reasons of one kind agree.
_REASON_LENGTH = 100

# Quoted text and numbers; not the digits of words such as float32 and UTF-8.
_VARIABLE = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|(?<!\w)(?<!\w-)-?\d[\d,.]*""")


@dataclass(frozen=True)
class Reason:
    """A reason of rejects.

    Attributes:
        count: How many rejects have it.
        reason: Its text, with … for names and numbers, which differ from input to input.
        example: The key of one of these rejects.
    """

    count: int
    reason: str
    example: str


class Rejected(Protocol):
    """An input that could not become a record: its key, and the error on one line."""

    @property
    def key(self) -> str: ...

    @property
    def error(self) -> str: ...


def reasons_of(rejects: Iterable[Rejected]) -> list[Reason]:
    """The reasons of rejects, the most frequent first."""
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for reject in rejects:
        text = _VARIABLE.sub("…", reject.error)
        reason = textwrap.shorten(text, _REASON_LENGTH, placeholder=" …")
        counts[reason] += 1
        examples.setdefault(reason, reject.key)
    return [Reason(count, reason, examples[reason]) for reason, count in counts.most_common()]
