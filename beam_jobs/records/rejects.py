"""Rejects: inputs that could not become records, listed as lines of JSON in a file for each shard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Literal

from beam_jobs.errors import UsageError

REJECTS = "rejects"

# Whether a reject is listed, or fails the job.
OnReject = Literal["skip", "fail"]

# The step in which an input failed.
Stage = Literal["read", "decode", "encode"]

# In characters, because a reason may quote the input and the file should stay readable.
_MAX_REASON = 500

_MAX_REJECTS = re.compile(r"\d+|\d+(\.\d+)?%", re.ASCII)

_ADDRESS = re.compile(r"<[\w.]+ object at 0x[0-9a-fA-F]+>| at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, order=True)
class Reject:
    """One input that could not become a record.

    Attributes:
        key: The record's key.
        stage: The step in which it failed.
        error: The reason, on one line.
    """

    key: str
    stage: Stage
    error: str

    @classmethod
    def of(cls, key: str, stage: Stage, error: object) -> Reject:
        """A reject whose reason is one line of limited length."""
        # JSON may contain half a surrogate pair, which UTF-8 cannot.
        text = str(error).encode("utf-8", "backslashreplace").decode()
        # Libraries print addresses of objects, which differ in every run.
        reason = " ".join(_ADDRESS.sub("", text).split())
        return cls(key, stage, reason[:_MAX_REASON] or type(error).__name__)

    def __str__(self) -> str:
        return f"{self.key}: {self.error}"

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: bytes) -> Reject:
        return cls(**json.loads(line.decode("utf-8", "surrogateescape")))


@dataclass(frozen=True)
class MaxRejects:
    """The most inputs that a job may reject.

    Attributes:
        text: A number such as `20`, or a share of all inputs such as `1%`; empty for any number.
    """

    text: str = ""

    def check(self) -> None:
        """Checks the text.

        Raises:
            UsageError: It is neither a number nor a share.
        """
        if self.text and not _MAX_REJECTS.fullmatch(self.text):
            raise UsageError(
                f"--max_rejects {self.text}: expected a number such as 20, or a share of all inputs "
                "such as 1%"
            )

    def excess(self, rejected: int, found: int) -> str:
        """One sentence if more were rejected of all inputs found than may be; else empty."""
        share = self.text.endswith("%")
        # A fraction, because 0.29 * 100 is a float below 29.
        limit = Fraction(self.text.removesuffix("%")) if self.text else rejected
        if rejected <= (limit * found / 100 if share else limit):
            return ""
        return f"{rejected:,} of {found:,} inputs are rejected, more than --max_rejects {self.text}"


ANY_NUMBER = MaxRejects()


def rejects_file(shard: str) -> str:
    """The file with the rejects of a shard, relative to the dataset's directory."""
    return f"{REJECTS}/{shard.removesuffix('.tfrecord')}.jsonl"


def format_rejects(rejects: Iterable[Reject]) -> bytes:
    """The contents of a rejects file, sorted by key."""
    return "".join(f"{reject.to_json()}\n" for reject in sorted(rejects)).encode(
        "utf-8", "surrogateescape"
    )
