"""Counts of the sketches, pairs and probes that steps send and receive, which have to be the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from beam_jobs.errors import DataError
from beam_jobs.plan.summary import Summary


@dataclass
class NearTally:
    """Counts of a search for near duplicates.

    Attributes:
        records: The records of the job, with a sketch or without.
        listed, read: The chunks of files that were listed, and that were read.
        keys_sent, keys_received: Keys of records.
        pairs_sent, pairs_received: Candidates.
        probes_sent, probes_received: Bytes of probes.
        dropped: The records that are dropped.
    """

    records: int = 0
    listed: int = 0
    read: int = 0
    keys_sent: int = 0
    keys_received: int = 0
    pairs_sent: int = 0
    pairs_received: int = 0
    probes_sent: int = 0
    probes_received: int = 0
    dropped: int = 0

    def merge(self, other: NearTally) -> None:
        """Adds the counts of another instance."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def check(self) -> None:
        """Checks that everything was received that was handed over.

        Raises:
            DataError: The runner lost or repeated something.
        """
        for found, expected, what in (
            (self.read, self.listed, "chunks of files"),
            (self.keys_received, self.keys_sent, "keys of sketches"),
            (self.pairs_received, self.pairs_sent, "pairs of records"),
            (self.probes_received, self.probes_sent, "bytes of probes of records"),
        ):
            if found != expected:
                raise _lost(f"{found} of {expected} {what} were compared")


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
        tally.check()
        if tally.records != left:
            raise _lost(f"the inputs have {left} records, {tally.records} were compared")
        left -= tally.dropped
    dropped = sum(split.duplicates for split in summary.splits)
    if tallies and summary.texts - left != dropped:
        raise _lost(f"of {summary.texts - left} duplicates {dropped} were dropped")


def check_survey(tally: NearTally, records: int) -> None:
    """Checks that all records of a dataset were compared.

    Raises:
        DataError: The runner lost or repeated something.
    """
    tally.check()
    if tally.records != records:
        raise _lost(f"the dataset has {records} records, {tally.records} were compared")


def _lost(what: str) -> DataError:
    return DataError(
        f"{what}. The runner lost or repeated some: no dataset was written, run the job again"
    )
