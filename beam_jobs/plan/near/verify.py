"""Compares the probes of candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import DataError
from beam_jobs.plan.near.blocks import NAME_BYTES, Probes
from beam_jobs.plan.near.candidates import PAIR
from beam_jobs.records.pieces import PIECE_BYTES
from readers.similarity.likeness import Likeness


class NearPairs(NamedTuple):
    """Near duplicates whose second is in one block.

    Attributes:
        second: int64 [pairs], rows of the block, in ascending order.
        block: The name of the first's block, void [pairs].
        first: int64 [pairs], its row there.
        split: uint8 [pairs], its split.
        kept_out: bool [pairs], whether it is a record to keep out.
    """

    second: np.ndarray
    block: np.ndarray
    first: np.ndarray
    split: np.ndarray
    kept_out: np.ndarray


def _sent_type(probe_bytes: int) -> np.dtype:
    """A record that is sent to the block of the second of its pair."""
    name = ("block", f"V{NAME_BYTES}")
    numbers = [("second", "<u4"), ("first", "<u4"), ("split", "u1"), ("kept_out", "?")]
    return np.dtype([name, *numbers, ("probe", "u1", (probe_bytes,))])


def sent(
    name: bytes, probes: Probes, pairs: Iterable[bytes]
) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
    """Yields (name of the second's block, (bytes of a probe, the packed firsts of some pairs)).

    A pair that several partitions have found is sent once.

    Args:
        name: The name of the first's block.
        probes: The probes of the block.
        pairs: Packed `PAIR`s from all partitions.
    """
    every = np.unique(np.frombuffer(b"".join(pairs), f"V{PAIR.itemsize}")).view(PAIR)
    rows, splits = probes.rows(), np.frombuffer(probes.splits, np.uint8)
    table = np.zeros(len(every), _sent_type(rows.shape[1]))
    table["block"] = np.array([name], f"V{NAME_BYTES}")[0]
    table["second"], table["first"] = every["second"], every["first"]
    table["split"], table["kept_out"] = splits[every["first"]], probes.kept_out
    table["probe"] = rows[every["first"]]
    order = np.argsort(every["block"], kind="stable")
    found, starts = np.unique(every["block"][order], return_index=True)
    step = max(1, PIECE_BYTES // table.itemsize)
    for block, some in zip(found, np.split(table[order], starts[1:]), strict=False):
        for start in range(0, len(some), step):
            yield block.tobytes(), (rows.shape[1], some[start : start + step].tobytes())


def near_pairs(
    probes: Probes, arrived: Iterable[tuple[int, bytes]], likeness: Likeness
) -> NearPairs:
    """The pairs of which both are near, of those whose second is in a block.

    Args:
        probes: The probes of the block.
        arrived: What `sent` has sent to it.
        likeness: Decides.
    """
    rows = probes.rows()
    kind = _sent_type(rows.shape[1])
    table = np.frombuffer(b"".join(data for _, data in arrived), kind)
    table = table[np.argsort(table["second"], kind="stable")]
    near = [np.empty(0, bool)]
    for start in range(0, len(table), _AT_ONCE):
        part = table[start : start + _AT_ONCE]
        near.append(likeness.near(part["probe"], rows[part["second"]]))
    table = table[np.concatenate(near)]
    return NearPairs(
        table["second"].astype(np.int64),
        table["block"],
        table["first"].astype(np.int64),
        table["split"],
        table["kept_out"],
    )


# Pairs that are compared at a time: their probes as float64 take 16 MiB.
_AT_ONCE = 1 << 13


def only_one(name: bytes, found: list[Probes], wanted: bool) -> Probes | None:
    """The probes of a block, which are there once if they are wanted.

    Raises:
        DataError: The runner lost or repeated them.
    """
    if len(found) > 1 or (wanted and not found):
        raise DataError(
            f"the runner handed over {len(found)} of 1 blocks of sketches ({name.hex()}); no dataset "
            "was written, run the job again"
        )
    return found[0] if found else None
