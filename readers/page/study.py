"""What a report is about: a dataset, its sample, what the checks found, and its records."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.check import CheckReport
from readers.checks.facts import Facts
from readers.describe import class_names, counted_label
from readers.format.manifest import Manifest
from readers.gallery.look import undecoded
from readers.measures.kinds import kinds_of
from readers.measures.sample import SplitSample
from readers.source import RecordSource


@dataclass(frozen=True)
class Study:
    """A dataset that was looked at.

    Attributes:
        directory: The dataset's directory.
        facts: Its manifest, and the samples of its splits.
        checked: What the checks found in them.
    """

    directory: str
    facts: Facts
    checked: CheckReport

    @property
    def manifest(self) -> Manifest:
        """The manifest, whose counts are those of all records."""
        return self.facts.manifest

    @property
    def name(self) -> str:
        """The last part of the directory's path."""
        return self.directory.rstrip("/").rsplit("/", 1)[-1] or self.directory

    @property
    def samples(self) -> Mapping[str, SplitSample]:
        """The first records of each split, which are a sample drawn by hash."""
        return self.facts.samples

    @functools.cached_property
    def kinds(self) -> dict[str, str]:
        """Feature -> `picture`, `text`, `signal`, `floats` or `integers`, of those that are measured."""
        return kinds_of(self.manifest)

    @functools.cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Feature -> names of its classes by id, of features that have any."""
        return class_names(self.manifest)

    @functools.cached_property
    def label(self) -> str:
        """The feature that holds one label a record; empty without one."""
        return counted_label(self.manifest)

    def anchor(self, feature: str, split: str) -> str:
        """The id of the place in the report that a feature, or else a split, has; empty without one.

        Ids are numbered, so that no name of the data is part of one.
        """
        if feature in self.manifest.schema:
            return f"feature-{list(self.manifest.schema).index(feature)}"
        if split in self.manifest.splits:
            return f"split-{list(self.manifest.splits).index(split)}"
        return ""

    def records(self, split: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Some records of a split by their numbers, which are those in the sample.

        Raises:
            ValueError: A record is damaged, or cannot be decoded.
        """
        if not len(numbers):
            return []
        return self._source(split).__getitems__([int(number) for number in numbers])

    def stored(self, split: str, number: int) -> dict[str, Any]:
        """A record of a split by its number, whose encoded images are the bytes that are stored.

        Raises:
            ValueError: The record is damaged.
            OSError: It cannot be read.
        """
        if split not in self._undecoded:
            schema = undecoded(self.manifest.schema)
            self._undecoded[split] = RecordSource(self.directory, split, schema=schema)
        return self._undecoded[split][number]

    def drawn(self, split: str, most: int) -> list[int]:
        """The numbers of some records of a split, drawn from its sample by a fixed seed, in order."""
        seen = self.samples[split].seen
        chosen = np.random.default_rng(0).choice(seen, min(most, seen), replace=False)
        return sorted(map(int, chosen))

    @functools.cached_property
    def _undecoded(self) -> dict[str, RecordSource]:
        return {}

    @functools.cached_property
    def _sources(self) -> dict[str, RecordSource]:
        return {}

    def _source(self, split: str) -> RecordSource:
        if split not in self._sources:
            self._sources[split] = RecordSource(self.directory, split)
        return self._sources[split]
