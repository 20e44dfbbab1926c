"""`README.md`: the card that people read, with the header of Hugging Face's cards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_jobs.dataset.card.licence import hub_licence, is_url, licence_of
from beam_jobs.dataset.card.markdown import escaped, table
from beam_jobs.dataset.card.tfds import is_serialized, tfds_problem
from readers.format.display import format_bytes
from readers.format.manifest import MANIFEST, Manifest, seal
from readers.format.schema import Schema, format_shape
from readers.format.splits import Split

# Rows of a table: a card of a dataset with 10,000 classes is still read by people.
_MOST_ROWS = 100

_MOST_CHARACTERS_OF_AN_OPTION = 300

_MAGNITUDES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


def readme(manifest: Manifest) -> bytes:
    """The content of `README.md`."""
    sections = (
        _header(manifest),
        [f"<!-- {seal(manifest.to_bytes())} -->"],
        _title(manifest),
        _splits(manifest.splits),
        _features(manifest.schema),
        _classes(manifest),
        _reading(manifest),
        _making(manifest),
        _licence(manifest),
    )
    paragraphs = ("\n".join(lines) for lines in sections if lines)
    return ("\n\n".join(paragraphs) + "\n").encode()


def size_category(records: int) -> str:
    """Hugging Face's name for a number of records: `1K<n<10K`."""
    above = [name for power, name in enumerate(_MAGNITUDES, 3) if records >= 10**power]
    if not above:
        return f"n<{_MAGNITUDES[0]}"
    return f"n>{above[-1]}" if len(above) == len(_MAGNITUDES) else _between(len(above))


def _between(magnitude: int) -> str:
    return f"{_MAGNITUDES[magnitude - 1]}<n<{_MAGNITUDES[magnitude]}"


def _header(manifest: Manifest) -> list[str]:
    """Every scalar is JSON, which YAML includes."""
    stated = {
        **hub_licence(licence_of(manifest)),
        "size_categories": [size_category(_records(manifest))],
        "tags": ["tfrecord"],
        # The viewer reads no TFRecord files, and would take the JSON files here for the data.
        "viewer": False,
    }
    return ["---", *(f"{name}: {json.dumps(value)}" for name, value in stated.items()), "---"]


def _title(manifest: Manifest) -> list[str]:
    job = manifest.options.get("job")
    by = f"the {escaped(job)} job of beam-shards" if isinstance(job, str) else "beam-shards"
    shards = sum(len(split.shards) for split in manifest.splits.values())
    size = format_bytes(sum(split.bytes for split in manifest.splits.values()))
    records = _records(manifest)
    return [
        f"# A dataset of {records:,} record{'s' * (records != 1)}",
        "",
        f"Written by {by}: {shards:,} TFRecord file{'s' * (shards != 1)}, {size}. `{MANIFEST}` holds the "
        "schema, the statistics of every split, and the checksum of every file of records.",
    ]


def _splits(splits: Mapping[str, Split]) -> list[str]:
    header = ("split", "found", "written", "rejected", "duplicates", "files", "size")
    every = list(splits.values())
    total = Split(
        tuple(shard for split in every for shard in split.shards),
        sum(split.rejected for split in every),
        duplicates=sum(split.duplicates for split in every),
    )
    named = [(escaped(name), split) for name, split in splits.items()]
    rows = [_row_of_split(*each) for each in [*named[:_MOST_ROWS], ("all", total)]]
    return [
        "## Splits",
        "",
        *table(header, rows),
        *_more(len(named), "splits"),
        "",
        "Found is written + rejected + duplicates.",
    ]


def _row_of_split(name: str, split: Split) -> tuple[str, ...]:
    found = split.records + split.rejected + split.duplicates
    counts = (found, split.records, split.rejected, split.duplicates, len(split.shards))
    return (name, *(f"{count:,}" for count in counts), format_bytes(split.bytes))


