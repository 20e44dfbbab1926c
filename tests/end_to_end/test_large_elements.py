"""No job groups, combines or broadcasts an element above 1 MiB, which Flink's runner might refuse.

Each job has an input of which something is larger than that: its sample, words, labels, groups, rows,
features, histograms, plan or statistics.
"""

import json
import random
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from beam_jobs import WriteShards
from readers.format.encode.records import Encoder
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.tfrecord import frame
from tests.support.commands import ONE, run
from tests.support.elements import largest_elements

LIMIT = 1 << 20

TEN_SPLITS = ["--splits", ",".join(f"s{number}=0.1" for number in range(10))]
HALVES = ["--splits", "a=0.5,b=0.5"]


def letters(seed: int, count: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=count))


def write_lines(folder: Path, rows: list[dict]) -> Path:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def text_of_3_mib(folder: Path) -> list[object]:
    """A text that is larger than an element itself, and many that are not."""
    some = [letters(seed, 5) for seed in range(2000)]
    drawn = random.Random(0)
    rows = [{"text": " ".join(drawn.choices(some, k=k))} for k in [250_000, *[100] * 3000]]
    return ["text", "--input", write_lines(folder, rows), "--label", "none"]


def subwords(folder: Path) -> list[object]:
    return [*text_of_3_mib(folder), "--tokens", "bpe", "--vocabulary_size", 300]


def large_vocabulary(folder: Path) -> list[object]:
    """22 MB of different words, so more than 1 MiB in each of 16 parts, and a vocabulary of 2 MB."""
    word = letters(0, 100)
    rows = [
        {"text": " ".join(f"{line * 100 + n:07}{word}" for n in range(100))} for line in range(2000)
    ]
    return ["text", "--input", write_lines(folder, rows), "--label", "none", "--tokens", "words"]


def many_records(folder: Path) -> list[object]:
    rows = [{"text": ""} for _ in range(150_000)]
    return ["text", "--input", write_lines(folder, rows), "--label", "none"]


def ten_histograms(folder: Path) -> list[object]:
    return [*many_records(folder), *TEN_SPLITS]


def large_plan(folder: Path) -> list[object]:
    """Two splits of 70,000 shards."""
    return ["plan", *many_records(folder), *HALVES, "--num_shards", 70_000]


def duplicates(folder: Path) -> list[object]:
    return [*many_records(folder), "--drop_duplicates", *TEN_SPLITS]


def near_duplicates(folder: Path) -> list[object]:
    """9,000 texts in one task, of which half are copies: 2.3 MiB of probes."""
    rows = [{"text": letters(n // 2, 200)} for n in range(9000)]
    flags = ["--label", "none", "--drop_near_duplicates", 0.8]
    return ["text", "--input", write_lines(folder, rows), *flags]


def strata(folder: Path) -> list[object]:
    """20,000 labels of 80 characters, two records each."""
    label = letters(0, 73)
    rows = [{"text": str(n), "label": f"{n % 20_000:07}{label}"} for n in range(40_000)]
    flags = ["--label_field", "label", "--stratify", *HALVES]
    return ["text", "--input", write_lines(folder, rows), *flags]


def many_groups(folder: Path) -> list[object]:
    rows = [{"text": str(n), "group": f"g{n % 90_000}"} for n in range(95_000)]
    flags = ["--label", "none", "--group_by", "column:group", *HALVES]
    return ["text", "--input", write_lines(folder, rows), *flags]


def long_rows(folder: Path) -> list[object]:
    """Pictures with captions of 50,000 characters."""
    rows = []
    for number in range(60):
        Image.fromarray(np.full((2, 2, 3), number, np.uint8)).save(folder / f"{number}.png")
        rows.append({"path": f"{number}.png", "caption": letters(number, 50_000), "y": number % 3})
    table = write_lines(folder, rows)
    flags = ["--extra_features", "caption:string", "--label", "column:y", "--image_size", "2x2"]
    return ["images", "--table", table, "--input", folder, *flags]


def recordings(folder: Path) -> list[object]:
    for number in range(20):
        np.save(folder / f"{number}.npy", np.full((300, 60), number, np.float32))
    return ["sensors", "--input", folder / "*.npy", "--label", "none", "--window", 100, *TEN_SPLITS]


def many_features(folder: Path) -> list[object]:
    schema = Schema({f"feature_{number:04}": ("float32", ()) for number in range(3000)})
    encoder = Encoder(schema)
    example = encoder.pack(encoder.check(dict.fromkeys(schema, np.float32(0.1))))
    (folder / "in.tfrecord").write_bytes(frame(example) * 3)
    return ["reshard", "--input", folder / "*.tfrecord"]


JOBS = [
    subwords,
    large_vocabulary,
    ten_histograms,
    large_plan,
    duplicates,
    near_duplicates,
    strata,
    many_groups,
    long_rows,
    recordings,
    many_features,
]


def check(found: dict[str, int], groups: int = 5) -> None:
    assert sum(name.startswith("group ") for name in found) >= groups
    assert sum(name.startswith("side ") for name in found) >= groups
    assert {name: size for name, size in found.items() if size > LIMIT} == {}


@pytest.mark.slow(base=["recordings"])
@pytest.mark.parametrize("job", JOBS)
def test_no_element_of_a_job_is_above_1_mib(tmp_path, job):
    (tmp_path / "in").mkdir()
    command = job(tmp_path / "in")
    with largest_elements() as found:
        assert run(*command, *ONE, "--output", tmp_path / "out") == 0
    check(found)


@pytest.mark.slow
def test_no_element_of_write_shards_is_above_1_mib(tmp_path):
    """100,000 different tokens are counted, and as many labels."""
    schema = Schema({"key": ("string", ()), "tokens": ("int64", (None,)), "data": ("string", ())})
    first = np.int64(1) << 60
    records = [
        (
            f"{n}",
            {"tokens": first + np.arange(1000 * n, 1000 * n + 1000), "data": "x" * 30_000},
        )
        for n in range(100)
    ]
    options = PipelineOptions(["--allow_unsafe_triggers"])
    with largest_elements() as found, beam.Pipeline(options=options) as pipeline:
        made = pipeline | beam.Create(records, reshuffle=False)
        made | WriteShards(str(tmp_path / "out"), schema, num_shards=2)
    check(found)
    statistics = Manifest.read(tmp_path / "out").splits["train"].statistics
    assert len(statistics["tokens"]["values"]) == 100_000


def test_the_sizes_of_elements_are_seen():
    """The measurement itself: an element that is grouped, one that is combined, and a side input."""
    options = PipelineOptions(["--allow_unsafe_triggers"])
    with largest_elements() as found, beam.Pipeline(options=options) as pipeline:
        one = pipeline | beam.Create([(1, b"x" * 5000)])
        one | "Group" >> beam.GroupByKey()
        one | "Combine" >> beam.CombinePerKey(b"".join)
        side = beam.pvalue.AsList(one)
        one | "Side" >> beam.Map(lambda pair, _: pair, side)
    kinds = {name.split()[0] for name, size in found.items() if 5000 < size < 5100}
    assert kinds == {"group", "side"}
    assert any("Combine" in name for name in found)
