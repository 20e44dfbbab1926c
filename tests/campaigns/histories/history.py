"""Runs the history of a seed, and checks what holds after each of its commands."""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from tests.campaigns.histories.check import Checker
from tests.campaigns.histories.commands import MORE_NUMBERS, NAMES, Command, Draw
from tests.campaigns.histories.datasets import STEPS, Datasets, watched
from tests.campaigns.histories.model import Refused, State
from tests.campaigns.values import read_files

_COMMANDS = 6

PAIRS = [*itertools.product(NAMES, NAMES)]


class History:
    """The datasets of a history in a folder, and the model of them."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.lines: list[str] = []
        self.counts = Counter[str]()
        self.draw, self.state = Draw(seed), State()
        self.datasets = Datasets(folder / "here")
        self.checker = Checker(folder / "here", self.draw.random)

    def run(self) -> None:
        """Writes a dataset, and runs commands that nothing disturbs, that are killed, or that meet another one."""
        self.datasets.write([*MORE_NUMBERS], 0, to="more")
        self._undisturbed("write")
        for number in range(_COMMANDS - 1):
            if self.seed % 3 == 2:
                names = PAIRS[(self.seed // 3 * (_COMMANDS - 1) + number) % len(PAIRS)]
                self._pair(*names)
            else:
                name = self.draw.random.choice(NAMES)
                kills = self.seed % 3 == 1 and self.draw.random.random() < 0.7
                (self._killed if kills else self._undisturbed)(name)
        self.checker.check(self.state, every=True)

    def _after(self, state: State, *commands: Command, begun: State | None = None) -> State | None:
        """The state after some commands, the last of which began in some state; None if one fails."""
        try:
            for command in commands:
                is_last = command is commands[-1]
                state = command.effect(state, begun if begun and is_last else state)
        except Refused:
            return None
        return state

    def _undisturbed(self, name: str) -> None:
        command = self.draw.command(name, self.state)
        self.lines.append(f"d.run({command.line!r})")
        (error,) = self.datasets.run(command.line)
        expected = self._after(self.state, command)
        assert (error is None) == (expected is not None), repr(error)
        self.counts[f"{name}: {'error' if error else 'ok'}"] += 1
        self.state = expected or self.state
        self.checker.check(self.state)

    def _killed(self, name: str) -> None:
        """Kills a command, then repeats it, and compares the files with those of a copy that nothing disturbed."""
        command, before = self.draw.command(name, self.state), self.state
        plain = Datasets(self.folder / "plain")
        shutil.copytree(self.datasets.root, plain.root)
        (error,) = plain.run(command.line)
        expected = self._after(before, command)
        assert (error is None) == (expected is not None), repr(error)
        at = self.draw.random.randrange(max(STEPS.count, 1))
        self.lines.append(f"d.run({command.line!r}, at={at})")
        self.datasets.run(command.line, at)
        whole = (before, expected or before)
        paths = self.datasets.root.glob("photos/generations/*.json")
        newest = max(int(path.stem) for path in paths)
        assert newest in {state.newest for state in whole}
        self.checker.newest(next(state for state in whole if state.newest == newest))
        self.lines.append(f"d.run({command.line!r})")
        (again,) = self.datasets.run(command.line)
        assert again is None or error or newest > before.newest, repr(again)
        self.counts[f"{name}: killed"] += 1
        self.state = expected or before
        if name == "write" and newest > before.newest and not again:
            self.state = self._after(before, command, command) or before  # It replaces itself.
        else:
            found, wanted = _files(self.datasets), _files(plain)
            differ = {name for name in found | wanted if found.get(name) != wanted.get(name)}
            assert not differ, (sorted(differ), sorted(differ & found.keys()))
        shutil.rmtree(plain.root)
        self.checker.check(self.state)

    def _pair(self, one: str, other: str) -> None:
        """Runs a command in the middle of another one, whose lease it sees, or which it believes to have died."""
        first, second = (self.draw.command(name, self.state) for name in (one, other))
        at, sees, before = (
            self.draw.random.randrange(40),
            self.draw.random.random() < 0.3,
            self.state,
        )
        self.lines.append(f"d.run({first.line!r}, {at}, {second.line!r}, {sees})")
        errors = self.datasets.run(first.line, at, second.line, sees)
        firsts, seconds = [[first][: not errors[0]]], [[second][: not errors[1]]]
        if re.search(r"\.staging|still have such records", str(errors[0])):
            # It may have failed after its commit, and continues what it has begun.
            self.lines.append(f"d.run({first.line!r})")
            (again,) = self.datasets.run(first.line)
            firsts = [[], [first]]
            seconds = [seconds[0], [*seconds[0], first]][: 1 + (not again)]
        elif errors[0] and errors[1]:
            assert not (self._after(before, first) and self._after(before, second)), errors
        # The second one may find what the first one is about to delete.
        possible = [
            self._after(before, *f, *s, begun=begun)
            for begun in (None, before)
            for f in firsts
            for s in seconds
        ]
        for begun in (
            before,
            None,
        ):  # The first one may have looked before the second one or after it.
            possible += [self._after(before, *s, *f, begun=begun) for f in firsts for s in seconds]
        problems = []
        for state in filter(None, possible):
            try:
                self.checker.check(state)
                self.state = state
                break
            except AssertionError:
                problems.append(traceback.format_exc())
        else:
            raise AssertionError("\n".join([f"both: {errors}", *problems]))
        how = "seen" if sees else "thought dead"
        self.counts[f"{one}, {how} | {other}: {errors.count(None)} done"] += 1


def _files(datasets: Datasets) -> dict[str, bytes]:
    files = read_files(datasets.root)
    return {name: data for name, data in files.items() if ".staging/" not in name}


def outcome(seed: int) -> tuple[int, Counter[str], str]:
    """Runs the history of a seed; returns it, what it did, and its lines with the traceback if something does not hold."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    history = History(seed, folder)
    try:
        with watched():
            history.run()
        return seed, history.counts, ""
    except Exception:
        begin = "from tests.campaigns.histories.datasets import *", "d = Datasets(Path('here'))"
        return seed, history.counts, "\n".join([*begin, *history.lines, traceback.format_exc()])
    finally:
        shutil.rmtree(folder)
