"""The subject of a report: a dataset, its sample, the findings of the checks, and its records."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from readers.checks.facts import Facts
from readers.format.display import without_credentials
from readers.format.findings import CheckResult
from readers.format.manifest import Manifest
from readers.pages.cards.gallery import Cards


@dataclass(frozen=True)
class Study:
    """A dataset with its directory, its manifest, the samples of its splits, and the findings of the checks."""

    directory: str
    facts: Facts
    checked: CheckResult

    @property
    def manifest(self) -> Manifest:
        """The manifest, whose counts cover all records."""
        return self.facts.manifest

    @property
    def name(self) -> str:
        """The last part of the directory's path."""
        path = without_credentials(self.directory)
        return path.rstrip("/").rsplit("/", 1)[-1] or path

    def anchor(self, feature: str, split: str = "") -> str:
        """The id of the element of a feature, of a split, or empty; it is a number, so that no name from the data is part of it."""
        if feature in self.manifest.schema:
            return f"feature-{list(self.manifest.schema).index(feature)}"
        if split in self.manifest.splits:
            return f"split-{list(self.manifest.splits).index(split)}"
        return ""

    def measures(self, feature: str, name: str) -> dict[str, np.ndarray]:
        """A measure of a feature in the sample of each split, float64 [records]; splits without it are left out."""
        measures = {split: s.measures.get(feature, {}) for split, s in self.facts.samples.items()}
        return {split: found[name] for split, found in measures.items() if name in found}

    @functools.cached_property
    def cards(self) -> Cards:
        """Draws the cards of records."""
        return Cards(self.directory, self.manifest, self.facts.samples)

    @property
    def grid(self) -> str:
        """The class of the elements that hold cards: texts and signals need more room than pictures."""
        return "records" if self.facts.features.of_kind("picture") else "records wide"
