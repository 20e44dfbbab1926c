"""All checks, in the order of their findings."""

from __future__ import annotations

from readers.checks import distributions, duplicates, groups, labels, records, splits

_MODULES = (splits, duplicates, groups, labels, records, distributions)

CHECKS = tuple(check for module in _MODULES for check in module.CHECKS)
