"""Checks of the counts of splits, which are those of all records."""

from __future__ import annotations

import math
from collections.abc import Iterator

from readers.checks.facts import Check, Facts
from readers.format.findings import Finding

_MOST_REJECTED = 0.01

# A share of records is wrong if it is off by this much, and by this many standard deviations.
_MOST_OFF, _DEVIATIONS = 0.02, 4


def _empty(facts: Facts) -> Iterator[Finding]:
    for name, split in facts.manifest.splits.items():
        if not split.records:
            yield Finding("empty_splits", "error", "it has no record", split=name)


def _rejected(facts: Facts) -> Iterator[Finding]:
    splits = facts.manifest.splits.values()
    rejected = sum(split.rejected for split in splits)
    found = rejected + sum(split.records + split.duplicates for split in splits)
    if rejected:
        severity = "warning" if rejected > _MOST_REJECTED * found else "note"
        verb = "was" if rejected == 1 else "were"
        words = f"{rejected:,} of {found:,} inputs {verb} rejected ({rejected / found:.1%})"
        yield Finding("rejected_inputs", severity, words, count=rejected, seen=found)


def _shares(facts: Facts) -> Iterator[Finding]:
    manifest = facts.manifest
    wanted = wanted_shares(str(manifest.options.get("splits", "")))
    if manifest.options.get("split_column") or set(wanted) != set(manifest.splits):
        return
    records = sum(split.records for split in manifest.splits.values())
    for name, share in wanted.items():
        if not records:
            return
        found = manifest.splits[name].records / records
        deviation = math.sqrt(share * (1 - share) / records)
        if abs(found - share) > max(_MOST_OFF, _DEVIATIONS * deviation):
            words = f"it has {found:.1%} of the records, and --splits says {share:.1%}"
            yield Finding("split_shares", "note", words, split=name, seen=records)


def wanted_shares(text: str) -> dict[str, float]:
    """The shares that `--splits` names, which add up to 1; empty if it is not written so."""
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        shares = {name.strip(): float(share) for name, _, share in pairs}
    except ValueError:
        return {}
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()} if total > 0 else {}


CHECKS = (
    Check("empty_splits", "splits without a record", _empty),
    Check("rejected_inputs", "inputs that were rejected; a warning above 1%", _rejected),
    Check(
        "split_shares",
        "splits whose share is off that of --splits by 2% of the records, and by four standard deviations",
        _shares,
    ),
)
