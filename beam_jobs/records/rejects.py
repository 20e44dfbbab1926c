"""Rejects: inputs that could not become records, listed as lines of JSON in a file for each shard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Literal

from beam_jobs.errors import UsageError
from beam_jobs.storage.files import open_file
from readers.format.manifest import join

# Whether a reject is listed, or fails the job.
OnReject = Literal["skip", "fail"]

# The step in which an input failed.
Stage = Literal["read", "decode", "encode"]

# In characters, because a reason may quote the input and the file should stay readable.
_MAX_REASON = 500

_MAX_REJECTS = re.compile(r"(\d{1,18})|(\d{1,3}(?:\.\d{1,18})?)%", re.ASCII)

_ADDRESS = re.compile(r"<[\w.]+ object at 0x[0-9a-fA-F]+>| at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, order=True)
class Reject:
    """One input that could not become a record: its key, the step in which it failed, and the reason on one line."""

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
        # Bytes that are no UTF-8 in a name are lone surrogates, which JSON writes as such: \udcff.
        text = json.dumps(asdict(self), ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace").decode()

    @classmethod
    def from_json(cls, line: bytes) -> Reject:
        return cls(**json.loads(line))


@dataclass(frozen=True)
class MaxRejects:
    """The most inputs that a job may reject: a number, a share of all, or None for any; and the text that states it."""

    text: str = ""
    limit: int | Fraction | None = None

    @classmethod
    def parse(cls, text: str) -> MaxRejects:
        """The limit that a number such as `20` or a share such as `1%` states, any number if empty; UsageError if it is neither."""
        if not text:
            return ANY_NUMBER
        match = _MAX_REJECTS.fullmatch(text)
        # A fraction, because 0.7 * 11,000 / 100 is a float below 77.
        limit = match and (int(match[1]) if match[1] else Fraction(match[2]) / 100)
        if limit is None or (isinstance(limit, Fraction) and limit > 1):
            raise UsageError(
                f"--max_rejects {text:.80}: expected a number such as 20, or a share of all inputs "
                "such as 1%"
            )
        return cls(text, limit)

    def excess(self, rejected: int, inputs: int) -> str:
        """One sentence if more were rejected of all inputs than may be; else empty."""
        most = self.limit * inputs if isinstance(self.limit, Fraction) else self.limit
        if most is None or rejected <= most:
            return ""
        return (
            f"{rejected:,} of {inputs:,} inputs are rejected, more than --max_rejects {self.text}"
        )


ANY_NUMBER = MaxRejects()


def rejects_file(shard: str) -> str:
    """The file with the rejects of a shard; both are paths in a dataset."""
    folder, _, name = shard.rpartition("/")
    return f"{folder}/rejects/{name.removesuffix('.tfrecord')}.jsonl"


def format_rejects(rejects: Iterable[Reject]) -> bytes:
    """The contents of a rejects file, sorted by key."""
    return "".join(f"{reject.to_json()}\n" for reject in sorted(rejects)).encode()


def first_rejects(
    directory: str, lists: Sequence[str], files: int = 64, size: int = 8 << 20
) -> list[Reject]:
    """The first rejects in the lists of a dataset, given their paths in it: of some files, and of some bytes in all.

    Raises an OSError or a ValueError if a file cannot be read, or lists something else.
    """
    rejects: list[Reject] = []
    for path in lists[:files]:
        with open_file(join(directory, path)) as lines:
            data = lines.read(size)
        size -= len(data)
        rejects += map(Reject.from_json, data[: data.rfind(b"\n") + 1].splitlines())
        if not size:
            break
    return rejects
