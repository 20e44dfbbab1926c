"""A check of pictures that cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator

from readers.checks.facts import Check, Facts
from readers.checks.finding import Finding


def _undecodable(facts: Facts) -> Iterator[Finding]:
    for feature in facts.features("picture"):
        broken = facts.measured(feature, "undecodable") == 1
        yield from facts.of_records(
            "undecodable_pictures", "error", feature, broken, "cannot be decoded"
        )


CHECKS = (
    Check(
        "undecodable_pictures",
        "pictures whose bytes cannot be decoded; no other check sees them",
        _undecodable,
    ),
)
