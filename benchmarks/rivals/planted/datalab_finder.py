"""cleanlab's Datalab, as its tutorials say: features and out-of-sample probabilities, and all its checks.

Its tutorials take features from networks of the internet. Here they are principal components: of small
pictures, of words, of columns, and of the first steps of recordings. Probabilities are those of a logistic regression,
cross-validated. It has no page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from planted.calls import Found
from planted.table import NUMBERS
from planted.truth import Truth, copies
from rivals.planted.cleanvision_finder import of_issues

_COMPONENTS = 64
_STEPS = 256
# Distances of equal records: those of rows differ by the rounding of float64, components by that of float32.
_EQUAL = {"table": 1e-12, "pictures": 1e-5, "texts": 1e-5, "recordings": 1e-5}


def find(dataset: str, folder: Path, pages: Path) -> Found:
    """Looks at the records of all splits."""
    import pandas as pd
    from cleanlab import Datalab
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = pd.read_parquet(folder / "records.parquet")
    features = _FEATURES[dataset](rows, folder)
    filled = np.nan_to_num(features)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    labels = rows["label"].to_numpy()
    probabilities = cross_val_predict(model, filled, labels, cv=3, method="predict_proba")
    if dataset == "pictures":
        from datasets import Dataset, Image

        paths = [str(folder / path) for path in rows["path"]]
        data = Dataset.from_dict({"image": paths, "label": list(labels)})
        lab = Datalab(data.cast_column("image", Image()), label_name="label", image_key="image")
    else:
        lab = Datalab({"label": list(labels)}, label_name="label")
    lab.find_issues(features=filled, pred_probs=probabilities)
    if np.isnan(features).any():
        lab.find_issues(features=features, issue_types={"null": {}})
    return _named(dataset, folder, lab, rows), None


def _named(dataset: str, folder: Path, lab: Any, rows: Any) -> dict[str, list[str]]:
    ids = rows["id"].to_numpy()
    issues = lab.get_issues()
    truth = Truth.read(folder)
    named: dict[str, list[str]] = {
        "contradictions": list(ids[issues["is_label_issue"].to_numpy()]),
        "imbalance": ["label"] if issues["is_class_imbalance_issue"].any() else [],
        "sorted order": ["label"] if issues["is_non_iid_issue"].any() else [],
    }
    near = lab.get_issues("near_duplicate")
    places = np.flatnonzero(near["is_near_duplicate_issue"])
    groups = [[ids[place], *ids[near["near_duplicate_sets"].iloc[place]]] for place in places]
    equal = near["distance_to_nearest_neighbor"].to_numpy() < _EQUAL[dataset]
    exact = [group for place, group in zip(places, groups, strict=True) if equal[place]]
    if dataset == "table":
        named["equal rows"] = [name for group in exact for name in group]
    else:
        named |= copies(truth, exact, groups)
    outliers = list(ids[issues["is_outlier_issue"].to_numpy()])
    null = list(ids[issues["is_null_issue"].to_numpy()]) if "is_null_issue" in issues else []
    if dataset == "recordings":
        named |= {"outlier levels": outliers, "missing values": null}
    if dataset == "table":
        # It names rows, of which a user sees the column.
        numbers = rows[list(NUMBERS)].set_index(ids).astype(float)
        far = ((numbers - numbers.median()) / numbers.std().replace(0, 1)).abs()
        named["outliers"] = [str(far.loc[name].idxmax()) for name in outliers]
        named["missing values"] = [c for c in numbers if numbers.loc[null, c].isna().any()]
    if dataset == "pictures":
        named |= {k: v for k, v in of_issues(folder, issues, list(ids)).items() if k not in named}
        found = lab.get_info("spurious_correlations")
        scores = found["correlations_df"]
        telling = scores[scores["score"] < found["threshold"]]["property"]
        named["labels follow from brightness"] = [
            "brightness" if name in ("dark", "light") else str(name) for name in telling
        ]
    return named


def _components(values: np.ndarray) -> np.ndarray:
    from sklearn.decomposition import PCA

    found: np.ndarray = PCA(min(_COMPONENTS, *values.shape), random_state=0).fit_transform(values)
    return found


def _of_pictures(rows: Any, folder: Path) -> np.ndarray:
    from PIL import Image

    def small(path: str) -> np.ndarray:
        with Image.open(folder / path) as picture:
            return np.asarray(picture.convert("RGB").resize((16, 16)), np.float32).reshape(-1)

    return _components(np.stack([small(path) for path in rows["path"]]))


def _of_texts(rows: Any, folder: Path) -> np.ndarray:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(min_df=2).fit_transform(rows["text"])
    found: np.ndarray = TruncatedSVD(_COMPONENTS, random_state=0).fit_transform(words)
    return found


def _of_table(rows: Any, folder: Path) -> np.ndarray:
    from sklearn.preprocessing import StandardScaler

    found: np.ndarray = StandardScaler().fit_transform(rows[list(NUMBERS)].astype(float))
    return found


def _of_recordings(rows: Any, folder: Path) -> np.ndarray:
    """The first steps of each recording, filled with zeros; NaN remains."""

    def start(path: str) -> np.ndarray:
        signal = np.load(folder / path)[:_STEPS]
        return np.pad(signal, ((0, _STEPS - len(signal)), (0, 0))).reshape(-1)

    return np.stack([start(path) for path in rows["path"]])


_FEATURES = {
    "pictures": _of_pictures,
    "texts": _of_texts,
    "table": _of_table,
    "recordings": _of_recordings,
}
