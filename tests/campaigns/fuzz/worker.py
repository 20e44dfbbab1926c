"""Runs one target under libFuzzer: `python -m tests.campaigns.fuzz.worker NAME FOUND [FLAGS] CORPUS [FOLDERS] [FLAGS]`.

A failed check is saved in the folder FOUND, once for each signature, and the process runs
on. What ends it (a crash of a library, a timeout, memory) is saved there by libFuzzer.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import atheris

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.target import Target, name_of, signature

# Beside what libraries map when they are imported. TensorFlow alone maps some gigabytes.
_ADDRESS_SPACE = 3 << 30


def _limit_memory() -> None:
    """Limits the address space to what is mapped now, and `_ADDRESS_SPACE`."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + _ADDRESS_SPACE, hard))


def _saving(target: Target, folder: Path) -> Callable[[bytes], None]:
    """A check of inputs that saves the first of each kind that fails, under the name of its kind."""

    def check(data: bytes) -> None:
        try:
            target.check(data)
        except AssertionError as error:
            found = signature(error)
            file = folder / name_of(found.encode())
            if not file.exists():
                file.write_bytes(data)
                print(f"FINDING {target.name}: {found}", file=sys.stderr, flush=True)

    return check


def main(arguments: Sequence[str]) -> None:
    """Runs libFuzzer, which ends the process."""
    name, folder, *others = arguments
    with atheris.instrument_imports(include=list(registry.INSTRUMENTED)):
        target = registry.find(name)
        for seed in target.seeds():  # Imports what is imported at the first call.
            target.check(seed)
    _limit_memory()
    mutate = target.mutate
    corpus = next(Path(other) for other in others if not other.startswith("-"))
    for seed in target.seeds():
        (corpus / name_of(seed)).write_bytes(seed)
    others = [*others, f"-max_len={target.max_bytes}"]
    if target.words:
        dictionary = corpus.with_suffix(".dict")
        lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in target.words]
        dictionary.write_text("".join(lines))
        others.append(f"-dict={dictionary}")

    def mutated(data: bytes, size: int, seed: int) -> bytes:
        randomness = random.Random(seed)
        if mutate is None or randomness.random() < 0.3:
            return bytes(atheris.Mutate(data, size))
        return mutate(data, size, randomness, atheris.Mutate)[:size]

    # libFuzzer starts itself again by this name to merge corpora.
    program = f"{sys.executable} -m tests.campaigns.fuzz.worker {name} {folder}"
    options = {} if mutate is None else {"custom_mutator": mutated}
    atheris.Setup(
        [program, *others], _saving(target, Path(folder)), enable_python_coverage=True, **options
    )
    atheris.Fuzz()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(sys.argv[1:])
