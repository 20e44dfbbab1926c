"""A target: seeds, and a check of any bytes that raises AssertionError if an oracle is violated."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.campaigns.fuzz.limits import DEFAULT, Limits, measured

# Plain mutations: (bytes, the most bytes of the result) -> bytes.
Plain = Callable[[bytes, int], bytes]

# Mutations that keep a structure: (bytes, the most bytes of the result, randomness, plain mutations) -> bytes.
Mutate = Callable[[bytes, int, random.Random, Plain], bytes]


@dataclass(frozen=True)
class Target:
    """A function that takes foreign bytes, and what must hold for it.

    Attributes:
        name: The target's name, which is that of its folders of corpora and crashes, too.
        seeds: Makes valid inputs with the project or with other writers.
        examine: Calls the function with an input. Every exception that it lets through is a fault.
        mutate: Mutations that keep a structure, without which plain bytes reach nothing; None for none.
        words: Pieces of the format, for libFuzzer's dictionary.
        max_bytes: The most bytes of an input.
        limits: What one input may take.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    examine: Callable[[bytes], None]
    mutate: Mutate | None = None
    words: tuple[bytes, ...] = ()
    max_bytes: int = 4096
    limits: Limits = DEFAULT

    def check(self, data: bytes) -> None:
        """Checks one input, as in a campaign.

        Raises:
            AssertionError: An oracle is violated: an error that is not documented, values that differ,
                too much memory or time.
        """
        try:
            measured(self.examine, data, self.limits)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(
                f"an undocumented error, {type(error).__name__}: {error}"
            ) from error
