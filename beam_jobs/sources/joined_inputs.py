"""Recordings of several files, which are joined by a pattern of their names."""

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
from beam_jobs.storage.limits import exceeds
from beam_jobs.storage.listing import ALL, Span
from beam_jobs.storage.paths import comparable
from readers.files.stores.ahead import Read

_PLACES = {"{recording}": "(?P<recording>.+)", "{array}": "(?P<array>[^/]+)", "*": "[^/]*"}

# The names of other features of these records.
_RESERVED = {"key", LABEL}


def join_regex(pattern: str) -> re.Pattern[str]:
    """A regular expression that finds the recording, with its folders, and the array in a key.

    The pattern is one such as `{recording}_{array}.csv`; UsageError if it does not contain each of the two exactly once.
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
        join: The pattern, as in `{recording}_{array}.csv`.
    """

    join: str = ""

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return join_regex(self.join)

    def spans(self, pattern: str, processes: int = 1) -> list[Span]:
        return [ALL]

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields all recordings for the first pattern, as the files of one may match several patterns.

        A file that belongs to no recording is a source with an error, and so is a recording whose
        arrays differ from those of most others. The names of all files are kept in memory.

        Args:
            pattern: One of `patterns`.
            limit: Maximum number of recordings without an error, the first ones by name.

        Raises:
            UsageError: an array has the name of another feature.
        """
        if pattern != self.patterns[0]:
            return
        recordings: dict[str, dict[str, Source]] = {}
        matched = list(itertools.chain.from_iterable(map(super().sources, self.patterns)))
        # The order of files in a folder depends on the machine.
        for source in sorted(matched, key=lambda source: source.key):
            error = self._place(source, recordings)
            if error:
                yield source._replace(error=error)
        usual = _usual(parts.keys() for parts in recordings.values())
        if taken := usual & _RESERVED:
            raise UsageError(
                f"--join {self.join}: an array may not be called {min(taken)!r}: narrow --input, or "
                "rename its files"
            )
        for key in sorted(recordings):
            source = self._joined(key, recordings[key])
            if recordings[key].keys() != usual:
                own, most = (", ".join(sorted(names)) for names in (recordings[key], usual))
                yield source._replace(error=f"its arrays are {own}, most recordings have {most}")
            elif limit != 0:
                limit = limit and limit - 1
                yield source

    def _place(self, source: Source, recordings: dict[str, dict[str, Source]]) -> str:
        """Adds a file to its recording; returns an error if it belongs to none."""
        if source.error:
            return source.error
        if source.archive:
            return "it is in an archive; members of archives cannot be joined"
        place = self._regex.fullmatch(comparable(source.key))
        if not place:
            return f"its name does not fit --join {self.join}"
        recording = (place.groupdict().get("above") or "") + place["recording"]
        first = recordings.setdefault(recording, {}).setdefault(place["array"], source)
        if first is source:
            return ""
        return f"{recording} already has its {place['array']!r} from {first.key}"

    def _joined(self, key: str, parts: dict[str, Source]) -> Source:
        size = sum(part.size for part in parts.values())
        return Source(
            key,
            size,
            max(part.modified for part in parts.values()),
            error=exceeds(size, self.max_bytes, "its files have") if size > self.max_bytes else "",
            joined=tuple(
                (name, self.path(parts[name].key), parts[name].size, parts[name].modified)
                for name in sorted(parts)
            ),
        )

    def reads(self, source: Source, most: int | None = None) -> Iterator[Read]:
        """Yields the reads of the files of a recording, unless they are too large to be read."""
        for _, path, size, _ in source.joined if source.size <= self.max_bytes else ():
            yield Read(path, 0, None, size)

    def read(self, source: Source) -> bytes:
        """Yields nothing, because the files of a recording are read one by one."""
        return b""


def _usual(arrays: Iterable[Set[str]]) -> frozenset[str]:
    """The most frequent set of arrays; among equals, the largest, then the first by name."""
    counts = Counter(map(frozenset, arrays))
    return min(
        counts, key=lambda names: (-counts[names], -len(names), sorted(names)), default=frozenset()
    )
