"""The places of an epoch that each host reads in each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from readers.order.state import Cursor

# What to do with the last step of an epoch if it has fewer records than the others.
Remainder = Literal["short", "drop", "pad"]


def share(rows: int, host: int, hosts: int, remainder: Remainder) -> tuple[int, int]:
    """The first row of a host and the row after its last, in a batch that the hosts share.

    All hosts get the same number, so up to `hosts` - 1 rows are left out. Only with `pad` are none left out: the
    first hosts get one more.
    """
    each, more = divmod(rows, hosts)
    if remainder != "pad":
        more = 0
    start = host * each + min(host, more)
    return start, start + each + (host < more)


@dataclass(frozen=True)
class Schedule:
    """The steps of one host.

    In each step, the hosts read the same number of records from adjacent places, so all of them run the same number of
    steps. The records of the last step of an epoch are divided by `share`.

    `records` are those of an epoch, `batch_size` those of one host in a step. `absent` of the last places of an epoch have
    no record for this host.
    """

    records: int
    batch_size: int
    host: int = 0
    hosts: int = 1
    remainder: Remainder = "short"
    absent: int = 0

    @property
    def global_batch_size(self) -> int:
        """The number of places in each full step, of all hosts together."""
        return self.batch_size * self.hosts

    def steps_from(self, place: int) -> int:
        """The number of steps in an epoch that starts at a place."""
        full, left = divmod(max(self.records - place, 0), self.global_batch_size)
        fewest = {"short": self.hosts, "pad": 1, "drop": self.global_batch_size}
        return full + (left >= fewest[self.remainder])

    def step(self, place: int) -> range:
        """The places that this host reads in the step that begins at a place."""
        size = min(self.global_batch_size, self.records - place)
        first, stop = share(size, self.host, self.hosts, self.remainder)
        end = self.records - self.absent
        return range(min(place + first, end), min(place + stop, end))

    def after(self, cursor: Cursor, steps: int, end: Cursor | None) -> tuple[Cursor, int]:
        """The cursor after `steps` more steps, or after the last step before `end`; and the number of steps."""
        rest, each = self.steps_from(cursor.place), self.steps_from(0)
        if end is not None:
            epochs = end.epoch - cursor.epoch
            steps = min(steps, rest + (epochs - 1) * each if epochs > 0 else 0)
        if not steps or not each:
            return cursor, 0
        if steps < rest:
            return Cursor(cursor.epoch, cursor.place + steps * self.global_batch_size), steps
        epochs, within = divmod(steps - rest, each)
        return Cursor(cursor.epoch + 1 + epochs, within * self.global_batch_size), steps


def bounds_of_pass(begin: Cursor, epochs: int | None, number: int) -> tuple[Cursor, Cursor | None]:
    """The cursor of the first batch of a pass, and the cursor after its last batch; None if it is endless.

    The first pass, with the number 0, begins at `begin`. Passes follow each other. Each ends after an epoch whose number is
    a multiple of `epochs`, so the first is shorter if it begins in a later epoch.
    """
    if epochs is None:
        return begin, None
    end = (begin.epoch // epochs + 1 + number) * epochs
    return Cursor(end - epochs) if number else begin, Cursor(end)
