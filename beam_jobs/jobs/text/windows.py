"""Passages: windows of so many tokens over a long text, and the part of the text under each."""

from __future__ import annotations

import numpy as np


def window_bounds(tokens: int, window: int, stride: int) -> list[tuple[int, int]]:
    """The first token of each window and the one after its last, at least one pair.

    Windows begin every `stride` tokens until one reaches the end, and that one may be shorter.

    Args:
        tokens: Of the text; none give (0, 0).
        window: Tokens, at least 1.
        stride: Tokens, from 1 to `window`, so that none is left out.
    """
    starts = range(0, max(tokens - window, 0) + stride, stride)
    return [(start, min(start + window, tokens)) for start in starts]


def slice_of(text: bytes, spans: np.ndarray, start: int, stop: int) -> bytes:
    """The part of a text that tokens `start` to `stop` cover, and what stands between them.

    Tokens of bytes may begin or end within a character: the part is widened to whole ones.

    Args:
        text: In UTF-8.
        spans: Where its tokens stand, as `encode_spans` gives them.
        start, stop: As `window_bounds` gives them.
    """
    if start == stop:
        return b""
    first, end = int(spans[start, 0]), int(spans[stop - 1, 1])
    while first < len(text) and _continues(text[first]):
        first -= 1
    while end < len(text) and _continues(text[end]):
        end += 1
    return text[first:end]


def _continues(octet: int) -> bool:
    """Whether a byte of UTF-8 is one of a character's after its first."""
    return octet & 0xC0 == 0x80
