"""A target: seeds, and a check of any bytes that raises AssertionError if an oracle is violated."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import re
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.fuzz.limits import Limits, measured

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
    words: Sequence[bytes] = ()
    max_bytes: int = 4096
    limits: Limits = field(default_factory=Limits)

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


def by_choice(
    variants: Sequence[Any], examine: Callable[[Any, bytes], None]
) -> Callable[[bytes], None]:
    """A check of inputs whose first byte chooses a variant, with which the rest is examined."""

    def check(data: bytes) -> None:
        if data:
            examine(variants[data[0] % len(variants)], data[1:])

    return check


def after_choice(mutate: Mutate) -> Mutate:
    """Mutations of what follows the first byte, which chooses how the rest is read."""

    def mutated(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
        first = data[:1] if randomness.random() < 0.9 else randomness.randbytes(1)
        return first + mutate(data[1:], size - 1, randomness, plain)

    return mutated


_VARYING = re.compile(r"0x[0-9a-f]+|[0-9]+(\.[0-9]+)?|'[^']*'|\"[^\"]*\"|b'.*|\[.*|\(.*")


def signature(error: BaseException) -> str:
    """The kind of a fault: the error, the innermost line of the project, and the message without numbers.

    Two inputs with one signature are taken for one fault.
    """
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    own = [f for f in frames if not re.search("site-packages|/lib/python", f.filename)]
    place = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else ""
    message = _VARYING.sub("_", str(error).splitlines()[0] if str(error) else "")[:120]
    return f"{type(cause).__name__} in {place}: {message}"


def name_of(data: bytes) -> str:
    """The name of the file of an input."""
    return hashlib.sha256(data).hexdigest()[:16]


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=memory if os.access(memory, os.W_OK) else None
    )


def written(data: bytes, name: str) -> str:
    """The path of a file in memory with some bytes, which the next call with this name overwrites."""
    path = Path(_scratch().name) / name
    path.write_bytes(data)
    return str(path)
