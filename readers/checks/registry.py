"""All checks, in the order of their findings."""

from __future__ import annotations

from readers.checks import distributions, duplicates, labels, near_duplicates, records, splits

CHECKS = (
    *splits.CHECKS,
    *duplicates.CHECKS,
    *near_duplicates.CHECKS,
    *labels.CHECKS,
    *records.CHECKS,
    *distributions.CHECKS,
)
