"""What a disk may hold after a loss of power, made from what a killed job left and from the log of its changes.

The model is that of journaling filesystems such as ext4 and XFS. Names change in the order of the calls
(links, renames, deletions, folders), and what is lost is an end of this order that begins after the last
sync of a folder. The bytes of a file have no order: a file that was not synced since it was opened for
writing may be whole, empty, a part, or zeros, whatever its name is; if it was changed in place, a part of
it may be new. Memory that the kernel writes back in the background makes more durable than this, which
is why the whole file is one of the possibilities.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Change(NamedTuple):
    """A change of the disk.

    Attributes:
        call: The system call: open (for writing), rename, link, unlink, mkdir, rmdir or fsync.
        grave: Where the file is that it removed or changed; empty if there was none.
        paths: Its paths.
    """

    call: str
    grave: str
    paths: tuple[str, ...]


def changes_in(log: Path) -> list[Change]:
    """The changes that a process logged."""
    lines = map(json.loads, log.read_text().splitlines())
    return [
        Change(call, grave, tuple(paths)) for kind, call, grave, *paths in lines if kind == "ops"
    ]


def lose_power(changes: Sequence[Change], chance: random.Random) -> dict[str, int]:
    """Changes the disk to what it may hold after a loss of power at the end of some changes.

    Returns how many changes of names were lost, and how many files lost bytes in which way.
    """
    synced = [
        number
        for number, change in enumerate(changes, 1)
        if change.call == "fsync" and Path(change.paths[0]).is_dir()
    ]
    first = synced[-1] if synced else 0
    # Everything, nothing, or something between is lost.
    cut = chance.choice([first, len(changes), chance.randint(first, len(changes))])
    unsynced = _unsynced(changes, cut)
    for change in reversed(changes[cut:]):
        _undo(change)
    lost = {"names": len(changes) - cut}
    for path, grave in sorted(unsynced.items()):
        if Path(path).is_file():
            way = chance.choice(["whole", "empty", "part", "zeros", "zeros at its end"])
            _spoil(Path(path), Path(grave) if grave else None, way, chance)
            lost[way] = lost.get(way, 0) + 1
    return lost


def _unsynced(changes: Sequence[Change], cut: int) -> dict[str, str]:
    """Path -> former content, of files whose bytes may be lost, by their names after the first changes."""
    names: dict[str, int] = {}
    unsynced: dict[int, str] = {}
    at_cut: dict[str, int] = {}
    for number, change in enumerate(changes):
        if number == cut:
            at_cut = dict(names)
        first, last = change.paths[0], change.paths[-1]
        if change.call == "open":
            names.setdefault(first, number)
            unsynced.setdefault(names[first], change.grave)
        elif change.call == "rename" and first in names:
            names[last] = names.pop(first)
        elif change.call == "rename":
            names.pop(last, None)
        elif change.call == "link" and first in names:
            names[last] = names[first]
        elif change.call == "unlink":
            names.pop(first, None)
        elif change.call == "fsync" and first in names:
            unsynced.pop(names[first], None)
    if cut == len(changes):
        at_cut = names
    return {path: unsynced[id_] for path, id_ in at_cut.items() if id_ in unsynced}


def _undo(change: Change) -> None:
    """Undoes a change, the last one that is not undone."""
    first, last = change.paths[0], change.paths[-1]
    with contextlib.suppress(FileNotFoundError, FileExistsError, NotADirectoryError):
        if change.call == "rename":
            os.replace(last, first)
        elif change.call == "mkdir":
            shutil.rmtree(first)
        elif change.call == "rmdir":
            os.mkdir(first)
        elif change.call == "link" or (change.call == "open" and not change.grave):
            os.unlink(last)
    if change.grave:
        shutil.copyfile(change.grave, last)


def _spoil(path: Path, former: Path | None, way: str, chance: random.Random) -> None:
    """Makes a file what it may be if its bytes were not synced."""
    data, old = path.read_bytes(), former.read_bytes() if former else None
    at = chance.randint(0, len(data))
    if way == "whole":
        return
    if old is not None:  # Changed in place: some blocks are new, or none.
        path.write_bytes(old if way == "empty" else data[:at] + old[at:])
        return
    spoilt = {
        "empty": b"",
        "part": data[:at],
        "zeros": bytes(len(data)),
        "zeros at its end": data[:at] + bytes(len(data) - at),
    }
    path.write_bytes(spoilt[way])
