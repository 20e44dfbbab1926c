"""How long a report takes, how much memory it needs, and how large its page is, for datasets of any size.

Each dataset repeats a few hundred different records, so a million of them are written in a moment; a report sees its
sample alone. `photos` are crops of real photographs, which scikit-learn ships.

    python benchmarks/report_sizes.py --records 10_000 1_000_000 --data benchmark_data
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from measure import run
from pictures.photographs import make_photographs

from readers.format.display import format_bytes, format_table
from readers.format.encode import Encoder
from readers.format.index import format_index
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.splits import Shard, Split, shard_name
from readers.format.tfrecord import frame

_SHARDS = 8

# Different records of each dataset.
_DIFFERENT = 500

Record = dict[str, Any]


def photos(folder: Path) -> tuple[Schema, list[Record]]:
    """JPEGs of 500x375."""
    make_photographs(folder, _DIFFERENT)
    files = sorted((folder / "files").glob("*.jpg"))
    schema = Schema({"image": ("uint8", (None, None, 3), "jpeg"), "label": ("int64", ())})
    return schema, [{"image": f.read_bytes(), "label": n % 10} for n, f in enumerate(files)]


def texts(folder: Path) -> tuple[Schema, list[Record]]:
    """Texts of 5 to 300 words, with their tokens."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(3000)]
    schema = Schema({"text": ("string", ()), "tokens": ("int64", (None,)), "label": ("int64", ())})
    records = []
    for number in range(_DIFFERENT):
        ids = rng.integers(0, len(words), rng.integers(5, 300))
        text = " ".join(words[word] for word in ids)
        records.append({"text": text, "tokens": ids, "label": number % 4})
    return schema, records


def recordings(folder: Path) -> tuple[Schema, list[Record]]:
    """Recordings of 50 to 500 steps of six channels, with a few numbers."""
    rng = np.random.default_rng(0)
    schema = Schema(
        {"signal": ("float32", (None, 6)), "age": ("float32", ()), "label": ("int64", ())}
    )
    return schema, [
        {
            "signal": rng.normal(size=(rng.integers(50, 500), 6)).astype(np.float32),
            "age": rng.normal(40, 9),
            "label": number % 5,
        }
        for number in range(_DIFFERENT)
    ]


_KINDS: dict[str, Callable[[Path], tuple[Schema, list[Record]]]] = {
    "photos": photos,
    "texts": texts,
    "recordings": recordings,
}


def write(directory: Path, schema: Schema, records: Sequence[Record], count: int) -> None:
    """Writes a dataset of `count` records, which repeats the given ones."""
    directory.mkdir(parents=True, exist_ok=True)
    encoder = Encoder(schema)
    framed = [frame(encoder.encode(record)) for record in records]
    shards = tuple(_shards(directory, framed, count))
    manifest = Manifest(schema, {"train": Split(shards)})
    (directory / "manifest.json").write_bytes(manifest.to_bytes())


def _shards(directory: Path, framed: Sequence[bytes], count: int) -> Iterator[Shard]:
    for number in range(_SHARDS):
        chosen = range(number * count // _SHARDS, (number + 1) * count // _SHARDS)
        name, size, crc = shard_name("train", number, _SHARDS), 0, 0
        lengths = np.array([len(framed[n % len(framed)]) for n in chosen], np.int64)
        with (directory / name).open("wb") as file:
            for start in range(0, len(chosen), len(framed)):
                data = b"".join(
                    framed[n % len(framed)] for n in chosen[start : start + len(framed)]
                )
                file.write(data)
                size, crc = size + len(data), google_crc32c.extend(crc, data)
        (directory / f"{name}.idx").write_bytes(format_index(lengths))
        yield Shard(name, len(chosen), size, crc)


def main() -> int:
    """Prints a row for each kind and number of records."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", default=",".join(_KINDS), help="default: %(default)s")
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--data", type=Path, default=Path("benchmark_data"))
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parsed = parser.parse_args()
    parsed.data = parsed.data.absolute()  # The report runs in the root of the repository.
    results = []
    for kind in parsed.kinds.split(","):
        schema, records = _KINDS[kind](parsed.data / f"report-{kind}")
        for count in parsed.records:
            directory = parsed.data / f"report-{kind}-{count}"
            if not (directory / "manifest.json").exists():
                write(directory, schema, records, count)
            page = parsed.data / f"{directory.name}.html"
            command = [sys.executable, "-m", "readers", "report", str(directory)]
            log = parsed.data / f"{directory.name}.log"
            took = run(directory.name, [*command, "--output", str(page)], log, warm=True)
            results.append(
                {
                    "kind": kind,
                    "records": count,
                    "stored": sum(f.stat().st_size for f in directory.glob("*.tfrecord")),
                    "seconds": took.seconds,
                    "cpu_seconds": took.cpu_seconds,
                    "peak_bytes": took.peak_bytes,
                    "page_bytes": page.stat().st_size,
                }
            )
    header = ["records", "", "stored", "seconds", "processor s", "peak", "page"]
    rows = [
        [
            f"{r['records']:,}",
            str(r["kind"]),
            format_bytes(r["stored"]),
            f"{r['seconds']:.1f}",
            f"{r['cpu_seconds']:.1f}",
            format_bytes(r["peak_bytes"]),
            format_bytes(r["page_bytes"]),
        ]
        for r in results
    ]
    print(format_table([header, *rows]))
    if parsed.json:
        parsed.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
