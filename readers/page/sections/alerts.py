"""What the checks found, the worst first, each with a link to what it is about."""

from __future__ import annotations

from readers.checks.finding import Finding
from readers.page.section import Section, fill
from readers.page.study import Study


def section(study: Study) -> Section:
    """The findings of the checks."""
    rows = [(finding, study.anchor(finding.feature, finding.split)) for finding in _sorted(study)]
    return Section("alerts", "Alerts", fill("alerts.html", rows=rows, checked=study.checked))


def _sorted(study: Study) -> tuple[Finding, ...]:
    return study.checked.findings
