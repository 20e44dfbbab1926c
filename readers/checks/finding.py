"""What a check found, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from readers.format.display import counted, shortened, visible
from readers.format.manifest import Manifest
from readers.measures.sample import Measures, SplitSample, kind_of

# From the worst to the mildest.
SEVERITIES = ("error", "warning", "note")

# Names of records, and characters of each that are printed.
_EXAMPLES, _EXAMPLE = 5, 100

# What more than half of the records are is what they are like, and no fault of some of them.
_USUAL = 0.5


@dataclass(frozen=True)
class Finding:
    """Something about a dataset that its user should know.

    Attributes:
        check: The name of the check.
        severity: `error`, `warning` or `note`.
        message: What was found, of how many, and with what it was compared.
        feature: The feature that it is about; empty if it is none.
        split: The split that it is about; empty if it is about all.
        count: How many records it is about; 0 if it is about no certain ones.
        seen: How many records the check saw.
        examples: Keys of the first of these records, or their numbers.
    """

    check: str
    severity: str
    message: str
    feature: str = ""
    split: str = ""
    count: int = 0
    seen: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        about = " ".join(filter(None, (self.split, self.feature)))
        shown = ", ".join(shortened(name, _EXAMPLE) for name in self.examples)
        text = f"{self.severity}: {self.check}: {about}{': ' if about else ''}{self.message}"
        return visible(f"{text} ({shown})" if shown else text)


@dataclass(frozen=True)
class Facts:
    """What the checks look at.

    Attributes:
        manifest: The manifest, whose counts are those of all records.
        samples: The samples by the names of their splits.
    """

    manifest: Manifest
    samples: Mapping[str, SplitSample] = field(default_factory=dict)

    def features(self, *kinds: str) -> list[str]:
        """The measured features of some kinds, which `measures.sample.kind_of` names."""
        return [name for name, f in self.manifest.schema.items() if kind_of(name, f) in kinds]

    def measured(self, feature: str, measure: str) -> np.ndarray:
        """A number of a feature in all samples, float64, in the order of the splits."""
        found = [s.measures[feature].get(measure, _nothing(s.seen)) for s in self.samples.values()]
        return np.concatenate([*found, np.empty(0)])

    def names_of(self, chosen: np.ndarray) -> tuple[str, ...]:
        """The names of the first records of those that a mask over all samples chooses."""
        return self.names_of_records(np.flatnonzero(chosen)[:_EXAMPLES])

    def names_of_records(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The names of records, given their numbers in all samples."""
        ends = np.cumsum([sample.seen for sample in self.samples.values()])
        samples = list(self.samples.items())
        names = []
        for number in numbers:
            place = int(np.searchsorted(ends, number, side="right"))
            split, sample = samples[place]
            name = sample.named(int(number - ends[place] + sample.seen))
            names.append(name if sample.keys else f"{split}, {name}")
        return tuple(names)


def _nothing(count: int) -> np.ndarray:
    return np.full(count, np.nan)


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: Its name, such as `dark_pictures`.
        finds: What it finds, and with what it compares, in one line.
        find: Looks at a dataset.
    """

    name: str
    finds: str
    find: Callable[[Facts], Iterable[Finding]]


def records_with(
    name: str,
    severity: str,
    noun: str,
    kinds: Iterable[str],
    finds: str,
    chosen: Callable[[Measures], np.ndarray],
) -> Check:
    """A check that looks at each record alone.

    Args:
        name: The name of the check.
        severity: Its severity; it is a `note` if more than half of the records are chosen.
        noun: What a record is called, such as `picture`.
        kinds: The kinds of features that it looks at.
        finds: What the chosen records do or are, after their number.
        chosen: A mask over records, given their measures.
    """

    def find(facts: Facts) -> Iterator[Finding]:
        for feature in facts.features(*kinds):
            masks = [chosen(_Columns(s.measures[feature], s.seen)) for s in facts.samples.values()]
            mask = np.concatenate([*masks, np.empty(0, bool)])
            count, seen = int(mask.sum()), mask.size
            if count:
                worst = "note" if count > _USUAL * seen else severity
                words = f"{count:,} of {counted(seen, noun)} {finds}"
                yield Finding(name, worst, words, feature, "", count, seen, facts.names_of(mask))

    return Check(name, f"{noun}s that {finds}", find)


class _Columns(dict[str, np.ndarray]):
    """The measures of a feature; a name that no record has is NaN for all."""

    def __init__(self, measures: Measures, seen: int) -> None:
        super().__init__(measures)
        self._seen = seen

    def __missing__(self, name: str) -> np.ndarray:
        return _nothing(self._seen)
