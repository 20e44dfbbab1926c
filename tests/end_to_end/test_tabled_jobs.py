"""Jobs with tables: rows name files or hold texts, columns decide labels, splits and groups."""

import csv
import io
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn import datasets
from sklearn.datasets import load_digits

from beam_jobs.sources.table_inputs import TableInputs
from tests.support.commands import ONE, TWO, interrupted, refused, resumed, run
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


def test_tables_of_two_formats_give_the_same_bytes(tabled):
    assert shards_of(tabled / "t.parquet") == shards_of(tabled / "t.jsonl")


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


# Groups.


def test_all_records_of_a_group_are_in_one_split(digits, tmp_path):
    group = ["--group_by", "column:subject"]
    flags = ["--table", digits / "t.csv", "--label", "none", *group, *ONE]
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


GROUPS = {"a": 9, "b": 5, "c": 2, "d": 2, "e": 1, "f": 1}


def test_groups_give_shares_as_exact_as_their_sizes_allow(tmp_path):
    for group, size in GROUPS.items():
        (tmp_path / "in" / group).mkdir(parents=True)
        for number in range(size):
            array = np.full((4, 1), number, np.float32)
            np.save(tmp_path / "in" / group / f"{number}.npy", array)
    (tmp_path / "in" / "late").mkdir()
    np.save(tmp_path / "in" / "late" / "short.npy", np.float32(1))
    flags = ["--input", tmp_path / "in", "--label", "none", "--group_by", "^[a-z]+"]
    flags += ["--splits", "train=0.6,val=0.3,test=0.1", "--output", tmp_path / "out"]
    assert run("sensors", *flags) == 0
    manifest = balanced(tmp_path / "out")
    sizes = {name: split.records for name, split in manifest.splits.items()}
    assert sizes == {"train": 12, "val": 6, "test": 2}
    splits = defaultdict(set)
    for key, record in records_of(tmp_path / "out").items():
        splits[key[0]].add(record["split"])
    assert {name: splits[name] for name in "ab"} == {"a": {"train"}, "b": {"val"}}
    assert all(len(found) == 1 for found in splits.values())
    assert list(rejects_of(tmp_path / "out")) == ["late/short.npy"]


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
