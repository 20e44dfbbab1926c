"""The places of an epoch that each host reads in each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

    `records` are those of an epoch, `batch_size` those of one host in a step, `epochs` those of a pass, None for endless
    passes. `absent` of the last places of an epoch have no record for this host. The first step begins at `epoch` and `place`.
    """

    records: int
    batch_size: int
    host: int = 0
    hosts: int = 1
    epochs: int | None = 1
    remainder: Remainder = "short"
    absent: int = 0
    epoch: int = 0
    place: int = 0

    @property
    def _global_batch_size(self) -> int:
        return self.batch_size * self.hosts

    def steps_from(self, place: int) -> int:
        """The number of steps in an epoch that starts at a place."""
        full, left = divmod(max(self.records - place, 0), self._global_batch_size)
        fewest = {"short": self.hosts, "pad": 1, "drop": self._global_batch_size}
        return full + (left >= fewest[self.remainder])

    def steps_of_pass(self, number: int) -> tuple[int, int | None]:
        """The first step of a pass, and the step after its last one; None if it is endless. Passes count from 0.

        Passes follow each other. Each ends after an epoch whose count is a multiple of `epochs`,
        so the first is shorter if it begins in a later epoch.
        """
        first, each = self.steps_from(self.place), self.steps_from(0)
        if self.epochs is None:
            return 0, None if each else first
        end = first + (self.epochs - self.epoch % self.epochs - 1) * each
        end += number * self.epochs * each
        return (end - self.epochs * each if number else 0), end

    def step(self, number: int) -> tuple[int, range]:
        """The epoch of the step with a number, from 0, and the places in the epoch that this host reads."""
        epoch, within, place = self._find(number)
        begin = place + within * self._global_batch_size
        size = min(self._global_batch_size, self.records - begin)
        first, stop = share(size, self.host, self.hosts, self.remainder)
        end = self.records - self.absent
        return epoch, range(min(begin + first, end), min(begin + stop, end))

    def after(self, steps: int) -> tuple[int, int]:
        """The (epoch, place) that all hosts together have reached after a number of steps."""
        if not steps or not self.steps_from(0):
            return self.epoch, self.place
        epoch, within, place = self._find(steps - 1)
        if within + 1 == self.steps_from(place):
            return epoch + 1, 0
        return epoch, place + (within + 1) * self._global_batch_size

    def _find(self, number: int) -> tuple[int, int, int]:
        """The epoch of a step, its number in the epoch, and the place at which reading of the epoch starts."""
        first = self.steps_from(self.place)
        if number < first:
            return self.epoch, number, self.place
        epochs, within = divmod(number - first, self.steps_from(0))
        return self.epoch + 1 + epochs, within, 0
