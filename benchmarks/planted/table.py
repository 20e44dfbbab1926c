"""A table of numbers with planted faults: rows drawn from scikit-learn's measurements of tumours.

    FOLDER/records.parquet      id, site, label, split, and columns of numbers

The rows are in the order of their labels, which is a fault too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from planted.truth import Truth

# Columns of the measurements that are kept.
_COLUMNS = ("radius", "texture", "smoothness", "compactness", "symmetry", "concavity")
_SITES = ("Berne", "Lyon", "Oslo", "Porto")
NUMBERS = (*_COLUMNS, "change", "device")


def make_table(folder: Path, count: int) -> Truth:
    """Writes `count` rows, and returns the truth."""
    from sklearn.datasets import load_breast_cancer

    rng = np.random.default_rng(20_261_127)
    folder.mkdir(parents=True)
    found = load_breast_cancer()
    names = [str(name) for name in found.feature_names]
    chosen = rng.integers(len(found.data), size=count)
    columns: dict[str, np.ndarray] = {}
    for name in _COLUMNS:
        values = found.data[:, names.index(f"mean {name}")]
        # A twentieth of a deviation of noise, as rows are drawn many times.
        drawn = values[chosen] + rng.normal(size=count) * values.std() / 20
        columns[name] = np.abs(drawn).astype(np.float32)
    columns["change"] = rng.normal(size=count).astype(np.float32)
    columns["device"] = np.full(count, 1.5, np.float32)
    splits = np.where(rng.random(count) < 0.8, "train", "val")
    labels = np.array(["malignant", "benign"])[found.target[chosen]]
    rare = (splits == "train") & (rng.random(count) < 0.004)
    labels[rare] = "unclear"
    truth = _plant(columns, splits, rng)
    few = max(5, count // 1000)
    order = np.argsort(labels, kind="stable")
    frame = {
        "id": np.array([f"r{number:07d}" for number in range(count)]),
        "site": rng.choice(_SITES, count),
        "label": labels[order],
        "split": splits[order],
        **{name: values[order] for name, values in columns.items()},
    }
    _repeat_rows(frame, truth, few, rng)
    frame["patient"] = np.array([f"p{n:08d}" for n in rng.permutation(10 * count)[:count]])
    truth.records = count
    pa.parquet.write_table(pa.table(frame), folder / "records.parquet")
    return truth


def _plant(columns: dict[str, np.ndarray], splits: np.ndarray, rng: np.random.Generator) -> Truth:
    """Spoils columns, and returns the truth about them."""
    count = len(splits)
    truth = Truth(count)
    columns["texture"][rng.random(count) < 0.03] = np.nan
    truth.plant("missing values", "texture")
    few = max(3, count // 2500)
    for name in ("radius", "change"):
        places = rng.choice(count, few, replace=False)
        columns[name][places] *= 1000
        truth.plant("outliers", name)
    columns["smoothness"][splits == "val"] *= 1.15
    truth.plant("drift between splits", "smoothness")
    truth.plant("constant column", "device")
    truth.plant("identifier", "patient")
    truth.plant("imbalance", "label")
    truth.plant("missing class", "val, unclear")
    truth.plant("sorted order", "label")
    return truth


def _repeat_rows(
    frame: dict[str, np.ndarray], truth: Truth, few: int, rng: np.random.Generator
) -> None:
    """Makes some rows copies of others in all but their identifier."""
    same = np.flatnonzero(frame["split"] == "train")
    for one, other in rng.choice(same, (few, 2), replace=False):
        for name, values in frame.items():
            if name not in ("id", "patient"):
                values[other] = values[one]
        truth.plant("equal rows", str(frame["id"][one]), str(frame["id"][other]))
