"""Texts -> words and token ids, in any process: nothing here imports Beam.

Source: keras/src/layers/preprocessing/{text_vectorization,index_lookup}.py: lower case and
punctuation are those of ASCII, words are separated by ASCII whitespace.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import DataError
from beam_jobs.plan.summary import Summary
from readers.format.manifest import PADDING, UNKNOWN

# Byte tokens keep the two reserved ids as words do.
BYTE_OFFSET = 2

_PUNCTUATION = rb"""!"#$%&()*+,-./:;<=>?@[\]^_`{|}~'"""

# Counts travel in so many elements a block, whatever the number of words; each is merged by one
# worker, so this also bounds what one holds of the vocabulary of the web.
_PARTITIONS = 16

WordCounts = tuple[bytes, bytes]


def words(text: bytes) -> list[bytes]:
    """The words of a text in UTF-8, standardised."""
    return text.lower().translate(None, _PUNCTUATION).split()


_IS_SPACE = np.array([bytes([octet]).isspace() for octet in range(256)])

_IS_KEPT = np.array([bool(words(bytes([octet]))) for octet in range(256)])


def pack_counts(counts: Counter[bytes]) -> Iterator[tuple[int, WordCounts]]:
    """Yields (partition, (words joined by spaces, their counts as int64 bytes))."""
    parts: list[list[bytes]] = [[] for _ in range(_PARTITIONS)]
    for word in counts:
        parts[zlib.crc32(word) % _PARTITIONS].append(word)
    for partition, members in enumerate(parts):
        if members:
            numbers = np.fromiter((counts[word] for word in members), np.int64, len(members))
            yield partition, (b" ".join(members), numbers.astype("<i8").tobytes())


def unpack_counts(packed: WordCounts) -> Counter[bytes]:
    """The counts that `pack_counts` gave."""
    joined, numbers = packed
    return Counter(
        dict(zip(joined.split(b" "), np.frombuffer(numbers, "<i8").tolist(), strict=True))
    )


class AnyTokenizer(Protocol):
    """What every tokenizer does: `Tokenizer`, and the `Subwords` of a file."""

    def __call__(self, text: bytes) -> np.ndarray:
        """The ids of the tokens of a text in UTF-8, cut to `max_length`, int64 [n]."""

    def encode_all(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """The same of each text."""

    def encode_spans(self, text: bytes) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all tokens of a text, int64 [n], and where they stand in it, int64 [n, 2].

        A span is the first of a token's bytes and the one after its last; neither ever falls from
        one token to the next.
        """

    def count(self, text: bytes) -> int:
        """How many tokens `encode_spans` gives."""


class Tokenizer:
    """Text -> token ids.

    Args:
        tokens: "words" or "bytes".
        vocabulary: With "words", all tokens by id; to count, none is needed.
        max_length: How many tokens of a text are kept; 0 for all.
    """

    def __init__(self, tokens: str, vocabulary: tuple[bytes, ...], max_length: int) -> None:
        self._words = tokens == "words"
        self._ids = {word: id_ for id_, word in enumerate(vocabulary)}
        self._stop = max_length or None

    def __call__(self, text: bytes) -> np.ndarray:
        """The ids of the tokens of a text in UTF-8, int64 [n]."""
        if self._words:
            return self._ids_of(words(text)[: self._stop])
        return _byte_ids(text[: self._stop])

    def encode_all(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """As `__call__`, of each text."""
        return [self(text) for text in texts]

    def encode_spans(self, text: bytes) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all tokens of a text in UTF-8, int64 [n], and their spans, int64 [n, 2].

        Spans are in bytes. That of a word holds the punctuation that stood at it as well.
        """
        if self._words:
            return self._ids_of(words(text)), _word_spans(text)
        return _byte_ids(text), sliding_window_view(np.arange(len(text) + 2), 2)[:-1]

    def count(self, text: bytes) -> int:
        """How many tokens `encode_spans` gives."""
        return len(words(text)) if self._words else len(text)

    def _ids_of(self, found: list[bytes]) -> np.ndarray:
        unknown = self._ids[UNKNOWN]
        return np.array([self._ids.get(word, unknown) for word in found], np.int64)


def _byte_ids(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8).astype(np.int64) + BYTE_OFFSET


def _word_spans(text: bytes) -> np.ndarray:
    """Where each of `words` stands: the bytes from one whitespace to the next, int64 [n, 2]."""
    octets = np.frombuffer(text, np.uint8)
    runs = np.flatnonzero(np.diff(_IS_SPACE[octets], prepend=True, append=True)).reshape(-1, 2)
    # What is nothing but punctuation is no word.
    return runs[np.logical_or.reduceat(_IS_KEPT[octets], runs[:, 0])]


_FIRST_ID = 2


def most_frequent(counts: Iterable[tuple[bytes, int]], size: int) -> list[tuple[int, bytes]]:
    """The (count, word) of the most frequent words, falling; at most `size`."""
    named = ((count, word) for word, count in counts if word not in (PADDING, UNKNOWN))
    return heapq.nlargest(size, named)


# How many words were counted, and the (count, word) of the most frequent ones, falling.
Ranked = tuple[int, list[tuple[int, bytes]]]


def vocabulary_of(
    _: None, partitions: Iterable[list[tuple[int, bytes]]], size: int
) -> tuple[bytes, ...]:
    """All tokens by id, the two reserved ones first, from the words of every partition."""
    every = (pair for partition in partitions for pair in partition)
    learned = heapq.nlargest(size - _FIRST_ID, every)
    return (PADDING, UNKNOWN, *(word for _, word in learned))


def vocabulary_file(vocabulary: tuple[bytes, ...]) -> bytes:
    """The text of vocabulary.txt: a word a line, from id 2 on.

    The reserved ones are left out: `TextVectorization(vocabulary=path)` takes no empty line.
    """
    return b"".join(word + b"\n" for word in vocabulary[_FIRST_ID:])


def rank_words(_: None, summary: Summary, partitions: list[Ranked], size: int) -> tuple[bytes, ...]:
    """All tokens by id, after proving that every word of the summary was counted.

    Raises:
        DataError: Counts were lost or repeated on the way.
    """
    counted = sum(total for total, _ in partitions)
    if counted != summary.words:
        raise DataError(
            f"the texts have {summary.words} words, {counted} were counted for the vocabulary. The "
            "runner lost or repeated some: no dataset was written, run the job again"
        )
    return vocabulary_of(None, [ranked for _, ranked in partitions], size)
