"""`python -m readers card`: files that describe a dataset, which the programs that they are for read."""

import ast
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import readers
from readers.__main__ import main
from readers.card.readme import escaped, readme
from readers.card.tfds import tfds_files, tfds_problem
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.splits import Shard, Split, shard_name
from tests.support.datasets import files_of, manifest_bytes, write_dataset
from tests.support.images import encoded

HOSTILE = "cat|dog <script>x</script> `a` [b](c) https://a.b &lt;\n\n## Licence\n\nMIT --> ~~*_$x^2$\u202e"

CARD = """\
---
license: "cc-by-4.0"
tags: ["tfrecord"]
viewer: false
---

# A dataset of 5 records

Written by the images job of beam-shards. `manifest.json` holds the checksums and the statistics of every split.

## Splits

| split | records | shards | records/shard | bytes | rejected |
| --- | --- | --- | --- | --- | --- |
| train | 5 | 2 | 2 to 3 | 500 B | 3 |
| val | 0 | 0 | 0 | 0 B | 0 |

## Features

| feature | dtype | shape | encoding |
| --- | --- | --- | --- |
| image | uint8 | \\[None, None, 3\\] | jpeg |
| label | int64 | \\[\\] | list |

None is a size that varies between records.

## Classes of label

| id | name |
| --- | --- |
| 0 | cat |
| 1 | dog\\|wolf |

## How to read it

With beam-shards, where DIR is this directory:

```python
import readers

batches = readers.as_numpy("DIR", batch_size=32, split="train")  # dicts of NumPy arrays
dataset = readers.load("DIR", batch_size=32, split="train")  # a tf.data.Dataset
```

With TensorFlow Datasets (`tf.io.parse_tensor` decodes features that are stored as tensor or sequence):

```python
import tensorflow_datasets as tfds

dataset = tfds.builder_from_directory("DIR/4f2a9c01").as_dataset(split="train")
```

## How it was made

| option | value |
| --- | --- |
| input | \\["photos/\\*.jpg"\\] |
| job | images |

| package | version |
| --- | --- |
| python | 3.11.7 |

## Licence

CC-BY-4.0
"""


def shards(split, *records):
    paths = (f"4f2a9c01/{shard_name(split, n, len(records))}" for n in range(len(records)))
    return tuple(
        Shard(path, n, 100 * n, 0, 0, 0, 0) for path, n in zip(paths, records, strict=True)
    )


def manifest(**changes) -> Manifest:
    schema = Schema({"image": ("uint8", (None, None, 3), "jpeg"), "label": ("int64",)})
    given = {
        "schema": schema,
        "splits": {"train": Split(shards("train", 3, 2), 3), "val": Split(())},
        "label_names": ("cat", "dog|wolf"),
        "options": {"input": ["photos/*.jpg"], "job": "images"},
        "versions": {"python": "3.11.7"},
    }
    return Manifest(**given | changes)


def test_the_whole_readme_is_known():
    assert readme(manifest(), "CC-BY-4.0").decode() == CARD


@pytest.mark.parametrize(
    ("licence", "stated"),
    [("", None), ("MIT", "mit"), ("https://example.org/a", "other"), ("ask us: --- news", "other")],
)
def test_a_licence_is_an_identifier_or_any_text(licence, stated):
    text = readme(manifest(), licence).decode()
    assert yaml.safe_load(text.split("---\n")[1]).get("license") == stated
    assert ("## Licence" in text) == bool(licence)


def test_everything_of_the_data_is_bounded_and_stays_in_its_cell():
    name = HOSTILE.replace("\n", " ")
    text = readme(
        manifest(
            schema=Schema({f"{n:04d} {name}": ("float32",) for n in range(600)}),
            splits={f"fold{n}": Split(shards(f"fold{n}", 1)) for n in range(256)},
            label_names=(HOSTILE,) * 1_000,
            class_names={f"{n} {name}": (HOSTILE,) * 1000 for n in range(2)},
            options={f"o{n} {HOSTILE}": "v" * 10_000 for n in range(100)} | {"job": HOSTILE},
            versions={"python": HOSTILE},
        ),
        HOSTILE,
    ).decode()
    assert len(text) < 200_000
    assert "And 900 more, all in `manifest.json`." in text
    assert "<script>" not in text
    assert len(re.findall("^## Licence", text, re.MULTILINE)) == 1
    assert not re.search("^MIT", text, re.MULTILINE)
    # Rows of one table have as many cells as its header.
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}) == 1


