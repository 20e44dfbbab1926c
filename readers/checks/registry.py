"""All checks by name, in the order of their findings."""

from __future__ import annotations

from readers.checks import distributions, duplicates, groups, labels, records, splits

CHECKS = (
    splits.CHECKS
    | duplicates.CHECKS
    | groups.CHECKS
    | labels.CHECKS
    | records.CHECKS
    | distributions.CHECKS
)
