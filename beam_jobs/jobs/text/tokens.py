"""Texts -> words and token ids, and windows of them. Nothing here imports Beam.

Source: keras/src/layers/preprocessing/{text_vectorization,index_lookup}.py: lower case and
punctuation are those of ASCII, words are separated by ASCII whitespace.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import loss_error
from beam_jobs.plan.summary import Summary
from beam_jobs.records.pieces import Divisible, parts_of
from readers.format.manifest import PADDING, PUNCTUATION, RESERVED_IDS, UNKNOWN, UNKNOWN_ID

# Each worker merges the words of one of these parts: 4 million of a billion words, half a gigabyte.
_PARTS = 256

# Different words that a bundle keeps before it hands them over: 40 MB.
_WORDS_HELD = 1 << 18

# The length of the beginning of a word that represents it in marks, which should be small.
_MARK_BYTES = 64


def words(text: bytes) -> list[bytes]:
    """The words of a text in UTF-8, in lower case and without punctuation."""
    return text.lower().translate(None, PUNCTUATION).split()


_IS_SPACE = np.array([bytes([octet]).isspace() for octet in range(256)])

_IS_KEPT = np.array([bool(words(bytes([octet]))) for octet in range(256)])


class WordCounts(Divisible):
    """How often each word occurs.

    Args:
        counts: Word -> its occurrences.
    """

    def __init__(self, counts: Mapping[bytes, int] | None = None) -> None:
        self.counts: Counter[bytes] = Counter(counts)

    def merge(self, other: WordCounts) -> None:
        self.counts.update(other.counts)

    def pieces(self) -> Iterator[tuple[int, WordCounts]]:
        for part, some in parts_of(self.counts, bytes, _PARTS):
            yield part, WordCounts(some)

    @property
    def is_full(self) -> bool:
        return len(self.counts) >= _WORDS_HELD

    def contents(self) -> int:
        """A checksum, because the count would hide that one word is lost and an equally frequent one repeated."""
        return sum(zlib.crc32(word) * n for word, n in self.counts.items())


class Tokenizer:
    """Text -> ids of words or bytes.

    Args:
        tokens: "words" or "bytes".
        vocabulary: All words by id; not needed for "bytes", nor to count.
        max_length: The most tokens of a text that are kept; 0 keeps all.
    """

    def __init__(self, tokens: str, vocabulary: tuple[bytes, ...], max_length: int) -> None:
        self._words = tokens == "words"
        self._ids = {word: id_ for id_, word in enumerate(vocabulary)}
        self._stop = max_length or None

    def encode_all(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """The ids of each text in UTF-8, cut to `max_length`, int64 [n]."""
        if self._words:
            return [self._ids_of(words(text)[: self._stop]) for text in texts]
        return [_byte_ids(text[: self._stop]) for text in texts]

    def encode_spans(self, text: bytes) -> tuple[np.ndarray, np.ndarray]:
        """All ids of a text, int64 [n], and the span of each token, int64 [n, 2].

        A span holds the token's first byte and the one after its last. Neither ever decreases from
        one token to the next.
        """
        if self._words:
            return self._ids_of(words(text)), _word_spans(text)
        return _byte_ids(text), sliding_window_view(np.arange(len(text) + 2), 2)[:-1]

    def count(self, text: bytes) -> int:
        """The number of ids that `encode_spans` returns."""
        return len(words(text)) if self._words else len(text)

    def _ids_of(self, found: list[bytes]) -> np.ndarray:
        return np.array([self._ids.get(word, UNKNOWN_ID) for word in found], np.int64)


def _byte_ids(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8).astype(np.int64) + RESERVED_IDS


def _word_spans(text: bytes) -> np.ndarray:
    """The span of each word and its punctuation, from whitespace to whitespace, int64 [n, 2]."""
    octets = np.frombuffer(text, np.uint8)
    runs = np.flatnonzero(np.diff(_IS_SPACE[octets], prepend=True, append=True)).reshape(-1, 2)
    # Mere punctuation is not a word.
    return runs[np.logical_or.reduceat(_IS_KEPT[octets], runs[:, 0])]


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


# The occurrences of a word, and the word; more frequent words are larger, and among equally frequent
# ones those later in the alphabet.
Pair = tuple[int, bytes]


def _pairs(counts: WordCounts) -> Iterator[Pair]:
    return ((n, word) for word, n in counts.counts.items() if word not in (PADDING, UNKNOWN))


def marks(counts: WordCounts) -> Iterator[tuple[Pair, int]]:
    """Yields (pair, number of words from the previous pair to this one), largest first.

    Pairs are those of the first, second, fourth word and so on, so they are few.
    """
    ranked = sorted(_pairs(counts), reverse=True)
    before, rank = 0, 1
    while before < len(ranked):
        rank = min(rank, len(ranked))
        n, word = ranked[rank - 1]
        yield (n, word[:_MARK_BYTES]), rank - before
        before, rank = rank, 2 * rank


def smallest_wanted(found: Iterable[tuple[Pair, int]], size: int) -> Pair:
    """A pair such that at least `size` words are as large, but not many more, given the `marks` of all pieces."""
    words_above = 0
    for pair, more in sorted(found, reverse=True):
        words_above += more
        if words_above >= size:
            return pair
    return 0, b""


class WordRanking(NamedTuple):
    """The most frequent words of a piece.

    Attributes:
        checksum: Of all its words.
        different: The number of its different words.
        frequent: The most frequent ones.
    """

    checksum: int
    different: int
    frequent: list[Pair]


def frequent_words(counts: WordCounts, smallest: Pair) -> WordRanking:
    """The words of a piece that are at least as large as a pair."""
    pairs = list(_pairs(counts))
    chosen = [pair for pair in pairs if pair >= smallest]
    return WordRanking(counts.contents(), len(pairs), chosen)


def rank_words(summary: Summary, pieces: Iterable[WordRanking], size: int) -> tuple[bytes, ...]:
    """All words by id, the two reserved ones first.

    Args:
        size: The maximum number of ids.

    Raises:
        DataError: Counts were lost or repeated by the runner.
    """
    checksum = different = 0
    frequent: list[Pair] = []
    for piece in pieces:
        checksum += piece.checksum
        different += piece.different
        frequent += piece.frequent
    if checksum != summary.learned:
        raise loss_error("words that were counted for the vocabulary")
    wanted = min(size - RESERVED_IDS, different)
    if len(frequent) < wanted:
        raise loss_error("words that were ranked for the vocabulary", len(frequent), wanted)
    return (PADDING, UNKNOWN, *(word for _, word in heapq.nlargest(wanted, frequent)))


def vocabulary_file(vocabulary: tuple[bytes, ...]) -> bytes:
    """The contents of vocabulary.txt: one word per line, from id 2 on.

    The reserved words are left out: `TextVectorization(vocabulary=path)` takes no empty line.
    """
    return b"".join(word + b"\n" for word in vocabulary[RESERVED_IDS:])
