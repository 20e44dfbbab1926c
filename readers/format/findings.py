"""What checks found in a dataset, as readers and jobs report it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from readers.format.display import counted, shortened, visible_line

# From the worst to the mildest.
SEVERITIES = ("error", "warning", "note")

# Characters of the name of a record that are printed.
_EXAMPLE = 100


@dataclass(frozen=True)
class Finding:
    """Something about a dataset that its user should know.

    Attributes:
        check: The name of the check.
        severity: `error`, `warning` or `note`.
        message: What was found, of how many, and with what it was compared.
        feature: The feature that it concerns; empty if it concerns the whole dataset.
        split: The split that it concerns; empty if it concerns all splits.
        count: The number of records at fault; 0 if no single record is.
        seen: How many records the check saw.
        examples: Keys of the first of these records, or their numbers.
        places: The split and the number there of each record that `examples` names.
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

    def __str__(self) -> str:
        about = " ".join(filter(None, (self.split, self.feature)))
        shown = ", ".join(shortened(name, _EXAMPLE) for name in self.examples)
        text = f"{self.severity}: {self.check}: {about}{': ' if about else ''}{self.message}"
        return visible_line(f"{text} ({shown})" if shown else text)


@dataclass(frozen=True)
class CheckResult:
    """The result of `check`.

    Attributes:
        seen, records: How many records the checks saw, of how many. Counts of labels, splits and tokens
            are those of all records in any case.
        checks: The number of checks.
        findings: What was found, the worst first.
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

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckResult:
        """The result that `to_json` described."""
        findings = []
        for found in value["findings"]:
            places = tuple((split, number) for split, number in found["places"])
            changed = {"examples": tuple(found["examples"]), "places": places}
            findings.append(Finding(**{**found, **changed}))
        return cls(value["seen"], value["records"], value["checks"], tuple(findings))
