"""Several files of one recording: found by a pattern of their names, and joined."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from beam_jobs.errors import UsageError
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import LABEL
from beam_jobs.sources.source import Source

_PLACES = {"{recording}": "(?P<recording>.+)", "{array}": "(?P<array>[^/]+)", "*": "[^/]*"}

# Features that records have beside their arrays.
_TAKEN = {"key", LABEL}


def join_regex(pattern: str) -> re.Pattern[str]:
    """What finds recording and array in a key, from `{recording}_{array}.csv`.

    Folders above are part of the recording's name.

    Raises:
        UsageError: The pattern does not have both of them, once each.
    """
    for place in ("{recording}", "{array}"):
        if pattern.count(place) != 1:
            raise UsageError(
                f"--join {pattern}: expected {{recording}} and {{array}} once each, such as "
                "{recording}_{array}.csv"
            )
    parts = re.split(r"(\{recording\}|\{array\}|\*)", pattern)
    body = "".join(_PLACES.get(part) or re.escape(part) for part in parts)
    above = "" if pattern.startswith("{recording}") else "(?P<above>(?:.*/)?)"
    return re.compile(above + body)


@dataclass(frozen=True)
class JoinedInputs(Inputs):
    """Recordings of several files each.

    Attributes:
        join: The pattern.
    """

    join: str = ""

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return join_regex(self.join)

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields the recordings, all of them for the first pattern: partners may match any.

        A file that fits no recording is a source with an error, and so is a recording whose arrays
        are not those that most have. All names of files are held until the last one is known.

        Args:
            limit: How many without an error at most, in order of their names.

        Raises:
            UsageError: An array has the name of a feature that every record has.
        """
        if pattern != self.patterns[0]:
            return
        recordings: dict[str, dict[str, Source]] = {}
        matched = list(itertools.chain.from_iterable(map(super().sources, self.patterns)))
        # The order of a folder is the machine's.
        for source in sorted(matched, key=lambda source: source.key):
            error = self._place(source, recordings)
            if error:
                yield source._replace(error=error)
        usual = _usual(parts.keys() for parts in recordings.values())
        if taken := usual & _TAKEN:
            raise UsageError(
                f"--join {self.join}: an array may not be called {min(taken)!r}: narrow --input, or "
                "rename its files"
            )
        for key in sorted(recordings):
            source = self._joined(key, recordings[key])
            if recordings[key].keys() != usual:
                found, most = (", ".join(sorted(names)) for names in (recordings[key], usual))
                yield source._replace(error=f"its arrays are {found}, most recordings have {most}")
            elif limit != 0:
                limit = limit and limit - 1
                yield source

    def _place(self, source: Source, recordings: dict[str, dict[str, Source]]) -> str:
        """Puts a file into its recording; else why it is in none."""
        if source.error:
            return source.error
        if source.archive:
            return "it lies in an archive, whose members are not joined"
        found = self._regex.fullmatch(source.key)
        if not found:
            return f"its name does not fit --join {self.join}"
        recording = (found.groupdict().get("above") or "") + found["recording"]
        first = recordings.setdefault(recording, {}).setdefault(found["array"], source)
        if first is source:
            return ""
        return f"{recording} has its {found['array']!r} from {first.key} already"

    def _joined(self, key: str, parts: dict[str, Source]) -> Source:
        return Source(
            key,
            sum(part.size for part in parts.values()),
            max(part.modified for part in parts.values()),
            joined=tuple(
                (name, self.path(parts[name].key), parts[name].size, parts[name].modified)
                for name in sorted(parts)
            ),
        )

    def read(self, source: Source) -> bytes:
        """Nothing, as a recording has no bytes of its own: its files are read one by one."""
        return b""


def _usual(arrays: Iterable[Set[str]]) -> frozenset[str]:
    """The arrays that most recordings have; of as many the more, and the first by name."""
    counts = Counter(map(frozenset, arrays))
    return min(
        counts, key=lambda names: (-counts[names], -len(names), sorted(names)), default=frozenset()
    )
