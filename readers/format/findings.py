"""The findings of checks, as readers and jobs report them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from readers.format.display import counted, shortened, visible_line

# From the most to the least severe.
SEVERITIES = ("error", "warning", "note")

# The most characters of a record's name that are printed.
_EXAMPLE = 100


@dataclass(frozen=True)
class Finding:
    """A possible problem of a dataset.

    Attributes:
        check: The name of the check.
        severity: `error`, `warning` or `note`.
        message: A sentence with the numbers found and what they were compared with.
        feature: The feature it concerns; empty if it concerns the whole dataset.
        split: The split it concerns; empty if it concerns all splits.
        count: The number of affected records; 0 if it does not concern single records.
        seen: The number of records that the check looked at.
        examples: The keys of the first affected records, or their numbers.
        places: The split, and the number in it, of each record in `examples`.
        keys: The keys of the affected records, at most 10,000; empty without keys.
    """

    check: str
    severity: str
    message: str
    feature: str = ""
    split: str = ""
    count: int = 0
    seen: int = 0
    examples: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        about = " ".join(filter(None, (self.split, self.feature)))
        shown = ", ".join(shortened(name, _EXAMPLE) for name in self.examples)
        text = f"{self.severity}: {self.check}: {about}{': ' if about else ''}{self.message}"
        return visible_line(f"{text} ({shown})" if shown else text)


@dataclass(frozen=True)
class CheckResult:
    """The result of `check`.

    Attributes:
        seen: The number of records that the checks looked at. Counts of labels, splits and tokens always
            cover all records.
        records: The number of records in the dataset.
        checks: The number of checks.
        findings: The findings, the most severe first.
    """

    seen: int
    records: int
    checks: int
    findings: tuple[Finding, ...]

    def worst(self) -> str:
        """The worst severity of the findings; empty without findings."""
        found = {finding.severity for finding in self.findings}
        return next((severity for severity in SEVERITIES if severity in found), "")

    def __str__(self) -> str:
        counts = Counter(finding.severity for finding in self.findings)
        found = ", ".join(counted(counts[name], name) for name in SEVERITIES)
        return f"{self.seen:,} of {self.records:,} records, {self.checks} checks: {found}"

    def fails(self, fail_on: str) -> bool:
        """Whether a finding is at least as severe as `fail_on`."""
        worst = self.worst()
        return worst != "" and SEVERITIES.index(worst) <= SEVERITIES.index(fail_on)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self)
