"""A check for groups, such as speakers or patients, with records in several splits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from readers.checks.facts import EXAMPLES, Check, Facts
from readers.format.display import counted
from readers.format.findings import Finding

# Features with these names, optionally with `_id`, `_name` or `_number`, name the person or thing a record comes from.
_GROUPS = (
    "author|case|conversation|device|document|group|participant|patient|person|recording|scene|sequence|"
    "session|site|speaker|subject|user|video|writer"
)
_NAME = re.compile(rf"(?:{_GROUPS})(?:_?(?:id|name|number))?", re.IGNORECASE)

_COLUMN = "column:"

# Fewer values are classes rather than groups.
_FEWEST = 3


def _groups(facts: Facts) -> Iterator[Finding]:
    for name, groups, there in _found(facts) if len(facts.samples) > 1 else ():
        yield from _in_several_splits(facts, name, groups, there)


def _found(facts: Facts) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields (the feature, or empty for keys; the number of the group of each record; whether each record has one)."""
    stated = facts.group_by or str(facts.manifest.options.get("group_by", ""))
    column = stated.removeprefix(_COLUMN) if stated.startswith(_COLUMN) else ""
    for feature in facts.features.of_kind("text", "integers"):
        is_group = feature == column or _NAME.fullmatch(feature)
        if is_group and not facts.manifest.schema[feature].shape:
            digests = facts.digests(feature)
            yield feature, np.unique(digests, return_inverse=True)[1], digests != 0
    # A regular expression of the manifest is not evaluated: it could take years, and the job has kept its groups together.
    if facts.group_by and not column and facts.keys:
        pattern = re.compile(facts.group_by)
        found = [pattern.search(key) for key in facts.keys]
        names = np.array([m[bool(pattern.groups)] or "" if m else "" for m in found], object)
        there = np.array([match is not None for match in found], bool)
        yield "", np.unique(names, return_inverse=True)[1], there


def _in_several_splits(
    facts: Facts, feature: str, groups: np.ndarray, there: np.ndarray
) -> Iterator[Finding]:
    splits, rows = facts.splits, np.flatnonzero(there)
    pairs = np.unique(np.stack([groups[rows], splits[rows]]), axis=1)
    members, counts = np.unique(pairs[0], return_counts=True)
    shared = members[counts > 1]
    if len(members) < _FEWEST or not len(shared):
        return
    chosen = there & np.isin(groups, shared)
    words = (
        f"{len(shared):,} of {counted(len(members), 'group')} have records in several splits, so a model is "
        "tested on groups that it was trained on"
    )
    examples = [np.flatnonzero(chosen & (groups == group)) for group in shared[:EXAMPLES]]
    ends = [(rows[0], rows[splits[rows] != splits[rows[0]]][0]) for rows in examples]
    named = tuple(" and ".join(facts.names_of_records(pair)) for pair in ends)
    for finding in facts.of_records("groups_across_splits", "warning", feature, chosen, ""):
        yield replace(finding, message=words, examples=named, places=())


CHECKS: dict[str, Check] = {"groups_across_splits": _groups}
