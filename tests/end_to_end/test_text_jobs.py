"""The text job on sources and documents that are installed with Python and its packages."""

import contextlib
import csv
import gzip
import io
import json
import re
import shutil
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn
import tokenizers
from tokenizers import models, pre_tokenizers

from beam_jobs.jobs.text.subwords import train_bpe
from beam_jobs.jobs.text.tokens import words
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from readers.format.manifest import Manifest
from tests.support.archives import zipped
from tests.support.commands import BEAM_WORKERS, ONE, TWO, refused, resumed, run
from tests.support.datasets import files_of, records_of, rejects_of, verified

csv.field_size_limit(1 << 30)

# The inputs, written and read back with the usual libraries.

KINDS = ("main.jsonl", "more.tsv", "rows.parquet", "packed.jsonl.gz", "old.zip", "last.csv.gz")
FIELDS = ("text", "topic", "n", "module", "split")
FOREIGN = [
    "Größe und Übermut tut selten gut.",
    "日本語の文章です。🎉🎉",
    "naïve  café\u00a0\u2028x",
]


def paragraphs(modules: str, copies: int) -> list[dict[str, Any]]:
    """Paragraphs of the standard library's sources, with duplicates."""
    found: list[dict[str, Any]] = []
    for path in sorted(Path(json.__file__).parents[1].glob(modules)):
        for part in re.split(r"\n[ \t]*\n", path.read_text("utf-8")):
            topic = "code" if re.search(r"\b(def|class|import)\b", part) else "prose"
            number = len(found)
            split = ("train", "train", "train", "val")[number % 4]
            row = {"text": part, "topic": topic, "n": number, "module": path.stem, "split": split}
            if part.strip():
                found.append(row)
    rng = np.random.default_rng(0)
    for row in rng.choice(len(found), copies).tolist():
        found.append({**found[row], "n": len(found), "topic": "copy", "split": "val"})
    for text in FOREIGN * 3:
        fields = {"topic": "foreign", "n": len(found), "module": "world", "split": "train"}
        found.append({"text": text, **fields})
    return found


def write_delimited(file, rows, delimiter=",") -> None:
    writer = csv.DictWriter(file, FIELDS, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)


