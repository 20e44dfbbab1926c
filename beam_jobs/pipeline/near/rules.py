"""Which records a job drops because others are near. Nothing here imports Beam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from beam_jobs.jobs.near import Near
from beam_jobs.jobs.protocols import RecordJob


class KeptOut(NamedTuple):
    """A dataset whose records are kept out of another.

    Attributes:
        job: Reads its records.
        near: Says which of their features are compared.
    """

    job: RecordJob
    near: Near


@dataclass(frozen=True)
class NearRules(Near):
    """Which records of a job are dropped because another is near.

    Attributes:
        keep_out: Other datasets; records that are near one of theirs are dropped.
    """

    keep_out: tuple[KeptOut, ...] = ()
