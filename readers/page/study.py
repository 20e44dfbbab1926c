"""What a report is about: a dataset, its sample, what the checks found, and its records."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.checks.facts import Facts
from readers.format.features import undecoded
from readers.format.findings import CheckResult
from readers.format.manifest import Manifest
from readers.measures.channels import Channels
from readers.measures.sample import Details, SplitSample
from readers.measures.texts import Words
from readers.measures.values import Values
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
    checked: CheckResult

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

    def anchor(self, feature: str, split: str = "", kind: str = "feature") -> str:
        """The id of the place in the report that a feature, or else a split, has; empty without one.

        A feature has one in each section of a `kind` of features.

        Ids are numbered, so that no name of the data is part of one.
        """
        if feature in self.manifest.schema:
            return f"{kind}-{list(self.manifest.schema).index(feature)}"
        if split in self.manifest.splits:
            return f"split-{list(self.manifest.splits).index(split)}"
        return ""

    def values(self, feature: str) -> dict[str, Values]:
        """What the sample of each split keeps of a feature; without splits of which no record was seen."""
        return {split: details.values[feature] for split, details in self._details}

    def channels(self, feature: str) -> dict[str, Channels]:
        """What was found in the channels of a signal, by split."""
        return {split: details.channels[feature] for split, details in self._details}

    def words(self, feature: str) -> dict[str, Words]:
        """What was found in the texts of a feature, by split."""
        return {split: details.words[feature] for split, details in self._details}

    @property
    def _details(self) -> list[tuple[str, Details]]:
        return [(name, each.details) for name, each in self.samples.items() if each.details]

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
        sample = self.samples[split]
        chosen = np.random.default_rng(0).choice(sample.seen, min(most, sample.seen), replace=False)
        return sorted(map(int, sample.numbers[chosen]))

    @functools.cached_property
    def _undecoded(self) -> dict[str, RecordSource]:
        return {}
