"""Why inputs were rejected: the listed rejects, counted by reason."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from beam_jobs.records.rejects import Reject
from beam_jobs.storage.atomic import list_files
from beam_jobs.storage.files import open_file

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


def reasons_of(rejects: Iterable[Reject]) -> list[Reason]:
    """The reasons of rejects, the most frequent first."""
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for reject in rejects:
        text = _VARIABLE.sub("…", reject.error)
        reason = textwrap.shorten(text, _REASON_LENGTH, placeholder=" …")
        counts[reason] += 1
        examples.setdefault(reason, reject.key)
    return [Reason(count, reason, examples[reason]) for reason, count in counts.most_common()]


def first_rejects(folder: str, files: int = 64, size: int = 8 << 20) -> list[Reject]:
    """The rejects that the files in a folder list, up to a number and a size that are read in a moment.

    Args:
        folder: The folder `rejects/` of a dataset.
        files: The most files to read.
        size: The most bytes to read.

    Raises:
        OSError, ValueError: A file cannot be read, or lists something else.
    """
    rejects: list[Reject] = []
    for file in sorted(list_files(folder))[:files]:
        with open_file(file.path) as lines:
            data = lines.read(size)
        size -= len(data)
        rejects += map(Reject.from_json, data[: data.rfind(b"\n") + 1].splitlines())
        if not size:
            break
    return rejects
