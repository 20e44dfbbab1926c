"""Jobs over archives: real files packed by the standard library, read back and compared."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
import soundfile
from PIL import Image
from sklearn.datasets import load_sample_images

import readers
from beam_jobs.__main__ import main
from beam_jobs.errors import DataError
from beam_jobs.pipeline import commit
from beam_jobs.plan.placement import Placement, Splits
from readers.format.manifest import Manifest
from tests.support.datasets import files_of

Files = list[tuple[str, bytes]]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def zipped(path: Path, files: Files, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return path


def tarred(path: Path, files: Files) -> Path:
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1_600_000_000
            archive.addfile(member, io.BytesIO(data))
    return path


def photos(count: int, seed: int = 0) -> list[bytes]:
    """JPEGs cut out of real photographs."""
    rng = np.random.default_rng(seed)
    whole = load_sample_images().images
    found = []
    for n in range(count):
        y, x = rng.integers(0, 427 - 40), rng.integers(0, 640 - 56)
        out = io.BytesIO()
        Image.fromarray(whole[n % 2][y : y + 40, x : x + 56]).save(out, "JPEG", quality=90)
        found.append(out.getvalue())
    return found


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def records_of(out: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """(split, record) by key, of a dataset that is what its manifest says and is balanced."""
    report = readers.verify(str(out))
    assert report.ok, report.problems
    manifest = Manifest.read(str(out))
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, split in manifest.splits.items():
        sizes = [shard.records for shard in split.shards]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        for record in readers.RecordSource(str(out), name) if sizes else ():
            assert found.setdefault(record["key"].item().decode(), (name, record))[1] is record
    assert not (out / ".staging").exists()
    return found


def rejects_of(out: Path) -> dict[str, str]:
    lines = [
        json.loads(line)
        for path in (out / "rejects").glob("*.jsonl")
        for line in path.read_text(errors="surrogateescape").splitlines()
    ]
    rejects = {line["key"]: line["error"] for line in lines}
    assert len(lines) == len(rejects) == Manifest.read(str(out)).rejected
    return rejects


def refused(capsys: Any, code: int, pattern: str, *arguments: object) -> None:
    """Runs a command that must fail with one line that matches, and leave no dataset."""
    capsys.readouterr()
    assert run(*arguments) == code
    error = capsys.readouterr().err
    assert re.search(pattern, error), error
    assert error.startswith("error: ") and error.count("\n") == 1, error
    assert not (Path(str(arguments[-1])) / "manifest.json").exists()


# Pictures with what others say of them.

SAMPLES = 24
BROKEN = 5  # Whose JSON is cut off.


def webdataset(seed: int) -> Files:
    """Pictures as WebDataset packs them: four members each, next to each other."""
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


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A folder of a zip, a tar and a tar.gz whose members have the same names."""
    folder = tmp_path_factory.mktemp("packed")
    zipped(folder / "x.zip", webdataset(0))
    tarred(folder / "x.tar", webdataset(1))
    tarred(folder / "x.tar.gz", webdataset(2))
    return folder


ARCHIVES = ("x.zip", "x.tar", "x.tar.gz")
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


@pytest.fixture(scope="module")
def streamed(packed, tmp_path_factory):
    """The dataset of all three, which is made in two passes."""
    out = tmp_path_factory.mktemp("streamed") / "out"
    inputs = ["--input", packed / "x.zip", "--input", packed / "*.tar"]
    assert run("images", *inputs, "--input", packed / "*.gz", *FLAGS, "--output", out) == 0
    return out


