"""Limits the bytes of one input in memory: the flag `--max_record_bytes`."""

from __future__ import annotations

from beam_jobs.errors import RejectError

# Photographs and an hour of most sensors take less; a process needs about four times as much.
DEFAULT_RECORD_BYTES = 256 << 20


def check_bytes(size: int, limit: int, claim: str = "it unpacks to") -> None:
    """Checks a number of bytes before they are allocated: a small file may claim to hold anything.

    Raises:
        RejectError: The size exceeds the limit.
    """
    if size > limit:
        raise RejectError(exceeds(size, limit, claim))


def exceeds(size: int, limit: int, claim: str = "it has") -> str:
    """The error of an input that takes too many bytes."""
    return f"{claim} {size} bytes, more than {limit}: raise --max_record_bytes to keep it"