@given(st.text(max_size=60))
@example(HOSTILE)
@example("www.example.org me@example.org ![image](x) ---")
@settings(max_examples=100)
def test_any_text_is_one_cell_of_plain_text(text):
    table = f"| id | name |\n| --- | --- |\n| 0 | {escaped(text)} |\n| 1 | end |"
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(table)
    cells = [token for token in tokens if token.type == "inline"]
    assert {child.type for cell in cells for child in cell.children} <= {"text"}
    shown = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    found = ["".join(child.content for child in cell.children) for cell in cells]
    assert found == ["id", "name", "0", shown.strip(), "1", "end"]
    assert not re.search(r"(?<!\\)[:@]|(?i:www)(?<!\\)\.", escaped(text))


def of_tfds(**changes):
    return json.loads(tfds_files(manifest(**changes), "CC-BY-4.0")["4f2a9c01/features.json"])


def tensor(shape, dtype, encoding="none"):
    sizes = {"dimensions": list(map(str, shape))} if shape else {}
    return "tensor_feature.Tensor", {"shape": sizes, "dtype": dtype, "encoding": encoding}


def image(dtype, **more):
    shape = {"dimensions": ["-1", "8", "3"]}
    return "image_feature.Image", {"shape": shape, "dtype": dtype, **more}


@pytest.mark.parametrize(
    ("feature", "declared"),
    [
        (("int64",), tensor((), "int64")),
        (("uint8", (None, 3), "list"), tensor((-1, 3), "uint8")),
        # Two sizes are in `<name>/shape` alone.
        (("int64", (None, None), "list"), tensor((-1,), "int64")),
        (("float64", (None, 3), "raw"), tensor((-1, 3), "float64", "bytes")),
        (("uint32", (3,), "raw"), tensor((), "string")),
        (("int16", (None, 3), "zlib"), tensor((-1, 3), "int16", "zlib")),
        (("uint32", (3,), "zlib"), tensor((), "string")),
        (("string", (), "zlib"), tensor((), "string")),
        (("float32", (3,), "zlib_shuffled"), tensor((), "string")),
        # TensorProtos.
        (("float32", (None, 6)), tensor((), "string")),
        (("int16", (None, None), "sequence"), tensor((-1,), "string")),
        (("string",), ("text_feature.Text", {})),
        (("uint8", (None, 8, 3), "jpeg"), image("uint8", encodingFormat="jpeg")),
        (("uint8", (None, 8, 3), "source"), image("uint8")),
    ],
)
def test_a_feature_is_declared_as_it_is_stored(feature, declared):
    features = of_tfds(schema=Schema({"x": feature}))["featuresDict"]["features"]
    kind = features["x"].pop("pythonClassName").removeprefix("tensorflow_datasets.core.features.")
    (content,) = features["x"].values()
    assert (kind, content) == declared