def assert_samples(out: Path, archives: tuple[str, ...]) -> None:
    found, rejects = records_of(out), rejects_of(out)
    manifest = Manifest.read(str(out))
    assert manifest.label_names == ("cat", "dog")
    groups: dict[str, set[str]] = {}
    for seed, archive in enumerate(archives):
        files = dict(webdataset(seed))
        for n in range(SAMPLES):
            key = f"{archive}/{n:06}.jpg"
            if n == BROKEN:
                assert rejects.pop(key).startswith(f"{n:06}.json: ")
                continue
            split, record = found.pop(key)
            np.testing.assert_array_equal(record["image"], pixels(files[f"{n:06}.jpg"]))
            assert manifest.label_names[int(record["label"])] == ("cat" if n % 3 else "dog")
            assert record["captions"].tolist() == [f"Picture {n} of {seed}.".encode()]
            assert int(record["age"]) == n - 3
            assert [tag.decode() for tag in record["tags"]] == ["a", "b", "ü"][: n % 4]
            groups.setdefault(f"site {n % 5}", set()).add(split)
    assert not found and not rejects
    assert all(len(splits) == 1 for splits in groups.values())
    assert set.union(*groups.values()) == {"train", "val"}


def test_members_of_zip_and_tar_are_records_with_what_stands_beside_them(seekable):
    assert_samples(seekable, ARCHIVES[:2])


def test_members_of_tar_gz_among_others_are_records_alike(streamed):
    assert_samples(streamed, ARCHIVES)


def test_the_two_ways_to_read_archives_make_the_same_records(seekable, streamed):
    one, other = records_of(seekable), records_of(streamed)
    for key, (split, record) in one.items():
        assert other[key][0] == split
        for name, value in record.items():
            np.testing.assert_array_equal(other[key][1][name], value)


def test_a_column_of_members_names_their_splits(packed, tmp_path):
    flags = ["--label", "column:tags", "--split_column", "split", "--splits", "train,val"]
    flags += ["--input", packed / "x.tar.gz"]
    assert run("images", *flags, "--output", tmp_path / "out") == 0
    manifest = Manifest.read(str(tmp_path / "out"))
    assert manifest.label_names == ("a", "b", "ü")
    assert manifest.schema["label"].shape == (None,)
    for key, (split, record) in records_of(tmp_path / "out").items():
        n = int(key[-10:-4])
        assert split == ("val" if n % 4 == 0 else "train")
        assert record["label"].tolist() == [0, 1, 2][: n % 4]
    assert len(rejects_of(tmp_path / "out")) == 1


@pytest.mark.slow
def test_every_label_of_packed_members_has_its_share(packed, tmp_path):
    flags = ["--label", "column:cls", "--stratify", "--splits", "a=0.5,b=0.3,c=0.2"]
    inputs = ["--input", packed / "x.tar", "--input", packed / "x.tar.gz"]
    assert run("images", *inputs, *flags, "--output", tmp_path / "out") == 0
    found = Counter((s, int(r["label"])) for s, r in records_of(tmp_path / "out").values())
    totals = Counter(label for label in found.elements() for label in label[1:])
    for split, share in (("a", 0.5), ("b", 0.3), ("c", 0.2)):
        for label, total in totals.items():
            assert abs(found[split, label] - share * total) < 1


# Recordings and texts.


def test_recordings_in_archives_are_those_that_soundfile_reads(tmp_path):
    rng = np.random.default_rng(0)
    expected = {}

    def sound(kind: str, key: str) -> bytes:
        samples = (rng.normal(size=(int(rng.integers(500, 3000)), 2)) * 3000).astype(np.int16)
        out = io.BytesIO()
        soundfile.write(out, samples, 16_000, format=kind.upper())
        expected[key] = soundfile.read(io.BytesIO(out.getvalue()), dtype="int16")[0]
        return out.getvalue()

    def sounds(archive: str, kind: str) -> Files:
        keys = [f"{label}/{n}.{kind}" for label in ("hum", "hiss") for n in range(4)]
        return [(key, sound(kind, f"{archive}/{key}")) for key in keys]

    zipped(tmp_path / "x.zip", sounds("x.zip", "wav"))
    zipped(tmp_path / "y.zip", sounds("y.zip", "flac"), zipfile.ZIP_STORED)
    tarred(tmp_path / "z.tgz", sounds("z.tgz", "flac"))
    (tmp_path / "hum").mkdir()
    (tmp_path / "hum" / "0.wav").write_bytes(sound("wav", "hum/0.wav"))
    inputs = ["--input", tmp_path / "*.zip", "--input", tmp_path / "hum", "--input"]
    out = tmp_path / "out"
    assert run("sensors", *inputs, tmp_path / "*.tgz", "--num_shards", 4, "--output", out) == 0
    found = records_of(out)
    assert found.keys() == expected.keys()
    names = Manifest.read(str(out)).label_names
    assert names == ("hiss", "hum")
    for key, (_, record) in found.items():
        np.testing.assert_array_equal(record["signal"], expected[key])
        assert names[int(record["label"])] == key.split("/")[-2]


