"""The report of a dataset of pictures, recordings and texts, as users see it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import readers
from readers.format.schema import Schema
from tests.browsers.chromium import Page
from tests.browsers.examine import examine
from tests.support.datasets import write_dataset

_WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "again"]
_SCHEMA = Schema(
    {
        "image": ("uint8", (24, 32, 3)),
        "signal": ("float32", (None, 2)),
        "text": ("string", ()),
        "tokens": ("int64", (None,)),
        "label": ("int64", ()),
    }
)


@pytest.mark.browsers
@pytest.mark.ci
def test_a_report_has_no_fault(page: Page, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    periods = np.array([5, 9], np.float32)
    records = [
        {
            "image": rng.integers(0, 256, (24, 32, 3), dtype=np.uint8),
            "signal": np.sin(np.arange(200 + 50 * n, dtype=np.float32)[:, None] / periods + n),
            "text": " ".join(rng.choice(_WORDS, 5 + 3 * n)),
            "tokens": rng.integers(1, 12, 5 + 3 * n),
            "label": n % 3,
        }
        for n in range(14)
    ]
    directory = write_dataset(
        tmp_path / "d",
        _SCHEMA,
        {"train": [records[:6], records[6:11]], "test": [records[11:]]},
        label_names=("cat", "dog", "bird"),
        vocabulary=12,
        files={"vocabulary.txt": readers.File("vocabulary.txt", 0)},
    )
    (directory / "vocabulary.txt").write_text("\n".join(_WORDS))
    assert examine(page, readers.report(directory, tmp_path / "report.html"), tmp_path) == []
    assert (tmp_path / "report-390-dark.png").exists() and (tmp_path / "report.pdf").exists()
