"""Rates and lengths of time as flags state them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from beam_jobs.errors import UsageError

_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?:(k?)hz)?", re.IGNORECASE)

_SPAN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|ms|us)|([0-9]{1,12})")

_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


def parse_rate(text: str, flag: str = "--rate") -> float:
    """Parses a rate such as `50Hz`, `16kHz`, `0.5Hz` or `50` into samples per second.

    Raises:
        UsageError: the text is not a rate, or is zero.
    """
    found = _RATE.fullmatch(text)
    rate = float(found[1]) * (1000 if found[2] else 1) if found else 0.0
    if not rate:
        raise UsageError(f"{flag} {text}: expected a rate such as 50Hz, 16kHz or 0.5Hz")
    return rate


@dataclass(frozen=True)
class Span:
    """A length of time.

    Attributes:
        amount: A number of samples or of seconds.
        in_seconds: Whether `amount` is in seconds.
        source: The flag and its value, for messages.
    """

    amount: float
    in_seconds: bool
    source: str

    def samples(self, rate: float | None) -> int:
        """Returns the nearest number of samples, at least one.

        Args:
            rate: Samples per second; None if unknown.

        Raises:
            UsageError: the span is in seconds and the rate is unknown.
        """
        if not self.in_seconds:
            return int(self.amount)
        if rate is None:
            raise UsageError(
                f"{self.source}: the recordings do not state how many samples a second has; add "
                "--rate 50Hz if they are evenly spaced, or --resample, or give a number of samples"
            )
        return max(1, round(self.amount * rate))


def parse_span(text: str, flag: str = "--window") -> Span:
    """Parses a length of time such as `128` (samples), `2s`, `500ms` or `10us`.

    Raises:
        UsageError: the text is not a length of time, or is zero.
    """
    found = _SPAN.fullmatch(text)
    amount = float(found[1] or found[3]) if found else 0.0
    if not found or not amount:
        raise UsageError(
            f"{flag} {text}: expected a number of samples such as 128, or a time such as 2s or 500ms"
        )
    in_seconds = found[3] is None
    return Span(amount / _SECOND[found[2]] if in_seconds else amount, in_seconds, f"{flag} {text}")
