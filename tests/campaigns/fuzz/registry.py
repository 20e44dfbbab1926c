"""The names of all targets, and where each is.

No target is imported before it is asked for, because the code that it calls is instrumented while it is imported.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.campaigns.fuzz.target import Target

_HERE = Path(__file__).parent
CORPORA, CRASHES = _HERE / "corpora", _HERE / "crashes"

# Packages whose coverage guides the targets.
INSTRUMENTED = ("beam_jobs", "readers", "PIL", "edfio")

# Module -> its targets.
FAMILIES = {
    "framing": ("tfrecord", "index"),
    "examples": ("example", "sequence_example", "tensor"),
    "manifests": ("manifest",),
    "arrays": ("npy", "npz"),
    "archives": ("zip", "tar", "tar_gz"),
    "tables": ("csv", "txt", "jsonl", "csv_rows", "jsonl_rows", "json_rows"),
    "annotations": ("coco", "boxes_csv", "voc", "yolo", "class_names"),
    "sounds": ("wav", "flac", "ogg"),
    "pictures": ("picture_of_job", "picture_of_reader"),
    "columnar": ("parquet", "parquet_rows", "feather_rows"),
    "science": ("hdf5", "matlab", "edf"),
    "expressions": ("split", "splits", "span"),
}

NAMES = tuple(name for names in FAMILIES.values() for name in names)


def folders(name: str) -> list[Path]:
    """The folders with the inputs of a target that are kept."""
    return [path for path in (CORPORA / name, CRASHES / name) if path.is_dir()]


def find(name: str) -> Target:
    """A target; its module is imported."""
    family = next(family for family, names in FAMILIES.items() if name in names)
    module = importlib.import_module(f"tests.campaigns.fuzz.targets.{family}")
    return next(target for target in module.TARGETS if target.name == name)
