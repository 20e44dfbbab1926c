"""Datasets of several generations, made by hand, and what readers get of them."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import google_crc32c
import numpy as np

import beam_jobs
import readers
from beam_jobs.records.statistics import Statistics
from readers.format.decode.records import parse_example
from readers.format.lookup.rows import RowList, pack_rows
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.splits import Split

SCHEMA = Schema(
    {
        "key": ("string", ()),
        "label": ("int64", ()),
        "signal": ("float32", (None,)),
        "pair": ("int16", (3, 2), "tensor"),
    }
)


def record(key):
    random = np.random.default_rng(sum(key.encode()))
    return {
        "key": key,
        "label": int(random.integers(5)),
        "signal": random.standard_normal(random.integers(9)).astype(np.float32),
        "pair": random.integers(-9, 9, (3, 2)).astype(np.int16),
    }


def write(directory, keys, **options):
    """One job with records of some keys."""
    options = {"splits": {"train": 0.7, "val": 0.3}, "key": "key", **options}
    return beam_jobs.write([record(key) for key in sorted(keys)], directory, SCHEMA, **options)


def of_generations(directory, several, gone=(), **options):
    """A dataset with a generation for each set of keys, as `append` makes it, of which some keys are deleted."""
    directory = Path(directory)
    manifests = [write(f"{directory}-{n}", keys, **options) for n, keys in enumerate(several)]
    first = Path(f"{directory}-0")
    first.rename(directory)
    for n, manifest in enumerate(manifests[1:], 1):
        for folder in {shard.path.split("/")[0] for shard in manifest.shards}:
            Path(f"{directory}-{n}", folder).rename(directory / folder)
    for number in range(2, len(several) + 2):
        before = (directory / "manifest.json").read_bytes()
        newest = Manifest.from_bytes(before)
        some = manifests[: min(number, len(several))]
        splits = {
            name: joined(directory, name, some, gone if number > len(several) else ())
            for name in newest.splits
        }
        ancestors = (*newest.ancestors, hashlib.sha256(before).hexdigest())
        changed = dataclasses.replace(
            newest, splits=splits, generation=number, ancestors=ancestors, operation={"name": "x"}
        )
        for path in ("manifest.json", f"generations/{number}.json"):
            (directory / path).write_bytes(changed.to_bytes())
    return directory


def joined(directory, name, manifests, gone):
    shards = [shard for manifest in manifests for shard in manifest.splits[name].shards]
    statistics = Statistics(SCHEMA)
    for split in (manifest.splits[name] for manifest in manifests):
        statistics.add_json(split.statistics, split.records, split.remarks)
    split = Split(tuple(shards), statistics=statistics.to_json() if shards else {})
    keys = [key for shard in shards for key in keys_of(directory / shard.path)]
    rows = np.flatnonzero([key in gone for key in keys])
    if not len(rows):
        return split
    data, path = pack_rows(rows, split.stored), f"99999999/{name}.gone"
    (directory / "99999999").mkdir(exist_ok=True)
    (directory / path).write_bytes(data)
    listed = RowList(path, len(rows), google_crc32c.value(data))
    return dataclasses.replace(split, gone=listed)


def keys_of(path):
    """The keys in a TFRecord file, by a way of its own."""
    data, keys, at = path.read_bytes(), [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        found = parse_example(data[at + 12 : at + 12 + size], {"key"})
        keys.append(bytes(found["key"][1][0]).decode())
        at += size + 16
    return keys


def contents(directory, manifest):
    """The bytes of all shards and indexes by their file names."""
    paths = [shard.path + end for shard in manifest.shards for end in ("", ".index")]
    return {Path(path).name: (Path(directory) / path).read_bytes() for path in paths}


def batches(path):
    """What a reader gets of both splits."""
    return [
        {name: [np.array(value).tolist() for value in values] for name, values in batch.items()}
        for split in Manifest.read(path).splits
        if Manifest.read(path).splits[split].records
        for batch in readers.as_numpy(path, 4, split=split, shuffle=True, seed=3, batching="padded")
    ]


KEYS = [f"k{n}" for n in range(40)]
