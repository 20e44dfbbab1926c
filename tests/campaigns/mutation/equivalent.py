"""The mutants that no test can notice, each with its reason, as `equivalent.txt` lists them."""

from __future__ import annotations

from pathlib import Path

_LIST = Path(__file__).with_name("equivalent.txt")


def equivalents() -> dict[str, str]:
    """The key of each mutant and why it is equivalent.

    A key is a line of its own; the indented lines after it are the reason. Keys that share a reason follow one another.
    """
    found: dict[str, str] = {}
    keys: list[str] = []
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith(" "):
            for key in keys:
                found[key] = f"{found[key]} {line.strip()}".strip()
        else:
            if not keys or found[keys[-1]]:
                keys = []
            keys.append(line.strip())
            found[line.strip()] = ""
    if unexplained := [key for key, reason in found.items() if not reason]:
        raise ValueError(f"{_LIST.name}: no reason for {unexplained}")
    return found
