"""Mutations of JSON: values are changed, dropped, repeated and moved, and the text stays JSON."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from tests.campaigns.fuzz.target import Plain

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63) - 1, 0.5, 1e308,
    1e-320, float("nan"), float("inf"), -0.0, "", "a", "0", "1.5", "\ud800", "\0", "ä", "a/b", "../x", [], {},
    [[]], [0], [None], {"": None}, [1, 2, 3, 4], "x" * 300,
)  # fmt: skip


def mutate(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes a JSON text here and there."""
    try:
        value = [json.loads(data)]
    except (ValueError, RecursionError):
        return plain(data, size)
    for _ in range(randomness.randint(1, 4)):
        _change(value, randomness, plain)
    text = json.dumps(value[0] if value else None, ensure_ascii=randomness.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def mutate_lines(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes a line of JSON."""
    lines = data.split(b"\n")
    at = randomness.randrange(len(lines))
    lines[at] = mutate(lines[at], size, randomness, plain)
    if randomness.random() < 0.2:
        lines.insert(at, lines[randomness.randrange(len(lines))])
    return b"\n".join(lines)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of all values."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            found += _places(value[key])
    return found


def _change(whole: list[Any], randomness: random.Random, plain: Plain) -> None:
    places = _places(whole)
    if not places:
        return
    container, key = randomness.choice(places)
    other, other_key = randomness.choice(places)
    match randomness.randrange(7):
        case 0:
            container[key] = copy.deepcopy(randomness.choice(_VALUES))
        case 1:
            container[key] = copy.deepcopy(other[other_key])
        case 2 if container is not whole:
            del container[key]
        case 3 if isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        case 4 if isinstance(container, dict):
            name = plain(str(key).encode("utf-8", "replace"), 40).decode("utf-8", "replace")
            container[name] = copy.deepcopy(other[other_key])
        case 5:
            container[key] = [container[key]]
        case _:
            found = container[key]
            if isinstance(found, str):
                encoded = plain(found.encode("utf-8", "replace"), len(found) + 8)
                container[key] = encoded.decode("utf-8", "replace")
            elif isinstance(found, (int, float)) and not isinstance(found, bool):
                container[key] = found + randomness.choice((-1, 1, 0.5))
