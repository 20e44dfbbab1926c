"""Jobs that read archives: files packed by the standard library, read back and compared."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
import sklearn
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.support.archives import tarred, zipped
from tests.support.commands import refused, run
from tests.support.datasets import balanced, records_of, rejects_of
from tests.support.images import encoded

Files = list[tuple[str, bytes]]


def pack(path: Path, files: Files) -> None:
    """Writes an archive in the format of its extension."""
    if path.suffix == ".zip":
        path.write_bytes(zipped(files))
    else:
        path.write_bytes(tarred(files, "w" if path.suffix == ".tar" else "w:gz"))


def photos(count: int, seed: int = 0) -> list[bytes]:
    """JPEGs of parts of real photographs."""
    rng = np.random.default_rng(seed)
    whole = load_sample_images().images
    found = []
    for n in range(count):
        y, x = rng.integers(0, 427 - 40), rng.integers(0, 640 - 56)
        found.append(encoded(whole[n % 2][y : y + 40, x : x + 56], "JPEG", quality=90))
    return found


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


# Images with files of the same stem next to them.

SAMPLES = 24
BROKEN = 5  # the sample whose JSON is truncated


def webdataset(seed: int) -> Files:
    """Samples in the layout of WebDataset: four consecutive members each."""
    files = []
    for n, data in enumerate(photos(SAMPLES, seed)):
        fields = {
            "age": n - 3,
            "site": f"site {n % 5}",
            "tags": ["a", "b", "ü"][: n % 4],
            "split": "val" if n % 4 == 0 else "train",
        }
        text = json.dumps(fields)
        files += [
            (f"{n:06}.cls", f"{'cat' if n % 3 else 'dog'}\n".encode()),
            (f"{n:06}.jpg", data),
            (f"{n:06}.json", text[: -5 if n == BROKEN else None].encode()),
            (f"{n:06}.txt", f"Picture {n} of {seed}.".encode()),
        ]
    return files


ARCHIVES = ("x.zip", "x.tar", "x.tar.gz")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A folder of a zip, a tar and a tar.gz whose members have the same names."""
    folder = tmp_path_factory.mktemp("packed")
    for seed, name in enumerate(ARCHIVES):
        pack(folder / name, webdataset(seed))
    return folder


FLAGS = ["--label", "column:cls", "--group_by", "column:site"]
FLAGS += ["--extra_features", "age:int64,tags:string[],txt:string", "--splits", "train=0.6,val=0.4"]
FLAGS += ["--num_shards", 3]


def assert_samples(out: Path, archives: tuple[str, ...]) -> None:
    manifest, found, rejects = balanced(out), records_of(out), rejects_of(out)
    assert manifest.label_names == ("cat", "dog")
    groups: dict[str, set[str]] = {}
    for seed, archive in enumerate(archives):
        files = dict(webdataset(seed))
        for n in range(SAMPLES):
            key = f"{archive}/{n:06}.jpg"
            if n == BROKEN:
                assert rejects.pop(key).startswith(f"{n:06}.json: ")
                continue
            record = found.pop(key)
            np.testing.assert_array_equal(record["image"], pixels(files[f"{n:06}.jpg"]))
            assert manifest.label_names[int(record["label"])] == ("cat" if n % 3 else "dog")
            assert record["txt"] == f"Picture {n} of {seed}.".encode()
            assert int(record["age"]) == n - 3
            assert [tag.decode() for tag in record["tags"]] == ["a", "b", "ü"][: n % 4]
            groups.setdefault(f"site {n % 5}", set()).add(record["split"])
    assert not found and not rejects
    assert all(len(splits) == 1 for splits in groups.values())
    assert set.union(*groups.values()) == {"train", "val"}


def test_members_of_archives_are_joined_with_the_files_next_to_them(packed, tmp_path):
    inputs = ["--input", packed / "x.zip", "--input", packed / "*.tar", "--input", packed / "*.gz"]
    assert run("images", *inputs, *FLAGS, "--output", tmp_path / "out") == 0
    assert_samples(tmp_path / "out", ARCHIVES)


# Texts.


def test_the_lines_of_texts_in_archives_are_records(tmp_path):
    real = sorted(Path(sklearn.__file__).parent.glob("datasets/descr/*.rst"))[:9]
    texts = {path.stem: path.read_text(encoding="utf-8") for path in real}
    files = [(f"docs/{name}.txt", text.encode()) for name, text in texts.items()]
    jsonl = "".join(json.dumps({"text": line}) + "\n" for line in texts[real[0].stem].splitlines())
    others = [("a.jsonl", jsonl.encode()), ("b.jsonl.gz", gzip.compress(jsonl.encode()))]
    for archive in ARCHIVES:
        more = [("c.doc", b"not a text")] if archive == "x.tar.gz" else []
        pack(tmp_path / archive, files + others + more)
    (tmp_path / "plain.txt").write_text("one\n\ntwo")
    expected = {"plain.txt#1": "one", "plain.txt#3": "two"}
    for archive in ARCHIVES:
        for name, data in files + others:
            lines = (gzip.decompress(data) if name.endswith(".gz") else data).decode().split("\n")
            for number, line in enumerate(lines, 1):
                text = json.loads(line)["text"] if "jsonl" in name and line else line
                if line.strip() and ("jsonl" in name or text.strip()):
                    expected[f"{archive}/{name}#{number}"] = text
    out = tmp_path / "out"
    flags = ["--splits", "train=0.9,val=0.1", "--num_shards", 3, "--output", out]
    assert run("text", "--input", tmp_path, *flags) == 0
    found = {key: record["text"].item().decode() for key, record in records_of(out).items()}
    assert found == expected
    assert rejects_of(out).keys() == {"x.tar.gz/c.doc"}
    out = tmp_path / "files"
    flags = ["--record", "file", "--label", "parent", "--output", out]
    assert run("text", "--input", tmp_path / "x.*", *flags) == 0
    whole = {key: record["text"].item().decode() for key, record in records_of(out).items()}
    contents = {f"docs/{name}.txt": text for name, text in texts.items()}
    contents |= {"a.jsonl": jsonl, "b.jsonl.gz": jsonl}
    everything = {f"{a}/{name}": text for a in ARCHIVES for name, text in contents.items()}
    assert whole == everything | {"x.tar.gz/c.doc": "not a text"}


def test_a_folder_with_a_packed_archive_is_refused_with_what_to_type(tmp_path, capsys):
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.jpg").write_bytes(photos(1)[0])
    pack(source / "x.tar.gz", [("2.jpg", photos(1)[0])])
    flags = ["--label", "none", "--output", tmp_path / "out"]
    message = (
        r"x\.tar\.gz: a packed archive can only be read from its start: name such files with a"
    )
    refused(capsys, 2, message, "images", "--input", source, *flags)
