"""TensorFlow Data Validation: a schema of the first split, and what the second has otherwise."""

from __future__ import annotations

from pathlib import Path

from planted.calls import Found
from planted.table import NUMBERS

# It has no default distance of distributions above which it warns: this is ours, of `split_drift`.
_DRIFT = 0.1


def find(dataset: str, folder: Path, pages: Path) -> Found:
    """Compares the splits."""
    import pandas as pd
    import tensorflow_data_validation as tfdv
    from tensorflow_data_validation.utils.display_util import get_statistics_html

    rows = pd.read_parquet(folder / "records.parquet").drop(columns=["id"])
    train, val = (
        tfdv.generate_statistics_from_dataframe(
            rows[rows["split"] == split].drop(columns=["split"]), n_jobs=1
        )
        for split in ("train", "val")
    )
    schema = tfdv.infer_schema(train)
    numbers = NUMBERS if dataset == "table" else ()
    for name in numbers:
        comparator = tfdv.get_feature(schema, name).drift_comparator
        comparator.jensen_shannon_divergence.threshold = _DRIFT
    tfdv.get_feature(schema, "label").drift_comparator.infinity_norm.threshold = _DRIFT
    anomalies = tfdv.validate_statistics(val, schema, previous_statistics=train)
    named: dict[str, list[str]] = {"drift between splits": [], "missing values": []}
    for name, anomaly in anomalies.anomaly_info.items():
        for reason in anomaly.reason:
            kind = type(anomaly).Type.Name(reason.type)
            if kind.startswith("COMPARATOR"):
                named["drift between splits"].append(name)
            if "MISSING" in kind or "DROPPED" in kind or "LOW_FRACTION" in kind:
                named["missing values"].append(name)
            print(name, kind, reason.description)
    if dataset == "texts":
        named = {}

    def page() -> None:
        html = get_statistics_html(train, val, lhs_name="train", rhs_name="val")
        (pages / "statistics.html").write_text(html)

    return named, page
