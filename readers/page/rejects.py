"""Why inputs were rejected, from the lists that a job leaves in `rejects/` of its output."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass

import fsspec

from readers.format.manifest import join

# Files and bytes that are read: enough for the reasons, whatever the number of rejects.
_FILES, _BYTES = 64, 8 << 20

# Names and numbers in a reason, which differ from input to input.
_VARIABLE = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|(?<!\w)(?<!\w-)-?\d[\d,.]*""")
_LONGEST, _EXAMPLES = 160, 3


@dataclass(frozen=True)
class Reason:
    """A reason for which inputs were rejected.

    Attributes:
        text: The reason, with an ellipsis for names and numbers.
        count: How many of the rejects that were read have it.
        examples: Keys of the first of them, with their own words.
    """

    text: str
    count: int
    examples: tuple[tuple[str, str], ...]


def reasons_in(directory: str) -> list[Reason]:
    """The reasons in the lists of rejects of a dataset, the most frequent first; none if they cannot be read.

    Args:
        directory: The dataset's directory, on any filesystem.
    """
    counts: Counter[str] = Counter()
    examples: dict[str, list[tuple[str, str]]] = {}
    for line in _lines(join(directory, "rejects")):
        try:
            reject = json.loads(line)
            key, error = str(reject["key"]), str(reject["error"])
        except (ValueError, KeyError, TypeError):
            continue
        text = _VARIABLE.sub("…", error)[:_LONGEST]
        counts[text] += 1
        known = examples.setdefault(text, [])
        if len(known) < _EXAMPLES:
            known.append((key[:_LONGEST], error[:_LONGEST]))
    return [Reason(text, n, tuple(examples[text])) for text, n in counts.most_common()]


def _lines(folder: str) -> list[bytes]:
    """The whole lines at the beginning of the files of a folder."""
    try:
        filesystem, path = fsspec.core.url_to_fs(folder)
        files = sorted(filesystem.ls(path, detail=False))[:_FILES]
        data = [filesystem.cat_file(file, 0, _BYTES // len(files)) for file in files]
    except (OSError, ValueError):
        return []
    return [line for each in data for line in each[: each.rfind(b"\n") + 1].splitlines()]
