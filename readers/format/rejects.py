"""Why inputs were rejected: counts the reasons in `rejects/`."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# Errors with the same first characters, without names and numbers, have one reason, of which more is shown.
_SAME, _SHOWN = 100, 250

# Quoted text and numbers; not the digits of words such as float32 and UTF-8. In a group, so that `split` keeps it.
_VARIABLE = re.compile(r"""((?<!\w)'[^']*'|"[^"]*"|(?<!\w)(?<!\w-)-?(?:0x[\da-f]+|\d[\d,.]*))""")


@dataclass(frozen=True)
class Reason:
    """A reason for rejects: their number, its text with … where they differ, and the key of one of them."""

    count: int
    reason: str
    example: str


def reasons_of(rejects: Iterable[tuple[str, str]]) -> list[Reason]:
    """Counts the reasons of rejects, each a key and a one-line error, the most frequent first."""
    counts: Counter[str] = Counter()
    found: dict[str, tuple[list[str], str]] = {}
    for key, error in rejects:
        parts = _VARIABLE.split(error)
        kind = "…".join(parts[::2])[:_SAME]
        counts[kind] += 1
        shown, _ = found.setdefault(kind, (parts, key))
        pairs = zip(shown, parts, strict=False)
        shown[:] = [one if one == other else "…" for one, other in pairs]
    reasons = []
    for kind, count in counts.most_common():
        shown, example = found[kind]
        reason = textwrap.shorten("".join(shown), _SHOWN, placeholder=" …")
        reasons.append(Reason(count, reason, example))
    return reasons
