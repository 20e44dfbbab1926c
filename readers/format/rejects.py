"""Why inputs were rejected: counts the reasons in `rejects/`."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# Reasons with the same first characters count as one.
_REASON_LENGTH = 100

# Quoted text and numbers; not the digits of words such as float32 and UTF-8.
_VARIABLE = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|(?<!\w)(?<!\w-)-?\d[\d,.]*""")


@dataclass(frozen=True)
class Reason:
    """A reason for rejects: their number, its text with … for names and numbers, and the key of one of them."""

    count: int
    reason: str
    example: str


def reasons_of(rejects: Iterable[tuple[str, str]]) -> list[Reason]:
    """Counts the reasons of rejects, each a key and a one-line error, the most frequent first."""
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for key, error in rejects:
        text = _VARIABLE.sub("…", error)
        reason = textwrap.shorten(text, _REASON_LENGTH, placeholder=" …")
        counts[reason] += 1
        examples.setdefault(reason, key)
    return [Reason(count, reason, examples[reason]) for reason, count in counts.most_common()]
