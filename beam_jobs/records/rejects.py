"""Rejects: inputs that could not become records, listed as lines of JSON in a file for each shard."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Literal

from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage.files import open_file
from readers.format.manifest import join
from readers.format.rejects import reasons_of

# The step in which an input failed.
Stage = Literal["read", "decode", "encode"]

# In characters, because a reason may quote the input and the file should stay readable.
_MAX_REASON = 500

_MAX_REJECTS = re.compile(r"(\d{1,18})|(\d{0,3}\.\d{1,18})", re.ASCII)

# The number of most frequent reasons to show if there are too many rejects.
_REASONS = 3

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
        # Bytes of a name that are not UTF-8 are lone surrogates, which JSON writes as such: \udcff.
        text = json.dumps(asdict(self), ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace").decode()

    @classmethod
    def from_json(cls, line: bytes) -> Reject:
        return cls(**json.loads(line))


@dataclass(frozen=True)
class MaxRejects:
    """The most inputs that a job may reject.

    Attributes:
        text: The limit in words.
        limit: A number of inputs, or a share of all inputs; None for any number.
        least: The limit applies from this many inputs on.
    """

    text: str = ""
    limit: int | Fraction | None = None
    least: int = 0

    @classmethod
    def parse(cls, text: str) -> MaxRejects:
        """The limit that a number such as `20`, a share such as `0.2`, or `all` states; the default if empty.

        Raises:
            UsageError: The text is none of these.
        """
        if text in ("", "all"):
            return ANY_NUMBER if text else FEW
        found = _MAX_REJECTS.fullmatch(text)
        # A fraction, because 0.07 * 1,100 is a float above 77.
        limit = found and (int(found[1]) if found[1] else Fraction(found[2]))
        if limit is None or (isinstance(limit, Fraction) and limit > 1):
            raise UsageError(
                f"--max_rejects {text:.80}: expected a number such as 20, a share of all inputs such as 0.2, or all"
            )
        return cls(f"--max_rejects {text}", limit)

    def allows(self, rejected: int, found: int) -> bool:
        """Whether so many of all found inputs may be rejected."""
        most = self.limit * found if isinstance(self.limit, Fraction) else self.limit
        return most is None or found < self.least or rejected <= most

    def check(
        self,
        rejected: int,
        found: int,
        rejects: Iterable[Reject],
        planned: bool = False,
    ) -> None:
        """Checks how many of all found inputs are rejected.

        Args:
            rejected: Their number.
            found: The number of all inputs.
            rejects: Some of them, whose reasons are shown.
            planned: Whether the job has not run.

        Raises:
            DataError: There are too many.
        """
        if self.allows(rejected, found):
            return
        reasons = reasons_of((reject.key, reject.error) for reject in rejects)[:_REASONS]
        shown = "; ".join(f"{each.reason}, such as {each.example}" for each in reasons)
        share = math.ceil(100 * rejected / found) / 100
        limit = f"{share} (or all)" if share < 1 else "all"
        cure = f", or add --max_rejects {limit}"
        cure += "" if planned else " to the same command, which keeps the shards that are done"
        outcome = "the job would fail" if planned else "no dataset was written"
        raise DataError(
            f"{rejected:,} of {found:,} inputs are rejected, more than {self.text}: {outcome}; {shown}. Fix them"
            f"{cure if rejected < found else ''}"
        )


ANY_NUMBER = MaxRejects()

# Without --max_rejects.
FEW = MaxRejects("5%", Fraction(5, 100), least=10)


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
    """The first rejects in the lists of a dataset, given their paths in it, up to a number of files and of bytes.

    Raises an OSError or a ValueError if a file cannot be read, or is not a list of rejects.
    """
    rejects: list[Reject] = []
    for path in lists[:files]:
        with open_file(join(directory, path)) as lines:
            data = lines.read(size)
        size -= len(data)
        rejects += map(Reject.from_json, data[: data.rfind(b"\n") + 1].splitlines())
    return rejects
