"""What the checks found, the worst first, each with a link to what it is about."""

from __future__ import annotations

from readers.format.display import shortened
from readers.format.findings import Finding
from readers.page.section import Section
from readers.page.study import Study

# Alerts, and those whose records are drawn; characters of their texts.
_ALERTS, _WITH_RECORDS = 200, 40
_NAME, _MESSAGE, _EXAMPLE = 60, 500, 200


def section(study: Study) -> Section:
    """The findings of the checks."""
    findings = study.checked.findings
    drawn = {number for number, _ in with_records(study)}
    rows = [
        {
            "finding": finding,
            "anchor": row_anchor(number),
            "where": _where(finding),
            "about": study.anchor(finding.feature, finding.split),
            "message": shortened(finding.message, _MESSAGE),
            "examples": [shortened(name, _EXAMPLE) for name in finding.examples],
            "records": alert_anchor(number) if number in drawn else "",
        }
        for number, finding in enumerate(findings[:_ALERTS])
    ]
    more = len(findings) - len(rows)
    return Section.filled("alerts", rows=rows, more=more, checked=study.checked)


def with_records(study: Study) -> list[tuple[int, Finding]]:
    """The alerts whose records are drawn, with their numbers."""
    numbered = list(enumerate(study.checked.findings[:_ALERTS]))
    return [each for each in numbered if each[1].places][:_WITH_RECORDS]


def alert_anchor(number: int) -> str:
    """The id of the place with the records of an alert."""
    return f"alert-{number}"


def row_anchor(number: int) -> str:
    """The id of the place with the words of an alert."""
    return f"finding-{number}"


def _where(finding: Finding) -> str:
    names = (shortened(name, _NAME) for name in (finding.split, finding.feature) if name)
    return ", ".join(names) or "dataset"