(SHARD,) = shards("train", 3)
SECOND = "4f2a9c01/train-00000-of-00001.0be91f6d.tfrecord"
ELSEWHERE = replace(SHARD, path="77b0e1d2/val-00000-of-00001.tfrecord")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": Schema({"x": ("int64", (None,), "list steps")})}, "SequenceExamples"),
        ({"schema": Schema({"x": ("int64", (None, 0), "list")})}, "another size of 0"),
        ({"splits": {"a.b": Split(shards("a.b", 3))}}, "the name of a split"),
        ({"splits": {"a.b": Split(()), "train": Split(shards("train", 3))}}, ""),
        ({"schema": Schema({"x": ("int64", (None, 0))})}, ""),
        ({"splits": {"train": Split(())}}, "it has no records"),
        (
            {"splits": {"train": Split((replace(SHARD, path=SECOND),))}},
            f"{SECOND} is named differently",
        ),
        ({"splits": {"train": Split((SHARD,)), "val": Split((ELSEWHERE,))}}, "named differently"),
    ],
)
def test_what_tensorflow_datasets_cannot_read_has_no_files(changes, reason):
    found = tfds_problem(manifest(**changes))
    assert reason in found
    assert bool(reason) == bool(found)
    assert len(tfds_files(manifest(**changes), "")) == (0 if reason else 2)
    text = readme(manifest(**changes), "").decode()
    assert ("builder_from_directory" in text) != bool(reason)


def test_a_path_of_a_shard_is_text_in_the_readme():
    def of_folder(folder, name):
        shard = replace(SHARD, path=f"{folder}/{name}")
        return readme(manifest(splits={"train": Split((shard,))}), "").decode()

    (line,) = re.findall(
        "^dataset = tfds.*", of_folder('a")+exit("', shard_name("train", 0, 1)), re.M
    )
    assert ast.unparse(ast.parse(line)) == (
        "dataset = tfds.builder_from_directory('DIR/a\")+exit(\"').as_dataset(split='train')"
    )
    assert "<b>" not in of_folder("<b>x", "other")


SCHEMA = Schema(
    {
        "key": ("string",),
        "label": ("int64",),
        "flag": ("bool",),
        "half": ("float16", (2,), "list"),
        "boxes": ("float32", (None, 4), "list"),
        "grid": ("int32", (None, None), "list"),
        "words": ("string", (None,), "list"),
        "counts": ("uint64", (None, 2), "raw"),
        "wide": ("uint32", (2,), "raw"),
        "zipped": ("uint64", (None, 2), "zlib"),
        "shuffled": ("int16", (3,), "zlib_shuffled"),
        "story": ("string", (), "zlib"),
        "signal": ("float32", (None, 2)),
        "events": ("int16", (None, None), "sequence"),
        "deep": ("uint16", (None, None, 1), "png"),
        "image/encoded": ("uint8", (None, None, 3), "source"),
        "a b|<c>": ("int64",),
    }
)


def record(number):
    rng = np.random.default_rng(number)
    sizes = rng.integers(0, 4, 5).tolist()
    y, x = np.mgrid[: 16 + number % 3, :24]
    photo = np.stack([8 * y, 6 * x, 100 + y + number], axis=2).astype(np.uint8)
    return {
        "key": f"k{number}",
        "label": number % 2,
        "flag": bool(number % 2),
        "half": rng.normal(size=2).astype(np.float16),
        "boxes": rng.normal(size=(sizes[1], 4)).astype(np.float32),
        "grid": rng.integers(-9, 9, (2, 1 + sizes[2])).astype(np.int32),
        "words": [f"wörter {n}" for n in range(sizes[3])],
        "counts": rng.integers(1 << 62, 1 << 64, (sizes[4], 2), np.uint64),
        "wide": rng.integers(0, 1 << 32, 2, np.uint32),
        "zipped": rng.integers(0, 1 << 64, (sizes[4], 2), np.uint64),
        "shuffled": rng.integers(-9, 9, 3).astype(np.int16),
        "story": "Größe " * number,
        "signal": rng.normal(size=(sizes[0], 2)).astype(np.float32),
        "events": [np.arange(n, dtype=np.int16) for n in range(1 + number % 3)],
        "deep": encoded(photo[..., 0].astype(np.uint16) * 257, "PNG"),
        "image/encoded": encoded(photo, "PNG"),
        "a b|<c>": number,
    }


