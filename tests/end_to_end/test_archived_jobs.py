"""Jobs that read archives: files packed by the standard library, read back and compared."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from PIL import Image
from sklearn.datasets import load_sample_images

from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from tests.support.archives import tarred, zipped
from tests.support.commands import ONE, refused, run
from tests.support.datasets import balanced, files_of, records_of, rejects_of
from tests.support.images import encoded

Files = list[tuple[str, bytes]]


def pack(path: Path, files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Writes an archive in the format of its extension; returns its bytes."""
    if path.suffix == ".zip":
        data = zipped(files, method)
    else:
        data = tarred(files, "w" if path.suffix == ".tar" else "w:gz")
    path.write_bytes(data)
    return data


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


FLAGS = ["--label", "column:cls", "--captions", "column:txt", "--group_by", "column:site"]
FLAGS += ["--extra_features", "age:int64,tags:string[]", "--splits", "train=0.6,val=0.4"]
FLAGS += ["--num_shards", 3]


@pytest.fixture(scope="module")
def seekable(packed, tmp_path_factory):
    """The dataset of the zip and the tar, whose members are loaded one by one."""
    out = tmp_path_factory.mktemp("seekable") / "out"
    inputs = ["--input", packed / "x.zip", "--input", packed / "*.tar"]
    assert run("images", *inputs, *FLAGS, "--output", out) == 0
    return out


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
            assert record["captions"].tolist() == [f"Picture {n} of {seed}.".encode()]
            assert int(record["age"]) == n - 3
            assert [tag.decode() for tag in record["tags"]] == ["a", "b", "ü"][: n % 4]
            groups.setdefault(f"site {n % 5}", set()).add(record["split"])
    assert not found and not rejects
    assert all(len(splits) == 1 for splits in groups.values())
    assert set.union(*groups.values()) == {"train", "val"}


def test_members_of_zip_and_tar_are_joined_with_the_files_next_to_them(seekable):
    assert_samples(seekable, ARCHIVES[:2])


def test_a_tar_gz_among_other_archives_gives_the_same_records_in_two_passes(
    packed, seekable, tmp_path
):
    inputs = ["--input", packed / "x.zip", "--input", packed / "*.tar", "--input", packed / "*.gz"]
    assert run("images", *inputs, *FLAGS, "--output", tmp_path / "out") == 0
    assert_samples(tmp_path / "out", ARCHIVES)
    streamed = records_of(tmp_path / "out")
    for key, record in records_of(seekable).items():
        assert streamed[key]["split"] == record["split"]


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


# All kinds of damage at once.


