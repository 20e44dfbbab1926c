"""Every dataset and file of the corpus is read today as it was meant when it was written."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import readers
from readers.__main__ import main
from readers.format.manifest import FORMAT_VERSION, MANIFEST, Manifest
from tests.corpus.makers.datasets import CORPUS, MAKERS, OURS, pixels, write
from tests.corpus.makers.values import RECORDS
from tests.support.datasets import files_of, manifest_bytes

DATASETS = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("v*/*"))
OTHERS = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("others/*/*"))
PACKED = [name for name in OTHERS if name.endswith((".gz", ".zlib", ".deflate"))]
FILES = [name for name in OTHERS if name not in PACKED and not name.endswith(".idx")]

WORDS = ["red", "fox", "jumps", "over", "été", "日本", "red fox"]
TEXTS = [f"{WORDS[n % 7]} {WORDS[n * 3 % 5]}" for n in range(7)]
# The words by id of a vocabulary, learned from three lines of train, and of a tokenizer.
IDS = {
    "text_words": ["", "", "fox", "日本", "red", "over", "jumps"],
    "text_tokenizer": ["", "", "fox", "jumps", "over", "red", "été", "日本"],
}
SCHEMA = readers.Schema(
    {
        "id": ("int64", ()),
        "name": ("string", ()),
        "x": ("float32", (2,), "list"),
        "many": ("int64", (None,), "list"),
    }
)


def _images(name: str) -> dict:
    sizes = [(2, 3) if name == "images_tensor" else (2 + n, 2) for n in range(7)]
    return {
        f"{('cat', 'dog')[n % 2]}/{n}.png": {
            "image": np.array(pixels(n, *size), np.uint8),
            "label": n % 2,
        }
        for n, size in enumerate(sizes)
    }


def _texts(name: str) -> dict:
    if name == "text_raw":
        return {f"a.txt#{n + 1}": {"text": f"{WORDS[n]} {n}"} for n in range(7)}
    ids = IDS[name]
    return {
        f"a.jsonl#{n + 1}": {
            "text": text,
            "label": n % 2,
            "tokens": [ids.index(word) if word in ids else 1 for word in text.split()],
        }
        for n, text in enumerate(TEXTS)
    }


def _signals(name: str) -> dict:
    """What the recordings hold: steps of 1 from 100 times their number on."""
    lengths = {
        "sensors_fixed": (3,) * 7,
        "sensors_sequence": (2, 4, 6, 4, 2, 4, 2),
    }.get(name, (1, 4, 2, 5, 3, 2, 4))
    found = {}
    for n, length in enumerate(lengths):
        values = np.arange(100 * n, 100 * n + 2 * length).reshape(length, 2)
        if name == "sensors_variable":
            values = values.astype(np.float32)
        key, feature = f"{('rest', 'walk')[n % 2]}/{n}.npy", "signal"
        if name == "sensors_fixed":
            key, feature = f"{key}#1", "wave"
        record = {feature: values, "label": n % 2}
        if name == "sensors_sequence":
            record["signal"] = list(values.reshape(-1, 2, 2))
        if name == "sensors_list":
            del record["label"]
        found[key] = record
    return found


def _steps(_: str) -> dict:
    return {
        n: {"audio": np.array([[n + s / 4, -s / 4] for s in range(1 + n % 3)]), "label": n}
        for n in range(8)
    }


EXPECTED = {"images": _images, "text": _texts, "sensors": _signals, "reshard": _steps}


def plain(value: object) -> object:
    """A value as lists of Python's numbers and bytes."""
    if hasattr(value, "to_list"):
        return value.to_list()
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return value.tolist()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    return value.encode() if isinstance(value, str) else value


