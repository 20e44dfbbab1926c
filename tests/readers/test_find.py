"""`RecordSource.find` and `beam-shards head --key`: the record with a key, in slices, subsets and several datasets."""

from __future__ import annotations

import json

import pytest

import readers
from readers.__main__ import main
from readers.format.encode.records import Encoder
from readers.format.manifest import DatasetError, Manifest
from readers.format.schema import Schema
from readers.format.splits import Split
from readers.shards import find as find_module
from tests.support.datasets import order_hash, plain_sections, write_numbers, write_shard


def write_keyed(directory, splits, name="key", moved=True, **options):
    """A dataset ordered by its keys, three records per shard, with each record's number in `id`.

    Args:
        splits: The keys of each split.
        name: The feature with the keys.
        moved: Whether the last record of the last shard has moved to the first one.
    """
    directory.mkdir()
    schema = Schema({name: "string", "id": "int64"})
    encoder, found = Encoder(schema), {}
    for split, keys in splits.items():
        ordered = sorted(keys, key=lambda key: order_hash(options.get("seed", 0), key))
        shards = [ordered[at : at + 3] for at in range(0, len(ordered), 3)]
        if moved and len(shards) > 1:
            shards[0].append(shards[-1].pop())
        written = []
        for number, of_shard in enumerate(shards):
            records = [encoder.check({name: key, "id": keys.index(key)}) for key in of_shard]
            hashes = [order_hash(options.get("seed", 0), key) for key in of_shard]
            sections = plain_sections(schema, records, hashes)
            path = directory / f"{split}-{number}.tfrecord"
            written.append(write_shard(path, list(map(encoder.pack, records)), sections=sections))
        found[split] = Split(tuple(written))
    (directory / "manifest.json").write_bytes(Manifest(schema, found, options=options).to_bytes())
    return directory


KEYS = [f"a/{n}.jpg" for n in range(20)]


@pytest.fixture
def dataset(tmp_path):
    splits = {"train": KEYS, "val": ["é", "b"]}
    return write_keyed(tmp_path / "a", splits, seed=5)


def test_every_record_is_found_by_its_key(dataset):
    source = readers.RecordSource(dataset, "train")
    found = [source.find(key) for key in KEYS]
    assert [source[number]["key"].decode() for number in found] == KEYS
    assert sorted(found) == list(range(20))
    assert [source.find(key.encode()) for key in KEYS] == found
    without = readers.RecordSource(dataset, "train", columns=["id"])
    assert [without[without.find(key)]["id"] for key in KEYS] == list(range(20))
    val = readers.RecordSource(dataset, "val")
    assert val[val.find("é")]["key"] == "é".encode()
    for missing in ("a/20.jpg", "é", "", b"\xff"):
        with pytest.raises(KeyError, match="no record of train has the key"):
            source.find(missing)


def numbers_of(source):
    """The number of each key, or None, as `find` gives it and as a scan does."""
    scanned = {}
    for number, record in enumerate(source):
        scanned.setdefault(record["key"].decode("utf-8", "surrogateescape"), number)
    found = {}
    for key in [*KEYS, "é"]:
        try:
            found[key] = source.find(key)
        except KeyError:
            found[key] = None
    return found, {key: scanned.get(key) for key in found}


@pytest.mark.parametrize("split", ["train[4:13]", "val+train[50%:]", "train[-3:]+train[:2]"])
def test_slices_find_their_own_records_only(dataset, split):
    found, scanned = numbers_of(readers.RecordSource(dataset, split))
    assert found == scanned
    assert None in found.values()


def test_subsets_and_several_datasets_give_the_first_record(dataset, tmp_path):
    more = write_keyed(tmp_path / "b", {"train": [*KEYS[5:9], "é"]}, seed=-7)
    subset = readers.Rows(dataset, rows=[17, 3, 4, 12])
    large = readers.Rows(dataset, where="id >= 3")
    last = readers.Rows(dataset, where="id < 6")
    for paths in (
        [more, dataset],
        [dataset, more],
        subset,
        large,
        [large, last],
        [last, subset, more],
    ):
        found, scanned = numbers_of(readers.RecordSource(paths, "train"))
        assert found == scanned


def test_a_key_that_was_not_moved_is_found_in_one_index(dataset, monkeypatch):
    read, real = [], find_module.sections_of

    def noted(indexes, names):
        return real([read.append(index.path) or index for index in indexes], names)

    monkeypatch.setattr(find_module, "sections_of", noted)
    source = readers.RecordSource(dataset, "train")
    counts = []
    for key in KEYS:
        read.clear()
        source.find(key)
        counts.append(len(read))
    assert sorted(counts)[:19] == [1] * 19
    assert counts.count(1) < 20


def test_renamed_keys_are_found(tmp_path):
    named = write_keyed(tmp_path / "a", {"train": KEYS}, "name", job="images", names="key=name")
    source = readers.RecordSource(named)
    assert [source[source.find(key)]["id"] for key in KEYS] == list(range(20))


def test_records_without_keys_cannot_be_found(tmp_path):
    numbers = readers.RecordSource(write_numbers(tmp_path / "n"), "train")
    again = readers.RecordSource(write_keyed(tmp_path / "r", {"train": KEYS}, job="reshard"))
    for source in (numbers, again):
        with pytest.raises(DatasetError, match="its records have no keys, or are ordered by other"):
            source.find("a")


def test_head_shows_the_records_with_some_keys(dataset, capsys):
    assert main(["head", str(dataset), "--key", "é", "--key", "a/3.jpg"]) == 0
    text = capsys.readouterr().out
    assert (
        text.index("val, record ")
        < text.index("'é'")
        < text.index("train, record ")
        < text.index("'a/3.jpg'")
    )
    assert main(["head", str(dataset), "--json", "--split", "train", "--key", "a/3.jpg"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": 3, "key": "a/3.jpg"}
    for more in (["--key", "a/99.jpg"], ["--split", "train", "--key", "é"]):
        assert main(["head", str(dataset), "--key", "a/3.jpg", *more]) == 2
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"error: {dataset}: no record has the key {more[-1]!r}\n")
