"""`croissant.json`: the dataset in Croissant, the vocabulary of MLCommons for machine learning datasets.

Croissant wants a SHA-256 of every single file, and none of the files in a set. The manifest keeps a CRC32C of
each shard, so the shards are a set, and `manifest.json` is a file, whose SHA-256 holds theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from beam_jobs.dataset.card.licence import licence_of
from readers.format.manifest import MANIFEST, TOKENIZER, VOCABULARY, Manifest, seal
from readers.format.schema import Feature

# As the specification gives it: programs compare it.
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}

_TEXT = "sc:Text"
_SHARDS = {"fileSet": {"@id": "shards"}}


def croissant(manifest: Manifest) -> bytes:
    """The content of `croissant.json`."""
    licence, content = licence_of(manifest), manifest.to_bytes()
    records = sum(split.records for split in manifest.splits.values())
    dataset = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": "beam_shards",
        "description": f"{records:,} records in TFRecord files, written by beam-shards. {seal(content)}.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "version": "1.0.0",
        **({"license": licence} if licence else {}),
        "distribution": list(_files(manifest, content)),
        "recordSet": [_splits(manifest), _records(manifest)],
    }
    return (json.dumps(dataset, indent=1, ensure_ascii=False) + "\n").encode()


def _files(manifest: Manifest, content: bytes) -> Iterator[dict[str, Any]]:
    yield {
        "@type": "cr:FileObject",
        "@id": MANIFEST,
        "name": MANIFEST,
        "description": "The schema, and the records, bytes and CRC32C of every shard.",
        "contentUrl": MANIFEST,
        "contentSize": f"{len(content)} B",
        "encodingFormat": "application/json",
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    sets = (
        ("shards", "application/x-tfrecord", _patterns(manifest)),
        ("vocabulary", "text/plain", [VOCABULARY] if manifest.vocabulary else []),
        ("tokenizer", "application/json", [TOKENIZER] if manifest.tokenizer else []),
    )
    for name, kind, patterns in sets:
        if patterns:
            yield {
                "@type": "cr:FileSet",
                "@id": name,
                "name": name,
                "encodingFormat": kind,
                "includes": patterns,
            }


def _patterns(manifest: Manifest) -> list[str]:
    """The names of the shards of each split, without those of their indexes."""
    return [
        f"{name}-*-of-{len(split.shards):05d}.tfrecord"
        for name, split in manifest.splits.items()
        if split.shards
    ]


def _splits(manifest: Manifest) -> dict[str, Any]:
    """The splits as records: their names, and the number of records in each."""
    fields = {"name": _TEXT, "records": "sc:Integer"}
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "key": {"@id": "splits/name"},
        "dataType": "cr:Split",
        "field": [
            {"@type": "cr:Field", "@id": f"splits/{name}", "name": name, "dataType": kind}
            for name, kind in fields.items()
        ],
        "data": [
            {"splits/name": name, "splits/records": split.records}
            for name, split in manifest.splits.items()
        ],
    }


def _records(manifest: Manifest) -> dict[str, Any]:
    """The records: which split each is in, and its features."""
    split = {
        "@type": "cr:Field",
        "@id": "records/split",
        "name": "split",
        "dataType": _TEXT,
        "references": {"field": {"@id": "splits/name"}},
        "source": {
            **_SHARDS,
            "extract": {"fileProperty": "filename"},
            "transform": {"regex": r"^(.+)-\d{5}-of-\d{5}\.tfrecord$"},
        },
    }
    features = [
        {
            "@type": "cr:Field",
            "@id": f"records/features/{quote(name, safe='')}",
            "name": name,
            "description": str(feature),
            "dataType": _data_type(feature),
            "source": {**_SHARDS, "extract": {"column": name}},
        }
        for name, feature in manifest.schema.items()
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": "records",
        "name": "records",
        "field": [split, *features],
    }


def _data_type(feature: Feature) -> str:
    """What a value is, or each value of an array."""
    if feature.is_image:
        return "sc:ImageObject"
    if feature.dtype == "string":
        return _TEXT
    if feature.dtype == "bool":
        return "sc:Boolean"
    return "sc:Integer" if "int" in feature.dtype else "sc:Float"
