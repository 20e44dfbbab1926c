"""Checks of the counts of splits, which cover all records."""

from __future__ import annotations

from collections.abc import Iterator

from readers.checks.facts import Check, Facts
from readers.format.findings import Finding

_MOST_REJECTED = 0.01


def _empty(facts: Facts) -> Iterator[Finding]:
    for name, split in facts.manifest.splits.items():
        if not split.records:
            yield Finding("empty_splits", "error", "it has no records", split=name)


def _rejected(facts: Facts) -> Iterator[Finding]:
    splits = facts.manifest.splits.values()
    rejected = sum(split.rejected for split in splits)
    found = rejected + sum(split.records + split.duplicates for split in splits)
    if rejected:
        severity = "warning" if rejected > _MOST_REJECTED * found else "note"
        verb = "was" if rejected == 1 else "were"
        words = f"{rejected:,} of {found:,} inputs {verb} rejected ({rejected / found:.1%})"
        yield Finding("rejected_inputs", severity, words, count=rejected, seen=found)


CHECKS: dict[str, Check] = {"empty_splits": _empty, "rejected_inputs": _rejected}
