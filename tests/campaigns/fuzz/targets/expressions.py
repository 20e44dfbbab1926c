"""Expressions of splits and spans. Users type them, but pages and tables hand them on."""

from __future__ import annotations

from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.conditioning import Span, parse_rate
from beam_jobs.plan.placement import Splits
from readers.order.split import parse_split, shard_ranges
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.target import Target

_COUNTS = {"train": 1000, "val": 7, "none": 0}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _examine_split(data: bytes) -> None:
    text = _text(data)
    try:
        runs = parse_split(text, _COUNTS)
    except ValueError as error:
        assert str(error)
        return
    records = [(name, number) for name, start, stop in runs for number in range(start, stop)]
    assert len(set(records)) == len(records)
    for name, start, stop in runs:
        assert name in text and 0 <= start <= stop <= _COUNTS[name], (start, stop)
        assert start < stop or name == "none"
        ranges = shard_ranges([3, 0, 500, 497], start, min(stop, 1000))
        assert sum(take for _, _, take in ranges) == stop - start


def _examine_splits(data: bytes) -> None:
    text = _text(data)
    for parse in (Splits.parse, Splits.folds):
        try:
            found = parse(text)
        except UsageError as error:
            assert error.message.startswith("--")
            continue
        assert len(set(found.names)) == len(found.names) == len(found.fractions) <= 256
        assert abs(sum(found.fractions) - 1) < 1e-5 and all(share > 0 for share in found.fractions)
        edges = found.edges
        assert edges == sorted(edges) and all(0 <= edge < 1 << 64 for edge in edges)
        assert all(
            name.isascii() and "/" not in name and not name.startswith(".") for name in found.names
        )


def _examine_span(data: bytes) -> None:
    text = _text(data)
    for parse in (parse_rate, Span.parse):
        try:
            parse(text)
        except UsageError as error:
            assert error.message.startswith("--")


_LIMITS = Limits(memory=16 << 20)

TARGETS = (
    Target("split", lambda: [b"train", b"val[:50%]", b"train[-25%:]", b"train[1_0:2_000]"], _examine_split,
           None, (b"train[", b"%]", b":-", b"none", b"_", b"+"), 64, _LIMITS),
    Target("splits", lambda: [b"train=0.8,val=0.2", b"3", b" a = 1", b"train=1e-9,b=0.999999999"], _examine_splits,
           None, (b"train=", b"0.5", b",", b"nan", b"inf", b"1e-400", b"1_0"), 128, _LIMITS),
    Target("span", lambda: [b"16kHz", b"2.5s", b"100", b"-3dB", b"0.5"], _examine_span,
           None, (b"Hz", b"kHz", b"ms", b"dB", b"1e400", b"nan", b"inf", b"min"), 64, _LIMITS),
)  # fmt: skip
