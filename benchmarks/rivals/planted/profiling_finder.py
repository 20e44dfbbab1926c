"""ydata-profiling, now fg-data-profiling, with its defaults: a report, whose alerts are read."""

from __future__ import annotations

from pathlib import Path

from planted.calls import Found
from planted.truth import Truth, copies

# Its alert -> kind of fault.
_ALERTS = {
    "MISSING": "missing values",
    "CONSTANT": "constant column",
    "UNIQUE": "identifier",
    "SKEWED": "outliers",
    "IMBALANCE": "imbalance",
}


def find(dataset: str, folder: Path, pages: Path) -> Found:
    """Looks at the records of all splits."""
    import pandas as pd
    from data_profiling import ProfileReport

    rows = pd.read_parquet(folder / "records.parquet")
    # Without the identifiers, or no row would be equal to another.
    hidden = ["id", "patient"] if dataset == "table" else ["id"]
    frame = rows.drop(columns=["id"])
    report = ProfileReport(frame, title=dataset, progress_bar=False)
    named: dict[str, list[str]] = {kind: [] for kind in _ALERTS.values()}
    for alert in report.get_description().alerts:
        if alert.alert_type.name in _ALERTS:
            named[_ALERTS[alert.alert_type.name]].append(str(alert.column_name))
    compared = rows.drop(columns=hidden)
    again = ProfileReport(
        compared, minimal=True, progress_bar=False, duplicates={"head": len(rows)}
    ).get_description()
    equal = again.duplicates
    names: list[list[str]] = []
    if equal is not None and len(equal):
        columns = list(compared.columns)
        found = rows.merge(equal[columns], on=columns)
        names = [list(group["id"]) for _, group in found.groupby(columns, dropna=False)]
    if dataset == "table":
        named["equal rows"] = [name for group in names for name in group]
    else:
        named = {
            "exact duplicates": list(copies(Truth.read(folder), names, [])["exact duplicates"])
        }
    return named, lambda: report.to_file(pages / "report.html")