def rows(batches: object) -> list[dict]:
    """The records of batches, as plain values."""
    found = []
    for batch in batches:
        columns = {name: plain(values) for name, values in batch.items()}
        found += [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    return found


def ways(
    path: str, split: str | None, schema: readers.Schema | None = None, loads: bool = False
) -> dict:
    """The records that each reader finds; that of TensorFlow, which takes longest, only if it `loads`."""
    how = {"split": split, "schema": schema, "batch_size": 3, "batching": "ragged"}
    found = {"as_numpy": rows(readers.as_numpy(path, **how))}
    if loads:
        found["load"] = rows(readers.load(path, **how))
    source = readers.RecordSource(path, split, schema=schema)
    found["source"] = [{n: plain(v) for n, v in record.items()} for record in source]
    return found


def identity(record: dict) -> object:
    return record.get("key", record.get("label"))


@pytest.mark.parametrize("name", DATASETS)
def test_every_reader_finds_the_values_of_a_dataset(name):
    path = str(CORPUS / name)
    known = EXPECTED[name.split("/")[1].split("_")[0]](name.split("/")[1])
    expected = {}
    for key, record in known.items():
        expected[plain(key)] = {feature: plain(value) for feature, value in record.items()}
        if isinstance(key, str):
            expected[plain(key)]["key"] = plain(key)
    found: dict[str, dict] = {}
    # TensorFlow reads one split of each second dataset.
    loads = DATASETS.index(name) % 2 == 0
    for split in Manifest.read(path).splits:
        for way, records in ways(path, split, loads=loads and split == "train").items():
            here = found.setdefault(way, {})
            assert not here.keys() & {identity(record) for record in records}
            here |= {identity(record): record for record in records}
    assert set(found) == {"as_numpy", "source", *(["load"] if loads else [])}
    for way, records in found.items():
        assert records == {key: expected[key] for key in records or [None]}, way
        assert way == "load" or len(records) == len(expected)
    assert readers.verify(path).problems == ()


@pytest.mark.slow(base=["text_words", "sensors_sequence"])
@pytest.mark.parametrize("name", MAKERS)
def test_this_version_writes_the_bytes_that_the_corpus_holds(name, tmp_path):
    assert files_of(write(name, tmp_path)) == files_of(OURS / name)


@pytest.mark.parametrize("name", FILES)
def test_every_reader_finds_the_values_in_a_file_of_another_writer(name):
    expected = [
        {key: plain(values[0] if key in ("id", "name") else values) for key, values in r.items()}
        for r in RECORDS
    ]
    if "spark" in name:  # The first of two partitions has two of the five records.
        expected = expected[:2] if name.endswith("0") else expected[2:]
    loads = FILES.index(name) % 2 == 1
    for way, records in ways(str(CORPUS / name), None, SCHEMA, loads).items():
        if "beam" in name:  # A PCollection has no order.
            records.sort(key=lambda record: record["id"])
        assert records == expected, way


def test_compressed_files_are_refused_with_what_to_do():
    assert len(PACKED) == 6
    for name in PACKED:
        with pytest.raises(
            ValueError, match=r"compressed with (GZIP|ZLIB), expected no compression; "
        ):
            readers.as_numpy(str(CORPUS / name), schema=SCHEMA, batch_size=1, batching="ragged")


def test_a_text_index_beside_a_file_changes_nothing(tmp_path):
    for file in (CORPUS / "others/tfrecord_package").iterdir():
        shutil.copy(file, tmp_path)
    for path in (tmp_path, tmp_path / "a.tfrecord"):
        assert len(readers.RecordSource(path, schema=SCHEMA)) == 5
        (tmp_path / "a.tfrecord.idx").write_text("0 17\n")


@pytest.fixture
def dataset(tmp_path):
    """A copy of a dataset, and a function that changes its manifest."""
    shutil.copytree(OURS / "sensors_variable", tmp_path / "d")
    path = tmp_path / "d" / MANIFEST

    def change(edit):
        manifest = json.loads(path.read_text())
        edit(manifest)
        path.write_bytes(manifest_bytes(manifest))

    return tmp_path / "d", change


def test_a_newer_version_is_refused_by_every_way_of_reading_with_what_to_do(dataset, capsys):
    path, change = dataset
    newer = FORMAT_VERSION + 1
    change(lambda manifest: manifest.update(format_version=newer))
    message = (
        f"{path}/{MANIFEST}: format version {newer}; this package reads version {FORMAT_VERSION}: "
        "a later release of beam-shards wrote the dataset; upgrade beam-shards, or, in "
        "Python, read the shards as TFRecord files with schema="
    )
    for read in (
        Manifest.read,
        readers.verify,
        readers.RecordSource,
        lambda path: readers.as_numpy(path, batch_size=1),
        lambda path: readers.load(path, batch_size=1),
    ):
        with pytest.raises(readers.DatasetError) as caught:
            read(str(path))
        assert str(caught.value) == message
    for verb in ("info", "head", "verify"):
        assert main([verb, str(path)]) == 2
        assert message in capsys.readouterr().err


def test_fields_that_a_later_release_adds_within_the_version_are_skipped(dataset):
    path, change = dataset
    intact = Manifest.read(path)

    def edit(manifest):
        manifest["added"] = {"anything": [1]}
        manifest["files"] = {"added.bin": {"path": "a/b", "crc32c": "00000000", "added": 1}}
        train = manifest["splits"]["train"]
        train["added"] = train["shards"][0]["added"] = None
        manifest["schema"]["label"]["added"] = True

    change(edit)
    assert Manifest.read(path).schema == intact.schema
    assert len(readers.RecordSource(path, "train")) == 5
