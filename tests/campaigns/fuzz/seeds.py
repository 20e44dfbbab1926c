"""What a campaign must know of a target, from a process of its own: targets import what may crash."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.campaigns.fuzz import registry
from tests.support.checkout import ROOT as CHECKOUT


def described(name: str) -> tuple[list[bytes], list[bytes], int]:
    """The seeds of a target, the words of its dictionary, and the most bytes of an input."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.fuzz.seeds", name],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.decode(errors='replace')[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    seeds, words = ([bytes.fromhex(text) for text in found[key]] for key in ("seeds", "words"))
    return seeds, words, found["max_bytes"]


def main(name: str) -> None:
    """Prints what `described` reads."""
    target = registry.find(name)
    found = {
        "seeds": [seed.hex() for seed in target.seeds()],
        "words": [word.hex() for word in target.words],
        "max_bytes": target.max_bytes,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
