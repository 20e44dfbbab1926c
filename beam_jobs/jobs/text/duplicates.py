"""Equal texts: all but one of them are found without bringing texts together, only their digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.summary import Summary
from beam_jobs.sources.chunks import Task

# Of each text of some work: its number there, its digest, and its place in the order. Digests meet
# in 256 groups, by their first byte: of a billion texts 125 MB each.
_DIGEST_BYTES = 16

_ROW = np.dtype([("row", "<i8"), ("digest", f"V{_DIGEST_BYTES}"), ("order", "<u8")])


def pack_digests(
    numbers: np.ndarray, digests: np.ndarray, orders: np.ndarray
) -> Iterator[tuple[int, bytes]]:
    """Yields (partition, the texts of one piece of work that fall into it).

    Args:
        numbers: int64 [n], of the texts among all of that work.
        digests: uint8 [n, 16].
        orders: uint64 [n].
    """
    rows = np.empty(len(digests), _ROW)
    rows["row"] = numbers
    rows["digest"] = np.ascontiguousarray(digests).view(f"V{_DIGEST_BYTES}")[:, 0]
    rows["order"] = orders
    parts = digests[:, 0]
    order = np.argsort(parts, kind="stable")
    found, starts = np.unique(parts[order], return_index=True)
    for part, chosen in zip(found.tolist(), np.split(rows[order], starts[1:]), strict=False):
        yield part, chosen.tobytes()


def find_duplicates(packed: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yields (work, the numbers of its texts that equal one that stays, int64 as bytes).

    Of equal texts the one with the smallest place in the order stays.

    Args:
        packed: (work, what `pack_digests` gave of it) of all work, for one partition.

    Raises:
        UsageError: Two equal texts have the same key.
    """
    works = sorted(packed)
    tables = [np.frombuffer(rows, _ROW) for _, rows in works]
    rows = np.concatenate([np.empty(0, _ROW), *tables])
    sizes = [len(table) for table in tables]
    owners = np.repeat(np.arange(len(works)), sizes)
    halves = np.frombuffer(rows["digest"].tobytes(), "<u8").reshape(-1, 2)
    order = np.lexsort((rows["row"], owners, rows["order"], halves[:, 1], halves[:, 0]))
    same = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
    dropped = order[1:][same]
    if (twice := rows["order"][dropped] == rows["order"][order[:-1][same]]).any():
        raise _one_key(works[owners[dropped[twice]].min()][0])
    for owner in np.unique(owners[dropped]).tolist():
        numbers = np.sort(rows["row"][dropped[owners[dropped] == owner]])
        yield works[owner][0], numbers.astype("<i8").tobytes()


def with_dropped(element: tuple[str, tuple[list[Task], list[bytes]]]) -> Iterator[Task]:
    """Yields the work, told which of its records go.

    Args:
        element: Its id, and the work and what was found of it in any partition.

    Raises:
        UsageError: Some other work has the same id.
        DataError: Numbers were repeated on the way.
    """
    name, (works, dropped) = element
    if len(works) > 1:
        raise _one_key(name)
    numbers = np.frombuffer(b"".join(dropped), "<i8")
    if len(np.unique(numbers)) < len(numbers):
        raise DataError(
            f"{name}: the runner handed over the same duplicates twice; no dataset was written, run "
            "the job again"
        )
    for work in works:
        yield Task(work.chunks, numbers.tobytes())


def _one_key(work: str) -> UsageError:
    first, _, _ = work.rpartition("#")
    return UsageError(
        f"duplicate key of a text in {first} or soon after it: every record needs a key of its own; "
        "do two --input patterns match the same file, or two rows of a --table name it (--key row "
        "tells them apart)?"
    )


@dataclass
class Tally:
    """How many texts were compared with each other, and how many of them were dropped."""

    texts: int = 0
    dropped: int = 0

    def merge(self, other: Tally) -> None:
        """Adds what another one has seen."""
        self.texts += other.texts
        self.dropped += other.dropped


def check_tally(summary: Summary, tally: Tally | None) -> Summary:
    """The summary itself, once all of its texts are known to have been compared.

    Args:
        tally: None where duplicates stay.

    Raises:
        DataError: Digests, or what was found by them, were lost or duplicated on the way.
    """
    if tally:
        dropped = sum(split.duplicates for split in summary.splits)
        if (tally.texts, tally.dropped) != (summary.texts, dropped):
            raise DataError(
                f"the inputs have {summary.texts} texts, {tally.texts} were compared; of "
                f"{tally.dropped} duplicates {dropped} were dropped. The runner lost or repeated "
                "some: no dataset was written, run the job again"
            )
    return summary
