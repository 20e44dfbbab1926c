"""Manifests, as readers take them from a dataset's folder."""

from __future__ import annotations

import json

from readers.format.manifest import File, Manifest
from readers.format.schema import Schema
from readers.format.splits import Shard, Split
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import json_values
from tests.campaigns.fuzz.target import Target


def _examine(data: bytes) -> None:
    try:
        manifest = Manifest.from_json(json.loads(data))
    except (ValueError, RecursionError):  # What `Manifest.read` makes a DatasetError of.
        return
    # What readers ask of a manifest that they have taken.
    str(manifest)
    facts = manifest.sample_rate, manifest.duplicates, manifest.rejected, manifest.num_classes
    assert all(fact is None or fact >= 0 for fact in facts), facts
    _ = manifest.label_range, manifest.remarks
    for name, split in manifest.splits.items():
        assert manifest.split(name) is split
        assert split.records == sum(shard.records for shard in split.shards)
    parts = {part for path in manifest.paths for part in path.split("/")}
    assert not parts & {"", ".", ".."}, parts
    for feature in (*manifest.schema, "tokens", "label"):
        manifest.counts_of(feature)
    try:
        written = manifest.to_bytes()
    except ValueError:  # NaN is no JSON; a job never reads a manifest to write it again.
        return
    assert Manifest.from_json(json.loads(written)) == manifest, "another manifest after writing"


def _seeds() -> list[bytes]:
    schema = Schema(
        {
            "label": ("int64", ()),
            "signal": ("float32", (None, 2)),
            "words": ("string", (None,), "list"),
            "photo": ("uint8", (None, None, 3), "png"),
            "events": ("int32", (None, None, 2), "sequence"),
            "steps": ("float32", (None, 2), "list steps"),
        }
    )
    statistics = {
        "label": {"count": 5, "min": 0, "max": 1, "mean": 0.4, "std": 0.5, "values": {"0": 3, "1": 2}},
        "signal": {"count": 9, "min": -1.5, "max": 2.0, "mean": 0.0, "std": 1.0, "nan": 1,
                   "lengths": {"0": {"min": 1, "max": 3, "mean": 2.0}},
                   "channels": {"mean": [0.1, None], "std": [1.0, None]}},
    }  # fmt: skip
    shard = Shard("12ab34cd/train-00000-of-00001.tfrecord", 5, 400, 0x12345678, 300, 0x9ABCDEF0, 7)
    splits = {"train": Split((shard,), statistics=statistics, rejected=1), "val": Split(())}
    full = Manifest(
        schema,
        splits,
        ("cat", "dog"),
        options={"job": "sensors", "rate": "50Hz", "sample_rate": 50.0},
        versions={"python": "3.11"},
        class_names={"box_labels": ("a", "b")},
        vocabulary=9,
        files={"vocabulary.txt": File("12ab34cd/vocabulary.txt", 0x12345678)},
        rejects=("12ab34cd/rejects/train-00000-of-00001.jsonl",),
        generation=2,
        ancestors=("00ff" * 16,),
    )
    return [
        full.to_bytes(),
        Manifest(Schema({"x": ("int64", ())}), {"train": Split(())}).to_bytes(),
    ]


TARGETS = (
    Target("manifest", _seeds, _examine, json_values.mutate, max_bytes=4096,
           limits=Limits(memory=32 << 20)),
)  # fmt: skip
