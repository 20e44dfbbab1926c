"""Jobs with tables: rows name files or hold them, columns decide labels and splits."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.support.commands import ONE, refused, run
from tests.support.datasets import balanced, records_of, rejects_of
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


TABLED = ["--label", "column:tags", "--split_column", "fold", "--num_shards", 2]
TABLED += ["--extra_features", "age:float32,subject:string,digit:int8,tags:string[]"]
TABLED += ["--encoding", "png", "--channels", 1]


@pytest.fixture(scope="module")
def tabled(tmp_path_factory):
    """The dataset of a table of digits by subject, in which one row names a missing file."""
    root = tmp_path_factory.mktemp("digits")
    rows = [row_of(number) for number in range(COUNT)]
    for number, row in enumerate(rows):
        (root / row["path"]).parent.mkdir(exist_ok=True)
        (root / row["path"]).write_bytes(encoded(image(number), "PNG"))
    rows.append({**row_of(0), "path": "gone.png", "name": "gone"})
    (root / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("images", "--table", root / "t.jsonl", *TABLED, *ONE, "--output", root / "out") == 0
    return root / "out"


def test_every_row_becomes_a_record_with_its_columns(tabled):
    manifest = balanced(tabled)
    assert list(manifest.splits) == ["0", "1", "2"]
    assert manifest.label_names == ("even", "fifth", "third")
    records = records_of(tabled)
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
    rejects = rejects_of(tabled)
    assert list(rejects) == ["gone.png"] and rejects["gone.png"].startswith("no file '")


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
