"""Counts of what the steps of a search hand over and receive, which have to be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from beam_jobs.errors import loss_error
from beam_jobs.plan.summary import Summary

# What steps hand over.
CHUNKS, KEYS, PAIRS = "chunks of files", "keys of sketches", "pairs of records"
PROBES = "probes of records"


@dataclass
class NearTally:
    """Counts of a search for near duplicates.

    Attributes:
        records: The records of the job, with a sketch or without.
        dropped: The records that are dropped.
        sent, received: What steps hand over -> how much of it.
    """

    records: int = 0
    dropped: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)

    def merge(self, other: NearTally) -> None:
        """Adds the counts of another instance."""
        self.records += other.records
        self.dropped += other.dropped
        self.sent.update(other.sent)
        self.received.update(other.received)

    def check(self, records: int) -> None:
        """Checks that so many records were compared, and that everything was received that was handed over.

        Raises:
            DataError: The runner lost or repeated something.
        """
        for what in (CHUNKS, KEYS, PAIRS, PROBES):
            if self.received[what] != self.sent[what]:
                raise loss_error(what, self.received[what], self.sent[what])
        if self.records != records:
            raise loss_error("records to compare", self.records, records)


def check_near(summary: Summary, tallies: Sequence[NearTally]) -> None:
    """Checks that all records of a summary were compared, and that it counts what is dropped.

    Args:
        summary: The summary of all records.
        tallies: Of each search for duplicates, in order: each compares what those before it have left.

    Raises:
        DataError: The runner lost or repeated something.
    """
    left = summary.texts
    for tally in tallies:
        tally.check(left)
        left -= tally.dropped
    dropped = sum(split.duplicates for split in summary.splits)
    if tallies and summary.texts - left != dropped:
        raise loss_error("duplicates to drop", dropped, summary.texts - left)
