"""Why inputs were rejected: reasons of the lines in `rejects/`, counted."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# The characters in which reasons of one kind agree.
_REASON_LENGTH = 100

# Quoted text and numbers; not the digits of words such as float32 and UTF-8.
_VARIABLE = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|(?<!\w)(?<!\w-)-?\d[\d,.]*""")


@dataclass(frozen=True)
class Reason:
    """A reason of rejects: how many have it, its text with … for names and numbers, and the key of one of them."""

    count: int
    reason: str
    example: str


def reasons_of(rejects: Iterable[tuple[str, str]]) -> list[Reason]:
    """The reasons of rejects, each a key and an error on one line, the most frequent first."""
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for key, error in rejects:
        text = _VARIABLE.sub("…", error)
        reason = textwrap.shorten(text, _REASON_LENGTH, placeholder=" …")
        counts[reason] += 1
        examples.setdefault(reason, key)
    return [Reason(count, reason, examples[reason]) for reason, count in counts.most_common()]
