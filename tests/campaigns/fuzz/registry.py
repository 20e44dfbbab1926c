"""The names of all targets, where each is, and which modules guide it by their coverage.

No target is imported before it is asked for, because its modules are instrumented while they are imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.campaigns.fuzz.target import Target

_HERE = Path(__file__).parent
CORPORA, CRASHES = _HERE / "corpora", _HERE / "crashes"


class Family(NamedTuple):
    """The targets of a module.

    Attributes:
        names: Their names.
        instrumented: Modules and packages whose coverage guides them.
    """

    names: tuple[str, ...]
    instrumented: tuple[str, ...]


_SENSORS = "beam_jobs.jobs.sensors"

FAMILIES = {
    "framing": Family(
        ("tfrecord", "index"),
        ("readers.format.tfrecord", "readers.format.index", "beam_jobs.jobs.reshard.framed"),
    ),
    "examples": Family(
        ("example", "sequence_example", "tensor"),
        (
            "readers.format.decode",
            "readers.format.protobuf",
            "readers.format.compiled",
            "beam_jobs.jobs.reshard.values",
        ),
    ),
    "in_tensorflow": Family(
        ("example_in_tensorflow", "sequence_example_in_tensorflow"),
        ("readers.format.decode", "readers.format.protobuf"),
    ),
    "manifests": Family(("manifest",), ("readers.format", "json")),
    "arrays": Family(("npy", "npz"), (f"{_SENSORS}.formats.npy", f"{_SENSORS}.inside")),
    "archives": Family(("zip", "tar", "tar_gz"), ("beam_jobs.sources.archives",)),
    "tables": Family(
        ("csv", "txt", "jsonl", "csv_rows", "jsonl_rows", "json_rows"),
        (
            f"{_SENSORS}.formats.delimited",
            f"{_SENSORS}.formats.json_lines",
            f"{_SENSORS}.tables",
            f"{_SENSORS}.recording",
            "beam_jobs.sources.rows",
            "beam_jobs.sources.formats.json_objects",
            "beam_jobs.storage.encodings",
        ),
    ),
    "annotations": Family(
        ("coco", "boxes_csv", "voc", "yolo", "class_names"),
        (
            "beam_jobs.jobs.images.coco",
            "beam_jobs.jobs.images.voc_yolo",
            "beam_jobs.records.ragged",
            "beam_jobs.sources.rows",
        ),
    ),
    "sounds": Family(
        ("wav", "flac", "ogg"), (f"{_SENSORS}.formats.wav", f"{_SENSORS}.formats.sndfile")
    ),
    "pictures": Family(
        ("picture_of_job", "picture_of_reader"),
        (
            "beam_jobs.jobs.images",
            "readers.format.decode.images",
            "readers.format.decode.jpeg",
            "PIL",
        ),
    ),
    "columnar": Family(
        ("parquet", "parquet_rows", "feather_rows"),
        (f"{_SENSORS}.formats.arrow", "beam_jobs.sources.formats"),
    ),
    "science": Family(("hdf5", "matlab", "edf"), (f"{_SENSORS}.formats", "edfio")),
    "expressions": Family(
        ("split", "splits", "span"),
        ("readers.order.split", "beam_jobs.plan.splits", f"{_SENSORS}.spans"),
    ),
}

_FAMILY_OF: Mapping[str, str] = {
    name: module for module, family in FAMILIES.items() for name in family.names
}

NAMES = tuple(_FAMILY_OF)


def instrumented(name: str) -> tuple[str, ...]:
    """The modules and packages whose coverage guides a target."""
    return FAMILIES[_FAMILY_OF[name]].instrumented


def folders(name: str) -> list[Path]:
    """The folders with the inputs of a target that are kept."""
    return [path for path in (CORPORA / name, CRASHES / name) if path.is_dir()]


def find(name: str) -> Target:
    """A target; its module is imported."""
    module = importlib.import_module(f"tests.campaigns.fuzz.targets.{_FAMILY_OF[name]}")
    found: dict[str, Target] = {target.name: target for target in module.TARGETS}
    return found[name]
