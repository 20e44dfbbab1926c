"""Tables, splits by column, groups, shares of labels: from the command to the records."""

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

from beam_jobs.__main__ import main
from beam_jobs.errors import DataError
from beam_jobs.pipeline import commit
from beam_jobs.records.rejects import Reject
from readers import RecordSource, as_numpy, verify
from readers.format.manifest import Manifest
from tests.support.datasets import files_of

ONE = ["--direct_num_workers", 1]
TWO = ["--direct_num_workers", 2]
BEAMS_OWN = ["--direct_running_mode", "multi_processing", "--direct_num_workers", 2]

COUNT, SUBJECTS = 150, 12
DIGITS = load_digits()


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def picture(number: int) -> np.ndarray:
    return (DIGITS.images[number] * 15).astype(np.uint8)


def row_of(number: int) -> dict:
    return {
        "path": f"subject{number % SUBJECTS:02d}/{number:03d}.png",
        "digit": int(DIGITS.target[number]),
        "fold": number % 3,
        "subject": f"s{number % SUBJECTS}",
        "age": 20 + number / 8,
        "tags": [tag for tag, at in (("even", 2), ("third", 3), ("fifth", 5)) if not number % at],
        "name": f"picture {number}",
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
    """Real digits in folders of subjects, tables beside them; one row names a file that is gone."""
    root = tmp_path_factory.mktemp("digits")
    rows = [row_of(number) for number in range(COUNT)]
    for number, row in enumerate(rows):
        (root / row["path"]).parent.mkdir(exist_ok=True)
        Image.fromarray(picture(number)).save(root / row["path"])
    rows.append({**row_of(0), "path": "gone.png", "name": "gone"})
    (root / "t.csv").write_bytes(delimited(rows, ","))
    (root / "t.tsv.gz").write_bytes(gzip.compress(delimited(rows, "\t")))
    (root / "t.jsonl").write_bytes(lines(rows))
    (root / "t.parquet").write_bytes(parquet(rows))
    return root


def whole(out: Path) -> Manifest:
    """The manifest of a dataset that is whole; nothing that was found is lost."""
    report = verify(out)
    assert report.ok, report.problems
    assert not (out / ".staging").exists()
    manifest = Manifest.read(str(out))
    for name, split in manifest.splits.items():
        counts = [shard.records for shard in split.shards]
        assert max(counts, default=0) - min(counts, default=0) <= 1
        assert len(RecordSource(str(out), name)) == sum(counts) if counts else not sum(counts)
    assert sum(split.rejected for split in manifest.splits.values()) == len(rejects_of(out))
    return manifest


def rejects_of(out: Path) -> dict[str, str]:
    files = sorted((out / "rejects").glob("*.jsonl"))
    found = [Reject.from_json(line) for file in files for line in file.read_bytes().splitlines()]
    return {reject.key: reject.error for reject in found}


def records_of(out: Path) -> dict[str, dict]:
    """Key -> the record, and the name of its `split`."""
    found = {}
    for split in Manifest.read(str(out)).splits:
        for record in RecordSource(str(out), split):
            key = record["key"].item().decode()
            assert key not in found
            found[key] = {**record, "split": split}
    return found


def shards_of(out: Path) -> dict[str, str]:
    """All files but the manifest, which tells the flags."""
    return {name: digest for name, digest in files_of(out).items() if name != "manifest.json"}


def interrupted(*arguments) -> None:
    """Runs a job that fails when all shards are done, before its manifest is written."""

    def fails(*_):
        raise DataError("interrupted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "check_files", fails)
        assert run(*arguments) == 1


# Pictures that a table names.

TABLED = ["--label", "column:tags", "--split_column", "fold", "--num_shards", 2]
TABLED += ["--extra_features", "age:float32,subject:string,digit:int8,tags:string[]"]
TABLED += ["--encoding", "png", "--channels", 1]


@pytest.fixture(scope="module")
def tabled(digits, tmp_path_factory):
    """The datasets of all tables with lists, by the name of the table."""
    base = tmp_path_factory.mktemp("tabled")
    for name, workers in (("t.jsonl", ONE), ("t.parquet", TWO)):
        flags = ["--table", digits / name, *TABLED, *workers]
        assert run("images", *flags, "--output", base / name) == 0
    return base


def test_every_row_becomes_a_record_with_its_columns(tabled):
    out = tabled / "t.jsonl"
    manifest = whole(out)
    assert list(manifest.splits) == ["0", "1", "2"]
    assert manifest.label_names == ("even", "fifth", "third")
    records = records_of(out)
    assert len(records) == COUNT
    for number in range(COUNT):
        row = row_of(number)
        record = records[row["path"]]
        np.testing.assert_array_equal(record["image"][..., 0], picture(number))
        assert record["split"] == str(row["fold"])
        assert [manifest.label_names[label] for label in record["label"]] == row["tags"]
        assert record["label"].dtype == np.int64
        assert [tag.decode() for tag in record["tags"]] == row["tags"]
        assert (record["age"].dtype, float(record["age"])) == (np.float32, np.float32(row["age"]))
        assert (record["digit"].dtype, int(record["digit"])) == (np.int8, row["digit"])
        assert record["subject"].item().decode() == row["subject"]
    assert rejects_of(out) == {"gone.png": "cannot be read: No such file or directory"}


def test_several_labels_come_back_in_batches(tabled):
    out = str(tabled / "t.jsonl")
    (batch,) = as_numpy(out, split="0", columns=["key", "label"], batch_size=999, batching="ragged")
    for key, labels in zip(batch["key"], batch["label"], strict=True):
        assert len(labels) == len(row_of(int(key[-7:-4]))["tags"])


def test_the_kind_of_table_changes_no_byte(digits, tabled, tmp_path):
    assert shards_of(tabled / "t.parquet") == shards_of(tabled / "t.jsonl")
    # What is text in .csv and .tsv is read as the dtype that is asked for; lists are no labels there.
    flags = [*TABLED[2:], "--label", "column:digit", *ONE]
    for name in ("t.tsv.gz", "t.jsonl"):
        assert run("images", "--table", digits / name, *flags, "--output", tmp_path / name) == 0
    assert shards_of(tmp_path / "t.tsv.gz") == shards_of(tmp_path / "t.jsonl")
    assert all(r["label"] == r["digit"] for r in records_of(tmp_path / "t.tsv.gz").values())


def test_names_of_splits_may_be_given_and_other_rows_are_rejects(digits, tmp_path):
    out = tmp_path / "out"
    flags = ["--table", digits / "t.csv", "--label", "none", "--split_column", "fold", *ONE]
    assert run("images", *flags, "--splits", "2, 0", "--output", out) == 0
    assert list(whole(out).splits) == ["2", "0"]
    for key, record in records_of(out).items():
        assert record["split"] == str(int(key[-7:-4]) % 3)
    rejects = rejects_of(out)
    assert len(rejects) == COUNT // 3 + 1
    assert rejects["subject01/001.png"] == "column 'fold' is '1', --splits has 2, 0"


def test_a_split_whose_files_are_all_gone_is_there_and_empty(digits, tmp_path):
    table = tmp_path / "t.jsonl"
    rows = [row_of(number) for number in range(20)]
    gone = [{"path": f"gone{number}.png", "fold": 3} for number in range(5)]
    table.write_bytes(lines(rows + gone))
    flags = ["--table", table, "--input", digits, "--label", "none", "--split_column", "fold", *ONE]
    assert run("images", *flags, "--num_shards", 2, "--output", tmp_path / "out") == 0
    split = whole(tmp_path / "out").splits["3"]
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


def test_rows_that_name_no_picture_are_rejects_each_with_its_reason(digits, tmp_path):
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
    manifest = whole(out)
    assert list(records_of(out)) == [row_of(0)["path"]]
    rejects = rejects_of(out)
    assert len(rejects) == len(rows) - 1 + 4
    assert manifest.rejected == len(rejects)
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
def test_a_file_may_be_named_twice_where_rows_or_a_column_are_the_keys(digits, tmp_path, capsys):
    rows = [{"path": row_of(n // 2)["path"], "id": f"k/{n}.tar.gz", "what": n} for n in range(8)]
    (tmp_path / "t.jsonl").write_bytes(lines(rows))
    flags = ["--table", tmp_path / "t.jsonl", "--input", digits, "--extra_features", "what:int64"]
    flags += ["--channels", 1, "--splits", "a=0.5,b=0.5", *ONE]
    assert run("images", *flags, "--output", tmp_path / "path") == 2
    assert "(--key row distinguishes them)" in capsys.readouterr().err
    assert not (tmp_path / "path" / "manifest.json").exists()
    for key in ("row", "column:id"):
        assert run("images", *flags, "--key", key, "--output", tmp_path / key) == 0
        manifest = whole(tmp_path / key)
        # Whatever the keys, folders of files are labels, and a file is in one split.
        assert manifest.label_names == tuple(f"subject{n:02d}" for n in range(4))
        records = records_of(tmp_path / key)
        assert len(records) == 8
        for number, row in enumerate(rows):
            record = records[row["id"] if key == "column:id" else f"{row['path']}#{number + 1}"]
            np.testing.assert_array_equal(record["image"][..., 0], picture(number // 2))
            assert (record["what"], record["label"]) == (number, number // 2)
            other = [r for r in records.values() if r["what"] // 2 == number // 2]
            assert len({r["split"] for r in other}) == 1


# Groups.


@pytest.mark.slow(base=["column:subject"])
@pytest.mark.parametrize("group", ["column:subject", r"^(subject\d+)/"])
def test_all_records_of_a_group_are_in_one_split(digits, tmp_path, group):
    flags = ["--table", digits / "t.csv", "--label", "none", "--group_by", group, *ONE]
    assert run("images", *flags, "--splits", "train=0.6,val=0.4", "--output", tmp_path / "o") == 0
    whole(tmp_path / "o")
    splits = defaultdict(set)
    for key, record in records_of(tmp_path / "o").items():
        splits[key.split("/")[0]].add(record["split"])
    assert len(splits) == SUBJECTS
    assert all(len(found) == 1 for found in splits.values())
    assert {"train", "val"} == set.union(*splits.values())
    rejects = rejects_of(tmp_path / "o")
    assert list(rejects) == ["gone.png"]


@pytest.mark.slow
def test_windows_of_the_recordings_of_a_group_are_in_one_split(tmp_path):
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
    whole(tmp_path / "one")
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


# Texts of tables.


@pytest.fixture(scope="module")
def paragraphs(tmp_path_factory):
    """Paragraphs of descriptions of datasets, as a table of Parquet."""
    root = tmp_path_factory.mktemp("paragraphs")
    rows = []
    for file in sorted((Path(datasets.__file__).parent / "descr").glob("*.rst")):
        for paragraph in file.read_text().split("\n\n"):
            rows.append({"text": paragraph, "about": file.stem, "fold": len(rows) % 4})
    (root / "t.parquet").write_bytes(parquet(rows))
    return root, rows


def test_texts_of_a_table_are_split_by_its_column(paragraphs, tmp_path):
    root, rows = paragraphs
    flags = ["--table", root / "t.parquet", "--label", "column:about", "--split_column", "fold"]
    assert run("text", *flags, *ONE, "--output", tmp_path / "o") == 0
    manifest = whole(tmp_path / "o")
    assert list(manifest.splits) == ["0", "1", "2", "3"]
    records = records_of(tmp_path / "o")
    assert len(records) == len(rows)
    for number, row in enumerate(rows, 1):
        record = records[f"t.parquet#{number}"]
        assert record["text"].item().decode() == row["text"]
        assert manifest.label_names[record["label"]] == row["about"]
        assert record["split"] == str(row["fold"])


def test_windows_of_the_texts_of_a_group_are_in_one_split(paragraphs, tmp_path):
    root, rows = paragraphs
    flags = ["--table", root / "t.parquet", "--group_by", "column:about", "--tokens", "bytes"]
    flags += ["--window", 200, "--stride", 150, "--splits", "train=0.5,val=0.5"]
    assert run("text", *flags, *ONE, "--output", tmp_path / "o") == 0
    whole(tmp_path / "o")
    splits, found = defaultdict(set), set()
    for key, record in records_of(tmp_path / "o").items():
        number = int(key.split("#")[1].split("@")[0])
        splits[rows[number - 1]["about"]].add(record["split"])
        found.add(number)
    assert found == set(range(1, len(rows) + 1))
    assert all(len(names) == 1 for names in splits.values())
    assert {"train", "val"} == set.union(*splits.values())


def test_whole_files_that_a_table_names_are_texts_whatever_their_keys(tmp_path):
    rows = []
    for number, file in enumerate(sorted((Path(datasets.__file__).parent / "descr").glob("*.rst"))):
        (tmp_path / f"{file.stem}.txt").write_bytes(file.read_bytes())
        rows.append({"file": f"{file.stem}.txt", "id": number, "kind": ["toy", "real"][number % 2]})
    (tmp_path / "t.csv").write_bytes(delimited(rows, ","))
    flags = ["--table", tmp_path / "t.csv", "--path_column", "file", "--record", "file"]
    flags += ["--label", "column:kind", "--key", "column:id", "--extra_features", "file:string"]
    assert run("text", *flags, *ONE, "--output", tmp_path / "o") == 0
    assert whole(tmp_path / "o").label_names == ("real", "toy")
    records = records_of(tmp_path / "o")
    assert sorted(records, key=int) == [str(row["id"]) for row in rows]
    for row in rows:
        record = records[str(row["id"])]
        assert record["text"].item() == (tmp_path / row["file"]).read_bytes()
        assert record["label"] == (row["kind"] == "toy")
        assert record["file"].item().decode() == row["file"]


# Shares of labels.

SHARES = {"train": 0.7, "val": 0.2, "test": 0.1}
STRATIFIED = ["--stratify", "--splits", ",".join(f"{k}={v}" for k, v in SHARES.items())]


def check_shares(out: Path, label_of) -> None:
    """Every label has its share of records in every split, to one record."""
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
    """(the flags of a stratified job, its dataset)."""
    flags = ["images", "--table", digits / "t.csv", "--label", "column:digit", *STRATIFIED]
    flags += ["--num_shards", 3, "--image_size", "8x8", "--channels", 1]
    out = tmp_path_factory.mktemp("stratified") / "one"
    assert run(*flags, *ONE, "--output", out) == 0
    return flags, out


def test_every_label_has_its_share_of_every_split(stratified):
    _, out = stratified
    whole(out)
    check_shares(out, lambda key: int(DIGITS.target[int(key[-7:-4])]))
    assert rejects_of(out) == {"gone.png": "cannot be read: No such file or directory"}


@pytest.mark.slow(base=["two"])
@pytest.mark.parametrize("workers", [TWO, BEAMS_OWN], ids=["two", "beams own"])
def test_shares_are_the_same_bytes_whoever_runs_the_job(stratified, tmp_path, workers):
    flags, out = stratified
    assert run(*flags, *workers, "--output", tmp_path / "o") == 0
    assert files_of(tmp_path / "o") == files_of(out)


@pytest.mark.slow
def test_a_job_that_was_interrupted_goes_on_to_the_same_bytes(stratified, tmp_path, capsys):
    flags, out = stratified
    interrupted(*flags, *ONE, "--output", tmp_path / "o")
    assert not (tmp_path / "o" / "manifest.json").exists()
    capsys.readouterr()
    assert run(*flags, *ONE, "--output", tmp_path / "o") == 0
    assert "kept 9 shards of an unfinished run" in capsys.readouterr().err
    assert files_of(tmp_path / "o") == files_of(out)


@pytest.mark.slow
def test_a_table_that_changes_after_an_interruption_is_read_anew(digits, tmp_path, capsys):
    table = tmp_path / "t.jsonl"
    rows = [{**row_of(number), "note": f"{number}"} for number in range(60)]
    flags = ["images", "--table", table, "--input", digits, "--label", "column:digit", *ONE]
    flags += ["--extra_features", "note:string", "--num_shards", 2, *STRATIFIED]
    table.write_bytes(lines(rows))
    interrupted(*flags, "--output", tmp_path / "o")
    rows[7]["note"] = "another"
    table.write_bytes(lines(rows))
    capsys.readouterr()
    assert run(*flags, "--output", tmp_path / "o") == 0
    assert "kept 5 shards of an unfinished run" in capsys.readouterr().err
    assert run(*flags, "--output", tmp_path / "fresh") == 0
    assert files_of(tmp_path / "o") == files_of(tmp_path / "fresh")
    assert records_of(tmp_path / "o")[rows[7]["path"]]["note"] == b"another"


@pytest.fixture(scope="module")
def stratified_texts(paragraphs, tmp_path_factory):
    """The flags of a job, and its output."""
    table, out = paragraphs[0] / "t.parquet", tmp_path_factory.mktemp("texts") / "o"
    flags = ["--table", table, "--label_field", "about", "--drop_duplicates", *STRATIFIED]
    assert run("text", *flags, *ONE, "--output", out) == 0
    return flags, out


def test_texts_are_stratified_and_duplicates_counted(paragraphs, stratified_texts):
    _, rows = paragraphs
    _, out = stratified_texts
    manifest = whole(out)
    distinct = {row["text"] for row in rows}
    written = sum(shard.records for s in manifest.splits.values() for shard in s.shards)
    assert (written, manifest.duplicates) == (len(distinct), len(rows) - len(distinct))
    assert manifest.duplicates > 0
    check_shares(out, lambda key: rows[int(key.split("#")[1]) - 1]["about"])


@pytest.mark.slow
def test_stratified_texts_are_the_same_bytes_by_workers_of_beam(stratified_texts, tmp_path):
    flags, out = stratified_texts
    assert run("text", *flags, *BEAMS_OWN, "--output", tmp_path / "o") == 0
    assert files_of(tmp_path / "o") == files_of(out)


@pytest.mark.slow
def test_labels_of_one_record_each_still_give_the_splits_their_shares(tmp_path):
    rows = [{"text": f"text {number}", "label": f"label {number}"} for number in range(2000)]
    (tmp_path / "t.jsonl").write_bytes(lines(rows))
    flags = ["--input", tmp_path / "t.jsonl", "--label_field", "label", *STRATIFIED, *ONE]
    assert run("text", *flags, "--output", tmp_path / "o") == 0
    counts = {name: s.records for name, s in whole(tmp_path / "o").splits.items()}
    assert counts == {split: pytest.approx(2000 * share, abs=10) for split, share in SHARES.items()}


def test_a_stratified_job_without_any_label_fails_as_any_other(digits, tmp_path, capsys):
    rows = [{"path": row_of(number)["path"], "y": ""} for number in range(4)]
    (tmp_path / "t.csv").write_bytes(delimited(rows, ","))
    flags = ["--table", tmp_path / "t.csv", "--input", digits, "--label", "column:y", *STRATIFIED]
    assert run("images", *flags, *ONE, "--output", tmp_path / "o") == 1
    err = capsys.readouterr().err
    assert (
        "all 4 records were rejected, no dataset was written; the first: subject00/000.png" in err
    )
    assert not (tmp_path / "o" / "manifest.json").exists()
