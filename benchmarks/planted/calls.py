"""The processes of `check_shards.py`, which make the data and look for faults.

The module of a rival has `find(dataset, folder, pages)`, which returns the names that it gives for each kind of
fault it looks for, and a function that writes its page, or None. It does not look for kinds that are absent.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Found = tuple[Mapping[str, list[str]], Callable[[], object] | None]


def make(dataset: str, folder: str, count: int) -> None:
    """Makes a dataset in a new folder."""
    module = importlib.import_module(f"planted.{dataset}")
    getattr(module, f"make_{dataset}")(Path(folder), count).write(Path(folder))


def find(module: str, dataset: str, folder: str, pages: str) -> dict[str, Any]:
    """Returns the names for each kind of fault, and the seconds that the page took, or None."""
    named, page = importlib.import_module(module).find(dataset, Path(folder), Path(pages))
    began = time.monotonic()
    if page:
        page()
    return {
        "named": {kind: sorted(set(names)) for kind, names in named.items()},
        "page_seconds": time.monotonic() - began if page else None,
    }
