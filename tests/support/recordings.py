"""Recordings of biosignals, made by the letter of their specification."""

import struct

import numpy as np


def edf(bits: int = 16, rates=(4, 4), kind: str = "", blocks: int = 3) -> tuple[bytes, list]:
    """A file by the letter of the specification, and its signals in physical units."""
    count, top = len(rates), 2 ** (bits - 1) - 1
    mark = b"0" if bits == 16 else b"\xffBIOSEMI"
    head = mark.ljust(8) + b"me".ljust(80) + b"here".ljust(80) + b"01.02.2403.04.05"
    head += str(256 * (count + 1)).encode().ljust(8) + kind.encode().ljust(44)
    head += b"%-8d%-8d%-4d" % (blocks, 1, count)
    for width, values in (
        (16, [f"EEG {i}" for i in range(count)]),
        (80, [""] * count),
        (8, ["uV"] * count),
        (8, [-100] * count),
        (8, [100] * count),
        (8, [-top] * count),
        (8, [top] * count),
        (80, [""] * count),
        (8, rates),
        (32, [""] * count),
    ):
        head += b"".join(str(value).encode().ljust(width) for value in values)
    rng = np.random.default_rng(0)
    digital = [rng.integers(-top, top, (blocks, rate)) for rate in rates]
    body = b"".join(
        struct.pack("<i", value)[: bits // 8]
        for block in range(blocks)
        for values in digital
        for value in values[block].tolist()
    )
    return head + body, [values.ravel() * 100 / top for values in digital]
