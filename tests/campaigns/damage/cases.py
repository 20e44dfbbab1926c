"""Every case: the name of a damage, and the files that it changes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from readers.format.manifest import GENERATIONS, INDEX_SUFFIX, MANIFEST, TOKENIZER, VOCABULARY
from tests.campaigns.damage.kinds import Kind
from tests.support.indexes import index_of_file, spans


@dataclass(frozen=True)
class Case:
    """One damage to one dataset.

    Attributes:
        damage: The sort of damage, as in the table.
        what: What the damaged file is.
        changes: The new content of each file that changed; None for one that was deleted.
        where: Where it is, for a person.
    """

    damage: str
    what: str
    changes: Mapping[str, bytes | None]
    where: str = ""

    def __str__(self) -> str:
        return f"{self.damage} of {' and '.join(self.changes)} {self.where}".strip()


def what_is(name: str) -> str:
    """What a file of a dataset is."""
    if name.endswith(INDEX_SUFFIX):
        return "index"
    folder, file = f"/{name}".split("/")[-2:]
    if folder in ("rejects", GENERATIONS):
        return folder
    known = {MANIFEST: "manifest", VOCABULARY: "vocabulary", TOKENIZER: "tokenizer"}
    return known.get(file, "shard")


def cases(kind: Kind) -> Iterator[Case]:
    """Every case of a kind, one file after another."""
    for name, data in kind.files.items():
        what = what_is(name)
        yield from _bytes(name, what, data)
        for length in range(len(data)):
            yield Case("cut", what, {name: data[:length]}, f"at {length}")
        yield from _appended(kind, name, what, data)
        yield Case("deleted file", what, {name: None})
    yield from _swapped_records(kind)
    for one, other in itertools.combinations(kind.files, 2):
        if kind.files[one] != kind.files[other]:
            pair = sorted({what_is(one), what_is(other)})
            changes = {one: kind.files[other], other: kind.files[one]}
            yield Case("swapped files", " ".join(pair), changes)


def _bytes(name: str, what: str, data: bytes) -> Iterator[Case]:
    """Each byte inverted, with one other bit, as 0 and as 255; never what it was."""
    for at, byte in enumerate(data):
        values = {byte ^ 0xFF: "inverted byte", byte ^ 1 << at % 8: "flipped bit"}
        values.setdefault(0, "byte set to 0")
        values.setdefault(255, "byte set to 255")
        for value, damage in values.items():
            if value != byte:
                changed = data[:at] + bytes([value]) + data[at + 1 :]
                yield Case(damage, what, {name: changed}, f"at {at}: {byte} became {value}")


def _appended(kind: Kind, name: str, what: str, data: bytes) -> Iterator[Case]:
    more = {b"\0", b"\n", b" ", b"\xff", bytes(16), data}
    if name in kind.shards:
        start, end = spans(data)[-1]
        more.add(data[start:end])
    elif b"\n" in data:
        more.add(data.splitlines(keepends=True)[-1])
    for tail in sorted(more):
        yield Case("appended bytes", what, {name: data + tail}, f": {tail[:20]!r}")


def _swapped_records(kind: Kind) -> Iterator[Case]:
    """Each pair of records of plain files, with the old index and with one that fits."""
    places = [(name, span) for name in kind.shards for span in spans(kind.files[name])]
    for (one, (a, b)), (other, (c, d)) in itertools.combinations(places, 2):
        first, second = kind.files[one][a:b], kind.files[other][c:d]
        if first == second:
            continue
        where = f"at {a} and {c}"
        damage = "swapped records" if one == other else "swapped records of two shards"
        changes = {other: kind.files[other][:c] + first + kind.files[other][d:]}
        data = changes.get(one, kind.files[one])  # The first record comes before the second.
        changes[one] = data[:a] + second + data[b:]
        yield Case(damage, "shard", changes, where)
        if f"{one}{INDEX_SUFFIX}" in kind.files:
            indexes = {name + INDEX_SUFFIX: index_of_file(data) for name, data in changes.items()}
            yield Case(f"{damage}, new index", "shard", {**changes, **indexes}, where)


def sample(kind: Kind, most: int) -> Iterator[Case]:
    """Yields some cases of each sort of damage to each sort of file, evenly spread; always the same."""
    counts = Counter((case.what, case.damage) for case in cases(kind))
    seen = Counter[tuple[str, str]]()
    for case in cases(kind):
        row = case.what, case.damage
        if seen[row] % -(-counts[row] // most) == 0:
            yield case
        seen[row] += 1
