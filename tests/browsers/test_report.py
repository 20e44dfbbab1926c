"""Reports of datasets of pictures, recordings and texts, as users see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import readers
from readers.format.schema import Schema
from tests.browsers.browser import Browser
from tests.browsers.examine import examine
from tests.support.datasets import Record, write_dataset

pytestmark = [
    pytest.mark.browsers,
    pytest.mark.skipif(not hasattr(readers, "report"), reason="there is no readers.report yet"),
]

_WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "again"]


def records_of(kind: str, count: int, seed: int) -> list[Record]:
    rng = np.random.default_rng(seed)
    made: list[Record] = []
    for number in range(count):
        if kind == "pictures":
            pixels = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            made.append({"image": pixels, "label": number % 3})
        elif kind == "recordings":
            steps = np.arange(200 + 50 * number, dtype=np.float32)[:, None] / np.array(
                [5, 9], np.float32
            )
            made.append({"signal": np.sin(steps + number), "label": number % 3})
        else:
            made.append({"text": " ".join(rng.choice(_WORDS, 5 + 3 * number)), "label": number % 3})
    return made


FEATURES: dict[str, dict[str, Any]] = {
    "pictures": {"image": ("uint8", (24, 32, 3))},
    "recordings": {"signal": ("float32", (None, 2))},
    "texts": {"text": ("string", ())},
}


@pytest.mark.parametrize("kind", FEATURES)
def test_a_report_has_no_fault(browser: Browser, kind: str, tmp_path: Path) -> None:
    splits = {
        "train": [records_of(kind, 12, 0), records_of(kind, 11, 1)],
        "test": [records_of(kind, 4, 2)],
    }
    schema = Schema({**FEATURES[kind], "label": ("int64", ())})
    names = ("cat", "dog", "bird")
    directory = write_dataset(tmp_path / kind, schema, splits, label_names=names)
    report = readers.report(directory, tmp_path / "report.html")
    assert examine(browser, report) == []
