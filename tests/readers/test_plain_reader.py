"""The reader in docs/internals/format.md, which is plain Python, reads what `readers` reads."""

import ast
import functools
import hashlib
import re
import shutil
import struct
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import readers
from readers.format.decode.records import Decoder
from readers.format.index import Index, head_crc32c
from readers.format.manifest import FORMAT_VERSION
from tests.support.checkout import ROOT
from tests.support.datasets import manifest_bytes

CORPUS = ROOT / "tests/corpus" / f"v{FORMAT_VERSION}"
DATASETS = sorted(path.name for path in CORPUS.glob("*"))

PAGE = (ROOT / "docs/internals/format.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@functools.cache
def plain():
    """The functions of the block in the page."""
    names = {"__name__": "plain"}
    exec(compile(BLOCK, "docs/internals/format.md", "exec"), names)
    return SimpleNamespace(**names)


def shards_of(directory, split):
    reader = plain()
    listed = reader.read_manifest(directory)["splits"][split]["shards"]
    return [(reader.Shard(directory, each), each["records"]) for each in listed]


def records_of(directory, split):
    """Each record of a split, and its numbers by section, the last record of each shard first."""
    found = []
    for shard, count in shards_of(directory, split):
        sections = [name for name in shard.sections if name != "offset"]
        rows = {
            k: (shard.record(k), {name: shard.number(name, k) for name in sections})
            for k in reversed(range(count))
        }
        found += [rows[k] for k in range(count)]
    return found


def numbers_in(schema, record):
    """The numbers that the page says the index has of a record of `readers`."""
    found = {}
    for name, feature in schema.items():
        if feature.encoding in ("jpeg", "png", "source") or feature.encoding.endswith(" steps"):
            continue
        if feature.encoding == "sequence":
            if None not in feature.shape[1:]:
                found[f"length/{name}"] = len(record[name])
        elif None in feature.shape:
            found[f"length/{name}"] = record[name].shape[feature.shape.index(None)]
        elif not feature.shape and feature.dtype not in ("string", "bfloat16", "complex64"):
            found[f"value/{name}"] = record[name]
    return found


def same(found, expected):
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return np.array_equal(found, expected)


def test_the_plain_reader_imports_neither_package():
    imported = {
        getattr(node, "module", None) or node.names[0].name
        for node in ast.walk(ast.parse(BLOCK))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert imported == {"json", "os", "struct", "google_crc32c"}


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("name", DATASETS)
def test_the_plain_reader_finds_the_records_and_numbers_of_readers(name, split):
    schema = readers.Manifest.read(CORPUS / name).schema
    # Images as the bytes that are stored.
    stored = {n: readers.Feature("string") if f.is_image else f for n, f in schema.items()}
    source = readers.RecordSource(CORPUS / name, split, schema=readers.Schema(stored))
    decoder, found = Decoder(source.schema), records_of(CORPUS / name, split)
    assert len(found) == len(source)
    for (data, numbers), expected in zip(found, source, strict=True):
        record = decoder.decode(data)
        assert all(same(record[feature], expected[feature]) for feature in source.schema)
        del numbers["hash"], numbers["hash/low"]
        assert numbers == numbers_in(schema, expected)


@pytest.mark.parametrize("name", ["images_tensor", "text_raw", "sensors_variable"])
def test_the_hashes_of_an_index_are_those_of_the_keys(name):
    source = readers.RecordSource(CORPUS / name, "train", columns=["key"])
    seed = struct.pack("<q", plain().read_manifest(CORPUS / name)["options"]["seed"])
    for (_, numbers), record in zip(records_of(CORPUS / name, "train"), source, strict=True):
        digest = hashlib.blake2b(record["key"], digest_size=8, key=seed, person=b"order").digest()
        assert numbers["hash"] == int.from_bytes(digest, "little") >> 32


def write_manifests(directory, copy, stated):
    """Writes `manifest.json` unless its number is 0, and generations by number, each stating one."""
    manifest = readers.Manifest.read(CORPUS / "sensors_variable")
    (directory / "generations").mkdir()
    files = {"manifest.json": copy, **{f"generations/{n}.json": stated[n] for n in stated}}
    for name, number in files.items():
        if number:
            (directory / name).write_bytes(replace(manifest, generation=number).to_bytes())


@pytest.mark.parametrize(
    ("copy", "others"), [(1, ()), (0, [1]), (0, [1, 2]), (7, ()), (2, [3]), (1, [1, 2, 3])]
)
def test_the_plain_reader_finds_the_newest_generation(tmp_path, copy, others):
    write_manifests(tmp_path, copy, {number: number for number in others})
    found = plain().read_manifest(tmp_path)
    assert found["generation"] == max([copy, *others])
    assert readers.Manifest.from_json(found) == readers.Manifest.read(tmp_path)


@pytest.mark.parametrize("stated", [1, 3])
def test_the_plain_reader_refuses_a_generation_that_states_another_number(tmp_path, stated):
    write_manifests(tmp_path, 1, {2: stated})
    with pytest.raises(
        ValueError, match=f"expected 'generations/2.json', found '.*/{stated}.json'"
    ):
        plain().read_manifest(tmp_path)


def test_the_plain_reader_refuses_what_a_manifest_requires_and_a_directory_without_one(tmp_path):
    value = readers.Manifest.read(CORPUS / "sensors_variable").to_json()
    (tmp_path / "manifest.json").write_bytes(manifest_bytes({**value, "requires": ["gone"]}))
    with pytest.raises(ValueError, match=r"requirements: expected \[\], found \['gone'\]"):
        plain().read_manifest(tmp_path)
    with pytest.raises(FileNotFoundError):
        plain().read_manifest(tmp_path / "none")


@pytest.mark.parametrize(
    "file", ["manifest.json", "generations/1.json", "{shard}", "{shard}.index"]
)
def test_the_plain_reader_notices_a_changed_byte(tmp_path, file):
    copy = shutil.copytree(CORPUS / "sensors_variable", tmp_path / "copy")
    path = copy / file.format(
        shard=plain().read_manifest(copy)["splits"]["train"]["shards"][0]["path"]
    )
    if file == "generations/1.json":
        (copy / "manifest.json").unlink()
    data = path.read_bytes()
    for at in range(0, len(data), 1 + len(data) // 1000):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        # A damaged head can also name what is not there.
        with pytest.raises((ValueError, KeyError, struct.error)):
            records_of(copy, "train")


@pytest.fixture
def large(tmp_path):
    """A shard whose index has several blocks and each dtype, without its records; and its arrays."""
    kinds = ["?", *np.typecodes["AllInteger"], *"efd"]
    arrays = {f"value/{kind}": np.arange(20_000).astype(kind) for kind in kinds}
    offsets = np.arange(20_001) << 20
    index = Index(np.diff(offsets), arrays).to_bytes()
    (tmp_path / "a").touch()
    (tmp_path / "a.index").write_bytes(index)
    listed = {"path": "a", "records": 20_000, "bytes": 20_000 << 20}
    listed["index"] = {"bytes": len(index), "crc32c": f"{head_crc32c(index):08x}"}
    return plain().Shard(tmp_path, listed), {"offset": offsets, **arrays}


def test_the_plain_reader_finds_numbers_of_each_dtype_in_each_block(large):
    shard, arrays = large
    assert len(shard.crcs) > 20
    assert {dtype for _, dtype in shard.sections.values()} == plain().CODES.keys()
    for name, array in arrays.items():
        assert [shard.number(name, k) for k in range(0, 20_000, 999)] == array[:20_000:999].tolist()


def test_a_damaged_block_is_noticed_when_a_number_of_it_is_read(large, tmp_path):
    shard, _ = large
    with (tmp_path / "a.index").open("r+b") as file:
        file.seek(shard.start + 65536 + 5)
        file.write(b"!")
    assert shard.number("offset", 3) == 3 << 20
    with pytest.raises(ValueError, match="block 1"):
        shard.number("offset", 65536 // 8)


def test_a_dataset_of_the_corpus_has_a_section_of_each_kind():
    found = {
        kind.partition("/")[0]
        for name in DATASETS
        for shard, _ in shards_of(CORPUS / name, "train")
        for kind in shard.sections
    }
    assert found == {"offset", "hash", "length", "value"}
