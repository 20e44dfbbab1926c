"""Which places of which epoch each step reads, on every host; and where to go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """What one host reads in one step: the places from start to stop of an epoch."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True)
class Schedule:
    """The steps of one host.

    In every step the hosts read as many records each, side by side, so that all of them together go
    through the epoch from its first place to its last, and make as many steps. An epoch's last step
    deals out what is left; where that is less than a record for each host, it is left out.

    Attributes:
        records: Of an epoch.
        batch_size: Records that a host reads in a step.
        host, hosts: Which of how many this is.
        epochs: Of an iteration, those that are done included; None for no end.
        drop_remainder: Leaves out an epoch's last step if it has fewer records than others.
        epoch, place: Where the first step begins.
    """

    records: int
    batch_size: int
    host: int = 0
    hosts: int = 1
    epochs: int | None = 1
    drop_remainder: bool = False
    epoch: int = 0
    place: int = 0

    @property
    def _together(self) -> int:
        return self.batch_size * self.hosts

    def _steps_from(self, place: int) -> int:
        """The steps of an epoch that begins at a place."""
        whole, left = divmod(max(self.records - place, 0), self._together)
        return whole + (left >= self.hosts and not self.drop_remainder)

    @property
    def steps_of_epoch(self) -> int:
        """Steps of an epoch that is read from its beginning."""
        return self._steps_from(0)

    @property
    def steps(self) -> int | None:
        """How many steps there are; None for no end."""
        return self.steps_of(0)[1]

    def steps_of(self, iteration: int) -> tuple[int, int | None]:
        """The numbers of the first step and of the end, when there is one iteration after another.

        An iteration ends after an epoch whose number `epochs` divides.
        """
        first, each = self._steps_from(self.place), self.steps_of_epoch
        if self.epochs is None:
            return 0, None if each else first
        end = first + (self.epochs - self.epoch % self.epochs - 1) * each
        end += iteration * self.epochs * each
        return (end - self.epochs * each if iteration else 0), end

    def step(self, number: int) -> Step:
        """A step by its number, from 0 on."""
        epoch, within, place = self._find(number)
        begin = place + within * self._together
        size = min(self._together, self.records - begin)
        # The first `more` hosts take one record more than the others.
        each, more = divmod(size, self.hosts)
        start = begin + self.host * each + min(self.host, more)
        return Step(epoch, start, start + each + (self.host < more))

    def after(self, steps: int) -> tuple[int, int]:
        """The (epoch, place) that all hosts have reached after so many steps."""
        if not steps or not self.steps_of_epoch:
            return self.epoch, self.place
        epoch, within, place = self._find(steps - 1)
        if within + 1 == self._steps_from(place):
            return epoch + 1, 0
        return epoch, place + (within + 1) * self._together

    def _find(self, number: int) -> tuple[int, int, int]:
        """The epoch of a step, its number within it, and where that epoch begins."""
        first = self._steps_from(self.place)
        if number < first:
            return self.epoch, number, self.place
        epochs, within = divmod(number - first, self.steps_of_epoch)
        return self.epoch + 1 + epochs, within, 0