def json_lines(rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_texts(root: Path, texts: list[dict[str, Any]], ballast: str = "") -> Path:
    """Writes a file of every kind, each with some rows that cannot become records."""
    root.mkdir()
    dealt = defaultdict(list)
    for number, row in enumerate(texts):
        dealt[KINDS[0] if number % 4 else KINDS[1 + number // 4 % 5]].append(row)
    bad = {"text": None, "topic": "code", "n": 1, "module": "m", "split": "train"}
    lines = json_lines({**row, "ballast": ballast} for row in dealt["main.jsonl"])
    lines += '{"text": "cut\n\n' + json.dumps({**bad, "text": "bad", "n": "many"}) + "\n"
    (root / "main.jsonl").write_text(lines, "utf-8")
    with (root / "more.tsv").open("w", newline="", encoding="utf-8") as file:
        write_delimited(file, dealt["more.tsv"], "\t")
        file.write("too\tshort\n")
    rows = [*dealt["rows.parquet"], bad, {**bad, "text": "bad", "n": None}]
    columns = {name: [row[name] for row in rows] for name in FIELDS}
    pq.write_table(pa.table(columns), root / "rows.parquet", row_group_size=20)
    with gzip.open(root / "packed.jsonl.gz", "wt", encoding="utf-8") as packed:
        packed.write(json_lines([bad, *dealt["packed.jsonl.gz"]]))
    half = len(dealt["old.zip"]) // 2
    table = io.StringIO(newline="")
    write_delimited(table, dealt["old.zip"][half:])
    members = {
        "docs/a.jsonl": json_lines(dealt["old.zip"][:half]).encode(),
        "b.csv": table.getvalue().encode(),
        "image.png": b"\x89PNG",
    }
    (root / "old.zip").write_bytes(zipped(members.items()))
    with gzip.open(root / "last.csv.gz", "wt", newline="", encoding="utf-8") as packed:
        write_delimited(packed, dealt["last.csv.gz"])
    return root


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A folder of files, one of them larger than a chunk."""
    root = tmp_path_factory.mktemp("texts") / "in"
    write_texts(root, paragraphs("[a-b]*.py", 200), ballast="." * 3000)
    assert (root / "main.jsonl").stat().st_size > 2 << 20
    return root


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A folder of small files."""
    return write_texts(tmp_path_factory.mktemp("small") / "in", paragraphs("c[a-o]*.py", 90))


def rows_of_json(name: str, data: bytes) -> dict[str, Any]:
    found = {}
    for number, line in enumerate(data.decode().split("\n"), 1):
        if line.strip():
            with contextlib.suppress(ValueError):
                found[f"{name}#{number}"] = json.loads(line)
    return found


def rows_of_table(name: str, data: bytes, delimiter: str = ",") -> dict[str, Any]:
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""), delimiter=delimiter)
    return {
        f"{name}#{number}": row for number, row in enumerate(rows, 1) if None not in row.values()
    }


def usable(row: dict[str, Any]) -> bool:
    return isinstance(row["text"], str) and str(row["n"]).isdecimal()


def read_texts(source: Path) -> dict[str, dict[str, Any]]:
    """Every row that can become a record, by key."""
    found = rows_of_json("main.jsonl", (source / "main.jsonl").read_bytes())
    found |= rows_of_table("more.tsv", (source / "more.tsv").read_bytes(), "\t")
    table = pq.read_table(source / "rows.parquet").to_pylist()
    found |= {f"rows.parquet#{number}": row for number, row in enumerate(table, 1)}
    packed = gzip.decompress((source / "packed.jsonl.gz").read_bytes())
    found |= rows_of_json("packed.jsonl.gz", packed)
    with zipfile.ZipFile(source / "old.zip") as archive:
        found |= rows_of_json("old.zip/docs/a.jsonl", archive.read("docs/a.jsonl"))
        found |= rows_of_table("old.zip/b.csv", archive.read("b.csv"))
    found |= rows_of_table("last.csv.gz", gzip.decompress((source / "last.csv.gz").read_bytes()))
    return {key: row for key, row in found.items() if usable(row)}


@pytest.fixture(scope="module")
def rows(source) -> dict[str, dict[str, Any]]:
    return read_texts(source)


@pytest.fixture(scope="module")
def few(small) -> dict[str, dict[str, Any]]:
    return read_texts(small)


# Their keys begin with the names of these files; the zip has an image.
REJECTED = {
    "main.jsonl": "not JSON",
    "main.jsonl ": "column 'n' holds 'many', expected int64",
    "more.tsv": "2 columns, the first line has 5",
    "rows.parquet": "field 'text' is None, expected text",
    "rows.parquet ": "column 'n' is empty",
    "packed.jsonl.gz": "field 'text' is None, expected text",
    "old.zip": "convert other files",
}


def assert_rejected(out: Path, expected: dict[str, str]) -> None:
    found = rejects_of(out)
    assert len(found) == len(expected)
    for name, message in expected.items():
        rejects = {k: e for k, e in found.items() if k.startswith(name.strip()) and message in e}
        assert rejects, name


def first_of_equal(rows: dict[str, dict[str, Any]], seed: int = 0) -> dict[str, dict[str, Any]]:
    """The rows without duplicates: of each text the first row in the global order."""
    placement = Placement(seed, Splits())
    first: dict[str, str] = {}
    for key, row in rows.items():
        first[row["text"]] = min(key, first.get(row["text"], key), key=placement.order)
    return {key: rows[key] for key in first.values()}


def assert_nothing_lost(manifest: Manifest, found: int, windows: int = 0) -> None:
    """Asserts that every text is written, rejected or dropped.

    Args:
        windows: The number of windows after the first of their text.
    """
    written = sum(split.records for split in manifest.splits.values())
    assert found == written - windows + manifest.rejected + manifest.duplicates


def bounds_of_windows(count: int, window: int, stride: int) -> list[tuple[int, int]]:
    starts = [0]
    while starts[-1] + window < count:
        starts.append(starts[-1] + stride)
    return [(start, min(start + window, count)) for start in starts]


def assert_resumes(dying_after, capsys, arguments, out: Path, expected) -> None:
    """Asserts that a run after one that wrote three shards keeps these and writes the same bytes."""
    with dying_after(3):
        assert run("text", *arguments, "--output", out) == 1
    assert not (out / "manifest.json").exists()
    assert len(list((out / ".staging").glob("*.done"))) == 3
    assert resumed(capsys, "text", *arguments, "--output", out) == 3
    assert files_of(out) == expected


# Windows of learned tokens, without duplicates.

WINDOW, STRIDE = 32, 24
SPLITS = ["--splits", "train=0.8,val=0.2", "--num_shards", "train=4,val=2"]
EXTRAS = ["--extra_features", "n:int64,module:string"]


@pytest.fixture(scope="module")
def windows(source, tmp_path_factory) -> tuple[list, Path]:
    """The flags of a job, and its output."""
    out = tmp_path_factory.mktemp("windows") / "out"
    flags = ["--tokens", "bpe", "--vocabulary_size", 700, "--window", WINDOW, "--stride", STRIDE]
    flags += ["--drop_duplicates", "--label_field", "topic", *EXTRAS, *SPLITS]
    arguments = ["--input", source, *flags, "--group_by", "column:module"]
    assert run("text", *arguments, *TWO, "--output", out) == 0
    return arguments, out


@pytest.mark.slow
def test_windows_of_learned_tokens_equal_those_of_the_library(windows, rows):
    manifest, records = verified(windows[1]), records_of(windows[1])
    kept = first_of_equal(rows)
    assert len(rows) - len(kept) > 200
    library = tokenizers.Tokenizer.from_file(str(windows[1] / "tokenizer.json"))
    assert manifest.tokenizer == library.get_vocab_size() == 700
    encodings = library.encode_batch([row["text"] for row in kept.values()])
    expected, names = {}, manifest.label_names
    for (key, row), encoding in zip(kept.items(), encodings, strict=True):
        bounds = bounds_of_windows(len(encoding.ids), WINDOW, STRIDE)
        for number, (start, stop) in enumerate(bounds, 1):
            spans = encoding.offsets[start:stop]
            part = row["text"][spans[0][0] : spans[-1][1]]
            expected[f"{key}@{number}"] = (encoding.ids[start:stop], part, row)
    assert records.keys() == expected.keys()
    splits_of_modules = defaultdict(set)
    for key, (ids, part, row) in expected.items():
        record = records[key]
        assert record["tokens"].tolist() == ids
        assert record["text"].item().decode() == part
        assert names[record["label"]] == row["topic"]
        assert int(record["n"]) == int(row["n"])
        assert record["module"].item().decode() == row["module"]
        splits_of_modules[row["module"]].add(record["split"])
    assert all(len(splits) == 1 for splits in splits_of_modules.values())
    assert {split for splits in splits_of_modules.values() for split in splits} == {"train", "val"}
    assert_nothing_lost(manifest, len(rows) + len(REJECTED), len(records) - len(kept))
    assert_rejected(windows[1], REJECTED)
    dropped = Counter()
    placement = Placement(0, Splits.parse("train=0.8,val=0.2"))
    for key in rows.keys() - kept.keys():
        module = rows[key]["module"]
        # A group of which every text is dropped is not dealt, so its hash decides.
        dealt = splits_of_modules[module] or {("train", "val")[placement.split(module)]}
        dropped.update(dealt)
    assert {name: split.duplicates for name, split in manifest.splits.items()} == dropped


@pytest.mark.slow
def test_a_tokenizer_is_learned_from_the_training_split_without_duplicates(windows, rows):
    records = records_of(windows[1])
    training = {key.split("@")[0] for key, row in records.items() if row["split"] == "train"}
    learned = train_bpe([rows[key]["text"].encode() for key in sorted(training)], 700)
    assert (windows[1] / "tokenizer.json").read_text("utf-8") == learned


@pytest.mark.slow
@pytest.mark.parametrize("mode", [ONE, BEAM_WORKERS], ids=["one", "beam"])
def test_other_workers_write_the_same_bytes(windows, tmp_path, mode):
    arguments, out = windows
    assert run("text", *arguments, *mode, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == files_of(out)


@pytest.mark.slow
def test_an_interrupted_run_resumes_with_the_tokenizer_it_learned(
    windows, tmp_path, dying_after, capsys
):
    arguments, out = windows
    assert_resumes(dying_after, capsys, arguments, tmp_path / "out", files_of(out))


@pytest.mark.slow
def test_a_tokenizer_file_is_used_as_it_is_in_stratified_splits(
    windows, few, small, tmp_path, dying_after, capsys
):
    file, out = tmp_path / "own.json", tmp_path / "out"
    given = tokenizers.Tokenizer.from_file(str(windows[1] / "tokenizer.json"))
    given.enable_padding(length=50)
    given.enable_truncation(3)
    given.save(str(file), pretty=True)
    flags = ["--tokens", file, "--max_length", 9, "--label_field", "topic", "--stratify"]
    flags += ["--drop_duplicates", *EXTRAS, *SPLITS, "--names", "tokens=input_ids,n=number"]
    arguments = ["--input", small, *flags]
    assert run("text", *arguments, "--output", out) == 0
    manifest, records = verified(out), records_of(out)
    assert (out / "tokenizer.json").read_bytes() == file.read_bytes()
    assert (manifest.tokenizer, manifest.vocabulary) == (700, 0)
    kept = first_of_equal(few)
    assert records.keys() == kept.keys()
    given.no_padding()
    given.enable_truncation(9)
    encodings = given.encode_batch([row["text"] for row in kept.values()])
    for (key, row), encoding in zip(kept.items(), encodings, strict=True):
        assert records[key]["input_ids"].tolist() == encoding.ids
        assert int(records[key]["number"]) == int(row["n"])
    # Every label has its share of the records, to one record.
    for topic, count in Counter(row["topic"] for row in kept.values()).items():
        label = manifest.label_names.index(topic)
        mine = [row["split"] for row in records.values() if row["label"] == label]
        assert len(mine) == count
        assert abs(mine.count("train") - 0.8 * count) < 1
    assert_nothing_lost(manifest, len(few) + len(REJECTED))
    expected = files_of(out)
    assert_resumes(dying_after, capsys, arguments, tmp_path / "killed", expected)
    # A dataset that replaces it has no tokenizer.
    plain = ["--input", small / "more.tsv", "--tokens", "bytes", "--output", out, "--overwrite"]
    assert run("text", *plain) == 0
    assert not (out / "tokenizer.json").exists()
    assert verified(out).tokenizer == 0


# Splits by column, shards of equal bytes, lists of labels.


BY_COLUMN = ["--split_column", "split", "--splits", "val,train"]
BY_LABEL = ["--stratify", "--label_field", "topic", "--splits", "val=0.3,train=0.7"]


@pytest.mark.slow(base=["words-splits2"])
@pytest.mark.parametrize(
    ("tokens", "splits"), [("bpe", BY_COLUMN), ("bpe", BY_LABEL), ("words", BY_COLUMN)]
)
def test_tokens_are_learned_from_the_training_split_with_all_kinds_of_splits(
    small, few, tmp_path, tokens, splits, dying_after, capsys
):
    out = tmp_path / "out"
    flags = ["--tokens", tokens, "--vocabulary_size", 500, *splits, *EXTRAS]
    arguments = ["--input", small, *flags, "--num_shards", 3]
    assert run("text", *arguments, "--output", out) == 0
    manifest, records = verified(out), records_of(out)
    assert list(manifest.splits) == ["val", "train"]
    assert records.keys() == few.keys()
    if splits is BY_COLUMN:
        assert all(record["split"] == few[key]["split"] for key, record in records.items())
    assert_nothing_lost(manifest, len(few) + len(REJECTED))
    training = [
        few[key]["text"].encode() for key, row in records.items() if row["split"] == "train"
    ]
    assert 0.5 < len(training) / len(few) < 0.9
    some = list(few.items())[::7]
    if tokens == "bpe":
        learned = (out / "tokenizer.json").read_text("utf-8")
        assert learned == train_bpe(training, 500)
        given = tokenizers.Tokenizer.from_str(learned)
        ids = {key: given.encode(row["text"]).ids for key, row in some}
    else:
        counts = Counter(word for text in training for word in words(text))
        ranked = sorted(((count, word) for word, count in counts.items()), reverse=True)[:498]
        vocabulary = [word for _, word in ranked]
        assert (out / "vocabulary.txt").read_bytes().splitlines() == vocabulary
        known = {word: 2 + number for number, word in enumerate(vocabulary)}
        ids = {
            key: [known.get(word, 1) for word in words(row["text"].encode())] for key, row in some
        }
    assert all(records[key]["tokens"].tolist() == expected for key, expected in ids.items())
    for split in manifest.splits.values():
        sizes = [shard.records for shard in split.shards]
        assert len(sizes) == 3
        assert max(sizes) - min(sizes) <= 1
    if tokens == "bpe" and splits is BY_COLUMN:
        assert_resumes(dying_after, capsys, arguments, tmp_path / "killed", files_of(out))


# Whole documents.


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["words", "bytes"])
def test_documents_are_cut_into_windows_that_hold_every_token(tmp_path, tokens):
    folder = Path(sklearn.__file__).parent / "datasets" / "descr"
    texts = {}
    for number, path in enumerate(sorted(folder.glob("*.rst"))):
        key = f"{'ab'[number % 2]}/{path.stem}.txt"
        (tmp_path / "in" / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "in" / key)
        texts[key] = path.read_bytes()
    assert len(texts) > 10
    out = tmp_path / "out"
    flags = ["--record", "file", "--label", "parent", "--tokens", tokens, *SPLITS]
    flags += ["--window", 100, "--stride", 40]
    flags += ["--vocabulary_size", 200] if tokens == "words" else []
    assert run("text", "--input", tmp_path / "in", *flags, "--output", out) == 0
    manifest, records = verified(out), records_of(out)
    for key, text in texts.items():
        mine = [record for name, record in records.items() if name.startswith(f"{key}@")]
        mine.sort(key=lambda record: int(record["key"].item().rsplit(b"@")[-1]))
        found = words(text) if tokens == "words" else [text[n : n + 1] for n in range(len(text))]
        bounds = bounds_of_windows(len(found), 100, 40)
        assert len({record["split"] for record in mine}) == 1
        assert {manifest.label_names[record["label"]] for record in mine} == {key[0]}
        for record, (start, stop) in zip(mine, bounds, strict=True):
            part = record["text"].item()
            assert len(record["tokens"]) == stop - start
            if tokens == "words":
                assert part in text
                assert words(part) == found[start:stop]
            else:
                assert b"".join(found[start:stop]) in part
                assert bytes((record["tokens"] - 2).tolist()) == b"".join(found[start:stop])
        joined = mine[0]["tokens"].tolist()
        for record, (start, _) in zip(mine[1:], bounds[1:], strict=True):
            joined[start:] = record["tokens"].tolist()
        if tokens == "bytes":
            assert bytes(octet - 2 for octet in joined) == text


# Damage and mistakes.


def test_unreadable_parts_of_tables_are_listed_and_the_rest_is_written(tmp_path):
    root, out = tmp_path / "in", tmp_path / "out"
    root.mkdir()
    table = pa.table({"text": [f"text {n:05d}" for n in range(3000)], "y": ["a", "b", "c"] * 1000})
    stored = {"row_group_size": 1000, "compression": "none", "use_dictionary": False}
    pq.write_table(table, root / "damaged.parquet", write_page_checksum=True, **stored)
    data = bytearray((root / "damaged.parquet").read_bytes())
    data[data.index(b"text 01500") + 5] ^= 1
    (root / "damaged.parquet").write_bytes(data)
    (root / "cut.parquet").write_bytes(data[:1000])
    (root / "empty.parquet").write_bytes(b"")
    (root / "none.tsv").write_text("")
    (root / "rows.tsv").write_bytes(b"text\ty\nfine\ta\n\xff\tb\none\n\ta\n")
    assert run("text", "--input", root, "--label_field", "y", "--output", out) == 0
    records = records_of(out)
    assert {key: error.split(":")[0] for key, error in rejects_of(out).items()} == {
        "cut.parquet": "not a Parquet file that can be read",
        "damaged.parquet": "cannot be read to its end",
        "empty.parquet": "not a Parquet file that can be read",
        "rows.tsv#2": "not UTF-8; name its --text_encoding, such as cp1252",
        "rows.tsv#3": "1 columns, the first line has 2",
    }
    before = {f"damaged.parquet#{n}" for n in (*range(1, 1001), *range(2001, 3001))}
    assert before <= records.keys()
    assert {"rows.tsv#1", "rows.tsv#4"} <= records.keys()
    assert records["damaged.parquet#2001"]["text"].item() == b"text 02000"
    assert records["rows.tsv#4"]["text"].item() == b""


def test_texts_in_other_encodings_are_read_if_they_are_named(tmp_path):
    (tmp_path / "t.csv").write_bytes("text;y;split\n„Ü“;cat;val\nb, c;dog;train\n".encode("cp1252"))
    flags = ["--table", tmp_path / "t.csv", "--text_encoding", "cp1252", "--delimiter", ";"]
    flags += ["--label_field", "y", "--split_column", "split", "--output", tmp_path / "out"]
    assert run("text", *flags) == 0
    manifest = verified(tmp_path / "out")
    assert list(manifest.splits) == ["train", "val"]
    assert manifest.options["text_encoding"] == "cp1252"
    texts = {record["text"].item() for record in records_of(tmp_path / "out").values()}
    assert texts == {"„Ü“".encode(), b"b, c"}


def test_texts_that_do_not_fit_the_flags_end_the_job_in_one_line(tmp_path, capsys):
    (tmp_path / "a.tsv").write_text("text\ty\na zebra\tcat\n")
    unable = tokenizers.Tokenizer(models.WordLevel({"a": 0}))
    unable.pre_tokenizer = pre_tokenizers.Whitespace()
    unable.save(str(tmp_path / "unable.json"))
    arguments = ["text", "--input", tmp_path / "a.tsv", "--output", tmp_path / "out"]
    for pattern, *flags in (
        (r"a\.tsv: no column 'z', it has text, y", "--extra_features", "z:int32"),
        (
            r"the tokenizer fails on a text \(WordLevel.*\): a\.tsv#1",
            "--tokens",
            tmp_path / "unable.json",
        ),
    ):
        refused(capsys, 2, pattern, *arguments, *flags)
        assert not list(tmp_path.glob("out/*.json"))


def test_a_training_split_without_texts_has_no_tokens_to_learn(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("".join(f"text {n}\n" for n in range(80)))
    flags = ["--input", tmp_path / "a.txt", "--tokens", "words"]
    flags += ["--splits", "train=0.0001,val=0.9999", "--output", tmp_path / "out"]
    refused(capsys, 1, "the training split has no text to learn tokens from", "text", *flags)
    assert not (tmp_path / "out" / "manifest.json").exists()