def bytes_in_tar(files: Files) -> int:
    return sum(512 + -(-len(data) // 512) * 512 for _, data in files)


GOOD = 30


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """(folder, bytes of the intact images by key, reasons why the others are rejected by key)."""
    folder = tmp_path_factory.mktemp("damaged") / "in"
    folder.mkdir()
    data = photos(GOOD, 7)
    files = [(f"d/{n:02}.jpg", picture) for n, picture in enumerate(data)]
    good: dict[str, bytes] = {}
    bad: dict[str, str] = {}

    def expect(archive: str, count: int) -> None:
        good.update({f"{archive}/{name}": picture for name, picture in files[:count]})

    for archive in ("late.tar.gz", "late.tar"):
        torn = [(name, d[:99] if n % 4 == 1 else d) for n, (name, d) in enumerate(files)]
        pack(folder / archive, torn)
        for n, (name, picture) in enumerate(files):
            if n % 4 == 1:
                bad[f"{archive}/{name}"] = "cannot be decoded: "
            else:
                good[f"{archive}/{name}"] = picture

    whole = pack(folder / "cut.tar", files)
    (folder / "cut.tar").write_bytes(whole[: bytes_in_tar(files[:11]) + 700])
    expect("cut.tar", 11)
    bad["cut.tar"] = "the archive is damaged or cut off after 'd/10.jpg': "

    whole = pack(folder / "cut.tar.gz", files)
    (folder / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    kept = len(zlib.decompressobj(31).decompress(whole[: len(whole) // 2]))
    count = 0
    while bytes_in_tar(files[:count]) + 512 + len(files[count][1]) <= kept:
        count += 1
    expect("cut.tar.gz", count)
    bad["cut.tar.gz"] = f"the archive is damaged or cut off in 'd/{count:02}.jpg': GZIP: "

    whole = pack(folder / "cut.zip", files)
    (folder / "cut.zip").write_bytes(whole[: len(whole) // 2])
    bad["cut.zip"] = "the archive is damaged or cut off before its first member: no zip directory"

    flipped = bytearray(pack(folder / "crc.zip", files[:5], zipfile.ZIP_STORED))
    flipped[flipped.index(files[2][1]) + 50] ^= 1
    (folder / "crc.zip").write_bytes(flipped)
    expect("crc.zip", 5)
    del good["crc.zip/d/02.jpg"]
    bad["crc.zip/d/02.jpg"] = "damaged: the CRC-32 is "

    hostile = [("../up.jpg", data[0]), ("/abs.jpg", data[1]), ("ok.jpg", data[2])]
    hostile += [("in.tar.gz", whole), ("in.zip", whole), (".hidden.jpg", data[3])]
    for archive in ("hostile.zip", "hostile.tar", "hostile.tar.gz"):
        pack(folder / archive, hostile)
        good[f"{archive}/ok.jpg"] = data[2]
        bad[f"{archive}/%2E%2E/up.jpg"] = "the member's name leads out of the archive"
        bad[f"{archive}/%2Fabs.jpg"] = "the member's name is an absolute path"
        for name in ("in.tar.gz", "in.zip"):
            bad[f"{archive}/{name}"] = "cannot be decoded: unknown image format"

    (folder / "plain.jpg").write_bytes(data[0])
    good["plain.jpg"] = data[0]
    (folder / "broken.jpg").write_bytes(data[0][:99])
    bad["broken.jpg"] = "cannot be decoded: "
    return folder, good, bad


PARTS = ["*.jpg", "*.zip", "*.tar", "*.tar.gz"]
DAMAGED = ["--label", "none", "--splits", "train=0.7,val=0.3", "--num_shards", 7]


def command(folder: Path, patterns: list[str]) -> list[object]:
    inputs = [part for pattern in patterns for part in ("--input", folder / pattern)]
    return ["images", *inputs, *DAMAGED]


@pytest.fixture(scope="module", params=[PARTS, PARTS[:-1]], ids=["streamed", "seekable"])
def salvaged(request, damaged, tmp_path_factory):
    """The command of a default run, its expected records and rejects, and its output."""
    folder, good, bad = damaged
    arguments = command(folder, request.param)
    out = tmp_path_factory.mktemp("salvaged") / "out"
    assert run(*arguments, "--output", out) == 0
    if request.param != PARTS:
        good = {key: data for key, data in good.items() if ".tar.gz/" not in f"{key}/"[:15]}
        bad = {key: why for key, why in bad.items() if ".tar.gz/" not in f"{key}/"[:15]}
    return arguments, (good, bad), out


def test_intact_members_are_written_and_damaged_ones_listed_with_a_reason(salvaged):
    _, (good, bad), out = salvaged
    balanced(out)
    found, rejects = records_of(out), rejects_of(out)
    assert found.keys() == good.keys()
    for key, record in found.items():
        np.testing.assert_array_equal(record["image"], pixels(good[key]))
    assert rejects.keys() == bad.keys()
    for key, reason in bad.items():
        assert reason in rejects[key], (key, rejects[key])


written: list[str] = []
watching = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event == "open" and isinstance(arguments[0], (str, bytes)):
        path, mode, flags = arguments
        if set(mode or "") & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(os.fsdecode(path))


@pytest.mark.slow(base=["seekable"])
def test_one_worker_writes_the_same_bytes_and_opens_no_other_file_for_writing(salvaged, tmp_path):
    global watching
    arguments, _, out = salvaged
    written.clear()
    sys.addaudithook(watch)  # a hook cannot be removed, so it has a switch
    watching = True
    try:
        assert run(*arguments, *ONE, "--output", tmp_path / "out") == 0
    finally:
        watching = False
    assert files_of(tmp_path / "out") == files_of(out)
    # An unnamed temporary file is opened by the name of its folder.
    others = {path for path in written if not path.startswith(f"{tmp_path}/out/")}
    assert others <= {tempfile.gettempdir(), os.devnull}
    assert any(path.startswith(f"{tmp_path}/out/") for path in written)


def test_a_damaged_archive_ends_the_job_if_on_reject_is_fail(damaged, tmp_path, capsys):
    arguments = [*command(damaged[0], ["cut.tar"]), "--on_reject", "fail"]
    reason = r"cut\.tar: the archive is damaged.*\(--on_reject fail\)"
    refused(capsys, 1, reason, *arguments, "--output", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


# Mistakes.


def test_a_folder_with_a_packed_archive_is_refused_with_a_command_that_works(tmp_path, capsys):
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.jpg").write_bytes(photos(1)[0])
    pack(source / "x.tar.gz", [("2.jpg", photos(1)[0])])
    pack(source / "y.zip", [("3.jpg", photos(1)[0])])
    flags = ["--label", "none", "--output", tmp_path / "out"]
    message = (
        r"x\.tar\.gz: a packed archive can only be read from its start: name such files with an"
    )
    refused(capsys, 2, message, "images", "--input", source, *flags)
    inputs = [part for p in ("*.jpg", "*.zip", "*.gz") for part in ("--input", source / p)]
    assert run("images", *inputs, *flags) == 0
    assert records_of(tmp_path / "out").keys() == {"1.jpg", "x.tar.gz/2.jpg", "y.zip/3.jpg"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("name", "shards"), [("x.zip", 1)])
def test_two_members_of_the_same_name_are_reported(tmp_path, capsys, name, shards):
    # The boundary of two shards is between the second and the third of four records.
    place = Placement(0, Splits()).order
    names = sorted(("1.jpg", "2.jpg", "3.jpg"), key=lambda member: place(f"{name}/{member}"))
    pack(tmp_path / name, [(member, photos(1)[0]) for member in [*names, names[1]]])
    arguments = ["images", "--input", tmp_path / name, "--label", "none", "--num_shards", shards]
    message = rf"(duplicate key '{name}/{names[1]}'|two records have the same key): every record "
    message += "needs .* does an archive .*have two members of one name"
    refused(capsys, 2, message, *arguments, "--output", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_an_archive_that_two_patterns_match_is_refused(tmp_path, capsys):
    pack(tmp_path / "x.zip", [(f"{n}.jpg", d) for n, d in enumerate(photos(5))])
    inputs = ["--input", tmp_path / "x.zip", "--input", tmp_path / "*.zip"]
    flags = ["--label", "none", "--num_shards", 2, "--output", tmp_path / "out"]
    refused(capsys, 2, "two --input patterns match the same file", "images", *inputs, *flags)


@pytest.mark.parametrize(("job", "name"), [("images", "x.tar.gz"), ("sensors", "x.zip")])
def test_empty_archives_are_a_usage_error_and_damaged_ones_fail(tmp_path, capsys, job, name):
    pack(tmp_path / name, [])
    arguments = [job, "--input", tmp_path / name, "--output", tmp_path / "out"]
    empty = r"the inputs hold no record(ing)?: no dataset was written"
    refused(capsys, 2, empty, *arguments)
    (tmp_path / name).write_bytes(b"rubbish" * 99)
    code = 2 if job == "sensors" else 1  # without a recording there is no schema
    message = rf"{name}: the archive is damaged or cut off before its first member"
    refused(capsys, code, message, *arguments)
