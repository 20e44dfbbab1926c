"""The text job on sources and documents that are installed with Python and its packages."""

import contextlib
import csv
import gzip
import io
import json
import re
import zipfile
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from beam_jobs.jobs.text.subwords import train_bpe
from beam_jobs.jobs.text.tokens import words
from beam_jobs.plan.placement import Placement, Splits
from tests.support.archives import zipped
from tests.support.commands import BEAM_WORKERS, ONE, TWO, refused, run
from tests.support.datasets import files_of, folder_of, order_hash, records_of, rejects_of, verified

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
    # Cells of a .tsv hold line ends only if its header is in quotes.
    quoting = csv.QUOTE_ALL if delimiter == "\t" else csv.QUOTE_MINIMAL
    writer = csv.DictWriter(file, FIELDS, delimiter=delimiter, quoting=quoting)
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
def small(tmp_path_factory) -> Path:
    """A folder of small files."""
    return write_texts(tmp_path_factory.mktemp("small") / "in", paragraphs("c[am]*.py", 30))


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


def assert_rejected(out: Path) -> None:
    found = rejects_of(out)
    assert len(found) == len(REJECTED)
    for name, message in REJECTED.items():
        rejects = {k: e for k, e in found.items() if k.startswith(name.strip()) and message in e}
        assert rejects, name


@pytest.fixture(scope="module")
def kept(small) -> dict[str, dict[str, Any]]:
    """The rows without duplicates: of each text the first row in the global order."""
    rows, placement = read_texts(small), Placement(0, Splits())
    first: dict[str, str] = {}
    for key, row in rows.items():
        first[row["text"]] = min(
            key, first.get(row["text"], key), key=partial(order_hash, placement.seed)
        )
    return {key: rows[key] for key in first.values()}


SPLITS = ["--splits", "train=0.8,val=0.2", "--num_shards", "train=4,val=2"]
EXTRAS = ["--extra_features", "n:int64,module:string"]


@pytest.mark.slow
def test_all_workers_write_the_same_windows_of_learned_tokens(tmp_path):
    source = write_texts(tmp_path / "in", paragraphs("[a-b]*.py", 200), ballast="." * 3000)
    assert (source / "main.jsonl").stat().st_size > 2 << 20  # larger than a chunk
    flags = ["--tokens", "bpe", "--vocabulary_size", 700, "--window", 32, "--stride", 24]
    flags += ["--drop_duplicates", "--label_field", "topic", *EXTRAS, *SPLITS]
    flags += ["--group_by", "column:module", "--input", source]
    for name, mode in (("two", TWO), ("one", ONE), ("beam", BEAM_WORKERS)):
        assert run("text", *flags, *mode, "--output", tmp_path / name) == 0
        assert files_of(tmp_path / name) == files_of(tmp_path / "two")


BY_COLUMN = ["--split_column", "split", "--splits", "val,train"]
BY_LABEL = ["--stratify", "--label_field", "topic", "--splits", "val=0.3,train=0.7"]


@pytest.mark.slow(base=["words-splits2"])
@pytest.mark.parametrize(
    ("tokens", "splits"), [("bpe", BY_LABEL), ("file", BY_LABEL), ("words", BY_COLUMN)]
)
def test_tokens_are_given_or_learned_from_the_training_split(small, kept, tmp_path, tokens, splits):
    out, own = tmp_path / "out", tmp_path / "own.json"
    own.write_text(train_bpe([row["text"].encode() for row in kept.values()], 300))
    flags = ["--tokens", own] if tokens == "file" else ["--tokens", tokens]
    flags += [] if tokens == "file" else ["--vocabulary_size", 500]
    flags += [*splits, *EXTRAS, "--drop_duplicates", "--num_shards", 3]
    assert run("text", "--input", small, *flags, *ONE, "--output", out) == 0
    manifest, records = verified(out), records_of(out)
    assert list(manifest.splits) == ["val", "train"]
    assert records.keys() == kept.keys()
    if splits is BY_COLUMN:
        assert all(record["split"] == kept[key]["split"] for key, record in records.items())
    written = sum(split.records for split in manifest.splits.values())
    assert (written, manifest.rejected) == (len(kept), len(REJECTED))
    assert manifest.duplicates > 30
    assert_rejected(out)
    training = [
        kept[key]["text"].encode() for key, row in records.items() if row["split"] == "train"
    ]
    assert 0.5 < len(training) / len(kept) < 0.9
    some = list(kept.items())[::7]
    if tokens != "words":
        learned = (folder_of(out) / "tokenizer.json").read_text("utf-8")
        assert learned == (train_bpe(training, 500) if tokens == "bpe" else own.read_text())
        given = tokenizers.Tokenizer.from_str(learned)
        ids = {key: given.encode(row["text"]).ids for key, row in some}
    else:
        counts = Counter(word for text in training for word in words(text))
        ranked = sorted(((count, word) for word, count in counts.items()), reverse=True)[:498]
        vocabulary = [word for _, word in ranked]
        assert (folder_of(out) / "vocabulary.txt").read_bytes().splitlines() == vocabulary
        known = {word: 2 + number for number, word in enumerate(vocabulary)}
        ids = {
            key: [known.get(word, 1) for word in words(row["text"].encode())] for key, row in some
        }
    assert all(records[key]["tokens"].tolist() == expected for key, expected in ids.items())
    for split in manifest.splits.values():
        sizes = [shard.records for shard in split.shards]
        assert len(sizes) == 3
        assert max(sizes) - min(sizes) <= 1


# Damage and mistakes.


def test_a_training_split_without_texts_has_no_tokens_to_learn(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("".join(f"text {n}\n" for n in range(80)))
    flags = ["--input", tmp_path / "a.txt", "--tokens", "words"]
    flags += ["--splits", "train=0.0001,val=0.9999", "--output", tmp_path / "out"]
    refused(capsys, 1, "the training split has no text from which to learn tokens", "text", *flags)
    assert not (tmp_path / "out" / "manifest.json").exists()
