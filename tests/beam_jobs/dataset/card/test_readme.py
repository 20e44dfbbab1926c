"""The README of a dataset, which is a pure function of its manifest."""

import dataclasses
import re

import pytest
import yaml

from beam_jobs.dataset.card.licence import licence_of
from beam_jobs.dataset.card.readme import readme, size_category
from readers.format.manifest import Manifest, seal
from readers.format.schema import Schema
from readers.format.splits import Shard, Split

SCHEMA = Schema(
    {
        "image": ("uint8", (None, None, 3), "jpeg"),
        "signal": ("float32", (None, 6)),
        "label": ("int64",),
    }
)


def shards(split, *records):
    names = (f"{split}-{n:05d}-of-{len(records):05d}.tfrecord" for n in range(len(records)))
    return tuple(
        Shard(name, count, 100 * count, 0) for name, count in zip(names, records, strict=True)
    )


MANIFEST = Manifest(
    SCHEMA,
    {
        "train": Split(
            shards("train", 600, 599), 3, {"label": {"values": {"0": 700, "1": 499}}}, 20
        ),
        "val": Split(()),
    },
    label_names=("cat", "dog|wolf"),
    options={"job": "images", "input": ["photos/*.jpg"], "license": "CC-BY-4.0", "seed": 0},
    versions={"python": "3.11.7"},
)

CARD = """\
---
license: "cc-by-4.0"
size_categories: ["1K<n<10K"]
tags: ["tfrecord"]
viewer: false
---

<!-- SEAL -->

# A dataset of 1,199 records

Written by the images job of beam-shards: 2 TFRecord files, 117.1 KiB. `manifest.json` holds the schema, \
the statistics of every split, and the checksum of every file of records.

## Splits

| split | found | written | rejected | duplicates | files | size |
| --- | --- | --- | --- | --- | --- | --- |
| train | 1,222 | 1,199 | 3 | 20 | 2 | 117.1 KiB |
| val | 0 | 0 | 0 | 0 | 0 | 0 B |
| all | 1,222 | 1,199 | 3 | 20 | 2 | 117.1 KiB |

Found is written + rejected + duplicates.

## Features

| feature | dtype | shape | stored as |
| --- | --- | --- | --- |
| image | uint8 | \\[None, None, 3\\] | jpeg |
| label | int64 | \\[\\] | list |
| signal | float32 | \\[None, 6\\] | tensor |

None is a size that varies between records.

## Classes

2 of label:

| id | name | records |
| --- | --- | --- |
| 0 | cat | 700 |
| 1 | dog\\|wolf | 499 |

## How to read it

With beam-shards, where DIR is this directory:

```python
import readers

batches = readers.as_numpy("DIR", batch_size=32, split="train")  # dicts of NumPy arrays
dataset = readers.load("DIR", batch_size=32, split="train")  # a tf.data.Dataset
```

With TensorFlow Datasets:

```python
import tensorflow_datasets as tfds

dataset = tfds.builder_from_directory("DIR").as_dataset(split="train")
```

It gives these features as the bytes that are stored: signal.
`tf.io.parse_tensor` decodes a TensorProto, whose dtype is in the table of features.

## How it was made

| option | value |
| --- | --- |
| job | images |
| input | \\["photos/\\*.jpg"\\] |
| license | CC-BY-4.0 |
| seed | 0 |

| package | version |
| --- | --- |
| python | 3.11.7 |

## Licence

CC-BY-4.0
"""


def card(**changes):
    return readme(dataclasses.replace(MANIFEST, **changes)).decode()


def header(text):
    return yaml.safe_load(text.split("---\n")[1])


def test_the_whole_card_is_known():
    assert card() == CARD.replace("SEAL", seal(MANIFEST.to_bytes()))


@pytest.mark.parametrize(
    ("licence", "stated", "section"),
    [
        ("", {}, ""),
        ("MIT", {"license": "mit"}, "MIT"),
        (
            "https://example.org/terms?a=1",
            {"license": "other", "license_link": "https://example.org/terms?a=1"},
            "<https://example.org/terms?a=1>",
        ),
        ("https://x.org/> <b>", {"license": "other"}, r"https\://x.org/\> \<b\>"),
        ("ask us:\n---\nnews", {"license": "other"}, r"ask us\: --- news"),
    ],
)
def test_a_licence_is_an_identifier_a_url_or_any_text(licence, stated, section):
    text = card(options={"license": licence})
    found = header(text)
    assert {name: value for name, value in found.items() if "license" in name} == stated
    assert text.partition("## Licence\n\n")[2].strip() == section
    assert set(found) == {"size_categories", "tags", "viewer", *stated}


def test_a_licence_that_is_no_text_is_none():
    options = {"license": {"name": "MIT"}}
    assert licence_of(dataclasses.replace(MANIFEST, options=options)) == ""
    assert licence_of(dataclasses.replace(MANIFEST, options={"license": "x" * 5000})) == "x" * 1000


@pytest.mark.parametrize(
    ("records", "category"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (999_999, "100K<n<1M")]
    + [(10**6, "1M<n<10M"), (10**11, "100B<n<1T"), (10**12, "n>1T"), (10**15, "n>1T")],
)
def test_the_size_category_is_hugging_faces(records, category):
    assert size_category(records) == category


def test_ten_thousand_classes_are_counted_and_a_hundred_named():
    names = tuple(f"class {n} " + "long " * 50 for n in range(10_000))
    text = card(label_names=names)
    assert "10,000 of label:" in text
    assert "| 99 | class 99 " in text
    assert "| 100 | class 100 " not in text
    assert "And 9,900 more classes, all in `manifest.json`." in text
    assert len(text) < 20_000


def test_everything_of_the_data_is_bounded():
    wide = Schema({f"{n:04d} {'f' * 240}": ("float32",) for n in range(3000)})
    text = card(
        schema=wide,
        splits={f"fold{n}": Split(()) for n in range(1000)},
        label_names=(),
        class_names={f"{n:04d} {'f' * 240}": ("a",) * 1000 for n in range(2)},
        options={f"o{n}": "v" * 100_000 for n in range(1000)} | {"list": ["x"] * 100_000},
        versions={f"p{n}": "1" * 1000 for n in range(1000)},
    )
    assert len(text) < 120_000
    for more in ("2,900 more features", "900 more splits", "901 more options", "900 more classes"):
        assert f"And {more}, all in" in text


def test_hostile_names_stay_in_their_cells():
    hostile = "<script>x</script>|`\n\n## Licence\n\nMIT --> [a](b)"
    schema = Schema({hostile.replace("\n", " "): ("int64",), "label": ("int64",)})
    text = card(
        schema=schema,
        label_names=(hostile,) * 3,
        class_names={hostile.replace("\n", " "): (hostile,)},
        options={hostile: hostile, "job": hostile},
        versions={"python": hostile},
    )
    assert "<script>" not in text
    assert not re.search(r"^(## Licence|MIT)", text, re.MULTILINE)
    assert text.count("-->") == 1
    for line in text.splitlines():
        if line.startswith("|"):
            assert re.search(r"(?<!\\)\|$", line), line
    # Rows of one table have as many cells as its header.
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}) == 1


def test_a_dataset_that_tensorflow_datasets_cannot_open_says_why():
    text = card(schema=Schema({"x": ("float32", (None,), "list steps")}))
    assert "TensorFlow Datasets cannot open it: it reads no SequenceExamples." in text
    assert "builder_from_directory" not in text


def test_a_dataset_of_another_program_names_no_job():
    text = card(options={}, versions={})
    assert "\nWritten by beam-shards: 2 TFRecord files" in text
    assert "## Licence" not in text
