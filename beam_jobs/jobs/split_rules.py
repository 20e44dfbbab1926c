"""The split of each record that a pass reads, from its key, its columns and its label."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.plan.group_splits import GroupSplits, unpack_splits
from beam_jobs.plan.placement import ALL, Placement
from beam_jobs.plan.strata import LabelHashes, Strata
from beam_jobs.sources.source import Label


@dataclass(frozen=True)
class SplitRules:
    """The rules that assign each record to a split.

    Attributes:
        placement: Assigns splits by keys and columns.
        strata: The packed splits by group or by label that an earlier pass has planned; empty to use
            hashes.
    """

    placement: Placement
    strata: bytes = b""

    @property
    def of_dropped(self) -> SplitRules:
        """The rules for dropped records, whose labels strata do not know."""
        return self if self.placement.deals_groups else replace(self, strata=b"")

    @functools.cached_property
    def _planned(self) -> Strata | GroupSplits:
        return unpack_splits(self.strata, self.placement)

    def splits_of_groups(self, hashes: np.ndarray) -> np.ndarray:
        """The splits of records, uint8 [n], from the hashes of their groups, uint64 [n]."""
        if not self.strata:
            return self.placement.splits.of(hashes)
        return self._planned.splits_of(LabelHashes((ALL,), np.zeros(len(hashes), np.int64), hashes))

    @property
    def needs_rows(self) -> bool:
        """Whether the split of a record may depend on more than its key."""
        return bool(self.placement.groups or self.placement.split_column)

    def splits_of(
        self,
        keys: Sequence[bytes],
        rows: Sequence[Mapping[str, Any]],
        labels: Sequence[Label | None],
    ) -> tuple[np.ndarray, dict[int, str]]:
        """The split of each record, uint8 [n], and why some rows have none and must be rejected.

        Args:
            keys: The keys of n records in UTF-8.
            rows: The columns of each record, needed if `needs_rows`.
            labels: The label of each record, needed if there are strata.
        """
        placement = self.placement
        by_group = bool(placement.groups) or placement.deals_groups
        if self.strata and not by_group:
            block = LabelHashes.of(placement.strata(labels), placement.group_hashes(keys))
            return self._planned.splits_of(block), {}
        if not (by_group or self.needs_rows):
            return placement.splits_of(keys), {}
        rule: Callable[[str, Mapping[str, Any]], Any]
        rule = placement.groups.of if by_group else placement.split_of
        values, errors = list[Any](), {}
        for number, key in enumerate(keys):
            try:
                row = rows[number] if rows else {}
                values.append(rule(key.decode("utf-8", "surrogateescape"), row))
            except RejectError as error:
                errors[number] = str(error)
        if by_group:
            groups = (group.encode("utf-8", "surrogateescape") for group in values)
            found = self.splits_of_groups(placement.group_hashes(groups))
        else:
            found = np.array(values, np.uint8)
        splits = np.zeros(len(keys), found.dtype)
        splits[np.delete(np.arange(len(keys)), list(errors))] = found
        return splits, errors


class GroupRules(SplitRules):
    """Makes each group a separate split, numbered by its hash, to count the records of groups."""

    def splits_of_groups(self, hashes: np.ndarray) -> np.ndarray:
        return hashes
