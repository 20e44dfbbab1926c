"""The splits of a dataset: their names and shares."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beam_jobs.errors import DataError, UsageError
from readers.format.splits import check_split_name

MAX_SPLITS = 256  # one byte a record


def _share(splits: str, part: str, share: str) -> float:
    """The share of one split, a part of the value of `--splits`."""
    with contextlib.suppress(ValueError):
        if 0 < float(share) <= 1:
            return float(share)
    raise UsageError(f"--splits {splits}: {part!r}: expected a share up to 1, such as train=0.8")


@dataclass(frozen=True)
class Splits:
    """Names and shares of the splits.

    Attributes:
        names: The names in the order given.
        fractions: The share of each split; they add up to 1.
        kept: Whether each record keeps its split, which is in the name of the shard in its key.
    """

    names: tuple[str, ...] = ("train",)
    fractions: tuple[float, ...] = (1.0,)
    kept: bool = False

    @classmethod
    def parse(cls, text: str) -> Splits:
        """Parses the value of `--splits`, such as `train=0.8,val=0.2`; UsageError if its names or shares are wrong."""
        shares: dict[str, float] = {}
        for part in text.split(","):
            name, equals, share = part.strip().partition("=")
            if not equals:
                raise UsageError(
                    f"--splits {text}: expected NAME=SHARE, such as train=0.8,val=0.2; found {part!r}"
                )
            try:
                check_split_name(name)
            except ValueError as error:
                raise UsageError(f"--splits {text}: {part!r} ({error})") from None
            if name in shares:
                raise UsageError(f"--splits {text}: {name!r} is repeated")
            shares[name] = _share(text, part, share)
        if len(shares) > MAX_SPLITS:
            raise UsageError(f"--splits: {len(shares)} splits, at most {MAX_SPLITS} are possible")
        if abs(sum(shares.values()) - 1) > 1e-6:
            raise UsageError(
                f"--splits {text}: the shares add up to {sum(shares.values()):g}, not 1"
            )
        return cls(tuple(shares), tuple(shares.values()))

    @classmethod
    def folds(cls, text: str) -> Splits:
        """The splits of the value of `--folds`: `3` gives fold0, fold1 and fold2; UsageError if it is no such number."""
        if not (text.isascii() and text.isdecimal() and 2 <= int(text[:9]) <= MAX_SPLITS):
            raise UsageError(f"--folds {text}: expected a number from 2 to {MAX_SPLITS}")
        return cls._equal([f"fold{number}" for number in range(int(text))])

    @classmethod
    def named(cls, names: Sequence[str], column: str) -> Splits:
        """The splits whose names are the values of a column; UsageError if they are no names, not distinct, or too many."""
        for name in names:
            try:
                check_split_name(name)
            except ValueError as error:
                raise UsageError(f"--split_column {column}: {error}") from None
        if len(set(names)) < len(names) or len(names) > MAX_SPLITS:
            raise UsageError(
                f"--split_column {column}: expected up to {MAX_SPLITS} names of splits, each once, "
                f"got {len(names)}: {', '.join(names):.200}"
            )
        return cls._equal(names)

    @classmethod
    def of_shards(cls, names: Sequence[str]) -> Splits:
        """The splits of existing shards, which their records keep; UsageError if there are more than `MAX_SPLITS`."""
        if len(names) > MAX_SPLITS:
            raise UsageError(
                f"--input: the files belong to {len(names)} splits, at most {MAX_SPLITS} are "
                "possible: reshard fewer datasets at once, or give --splits"
            )
        return cls._equal(names, kept=True)

    @classmethod
    def _equal(cls, names: Sequence[str], kept: bool = False) -> Splits:
        return cls(tuple(names), (1 / len(names),) * len(names), kept)

    @property
    def training(self) -> int:
        """The number of the split that vocabularies are learned from: `train`, or the first one."""
        return self.names.index("train") if "train" in self.names else 0

    @cached_property
    def edges(self) -> list[int]:
        """The smallest group hash of every split but the first."""
        return [
            min(round(math.fsum(self.fractions[: i + 1]) * 2**64), 2**64 - 1)
            for i in range(len(self.names) - 1)
        ]

    def of(self, hashes: np.ndarray) -> np.ndarray:
        """The split of each group hash, uint8 [n]; hashes is uint64 [n]."""
        return np.searchsorted(np.array(self.edges, np.uint64), hashes, side="right").astype(
            np.uint8
        )

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {name.encode(): number for number, name in enumerate(self.names)}

    def of_keys(self, keys: Sequence[bytes]) -> np.ndarray:
        """The splits of existing records, uint8 [n], from keys like `a/train-00000-of-00002.tfrecord#1`.

        Raises:
            DataError: A key names a shard of no split.
        """
        # Names of splits have no hyphen.
        names = [key.rpartition(b"/")[2].partition(b"-")[0] for key in keys]
        try:
            return np.array([self._numbers[name] for name in names], np.uint8)
        except KeyError as error:
            key = keys[names.index(error.args[0])].decode("utf-8", "backslashreplace")
            raise DataError(
                f"{key}: expected a shard of {', '.join(self.names)}; the inputs have changed since "
                "the job began: run it again"
            ) from None
