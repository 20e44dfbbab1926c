"""`croissant.json`: the dataset in Croissant, the vocabulary of MLCommons for machine learning datasets.

Croissant wants a SHA-256 of every single file, and none of the files in a set. The manifest keeps a CRC32C of
each shard, so the shards are a set, and `manifest.json` is a file.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from readers.card.tfds import tfds_folder
from readers.format.manifest import MANIFEST, Manifest, join
from readers.format.schema import Feature

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    **{
        name: f"cr:{name}"
        for name in ("column", "extract", "field", "fileSet", "includes", "recordSet", "source")
    },
}


def croissant(manifest: Manifest, content: bytes, licence: str) -> bytes:
    """The content of `croissant.json`, given the bytes of the manifest, and a licence or ""."""
    records = sum(split.records for split in manifest.splits.values())
    dataset = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": "beam_shards",
        "description": f"{records:,} records in TFRecord files, written by beam-shards.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "version": "1.0.0",
        **({"license": licence} if licence else {}),
        "distribution": _files(manifest, content),
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "records",
                "name": "records",
                "field": [_field(name, feature) for name, feature in manifest.schema.items()],
            }
        ],
    }
    return (json.dumps(dataset, indent=1, ensure_ascii=False) + "\n").encode()


def _files(manifest: Manifest, content: bytes) -> list[dict[str, Any]]:
    described = {
        "@type": "cr:FileObject",
        "@id": MANIFEST,
        "name": MANIFEST,
        "description": "The schema, and the records, bytes and CRC32C of every shard.",
        "contentUrl": MANIFEST,
        "contentSize": f"{len(content)} B",
        "encodingFormat": "application/json",
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    shards = {
        "@type": "cr:FileSet",
        "@id": "shards",
        "name": "shards",
        "encodingFormat": "application/x-tfrecord",
        "includes": [
            join(tfds_folder(manifest), f"{name}-*-of-{len(split.shards):05d}*.tfrecord")
            for name, split in manifest.splits.items()
            if split.shards
        ],
    }
    return [described, shards]


def _field(name: str, feature: Feature) -> dict[str, Any]:
    whole = "sc:Integer" if "int" in feature.dtype else "sc:Float"
    kind = {"string": "sc:Text", "bool": "sc:Boolean"}.get(feature.dtype, whole)
    return {
        "@type": "cr:Field",
        "@id": f"records/{quote(name, safe='')}",
        "name": name,
        "description": str(feature),
        "dataType": "sc:ImageObject" if feature.is_image else kind,
        "source": {"fileSet": {"@id": "shards"}, "extract": {"column": name}},
    }
