"""The planted data as shards of this project: a command of `beam_jobs` for each dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planted.table import NUMBERS

_FEATURES = ",".join(["patient:string", *(f"{name}:float32" for name in NUMBERS)])

# What differs between the datasets; all have keys and splits in columns of the same names.
_JOBS: dict[str, Sequence[str]] = {
    "pictures": ("images", "--table", "{}", "--label", "column:label", "--encoding", "source"),
    "texts": ("text", "--input", "{}", "--label_field", "label"),
    "table": (
        *("text", "--input", "{}", "--label_field", "label"),
        *("--text_field", "site", "--extra_features", _FEATURES),
    ),
    "recordings": ("sensors", "--table", "{}", "--label", "column:label"),
}


def job_of(dataset: str, folder: Path, output: Path) -> list[str]:
    """Returns the arguments of `python -m beam_jobs` that write a dataset."""
    records = str(folder / "records.parquet")
    command = [records if word == "{}" else word for word in _JOBS[dataset]]
    command += ["--key", "column:id", "--split_column", "split", "--splits", "train,val"]
    return [*command, "--num_shards", "4", "--output", str(output), "--overwrite"]
