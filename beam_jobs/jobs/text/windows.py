"""Windows of a fixed number of tokens over a long text, and the part of the text in each."""

from __future__ import annotations

import numpy as np


def window_bounds(tokens: int, window: int, stride: int) -> list[tuple[int, int]]:
    """The first token of each window and the one after its last; at least one pair.

    Windows begin every `stride` tokens until one reaches the end; the last one may be shorter.

    Args:
        tokens: The number of tokens of the text; 0 gives one empty window.
        window: The number of tokens in a window, at least 1.
        stride: Tokens from one window to the next, from 1 to `window`, so that none is left out.
    """
    starts = range(0, max(tokens - window, 0) + stride, stride)
    return [(start, min(start + window, tokens)) for start in starts]


def slice_of(text: bytes, spans: np.ndarray, start: int, stop: int) -> bytes:
    """The part of a text from token `start` up to token `stop`.

    Byte tokens may begin or end within a character: the part is widened to whole characters.

    Args:
        text: In UTF-8.
        spans: int64 [n, 2], the bytes of its tokens, from `encode_spans`.
        start, stop: A pair from `window_bounds`.
    """
    if start == stop:
        return b""
    first, end = int(spans[start, 0]), int(spans[stop - 1, 1])
    while first < len(text) and _continues_character(text[first]):
        first -= 1
    while end < len(text) and _continues_character(text[end]):
        end += 1
    return text[first:end]


def _continues_character(octet: int) -> bool:
    return octet & 0xC0 == 0x80
