"""The contenders of `check_shards.py`.

The module of a rival has `find(dataset, folder, pages)`, which returns the names that it gives for each kind of
fault it looks for, and a function that writes its page, or None. Kinds that are absent it does not look for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Found = tuple[Mapping[str, list[str]], Callable[[], object] | None]


@dataclass(frozen=True)
class Contender:
    """A library that looks for faults.

    Attributes:
        title: Its name in the tables.
        environment: The environment that it runs in; empty for this project.
        module: The module that runs it; empty for this project.
        datasets: The datasets that it can look at.
    """

    title: str
    environment: str
    module: str
    datasets: tuple[str, ...]


CONTENDERS = {
    "ours": Contender("readers", "", "", ("pictures", "texts", "table", "recordings")),
    "cleanvision": Contender(
        "CleanVision", "datalab", "rivals.planted.cleanvision_finder", ("pictures",)
    ),
    "datalab": Contender(
        "cleanlab Datalab",
        "datalab",
        "rivals.planted.datalab_finder",
        ("pictures", "texts", "table", "recordings"),
    ),
    "fastdup": Contender("fastdup", "fastdup", "rivals.planted.fastdup_finder", ("pictures",)),
    "datasketch": Contender(
        "datasketch", "datasketch", "rivals.planted.datasketch_finder", ("texts",)
    ),
    "profiling": Contender(
        "ydata-profiling", "profiling", "rivals.planted.profiling_finder", ("texts", "table")
    ),
    "tfdv": Contender("TFDV", "tfdv", "rivals.planted.tfdv_finder", ("texts", "table")),
}
