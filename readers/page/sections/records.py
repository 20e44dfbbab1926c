"""Records of each split, those that the alerts are about, the extremes, and copies."""

from __future__ import annotations

from dataclasses import replace

from readers.format.display import counted, shortened
from readers.format.findings import Finding
from readers.gallery.look import Look
from readers.page.odd import copies, extremes
from readers.page.section import Section
from readers.page.sections.alerts import alert_anchor, row_anchor, with_records
from readers.page.shown import Shown, figures, picture_bytes
from readers.page.study import Study

# Records of a split, and of all splits; splits; and records of an alert.
_OF_SPLIT, _OF_ALL, _SPLITS, _OF_ALERT = 24, 96, 12, 5

# Characters of the name of a split or a feature, and of the words of an alert.
_NAME, _MESSAGE = 40, 500


def section(study: Study) -> Section:
    """Galleries of records, all of the sample."""
    look = Look.of(study.directory, study.manifest)
    kinds = [_drawn(study), _of_alerts(study), extremes(study, look), copies(study, look)]
    every = [shown for kind in kinds for shown in kind]
    small = replace(look, most=picture_bytes(every))
    filled = zip(every, figures(study, small, every), strict=True)
    splits, alerts, odd, equal = ([next(filled) for _ in kind] for kind in kinds)
    return Section.filled(
        "records",
        splits=splits,
        alerts=alerts,
        extremes=odd,
        copies=equal,
        more=len(study.manifest.splits) - len(splits),
    )


def _drawn(study: Study) -> list[Shown]:
    """Records of each split, drawn at random from its sample."""
    names = list(study.samples)[:_SPLITS]
    most = min(_OF_SPLIT, max(1, _OF_ALL // max(1, len(names))))
    found = []
    for name in names:
        numbers, split = study.drawn(name, most), study.manifest.splits[name]
        words = f"{len(numbers):,} of {counted(split.records, 'record')}, drawn at random"
        places = tuple(((name, number), "") for number in numbers)
        words = words if numbers else "no records"
        found.append(Shown(shortened(name, _NAME), words, places, of_one_split=True))
    return found


def _of_alerts(study: Study) -> list[Shown]:
    return [
        Shown(
            f"{finding.severity}: {finding.check}",
            _words(finding),
            tuple((place, "") for place in dict.fromkeys(finding.places[:_OF_ALERT])),
            anchor=alert_anchor(number),
            link=row_anchor(number),
        )
        for number, finding in with_records(study)
    ]


def _words(finding: Finding) -> str:
    about = shortened(finding.feature, _NAME)
    message = shortened(finding.message, _MESSAGE)
    return f"{about}: {message}" if about else message
