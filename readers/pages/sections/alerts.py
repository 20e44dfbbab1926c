"""The findings of the checks, the worst first, each with advice and its records."""

from __future__ import annotations

from typing import Any

from readers.format.display import shortened
from readers.format.findings import Finding
from readers.pages.advice import ADVICE
from readers.pages.section import fill
from readers.pages.study import Study

# The most alerts, alerts with drawn records, and records of each.
_ALERTS, _WITH_RECORDS, _RECORDS = 200, 40, 6

# The most characters of the names of splits and features, of messages, and of examples.
_NAME, _MESSAGE, _EXAMPLE = 60, 500, 200


def section(study: Study) -> str:
    """The findings of the checks."""
    findings = study.checked.findings
    rows = [_row(study, number, finding) for number, finding in enumerate(findings[:_ALERTS])]
    more, checks = len(findings) - len(rows), study.checked.checks
    return fill("alerts", rows=rows, more=more, checks=checks, grid=study.grid)


def _row(study: Study, number: int, finding: Finding) -> dict[str, Any]:
    places = list(dict.fromkeys(finding.places[:_RECORDS])) if number < _WITH_RECORDS else []
    names = [shortened(name, _NAME) for name in (finding.split, finding.feature) if name]
    return {
        "severity": finding.severity,
        "title": finding.check.replace("_", " ").capitalize(),
        "where": ", ".join(names),
        "about": study.anchor(finding.feature, finding.split),
        "message": shortened(finding.message[:1].upper() + finding.message[1:], _MESSAGE),
        "advice": ADVICE.get(finding.check, ""),
        "examples": [] if places else [shortened(name, _EXAMPLE) for name in finding.examples],
        "figures": study.cards.figures(places),
    }
