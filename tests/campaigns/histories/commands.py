"""Draws commands, and states what each does to the model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from beam_jobs.changes.command import CHANGES
from tests.campaigns.histories.model import (
    Place,
    Refused,
    Seen,
    State,
    Values,
    in_order,
    place,
    values,
)

# What a command does to a state, given the one in which it began.
Effect = Callable[[State, State], State]

KEYS = 60

# The records of the dataset `more`.
MORE_NUMBERS = range(100, 105)
MORE = in_order({f"k{n}": values(n, 0) for n in MORE_NUMBERS})

# Conditions mean the same in Python.
_CONDITIONS = [
    "label == 2",
    "len(x) > 2",
    "label in [1, 3] and len(x) < 3",
    "not label",
    "label > 7",
]


class Command(NamedTuple):
    """A line that runs a command, and its effect."""

    line: str
    effect: Effect


class Draw:
    """Draws the commands of a history."""

    def __init__(self, seed: object) -> None:
        self.random, self._salt = random.Random(f"{seed}"), 0

    def command(self, name: str, state: State) -> Command:
        """A command for a state."""
        self._salt += 1
        drawn: Command = getattr(self, name)(state)
        return drawn

    def _numbers(self, most: int) -> list[int]:
        return self.random.sample(range(KEYS), self.random.randint(1, most))

    def _records(self, numbers: list[int], features: tuple[str, ...]) -> dict[str, Values]:
        return {f"k{n}": values(n, self._salt, features) for n in numbers}

    def _pick(self, state: State) -> int:
        """A generation, mostly the newest."""
        every = [*state.generations]
        return self.random.choice([*every, *[state.newest] * 2 * len(every)])

    def write(self, state: State) -> Command:
        """Writes a dataset, or replaces it."""
        numbers, overwrite = self._numbers(40), self.random.random() < 0.8
        records = in_order(self._records(numbers, ()))

        def effect(now: State, begun: State) -> State:
            tagged = begun.tags or now.tags
            if (begun.newest and not overwrite) or tagged or now.newest != begun.newest:
                raise Refused
            new = Seen.of(records)
            return State(now.newest + 1, {now.newest + 1: new}, now.tags)

        return Command(f"d.write({numbers}, {self._salt}, overwrite={overwrite})", effect)

    def append(self, state: State) -> Command:
        """Appends records of which some may exist."""
        existing, seen = self.random.choice(["error", "skip", "replace"]), state.seen
        numbers, had = self._numbers(10), {key for _, key in seen.records}
        if existing == "error" and self.random.random() < 0.8:
            numbers = [n for n in numbers if f"k{n}" not in had] or numbers
        records = self._records(numbers, seen.features)

        def effect(now: State, begun: State) -> State:
            had = {key for _, key in begun.seen.records}
            added = {key: r for key, r in records.items() if existing != "skip" or key not in had}
            has = {key for _, key in now.seen.records} & added.keys()
            unlike = [
                s for s in (begun.seen, now.seen) if s.families or s.features != seen.features
            ]
            if (has and existing != "replace") or (existing == "error" and had & added.keys()):
                raise Refused
            if begun.newest not in now.generations or unlike:
                raise Refused
            if not added:
                return now
            left = now.seen.kept(lambda where: where[1] not in added)
            new = replace(left, records={**left.records, **in_order(added)}, last=None)
            new = replace(new, stored=now.seen.stored | added.keys())
            return now.next(new, now)

        how = f"append=True, existing={existing!r}"
        return Command(f"d.write({numbers}, {self._salt}, {seen.features}, {how})", effect)

    def _choice(self, seen: Seen) -> tuple[str, Callable[[Seen], set[Place]], object]:
        """Arguments that choose records, the records that they choose, and their operation if it is only once possible."""
        kind = self.random.choice(["where", "rows", "keys"])
        only = self.random.choice(["", "train", "val"])
        split = f", '--split', {only!r}" if only else ""
        if kind == "where":
            text = self.random.choice(_CONDITIONS)

            def fitting(now: Seen) -> set[Place]:
                fits = {where for where, found in now.records.items() if eval(text, {**found})}
                return {where for where in fits if only in ("", where[0])}

            return f"'--where', {text!r}{split}", fitting, None
        if kind == "rows":
            only = only or "train"
            rows = sorted({self.random.randrange(len(seen.split(only)) + 1) for _ in range(5)})

            def numbered(now: Seen) -> set[Place]:
                places = [(only, key) for key in now.split(only)]
                if rows[-1] >= len(places):
                    raise Refused
                return {places[row] for row in rows}

            return f"'--rows', d.file(*{rows}), '--split', {only!r}", numbered, (only, *rows)
        keys = [f"k{n}" for n in self._numbers(8)]
        if self.random.random() < 0.5:
            keys = [key for key in keys if place(key) in seen.records] or keys
        missing = self.random.choice(["error", "ok"])

        def named(now: Seen) -> set[Place]:
            places = {place(key) for key in keys}
            there = {w for w in places if w in now.records and only in ("", w[0])}
            if len(there) < len(keys) and missing == "error":
                raise Refused
            return there

        lines = [k if n % 2 else {"key": k} for n, k in enumerate(keys)]
        return f"'--keys', d.file(*{lines}), '--missing', {missing!r}{split}", named, None

    def delete(self, state: State) -> Command:
        """Deletes records by a condition, keys or rows."""
        arguments, chosen, last = self._choice(state.seen)

        def effect(now: State, begun: State) -> State:
            if last and begun.seen.last == last:
                raise Refused
            gone = chosen(begun.seen)
            return now.next(begun.seen.kept(lambda where: where not in gone, last), begun)

        return Command(f"d.change('delete', './photos', {arguments})", effect)

    def select(self, state: State) -> Command:
        """Makes a subset of some generation."""
        number = self._pick(state)
        arguments, chosen, _ = self._choice(state.generations[number])
        name = f"sub{self._salt}"
        only = arguments.split("'--split', ")[1].strip("'") if "--split" in arguments else ""

        def effect(now: State, begun: State) -> State:
            if number not in begun.generations:
                raise Refused
            seen = begun.generations[number]
            places = chosen(seen)
            records = {where: r for where, r in seen.records.items() if where in places}
            if number not in now.generations:  # Its files were deleted meanwhile.
                return now
            sub = replace(seen, records=records, exact=False, whole=False, only=only)
            tags = {**now.tags, f"select-{number}": number}
            return replace(now, others={**now.others, name: (sub, number)}, tags=tags)

        line = f"d.change('select', './photos@{number}', {arguments}, '--output', './{name}')"
        return Command(line, effect)

    def tag(self, state: State) -> Command:
        """Names a generation that may not be there."""
        number, name = self.random.randint(1, state.newest), f"t{self.random.randrange(3)}"

        def effect(now: State, begun: State) -> State:
            if number not in now.generations or now.tags.get(name, number) != number:
                raise Refused
            return replace(now, tags={**now.tags, name: number})

        return Command(f"d.change('tag', './photos', {name!r}, {number})", effect)

    def expire(self, state: State) -> Command:
        """Drops older generations."""
        keep = self.random.randint(1, 4)

        def effect(now: State, begun: State) -> State:
            kept = {*sorted(begun.generations)[-keep:], *begun.tags.values()}
            return now.without(begun.generations.keys() - kept)

        return Command(f"d.change('expire', './photos', '--keep', {keep})", effect)

    def index(self, state: State) -> Command:
        """Makes a dataset of the files of `more`, where they are."""
        name = f"index{self._salt}"

        def effect(now: State, begun: State) -> State:
            return replace(now, others={**now.others, name: (Seen.of(MORE), now.newest)})

        return Command(f"d.change('index', './more/*/*.tfrecord', '--output', './{name}')", effect)

    def compact(self, state: State) -> Command:
        """Writes all that readers see again."""

        def effect(now: State, begun: State) -> State:
            seen = begun.seen
            if seen.last == "compact":
                return now
            records = in_order({key: found for (_, key), found in seen.records.items()})
            new = Seen.of(records, features=seen.features + seen.families, last="compact")
            return now.next(new, begun)

        return Command("d.change('compact', './photos', '--num_shards', 2)", effect)

    def merge(self, state: State) -> Command:
        """Makes a dataset of a generation and the dataset `more`, or of twice the same records."""
        number, name = self._pick(state), f"merged{self._salt}"
        other = "more" if self.random.random() < 0.8 else "photos"

        def effect(now: State, begun: State) -> State:
            if number not in begun.generations:
                raise Refused
            # The two generations may be of before and after an overwriting write.
            seen, others = begun.generations[number], MORE if other == "more" else now.seen.records
            if {key for _, key in seen.records} & {key for _, key in others}:
                raise Refused
            if seen.features or seen.families:
                raise Refused
            tags = (
                {**now.tags, f"merge-{now.newest}": now.newest} if other == "photos" else now.tags
            )
            if number not in now.generations:  # Its files were deleted meanwhile.
                return replace(now, tags=tags)
            merged = replace(seen, records={**seen.records, **others})
            tags = {**tags, f"merge-{number}": number}
            return replace(now, others={**now.others, name: (merged, number)}, tags=tags)

        line = f"d.change('merge', './photos@{number}', './{other}', '--output', './{name}')"
        return Command(line, effect)

    def purge(self, state: State) -> Command:
        """Erases some keys from all files."""
        keys = {f"k{n}" for n in self._numbers(3)}

        def effect(now: State, begun: State) -> State:
            after, seen = now, begun.seen
            if keys & seen.stored:
                left = seen.kept(lambda where: where[1] not in keys)
                after = now.next(replace(left, stored=seen.stored - keys, last=None), begun)
            dead = {n for n, other in after.generations.items() if other.stored & keys}
            after = after.without(dead)
            left = {name: n for name, n in after.tags.items() if n in after.generations}
            return replace(after, tags=left)

        line = f"d.change('purge', './photos', '--keys', d.file(*{sorted(keys)}), '--receipt', d.file())"
        return Command(line, effect)

    def columns(self, state: State) -> Command:
        """Adds a feature from a table, or drops one."""
        seen = state.seen
        if seen.families and self.random.random() < 0.4:
            name = self.random.choice(seen.families)
            return Command(f"d.change('columns', './photos', '--drop', {name!r})", _dropping(name))
        keys = [key for _, key in seen.records] if self.random.random() < 0.5 else []
        keys = keys or [f"k{n}" for n in self._numbers(30)]
        name, missing = f"c{self._salt}", self.random.choice(["error", "default"])
        rows = [{"key": key, name: self._salt + int(key[1:])} for key in keys]
        table = {row["key"]: row[name] for row in rows}

        def effect(now: State, begun: State) -> State:
            lacking = {key for _, key in begun.seen.records} - table.keys()
            if lacking and missing == "error":
                raise Refused
            old = begun.seen.records.items()
            records = {where: {**found, name: table.get(where[1], 0)} for where, found in old}
            families = (*begun.seen.families, name)
            return now.next(
                replace(begun.seen, records=records, families=families, last=None), begun
            )

        how = f"'--extra_features', '{name}:int64', '--missing', {missing!r}"
        line = f"d.change('columns', './photos', '--name', {name!r}, '--table', d.file(*{rows}), '--key', 'key', {how})"
        return Command(line, effect)


def _dropping(name: str) -> Effect:
    def effect(now: State, begun: State) -> State:
        seen = begun.seen
        if seen.last == ("drop", name):
            return now
        if name not in seen.families:
            raise Refused
        records = {w: {n: v for n, v in r.items() if n != name} for w, r in seen.records.items()}
        families = tuple(family for family in seen.families if family != name)
        return now.next(
            replace(seen, records=records, families=families, last=("drop", name)), begun
        )

    return effect


# Commands that this history may have, after the first one.
NAMES = [name for name in vars(Draw) if name in {"write", "append", *CHANGES}]
