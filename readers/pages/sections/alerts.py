"""The findings of the checks, the worst first, each with advice and its records."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from readers.format.display import counted, shortened
from readers.format.findings import Finding
from readers.pages.advice import ADVICE
from readers.pages.markup import element
from readers.pages.study import Study

# The most alerts, alerts with drawn records, and records of each.
_ALERTS, _WITH_RECORDS, _RECORDS = 200, 40, 6

# The most characters of the names of splits and features, of messages, and of examples.
_NAME, _MESSAGE, _EXAMPLE = 60, 500, 200


def section(study: Study) -> list[Element]:
    """The findings of the checks."""
    findings = study.checked.findings
    if not findings:
        return [element("p", f"All {study.checked.checks} checks passed.")]
    rows = [_row(study, number, finding) for number, finding in enumerate(findings[:_ALERTS])]
    parts = [element("ol", *rows, class_="alerts")]
    if more := len(findings) - len(rows):
        parts.append(element("p", f"And {more:,} more."))
    return parts


def _row(study: Study, number: int, finding: Finding) -> Element:
    places = list(dict.fromkeys(finding.places[:_RECORDS])) if number < _WITH_RECORDS else []
    where = ", ".join(shortened(name, _NAME) for name in (finding.split, finding.feature) if name)
    about = study.anchor(finding.feature, finding.split)
    link = element("a", where, href=f"#{about}") if about else where
    severity = element("span", finding.severity, class_=f"tag {finding.severity}")
    title = element("b", finding.check.replace("_", " ").capitalize())
    message = shortened(finding.message[:1].upper() + finding.message[1:], _MESSAGE)
    advice = element("span", ADVICE.get(finding.check, ""), class_="soft")
    parts = [
        element("p", severity, " ", title, " ", element("span", link, class_="where")),
        element("p", f"{message}. ", advice),
    ]
    if places:
        parts.append(element("div", *study.cards.figures(places), class_=study.grid))
    elif finding.examples:
        names = [element("code", shortened(name, _EXAMPLE)) for name in finding.examples]
        separated = [part for name in names for part in (", ", name)][1:]
        parts.append(element("p", f"{counted(len(names), 'example')}: ", *separated))
    return element("li", *parts)
