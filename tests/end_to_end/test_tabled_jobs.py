"""Jobs with tables: rows name files or hold texts, columns decide labels, splits and groups."""

import csv
import gzip
import io
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from PIL import Image
from sklearn import datasets
from sklearn.datasets import load_digits

from beam_jobs.sources.table_inputs import TableInputs
from readers import as_numpy
from tests.support.commands import BEAM_WORKERS, ONE, TWO, interrupted, refused, resumed, run
from tests.support.datasets import balanced, files_of, records_of, rejects_of
from tests.support.images import encoded

COUNT, SUBJECTS = 150, 12
DIGITS = load_digits()


def image(number: int) -> np.ndarray:
    return (DIGITS.images[number] * 15).astype(np.uint8)


def row_of(number: int) -> dict:
    return {
        "path": f"subject{number % SUBJECTS:02d}/{number:03d}.png",
        "digit": int(DIGITS.target[number]),
        "fold": number % 3,
        "subject": f"s{number % SUBJECTS}",
        "age": 20 + number / 8,
        "tags": [tag for tag, at in (("even", 2), ("third", 3), ("fifth", 5)) if not number % at],
        "name": f"image {number}",
    }


def delimited(rows: list[dict], delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    for row in rows:
        writer.writerow({k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()})
    return text.getvalue().encode()


def lines(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows: list[dict]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer, row_group_size=40)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A folder of digits by subject, with tables of them; one row names a missing file."""
    root = tmp_path_factory.mktemp("digits")
    rows = [row_of(number) for number in range(COUNT)]
    for number, row in enumerate(rows):
        (root / row["path"]).parent.mkdir(exist_ok=True)
        (root / row["path"]).write_bytes(encoded(image(number), "PNG"))
    rows.append({**row_of(0), "path": "gone.png", "name": "gone"})
    (root / "t.csv").write_bytes(delimited(rows, ","))
    (root / "t.tsv.gz").write_bytes(gzip.compress(delimited(rows, "\t")))
    (root / "t.jsonl").write_bytes(lines(rows))
    (root / "t.parquet").write_bytes(parquet(rows))
    return root


def shards_of(out: Path) -> dict[str, str]:
    """All files but the manifest, which holds the flags."""
    return {name: digest for name, digest in files_of(out).items() if name != "manifest.json"}


# Tables of images.

TABLED = ["--label", "column:tags", "--split_column", "fold", "--num_shards", 2]
TABLED += ["--extra_features", "age:float32,subject:string,digit:int8,tags:string[]"]
TABLED += ["--encoding", "png", "--channels", 1]


@pytest.fixture(scope="module")
def tabled(digits, tmp_path_factory):
    """A folder with the dataset of each table that has lists."""
    base = tmp_path_factory.mktemp("tabled")
    for name, workers in (("t.jsonl", ONE), ("t.parquet", TWO)):
        flags = ["--table", digits / name, *TABLED, *workers]
        assert run("images", *flags, "--output", base / name) == 0
    return base


def test_every_row_becomes_a_record_with_its_columns(tabled):
    out = tabled / "t.jsonl"
    manifest = balanced(out)
    assert list(manifest.splits) == ["0", "1", "2"]
    assert manifest.label_names == ("even", "fifth", "third")
    records = records_of(out)
    assert len(records) == COUNT
    for number in range(COUNT):
        row = row_of(number)
        record = records[row["path"]]
        np.testing.assert_array_equal(record["image"][..., 0], image(number))
        assert record["split"] == str(row["fold"])
        assert [manifest.label_names[label] for label in record["label"]] == row["tags"]
        assert record["label"].dtype == np.int64
        assert [tag.decode() for tag in record["tags"]] == row["tags"]
        assert (record["age"].dtype, float(record["age"])) == (np.float32, np.float32(row["age"]))
        assert (record["digit"].dtype, int(record["digit"])) == (np.int8, row["digit"])
        assert record["subject"].item().decode() == row["subject"]
    rejects = rejects_of(out)
    assert list(rejects) == ["gone.png"] and rejects["gone.png"].startswith("there is no file '")


def test_batches_hold_several_labels_a_record(tabled):
    out = str(tabled / "t.jsonl")
    (batch,) = as_numpy(out, split="0", columns=["key", "label"], batch_size=999, batching="ragged")
    for key, labels in zip(batch["key"], batch["label"], strict=True):
        assert len(labels) == len(row_of(int(key[-7:-4]))["tags"])


def test_tables_of_all_formats_give_the_same_bytes(digits, tabled, tmp_path):
    assert shards_of(tabled / "t.parquet") == shards_of(tabled / "t.jsonl")
    # Text in .csv and .tsv files is converted to the dtype of the feature; they have no lists.
    flags = [*TABLED[2:], "--label", "column:digit", *ONE]
    for name in ("t.tsv.gz", "t.jsonl"):
        assert run("images", "--table", digits / name, *flags, "--output", tmp_path / name) == 0
    assert shards_of(tmp_path / "t.tsv.gz") == shards_of(tmp_path / "t.jsonl")
    assert all(r["label"] == r["digit"] for r in records_of(tmp_path / "t.tsv.gz").values())


def test_rows_of_splits_that_are_not_listed_are_rejects(digits, tmp_path):
    out = tmp_path / "out"
    flags = ["--table", digits / "t.csv", "--label", "none", "--split_column", "fold", *ONE]
    assert run("images", *flags, "--splits", "2, 0", "--output", out) == 0
    assert list(balanced(out).splits) == ["2", "0"]
    for key, record in records_of(out).items():
        assert record["split"] == str(int(key[-7:-4]) % 3)
    rejects = rejects_of(out)
    assert len(rejects) == COUNT // 3 + 1
    assert rejects["subject01/001.png"] == "column 'fold' is '1', --splits has 2, 0"


def test_a_split_without_any_existing_file_is_empty(digits, tmp_path):
    table = tmp_path / "t.jsonl"
    rows = [row_of(number) for number in range(20)]
    gone = [{"path": f"gone{number}.png", "fold": 3} for number in range(5)]
    table.write_bytes(lines(rows + gone))
    flags = ["--table", table, "--input", digits, "--label", "none", "--split_column", "fold", *ONE]
    assert run("images", *flags, "--num_shards", 2, "--output", tmp_path / "out") == 0
    split = balanced(tmp_path / "out").splits["3"]
    assert (split.rejected, [shard.records for shard in split.shards]) == (5, [0, 0])


HOSTILE = [
    ("../{name}/subject00/000.png", "expected a path without .. below"),
    ("/etc/passwd", "expected a path without .. below"),
    ("gs://bucket/x.png", "expected a path without .. below"),
    ("x.tar.gz", "an archive: name it with --input, without a --table"),
    ("subject00", "not a file"),
    ("t.csv", "cannot be decoded: unknown image format"),
    (None, "column 'path' is None, expected a path"),
    (7, "column 'path' is 7, expected a path"),
    ("a\0b", "column 'path' is 'a\\x00b', expected a path"),
    ("x" * 5000, "cannot be read: File name too long"),
]


def test_rows_that_name_no_image_are_rejects_with_a_reason_each(digits, tmp_path):
    rows = [{"path": row_of(0)["path"], "y": "1"}]
    rows += [
        {"path": path.format(name=digits.name) if isinstance(path, str) else path, "y": "2"}
        for path, _ in HOSTILE
    ]
    rows += [
        {"path": row_of(1)["path"], "y": ""},
        {"path": row_of(2)["path"], "y": ["3"]},
        {"path": row_of(3)["path"]},
    ]
    table = tmp_path / "in" / "t.jsonl"
    table.parent.mkdir()
    table.write_bytes(lines(rows) + b"{\n[1]\n\xff\n" + b'{"path": "\\ud800"}\n')
    out = tmp_path / "out"
    flags = ["--table", table, "--input", digits, "--label", "column:y", *ONE]
    assert run("images", *flags, "--output", out) == 0
    assert list(records_of(out)) == [row_of(0)["path"]]
    rejects = rejects_of(out)
    assert len(rejects) == len(rows) - 1 + 4
    for number, (path, reason) in enumerate(HOSTILE, 2):
        found = rejects.get(f"t.jsonl#{number}", rejects.get(str(path)))
        assert found is not None, path
        assert reason in found
    for number, reason in (
        (1, "column 'y': label ''"),
        (2, "column 'y': label ['3']"),
        (3, "no column 'y'; it has none"),
    ):
        assert rejects[row_of(number)["path"]].startswith(reason)
    last = len(rows)
    assert rejects[f"t.jsonl#{last + 1}"].startswith("not JSON: ")
    assert rejects[f"t.jsonl#{last + 2}"] == "expected a JSON object, got list"
    assert rejects[f"t.jsonl#{last + 3}"].startswith("not UTF-8: ")
    assert rejects[f"t.jsonl#{last + 4}"].startswith("not UTF-8: ")


@pytest.mark.slow
def test_two_rows_may_name_one_file_if_keys_are_rows_or_a_column(digits, tmp_path, capsys):
    rows = [{"path": row_of(n // 2)["path"], "id": f"k/{n}.tar.gz", "what": n} for n in range(8)]
    (tmp_path / "t.jsonl").write_bytes(lines(rows))
    flags = ["--table", tmp_path / "t.jsonl", "--input", digits, "--extra_features", "what:int64"]
    flags += ["--channels", 1, "--splits", "a=0.5,b=0.5", *ONE]
    message = r"\(--key row distinguishes them\)"
    refused(capsys, 2, message, "images", *flags, "--output", tmp_path / "path")
    assert not (tmp_path / "path" / "manifest.json").exists()
    for key in ("row", "column:id"):
        assert run("images", *flags, "--key", key, "--output", tmp_path / key) == 0
        manifest = balanced(tmp_path / key)
        # With any key, the folder of a file is its label, and a file is in one split.
        assert manifest.label_names == tuple(f"subject{n:02d}" for n in range(4))
        records = records_of(tmp_path / key)
        assert len(records) == 8
        for number, row in enumerate(rows):
            record = records[row["id"] if key == "column:id" else f"{row['path']}#{number + 1}"]
            np.testing.assert_array_equal(record["image"][..., 0], image(number // 2))
            assert (record["what"], record["label"]) == (number, number // 2)
            other = [r for r in records.values() if r["what"] // 2 == number // 2]
            assert len({r["split"] for r in other}) == 1


# Groups.


@pytest.mark.slow(base=["column:subject"])
@pytest.mark.parametrize("group", ["column:subject", r"^(subject\d+)/"])
def test_all_records_of_a_group_are_in_one_split(digits, tmp_path, group):
    flags = ["--table", digits / "t.csv", "--label", "none", "--group_by", group, *ONE]
    assert run("images", *flags, "--splits", "train=0.6,val=0.4", "--output", tmp_path / "o") == 0
    balanced(tmp_path / "o")
    splits = defaultdict(set)
    for key, record in records_of(tmp_path / "o").items():
        splits[key.split("/")[0]].add(record["split"])
    assert len(splits) == SUBJECTS
    assert all(len(found) == 1 for found in splits.values())
    assert {"train", "val"} == set.union(*splits.values())
    rejects = rejects_of(tmp_path / "o")
    assert list(rejects) == ["gone.png"]


@pytest.mark.slow
def test_windows_of_all_recordings_of_a_group_are_in_one_split(tmp_path):
    rows = []
    for number in range(24):
        time = np.arange(400 + 37 * number) / 1000
        wave = np.sin(2 * np.pi * (5 + number) * time).astype(np.float32)
        soundfile.write(tmp_path / f"{number:02d}.wav", wave, 1000, subtype="FLOAT")
        rows.append({"file": f"{number:02d}.wav", "speaker": number % 8, "loud": number > 11})
    (tmp_path / "t.jsonl").write_bytes(lines(rows))
    flags = ["--table", tmp_path / "t.jsonl", "--label", "column:loud", "--window", 100]
    flags += ["--stride", 50, "--group_by", "column:speaker", "--splits", "train=0.5,val=0.5"]
    flags += ["--extra_features", "speaker:int64", "--num_shards", 3]
    assert run("sensors", *flags, *ONE, "--output", tmp_path / "one") == 0
    balanced(tmp_path / "one")
    splits = defaultdict(set)
    windows: Counter[int] = Counter()
    for key, record in records_of(tmp_path / "one").items():
        name, _, number = key.partition("#")
        recording = int(name.removesuffix(".wav"))
        wave, _ = soundfile.read(tmp_path / name, dtype="float32", always_2d=True)
        start = (int(number) - 1) * 50
        np.testing.assert_array_equal(record["signal"], wave[start : start + 100])
        assert (record["speaker"], record["label"]) == (recording % 8, recording > 11)
        splits[recording % 8].add(record["split"])
        windows[recording] += 1
    assert windows == {n: (400 + 37 * n - 100) // 50 + 1 for n in range(24)}
    assert all(len(found) == 1 for found in splits.values())
    assert {"train", "val"} == set.union(*splits.values())
    assert run("sensors", *flags, *TWO, "--output", tmp_path / "two") == 0
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")


# Tables of texts.


@pytest.fixture(scope="module")
def paragraphs(tmp_path_factory):
    """A Parquet table of paragraphs that describe datasets, and its rows."""
    root = tmp_path_factory.mktemp("paragraphs")
    rows = []
    for file in sorted((Path(datasets.__file__).parent / "descr").glob("*.rst")):
        for paragraph in file.read_text().split("\n\n"):
            rows.append({"text": paragraph, "about": file.stem, "fold": len(rows) % 4})
    (root / "t.parquet").write_bytes(parquet(rows))
    return root, rows


def test_a_column_decides_the_splits_of_texts(paragraphs, tmp_path):
    root, rows = paragraphs
    flags = ["--table", root / "t.parquet", "--label", "column:about", "--split_column", "fold"]
    assert run("text", *flags, *ONE, "--output", tmp_path / "o") == 0
    manifest = balanced(tmp_path / "o")
    assert list(manifest.splits) == ["0", "1", "2", "3"]
    records = records_of(tmp_path / "o")
    assert len(records) == len(rows)
    for number, row in enumerate(rows, 1):
        record = records[f"t.parquet#{number}"]
        assert record["text"].item().decode() == row["text"]
        assert manifest.label_names[record["label"]] == row["about"]
        assert record["split"] == str(row["fold"])


GROUPS = {"a": 9, "b": 5, "c": 2, "d": 2, "e": 1, "f": 1}


@pytest.mark.slow(base=["whole"])
@pytest.mark.parametrize("window", [[], ["--window", 2]], ids=["whole", "windows"])
def test_groups_give_shares_as_exact_as_their_sizes_allow(tmp_path, window):
    for group, size in GROUPS.items():
        (tmp_path / "in" / group).mkdir(parents=True)
        for number in range(size):
            array = np.full((4, 1), number, np.float32)
            np.save(tmp_path / "in" / group / f"{number}.npy", array)
    (tmp_path / "in" / "late").mkdir()
    np.save(tmp_path / "in" / "late" / "short.npy", np.float32(1))
    flags = ["--input", tmp_path / "in", "--label", "none", "--group_by", "^[a-z]+", *window]
    flags += ["--splits", "train=0.6,val=0.3,test=0.1", "--output", tmp_path / "out"]
    assert run("sensors", *flags) == 0
    manifest, times = balanced(tmp_path / "out"), 2 if window else 1
    sizes = {name: split.records for name, split in manifest.splits.items()}
    assert sizes == {"train": 12 * times, "val": 6 * times, "test": 2 * times}
    splits = defaultdict(set)
    for key, record in records_of(tmp_path / "out").items():
        splits[key[0]].add(record["split"])
    assert {name: splits[name] for name in "ab"} == {"a": {"train"}, "b": {"val"}}
    assert all(len(found) == 1 for found in splits.values())
    assert list(rejects_of(tmp_path / "out")) == ["late/short.npy"]


def test_windows_of_all_texts_of_a_group_are_in_one_split(paragraphs, tmp_path):
    root, rows = paragraphs
    flags = ["--table", root / "t.parquet", "--group_by", "column:about", "--tokens", "bytes"]
    flags += ["--window", 200, "--stride", 150, "--splits", "train=0.5,val=0.5"]
    assert run("text", *flags, *ONE, "--output", tmp_path / "o") == 0
    balanced(tmp_path / "o")
    splits, found = defaultdict(set), set()
    for key, record in records_of(tmp_path / "o").items():
        number = int(key.split("#")[1].split("@")[0])
        splits[rows[number - 1]["about"]].add(record["split"])
        found.add(number)
    assert found == set(range(1, len(rows) + 1))
    assert all(len(names) == 1 for names in splits.values())
    assert {"train", "val"} == set.union(*splits.values())


def test_text_files_named_in_a_table_may_have_the_keys_of_a_column(tmp_path):
    rows = []
    for number, file in enumerate(sorted((Path(datasets.__file__).parent / "descr").glob("*.rst"))):
        (tmp_path / f"{file.stem}.txt").write_bytes(file.read_bytes())
        rows.append({"file": f"{file.stem}.txt", "id": number, "kind": ["toy", "real"][number % 2]})
    (tmp_path / "t.csv").write_bytes(delimited(rows, ","))
    flags = ["--table", tmp_path / "t.csv", "--path_column", "file", "--record", "file"]
    flags += ["--label", "column:kind", "--key", "column:id", "--extra_features", "file:string"]
    assert run("text", *flags, *ONE, "--output", tmp_path / "o") == 0
    assert balanced(tmp_path / "o").label_names == ("real", "toy")
    records = records_of(tmp_path / "o")
    assert sorted(records, key=int) == [str(row["id"]) for row in rows]
    for row in rows:
        record = records[str(row["id"])]
        assert record["text"].item() == (tmp_path / row["file"]).read_bytes()
        assert record["label"] == (row["kind"] == "toy")
        assert record["file"].item().decode() == row["file"]


# Stratified splits.

SHARES = {"train": 0.7, "val": 0.2, "test": 0.1}
STRATIFIED = ["--stratify", "--splits", ",".join(f"{k}={v}" for k, v in SHARES.items())]


def assert_shares(out: Path, label_of) -> None:
    """Asserts that the splits divide the records of every label by their shares, to one record."""
    totals: Counter[str] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for key, record in records_of(out).items():
        label = label_of(key)
        totals[label] += 1
        counts[label, record["split"]] += 1
    for label, total in totals.items():
        for split, share in SHARES.items():
            assert abs(counts[label, split] - total * share) < 1 + 1e-9, (label, split)


@pytest.fixture(scope="module")
def stratified(digits, tmp_path_factory):
    """The arguments of a stratified job, and its output."""
    flags = ["images", "--table", digits / "t.csv", "--label", "column:digit", *STRATIFIED]
    flags += ["--num_shards", 3, "--image_size", "8x8", "--channels", 1]
    out = tmp_path_factory.mktemp("stratified") / "one"
    assert run(*flags, *ONE, "--output", out) == 0
    return flags, out


def test_every_label_has_its_share_of_every_split(stratified):
    _, out = stratified
    balanced(out)
    assert_shares(out, lambda key: int(DIGITS.target[int(key[-7:-4])]))
    rejects = rejects_of(out)
    assert list(rejects) == ["gone.png"] and rejects["gone.png"].startswith("there is no file '")


@pytest.mark.slow(base=["two"])
@pytest.mark.parametrize("workers", [TWO, BEAM_WORKERS], ids=["two", "beam"])
def test_all_workers_write_the_same_stratified_bytes(stratified, tmp_path, workers):
    flags, out = stratified
    assert run(*flags, *workers, "--output", tmp_path / "o") == 0
    assert files_of(tmp_path / "o") == files_of(out)


@pytest.mark.slow
def test_an_interrupted_stratified_run_resumes_to_the_same_bytes(stratified, tmp_path, capsys):
    flags, out = stratified
    interrupted(*flags, *ONE, "--output", tmp_path / "o")
    assert resumed(capsys, *flags, *ONE, "--output", tmp_path / "o") == 9
    assert files_of(tmp_path / "o") == files_of(out)


@pytest.mark.slow
def test_a_table_that_changes_after_an_interruption_is_read_again(digits, tmp_path, capsys):
    table = tmp_path / "t.jsonl"
    rows = [{**row_of(number), "note": f"{number}"} for number in range(60)]
    flags = ["images", "--table", table, "--input", digits, "--label", "column:digit", *ONE]
    flags += ["--extra_features", "note:string", "--num_shards", 2, *STRATIFIED]
    table.write_bytes(lines(rows))
    interrupted(*flags, "--output", tmp_path / "o")
    rows[7]["note"] = "another"
    table.write_bytes(lines(rows))
    assert resumed(capsys, *flags, "--output", tmp_path / "o") == 5
    assert run(*flags, "--output", tmp_path / "fresh") == 0
    assert files_of(tmp_path / "o") == files_of(tmp_path / "fresh")
    assert records_of(tmp_path / "o")[rows[7]["path"]]["note"] == b"another"


@pytest.fixture(scope="module")
def stratified_texts(paragraphs, tmp_path_factory):
    """The flags of a stratified text job, and its output."""
    table, out = paragraphs[0] / "t.parquet", tmp_path_factory.mktemp("texts") / "o"
    flags = ["--table", table, "--label_field", "about", "--drop_duplicates", *STRATIFIED]
    assert run("text", *flags, *ONE, "--output", out) == 0
    return flags, out


def test_texts_are_stratified_and_duplicates_counted(paragraphs, stratified_texts):
    _, rows = paragraphs
    _, out = stratified_texts
    manifest = balanced(out)
    distinct = {row["text"] for row in rows}
    written = sum(shard.records for s in manifest.splits.values() for shard in s.shards)
    assert (written, manifest.duplicates) == (len(distinct), len(rows) - len(distinct))
    assert manifest.duplicates > 0
    assert_shares(out, lambda key: rows[int(key.split("#")[1]) - 1]["about"])


@pytest.mark.slow
def test_beam_workers_write_the_same_stratified_texts(stratified_texts, tmp_path):
    flags, out = stratified_texts
    assert run("text", *flags, *BEAM_WORKERS, "--output", tmp_path / "o") == 0
    assert files_of(tmp_path / "o") == files_of(out)


def test_a_stratified_job_that_rejects_all_rows_fails_with_the_first_reason(
    digits, tmp_path, capsys
):
    rows = [{"path": row_of(number)["path"], "y": ""} for number in range(4)]
    (tmp_path / "t.csv").write_bytes(delimited(rows, ","))
    flags = ["--table", tmp_path / "t.csv", "--input", digits, "--label", "column:y", *STRATIFIED]
    message = "all 4 records were rejected, no dataset was written; the first: subject00/000.png"
    refused(capsys, 1, message, "images", *flags, *ONE, "--output", tmp_path / "o")
    assert not (tmp_path / "o" / "manifest.json").exists()


def test_fields_of_objects_are_texts_labels_groups_and_features(tmp_path):
    names = ["noun", "verb"]
    rows = [
        {
            "translations": {"de": f"Wort {n}", "en": f"word {n}"},
            "meta": {"cls": names[n % 2], "by": {"author": f"a{n % 7}"}, "year": 1900 + n},
        }
        for n in range(60)
    ]
    (tmp_path / "t.jsonl").write_bytes(lines(rows))
    flags = ["--text_field", "translations.de", "--label", "column:meta.cls", *ONE]
    flags += ["--group_by", "column:meta.by.author", "--splits", "train=0.5,val=0.5"]
    flags += ["--extra_features", "meta.year:int32,meta.by.author:string"]
    flags += ["--input", tmp_path / "t.jsonl", "--output", tmp_path / "out"]
    assert run("text", *flags) == 0
    found = records_of(tmp_path / "out")
    splits = defaultdict(set)
    for number, row in enumerate(rows, 1):
        record = found[f"t.jsonl#{number}"]
        assert record["text"].item().decode() == row["translations"]["de"]
        assert names[record["label"]] == row["meta"]["cls"]
        assert int(record["meta.year"]) == row["meta"]["year"]
        splits[record["meta.by.author"].item()].add(record["split"])
    assert len(splits) == 7
    assert all(len(split) == 1 for split in splits.values())


HELD = Path(__file__).parents[1] / "support" / "hugging_face"


def test_parquet_of_hugging_face_gives_its_images_labels_and_ids(tmp_path):
    table, out = HELD / "images.parquet", tmp_path / "out"
    flags = ["--label", "column:label", "--extra_features", "meta.age:float32", *ONE]
    assert run("images", "--table", table, *flags, "--output", out) == 0
    assert balanced(out).label_names == ("zebra", "ant", "cat")
    found = records_of(out)
    rows = pq.read_table(table).to_pylist()
    assert len(found) == len(rows)
    for number, row in enumerate(rows, 1):
        path = row["image"]["path"]
        record = found[f"images.parquet/{path}" if path else f"images.parquet#{number}"]
        pixels = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])))
        np.testing.assert_array_equal(record["image"], pixels)
        assert int(record["label"]) == row["label"]
        assert float(record["meta.age"]) == row["meta"]["age"]


@pytest.mark.slow
def test_parquet_of_hugging_face_gives_its_audio_and_several_labels(tmp_path):
    table, out = HELD / "audio.parquet", tmp_path / "out"
    flags = ["--label", "column:label", "--window", "5", *ONE]
    assert run("sensors", "--table", table, *flags, "--output", out) == 0
    assert balanced(out).label_names == ("yes", "no")
    error = "column 'label': label -1: the table names 2 classes, numbered from 0"
    assert rejects_of(out) == {"audio.parquet/3.wav": error}
    found = records_of(out)
    assert len(found) == 6
    for row in pq.read_table(table).to_pylist()[:3]:
        samples, _ = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="int16")
        for number in (1, 2):
            record = found[f"audio.parquet/{row['audio']['path']}#{number}"]
            window = samples[5 * (number - 1) : 5 * number]
            np.testing.assert_array_equal(record["signal"][:, 0], window)
            assert int(record["label"]) == row["label"]
    out = tmp_path / "several"
    flags = ["--label", "column:meta.tags", *ONE]
    assert run("images", "--table", HELD / "images.parquet", *flags, "--output", out) == 0
    rows = pq.read_table(HELD / "images.parquet").to_pylist()
    labels = sorted(tuple(record["label"].tolist()) for record in records_of(out).values())
    assert labels == sorted(tuple(row["meta"]["tags"]) for row in rows)


@pytest.mark.slow
def test_texts_of_hugging_face_have_its_labels_and_ids(tmp_path):
    table, out = HELD / "texts.parquet", tmp_path / "out"
    flags = ["--label_field", "label", "--input", table, *ONE]
    assert run("text", *flags, "--output", out) == 0
    assert balanced(out).label_names == ("neg", "Pos")
    found = records_of(out)
    for number, row in enumerate(pq.read_table(table).to_pylist(), 1):
        record = found[f"texts.parquet#{number}"]
        assert (record["text"].item().decode(), int(record["label"])) == (row["text"], row["label"])


def test_tables_of_files_need_a_label_that_they_have(tmp_path, capsys):
    flags = ["--table", HELD / "images.parquet", "--output", tmp_path / "out"]
    refused(
        capsys, 2, "^error: --label parent: files in a table have no folders: add", "images", *flags
    )
    flags += ["--path_column", "image"]
    refused(capsys, 2, "^error: --path_column image: expected a column with paths", "text", *flags)


def test_a_metadata_csv_of_hugging_face_names_the_files_beside_it(tmp_path):
    (tmp_path / "1.png").write_bytes(encoded(image(1), "PNG"))
    (tmp_path / "metadata.csv").write_text("file_name,text\n1.png,one\n")
    labels = TableInputs.of_tables([str(tmp_path / "metadata.csv")], "", "", ("text",))
    (source,) = labels.sources(labels.patterns[0])
    assert (source.key, source.row, source.error) == ("1.png", {"text": "one"}, "")


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["words", "bpe"])
def test_several_fields_are_features_with_their_tokens(tmp_path, tokens):
    rows = [{"question": f"what is {n % 30}?", "answer": f"it is {n % 10}"} for n in range(60)]
    (tmp_path / "t.jsonl").write_bytes(lines(rows))
    flags = ["--text_field", "question,answer", "--tokens", tokens, "--drop_duplicates", *ONE]
    flags += ["--vocabulary_size", 280]
    flags += ["--input", tmp_path / "t.jsonl", "--output", tmp_path / "out"]
    assert run("text", *flags) == 0
    found = records_of(tmp_path / "out")
    assert len(found) == 30
    ids: dict[bytes, set] = defaultdict(set)
    for key, record in found.items():
        row = rows[int(key.partition("#")[2]) - 1]
        for name, text in row.items():
            assert record[name].item().decode() == text
            assert record[f"{name}_tokens"].dtype == np.int64
            if tokens == "words":
                for word, id_ in zip(text.split(), record[f"{name}_tokens"], strict=True):
                    ids[word.rstrip("?")].add(int(id_))
    assert all(len(id_) == 1 for id_ in ids.values())  # One vocabulary for both.