def _features(schema: Schema) -> list[str]:
    rows = [
        (escaped(name), feature.dtype, escaped(format_shape(feature.shape)), feature.encoding)
        for name, feature in schema.items()
    ]
    return [
        "## Features",
        "",
        *table(("feature", "dtype", "shape", "stored as"), rows[:_MOST_ROWS]),
        *_more(len(rows), "features"),
        "",
        "None is a size that varies between records.",
    ]


def _classes(manifest: Manifest) -> list[str]:
    lines = []
    named = {"label": manifest.label_names, **manifest.class_names}
    for feature, names in list(named.items())[:_MOST_ROWS]:
        if names:
            lines += ["", *_table_of_classes(manifest, feature, names)]
    return ["## Classes", *lines] if lines else []


def _table_of_classes(manifest: Manifest, feature: str, names: Sequence[str]) -> Iterator[str]:
    yield f"{len(names):,} of {escaped(feature)}:"
    yield ""
    shown = list(enumerate(names[:_MOST_ROWS]))
    counts = manifest.counts_of(feature)
    if counts:
        rows = [(f"{number}", escaped(name), f"{counts[number]:,}") for number, name in shown]
        yield from table(("id", "name", "records"), rows)
    else:
        yield from table(("id", "name"), [(f"{number}", escaped(name)) for number, name in shown])
    yield from _more(len(names), "classes")


def _reading(manifest: Manifest) -> list[str]:
    split = next((name for name, split in manifest.splits.items() if split.shards), "train")
    return [
        "## How to read it",
        "",
        "With beam-shards, where DIR is this directory:",
        "",
        "```python",
        "import readers",
        "",
        f'batches = readers.as_numpy("DIR", batch_size=32, split="{split}")  # dicts of NumPy arrays',
        f'dataset = readers.load("DIR", batch_size=32, split="{split}")  # a tf.data.Dataset',
        "```",
        "",
        *_reading_with_tfds(manifest, split),
    ]


def _reading_with_tfds(manifest: Manifest, split: str) -> list[str]:
    problem = tfds_problem(manifest)
    if problem:
        return [f"TensorFlow Datasets cannot open it: {problem}."]
    serialized = any(is_serialized(feature) for feature in manifest.schema.values())
    return [
        "With TensorFlow Datasets:",
        "",
        "```python",
        "import tensorflow_datasets as tfds",
        "",
        f'dataset = tfds.builder_from_directory("DIR").as_dataset(split="{split}")',
        "```",
        *(_explanation(manifest.schema) if serialized else []),
    ]


def _explanation(schema: Schema) -> list[str]:
    """How TensorFlow Datasets gives features that it does not decode."""
    names = [name for name, feature in schema.items() if is_serialized(feature)]
    shown = ", ".join(map(escaped, names[:_MOST_ROWS]))
    protos = any(schema[name].encoding in ("tensor", "sequence") for name in names)
    cure = (
        ["`tf.io.parse_tensor` decodes a TensorProto, whose dtype is in the table of features."]
        if protos
        else []
    )
    return ["", f"It gives these features as the bytes that are stored: {shown}.", *cure]


def _making(manifest: Manifest) -> list[str]:
    options = [
        (escaped(str(name)), escaped(_text_of(value), _MOST_CHARACTERS_OF_AN_OPTION))
        for name, value in manifest.options.items()
    ]
    versions = [(escaped(str(n)), escaped(str(found))) for n, found in manifest.versions.items()]
    return [
        "## How it was made",
        "",
        *(table(("option", "value"), options[:_MOST_ROWS]) if options else []),
        *_more(len(options), "options"),
        *([""] if options else []),
        *table(("package", "version"), versions[:_MOST_ROWS]),
    ]


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _licence(manifest: Manifest) -> list[str]:
    licence = licence_of(manifest)
    if not licence:
        return []
    return ["## Licence", "", f"<{licence}>" if is_url(licence) else escaped(licence, len(licence))]


def _more(count: int, things: str) -> list[str]:
    """The line below a table that leaves rows out; none if it does not."""
    left = count - _MOST_ROWS
    return ["", f"And {left:,} more {things}, all in `{MANIFEST}`."] if left > 0 else []


def _records(manifest: Manifest) -> int:
    return sum(split.records for split in manifest.splits.values())