def test_texts_in_archives_are_their_lines(tmp_path):
    real = sorted(Path(sklearn.__file__).parent.glob("datasets/descr/*.rst"))[:9]
    texts = {path.stem: path.read_text(encoding="utf-8") for path in real}
    files = [(f"docs/{name}.txt", text.encode()) for name, text in texts.items()]
    jsonl = "".join(json.dumps({"text": line}) + "\n" for line in texts[real[0].stem].splitlines())
    others = [("a.jsonl", jsonl.encode()), ("b.jsonl.gz", gzip.compress(jsonl.encode()))]
    zipped(tmp_path / "x.zip", files + others)
    tarred(tmp_path / "x.tar", files + others)
    tarred(tmp_path / "x.tar.gz", [*files, *others, ("c.doc", b"no text")])
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
    found = {key: record["text"].item().decode() for key, (_, record) in records_of(out).items()}
    assert found == expected
    assert rejects_of(out).keys() == {"x.tar.gz/c.doc"}
    out = tmp_path / "files"
    flags = ["--record", "file", "--label", "parent", "--output", out]
    assert run("text", "--input", tmp_path / "x.*", *flags) == 0
    whole = {key: record["text"].item().decode() for key, (_, record) in records_of(out).items()}
    assert whole == {f"{a}/{name}": data.decode() for a in ARCHIVES for name, data in files}


# Damage, everything at once.