@pytest.fixture
def dataset(tmp_path):
    """A dataset with a feature of each encoding, and with names that other programs must bear."""
    records = [record(number) for number in range(8)]
    splits = {"train": [records[:3], records[3:6]], "val_2": [records[6:]]}
    folder = write_dataset(tmp_path / "d/4f2a9c01", SCHEMA, splits, label_names=(HOSTILE, "dog"))
    described = (folder / "manifest.json").read_text()
    (folder / "manifest.json").unlink()
    content = manifest_bytes(json.loads(described.replace('"path": "', '"path": "4f2a9c01/')))
    for path in (tmp_path / "d/manifest.json", tmp_path / "d/generations/1.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "d"


NAMES = [
    "README.md",
    "4f2a9c01/dataset_info.json",
    "4f2a9c01/features.json",
]


def test_the_command_writes_the_files_and_replaces_none(dataset, tmp_path, capsys):
    before = set(files_of(dataset))
    assert main(["card", str(dataset), "--output", str(tmp_path / "new" / "o"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [f"{tmp_path}/new/o/{n}" for n in NAMES]
    assert set(files_of(dataset)) == before
    assert main(["card", str(dataset), "--license", " MIT\n or X "]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{dataset}/{name}" for name in NAMES]
    assert "\nMIT or X\n" in (dataset / "README.md").read_text()
    assert readers.verify(dataset).ok
    for name in NAMES[1:]:
        (dataset / name).unlink()
    assert main(["card", str(dataset)]) == 2
    assert (
        "README.md exists already: move it away, or choose another --output"
        in capsys.readouterr().err
    )
    assert set(files_of(dataset)) == {*before, "README.md"}


def test_a_store_needs_an_output_and_a_folder_a_manifest(tmp_path, capsys):
    assert main(["card", "s3://bucket/d"]) == 2
    assert "the card is written to a local folder; add --output FOLDER" in capsys.readouterr().err
    assert main(["card", str(tmp_path)]) == 2
    assert "not a finished dataset" in capsys.readouterr().err


def same(found, expected):
    """Whether a value of TensorFlow Datasets is that of the readers."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.kind in "OS":  # Bytes, or a list of them.
        return found.tolist() == expected.tolist()
    alike = (found.shape, found.dtype) == (expected.shape, expected.dtype)
    return alike and found.tobytes() == expected.tobytes()


@pytest.mark.frameworks
def test_tensorflow_datasets_reads_the_records_that_the_readers_read(dataset):
    import tensorflow as tf
    import tensorflow_datasets as tfds

    assert main(["card", str(dataset), "--license", "MIT"]) == 0
    builder = tfds.builder_from_directory(dataset / "4f2a9c01")
    assert builder.info.features["label"].num_classes == 2
    assert str(builder.info.redistribution_info.license) == "MIT"
    for split, count in (("train", 6), ("train[50%:]", 3), ("val_2", 2)):
        source = readers.RecordSource(dataset, split=split.partition("[")[0])
        expected = {each["key"]: each for each in (source[n] for n in range(len(source)))}
        found = list(tfds.as_numpy(builder.as_dataset(split=split)))
        assert len(found) == count
        for one in found:
            wanted = expected[one["key"]]
            assert one.keys() == wanted.keys()
            # As README.md says.
            one["signal"] = tf.io.parse_tensor(one["signal"], tf.float32).numpy()
            one["wide"] = np.frombuffer(one["wide"], np.uint32)
            one["story"] = tf.io.decode_compressed(one["story"], "ZLIB").numpy()
            planes = tf.io.decode_raw(tf.io.decode_compressed(one["shuffled"], "ZLIB"), tf.uint8)
            pairs = tf.transpose(tf.reshape(planes, [2, 3]))
            one["shuffled"] = tf.bitcast(pairs, tf.int16).numpy()
            events = [tf.io.parse_tensor(each, tf.int16).numpy() for each in one.pop("events")]
            assert all(map(same, events, wanted.pop("events")))
            # The sizes of two unknown dimensions are in `grid/shape`.
            one["grid"] = one["grid"].reshape(wanted["grid"].shape)
            assert [name for name in wanted if not same(one[name], wanted[name])] == []
