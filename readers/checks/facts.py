"""The data that checks work on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from readers.format.display import counted
from readers.format.features import Features
from readers.format.findings import Finding
from readers.format.manifest import Manifest
from readers.format.similarity.likeness import Sketches
from readers.measures.sample import LIKENESS, SplitSample

# Records named in a finding, and keys listed in it.
EXAMPLES, _KEYS = 5, 10_000

# Texts that are all shorter are names, such as those of cities or patients, and similar names are not copies.
_NAME = 32

# The plural and singular verbs of findings.
_VERBS = {"have": "has", "are": "is", "contain": "contains"}


@dataclass(frozen=True)
class Facts:
    """A dataset as the checks see it. `group_by` finds the group of a record: a regular expression for keys, or `column:NAME`."""

    manifest: Manifest
    samples: Mapping[str, SplitSample] = field(default_factory=dict)
    group_by: str = ""

    @functools.cached_property
    def features(self) -> Features:
        """The roles and kinds of the features."""
        return Features.of(self.manifest)

    @functools.cached_property
    def label(self) -> str:
        """The feature that holds one label per record; empty without one."""
        return self.manifest.counted_label

    @functools.cached_property
    def similar(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Feature, unless it holds names -> pairs of near duplicates that are not equal, as numbers in all samples, int64 [pairs] each."""
        seen = [sample for sample in self.samples.values() if sample.seen]
        found = {}
        compared = [f for f in self.features.of_kind(*LIKENESS) if not self.is_name(f)]
        for feature in compared if seen else ():
            sketches = Sketches.joined([sample.sketches[feature] for sample in seen])
            first, second = LIKENESS[self.features.kinds[feature]].pairs(sketches)
            digests = self.digests(feature)
            differ = digests[first] != digests[second]
            found[feature] = first[differ], second[differ]
        return found

    def is_name(self, feature: str) -> bool:
        """Whether all texts of a feature are as short as names."""
        lengths = self.measured(feature, "characters")
        return len(lengths) > 0 and bool((lengths < _NAME).all())

    @functools.cached_property
    def keys(self) -> list[str]:
        """The keys of all sampled records, in the order of the splits; empty without keys."""
        return [key for sample in self.samples.values() for key in sample.keys]

    @functools.cached_property
    def splits(self) -> np.ndarray:
        """The number of the split of each sampled record, int64 [records]."""
        seen = [sample.seen for sample in self.samples.values()]
        return np.repeat(np.arange(len(seen)), seen)

    def of_records(
        self, check: str, severity: str, feature: str, chosen: np.ndarray, finds: str
    ) -> Iterator[Finding]:
        """Yields a finding about the records that a mask over all samples selects, if there are any."""
        count, seen = int(chosen.sum()), len(chosen)
        if count:
            verb, _, rest = finds.partition(" ")
            verb = _VERBS.get(verb, verb) if count == 1 else verb
            words = f"{count:,} of {counted(seen, 'record')} {verb} {rest}"
            found = np.flatnonzero(chosen)
            first = found[:EXAMPLES]
            names, places = self.names_of_records(first), self.places(first)
            keys = self.names_of_records(found[:_KEYS]) if self.keys else ()
            yield Finding(check, severity, words, feature, "", count, seen, names, places, keys)

    def measured(self, feature: str, measure: str) -> np.ndarray:
        """A measure of a feature in all samples, float64, in the order of the splits."""
        samples = self.samples.values()
        found = [s.measures[feature].get(measure, np.full(s.seen, np.nan)) for s in samples]
        return np.concatenate([*found, np.empty(0)])

    def digests(self, feature: str) -> np.ndarray:
        """Digests of a feature's values in all samples, uint64 [records]; equal values have equal digests, empty values 0."""
        found = [sample.digests[feature] for sample in self.samples.values()]
        return np.concatenate([*found, np.empty(0, np.uint64)])

    def places(self, numbers: Iterable[int]) -> tuple[tuple[str, int], ...]:
        """The split of each record and its number there, given numbers in all samples."""
        splits = list(self.samples)
        of_split = np.concatenate([sample.numbers for sample in self.samples.values()])
        return tuple((splits[self.splits[n]], int(of_split[n])) for n in numbers)

    def names_of_records(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The names of records, given numbers in all samples."""
        if self.keys:
            return tuple(self.keys[number] for number in numbers)
        return tuple(f"{split}, record {number}" for split, number in self.places(numbers))


# Finds problems of one kind in a dataset.
Check = Callable[[Facts], Iterable[Finding]]