def bytes_in_tar(file: tuple[str, bytes]) -> int:
    return 512 + -(-len(file[1]) // 512) * 512


GOOD = 30


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """(folder, bytes of the good pictures by key, why the others are rejected by key)."""
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
        tarred(folder / archive, torn)
        for n, (name, picture) in enumerate(files):
            if n % 4 == 1:
                bad[f"{archive}/{name}"] = "cannot be decoded: "
            else:
                good[f"{archive}/{name}"] = picture

    tarred(folder / "cut.tar", files)
    with (folder / "cut.tar").open("r+b") as file:
        file.truncate(sum(map(bytes_in_tar, files[:11])) + 700)
    expect("cut.tar", 11)
    bad["cut.tar"] = "the archive is damaged or cut off after 'd/10.jpg': "

    whole = tarred(folder / "cut.tar.gz", files).read_bytes()
    (folder / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    kept = len(zlib.decompressobj(31).decompress(whole[: len(whole) // 2]))
    count = 0
    while sum(map(bytes_in_tar, files[:count])) + 512 + len(files[count][1]) <= kept:
        count += 1
    expect("cut.tar.gz", count)
    bad["cut.tar.gz"] = f"the archive is damaged or cut off in 'd/{count:02}.jpg': GZIP: "

    whole = zipped(folder / "cut.zip", files).read_bytes()
    (folder / "cut.zip").write_bytes(whole[: len(whole) // 2])
    bad["cut.zip"] = "the archive is damaged or cut off before its first member: no zip directory"

    flipped = bytearray(zipped(folder / "crc.zip", files[:5], zipfile.ZIP_STORED).read_bytes())
    flipped[flipped.index(files[2][1]) + 50] ^= 1
    (folder / "crc.zip").write_bytes(flipped)
    expect("crc.zip", 5)
    del good["crc.zip/d/02.jpg"]
    bad["crc.zip/d/02.jpg"] = "damaged: the CRC-32 is "

    hostile = [("../up.jpg", data[0]), ("/abs.jpg", data[1]), ("ok.jpg", data[2])]
    hostile += [("in.tar.gz", whole), ("in.zip", whole), (".hidden.jpg", data[3])]
    for archive in ("hostile.zip", "hostile.tar", "hostile.tar.gz"):
        (zipped if archive.endswith("zip") else tarred)(folder / archive, hostile)
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
    """(command, what it must find, its output) of the default run."""
    folder, good, bad = damaged
    arguments = command(folder, request.param)
    out = tmp_path_factory.mktemp("salvaged") / "out"
    assert run(*arguments, "--output", out) == 0
    if request.param != PARTS:
        good = {key: data for key, data in good.items() if ".tar.gz/" not in f"{key}/"[:15]}
        bad = {key: why for key, why in bad.items() if ".tar.gz/" not in f"{key}/"[:15]}
    return arguments, (good, bad), out


def test_what_is_good_is_written_and_what_is_not_is_listed_with_its_reason(salvaged):
    _, (good, bad), out = salvaged
    found, rejects = records_of(out), rejects_of(out)
    assert found.keys() == good.keys()
    for key, (_, record) in found.items():
        np.testing.assert_array_equal(record["image"], pixels(good[key]))
    assert rejects.keys() == bad.keys()
    for key, reason in bad.items():
        assert rejects[key].startswith(reason), (key, rejects[key])


def interrupted(*arguments: object) -> None:
    """Runs a job that fails when all shards are done, before its manifest is written."""

    def fails(*_: object) -> None:
        raise DataError("interrupted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "check_files", fails)
        assert run(*arguments) == 1


written: list[str] = []
watching = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event == "open" and isinstance(arguments[0], (str, bytes)):
        path, mode, flags = arguments
        if set(mode or "") & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(os.fsdecode(path))


@pytest.mark.slow(base=["seekable"])
def test_one_worker_writes_the_same_bytes_and_no_file_but_those_of_the_dataset(salvaged, tmp_path):
    global watching
    arguments, _, out = salvaged
    written.clear()
    sys.addaudithook(watch)  # It stays for ever, so it has a switch.
    watching = True
    try:
        assert run(*arguments, "--direct_num_workers", 1, "--output", tmp_path / "out") == 0
    finally:
        watching = False
    assert files_of(tmp_path / "out") == files_of(out)
    # A temporary file without a name is opened by the name of its folder.
    others = {path for path in written if not path.startswith(f"{tmp_path}/out/")}
    assert others <= {tempfile.gettempdir(), os.devnull}
    assert any(path.startswith(f"{tmp_path}/out/") for path in written)


@pytest.mark.slow
def test_workers_of_beam_write_the_same_bytes(salvaged, tmp_path):
    arguments, _, out = salvaged
    mode = ["--direct_running_mode", "multi_processing", "--direct_num_workers", 2]
    assert run(*arguments, *mode, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == files_of(out)


@pytest.mark.slow(base=["streamed"])
def test_an_interrupted_run_goes_on_to_the_same_bytes(salvaged, tmp_path, capsys):
    arguments, _, out = salvaged
    interrupted(*arguments, "--output", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    capsys.readouterr()
    assert run(*arguments, "--output", tmp_path / "out") == 0
    assert re.search(r"kept \d+ shards of an unfinished run", capsys.readouterr().err)
    assert files_of(tmp_path / "out") == files_of(out)


@pytest.mark.slow
def test_an_archive_that_is_written_anew_is_read_anew_though_all_its_sizes_are_the_same(tmp_path):
    def recordings(value: float) -> Files:
        out = io.BytesIO()
        np.save(out, np.full((9, 2), value))
        return [(f"{n}.npy", out.getvalue()) for n in range(5)]

    tarred(tmp_path / "x.tar", recordings(1))
    arguments = ["sensors", "--input", tmp_path / "x.tar", "--output", tmp_path / "out"]
    interrupted(*arguments)
    tarred(tmp_path / "x.tar", recordings(2))
    assert run(*arguments) == 0
    assert {float(r["signal"].max()) for _, r in records_of(tmp_path / "out").values()} == {2}


def test_a_reject_in_an_archive_ends_the_job_where_it_may_not_be_skipped(damaged, tmp_path, capsys):
    folder, _, _ = damaged
    for pattern, reason in (
        ("cut.tar", r"cut\.tar: the archive is damaged"),
        ("late.tar.gz", r"late\.tar\.gz/d/\d\d\.jpg: cannot be decoded"),
    ):
        arguments = [*command(folder, [pattern]), "--on_reject", "fail"]
        refused(
            capsys, 1, rf"{reason}.*\(--on_reject fail\)", *arguments, "--output", tmp_path / "o"
        )


# What a careless user does.


def test_a_folder_with_a_packed_archive_is_refused_with_what_works(tmp_path, capsys):
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.jpg").write_bytes(photos(1)[0])
    tarred(source / "x.tar.gz", [("2.jpg", photos(1)[0])])
    zipped(source / "y.zip", [("3.jpg", photos(1)[0])])
    flags = ["--label", "none", "--output", tmp_path / "out"]
    message = (
        r"x\.tar\.gz: a packed archive can only be read from its start: name such files with an"
    )
    refused(capsys, 2, message, "images", "--input", source, *flags)
    inputs = [part for p in ("*.jpg", "*.zip", "*.gz") for part in ("--input", source / p)]
    assert run("images", *inputs, *flags) == 0
    assert records_of(tmp_path / "out").keys() == {"1.jpg", "x.tar.gz/2.jpg", "y.zip/3.jpg"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("name", "shards"), [("x.zip", 1), ("x.tar", 2), ("x.tar.gz", 2)])
def test_two_members_of_one_name_are_a_mistake_that_is_told(tmp_path, capsys, name, shards):
    # The boundary of two shards falls between the second and the third of four records.
    place = Placement(0, Splits()).order
    names = sorted(("1.jpg", "2.jpg", "3.jpg"), key=lambda member: place(f"{name}/{member}"))
    files = [(member, photos(1)[0]) for member in [*names, names[1]]]
    (zipped if name.endswith("zip") else tarred)(tmp_path / name, files)
    arguments = ["images", "--input", tmp_path / name, "--label", "none", "--num_shards", shards]
    message = rf"(duplicate key '{name}/{names[1]}'|two records have the same key): every record "
    message += "needs .* does an archive have two members of one name"
    refused(capsys, 2, message, *arguments, "--output", tmp_path / "out")


def test_an_archive_that_two_patterns_match_is_told_where_shards_meet_in_it(tmp_path, capsys):
    zipped(tmp_path / "x.zip", [(f"{n}.jpg", d) for n, d in enumerate(photos(5))])
    inputs = ["--input", tmp_path / "x.zip", "--input", tmp_path / "*.zip"]
    flags = ["--label", "none", "--num_shards", 2, "--output", tmp_path / "out"]
    refused(capsys, 2, "two --input patterns match the same file", "images", *inputs, *flags)


@pytest.mark.parametrize(
    ("job", "ending"), [("images", "zip"), ("sensors", "tar"), ("text", "tar.gz")]
)
def test_an_archive_of_nothing_is_a_mistake_and_one_of_rubbish_has_failed(
    tmp_path, capsys, job, ending
):
    (zipped if ending == "zip" else tarred)(tmp_path / f"x.{ending}", [])
    flags = ["--output", tmp_path / "out"]
    empty = r"the inputs hold no record(ing)?: no dataset was written"
    refused(capsys, 2, empty, job, "--input", tmp_path / f"x.{ending}", *flags)
    (tmp_path / f"x.{ending}").write_bytes(b"rubbish" * 99)
    code = 2 if job == "sensors" else 1  # Without a recording there is no schema.
    rubbish = rf"x\.{ending}: the archive is damaged or cut off before its first member"
    refused(capsys, code, rubbish, job, "--input", tmp_path / f"x.{ending}", *flags)


@pytest.mark.slow
def test_an_archive_may_lie_beside_the_output_and_be_read_again(tmp_path):
    tarred(tmp_path / "x.tar.gz", [(f"{n}.jpg", d) for n, d in enumerate(photos(3))])
    arguments = ["images", "--input", tmp_path / "*.tar.gz", "--output", tmp_path / "out"]
    assert run(*arguments) == 0
    first = files_of(tmp_path / "out")
    assert Manifest.read(str(tmp_path / "out")).label_names == ("x",)
    assert run(*arguments, "--overwrite") == 0
    assert files_of(tmp_path / "out") == first
