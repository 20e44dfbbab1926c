"""The overview of a report: the verdict on a dataset, and its size."""

from __future__ import annotations

from collections import Counter
from xml.etree.ElementTree import Element

from readers.format.display import counted, format_bytes
from readers.format.findings import SEVERITIES
from readers.pages.markup import element
from readers.pages.study import Study


def section(study: Study) -> list[Element]:
    """The verdict on a dataset, and its size."""
    manifest, checked = study.manifest, study.checked
    counts = Counter(finding.severity for finding in checked.findings)
    found = [counted(counts[name], name) for name in SEVERITIES if counts[name]]
    records = counted(checked.records, "record")
    seen = f"all {records}" if checked.seen == checked.records else f"{checked.seen:,} of {records}"
    tiles = [
        ("Records", f"{checked.records:,}"),
        ("Splits", f"{len(manifest.splits):,}"),
        ("Shards", f"{len(manifest.shards):,}"),
        ("Size", format_bytes(sum(split.bytes for split in manifest.splits.values()))),
        ("Features", f"{len(manifest.schema):,}"),
    ]
    if manifest.num_classes:
        tiles.append(("Classes", f"{manifest.num_classes:,}"))
    verdict = ", ".join(found) or "no problems found"
    about = element("span", f"({checked.checks} checks, {seen})", class_="soft")
    facts = (element("div", element("dt", name), element("dd", text)) for name, text in tiles)
    return [
        element("p", f"{verdict} ", about, class_=f"verdict {checked.worst() or 'good'}"),
        element("dl", *facts, class_="facts"),
    ]
