"""The near duplicates of a dataset: counts and first examples."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_jobs.plan.near.blocks import Probes
from beam_jobs.plan.near.verify import NearPairs

# Pairs that are named.
EXAMPLES = 5

# A record of a dataset: its file, and its number in it, from 1.
Place = tuple[str, int]


@dataclass
class NearSurvey:
    """The near duplicates of a dataset.

    Attributes:
        inside: Split -> the number of its records that are near an earlier one of it.
        across: Split -> the number of its records that are near an earlier one of another split.
        inside_examples, across_examples: The first of these records, each after the one that it is near.
    """

    inside: Counter[int] = field(default_factory=Counter)
    across: Counter[int] = field(default_factory=Counter)
    inside_examples: list[tuple[Place, Place]] = field(default_factory=list)
    across_examples: list[tuple[Place, Place]] = field(default_factory=list)

    @classmethod
    def of(cls, probes: Probes, pairs: NearPairs) -> NearSurvey:
        """The survey of the pairs whose second is in one block."""
        survey = cls()
        splits = np.frombuffer(probes.splits, np.uint8)[pairs.second]
        numbers = np.frombuffer(probes.numbers, "<i8")[pairs.second]
        same = splits == pairs.split
        for chosen, counts, examples in (
            (same, survey.inside, survey.inside_examples),
            (~same, survey.across, survey.across_examples),
        ):
            rows = np.flatnonzero(chosen)
            _, once = np.unique(pairs.second[rows], return_index=True)
            counts.update(splits[rows[once]].tolist())
            examples += [
                ((probes.owner, int(numbers[row])), (pairs.owner[row], int(pairs.first[row])))
                for row in rows[once[:EXAMPLES]].tolist()
            ]
        return survey

    def to_json(self) -> dict[str, Any]:
        """The survey as JSON values."""
        return {
            "inside": dict(self.inside),
            "across": dict(self.across),
            "inside_examples": self.inside_examples,
            "across_examples": self.across_examples,
        }

    def merge(self, other: NearSurvey) -> None:
        """Adds what another instance has found."""
        self.inside.update(other.inside)
        self.across.update(other.across)
        for mine, theirs in (
            (self.inside_examples, other.inside_examples),
            (self.across_examples, other.across_examples),
        ):
            mine[:] = heapq.nsmallest(EXAMPLES, [*mine, *theirs])
