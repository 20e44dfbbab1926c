"""Texts -> words and token ids. Nothing here imports Beam.

Source: keras/src/layers/preprocessing/{text_vectorization,index_lookup}.py: lower case and
punctuation are those of ASCII, words are separated by ASCII whitespace.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import DataError
from beam_jobs.plan.summary import Summary
from readers.format.manifest import PADDING, RESERVED_IDS, UNKNOWN, UNKNOWN_ID

_PUNCTUATION = rb"""!"#$%&()*+,-./:;<=>?@[\]^_`{|}~'"""

# Counts travel in at most this many elements a block, whatever the number of words. Each partition
# is merged by one worker, so this also bounds how much of a large vocabulary a worker holds.
_PARTITIONS = 16

# Words joined by spaces, and their counts as int64 bytes.
WordCounts = tuple[bytes, bytes]


def words(text: bytes) -> list[bytes]:
    """The words of a text in UTF-8, in lower case and without punctuation."""
    return text.lower().translate(None, _PUNCTUATION).split()


_IS_SPACE = np.array([bytes([octet]).isspace() for octet in range(256)])

_IS_KEPT = np.array([bool(words(bytes([octet]))) for octet in range(256)])


def pack_counts(counts: Counter[bytes]) -> Iterator[tuple[int, WordCounts]]:
    """Yields (partition, counts of its words)."""
    parts: list[list[bytes]] = [[] for _ in range(_PARTITIONS)]
    for word in counts:
        parts[zlib.crc32(word) % _PARTITIONS].append(word)
    for partition, members in enumerate(parts):
        if members:
            numbers = np.fromiter((counts[word] for word in members), np.int64, len(members))
            yield partition, (b" ".join(members), numbers.astype("<i8").tobytes())


def unpack_counts(packed: WordCounts) -> Counter[bytes]:
    """The counts that `pack_counts` packed."""
    joined, numbers = packed
    counts = np.frombuffer(numbers, "<i8").tolist()
    return Counter(dict(zip(joined.split(b" "), counts, strict=True)))


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

    def __call__(self, text: bytes) -> np.ndarray:
        """The ids of a text in UTF-8, cut to `max_length`, int64 [n]."""
        if self._words:
            return self._ids_of(words(text)[: self._stop])
        return _byte_ids(text[: self._stop])

    def encode_all(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """The ids of each text, cut to `max_length`, int64 [n]."""
        return [self(text) for text in texts]

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
    # Punctuation alone is not a word.
    return runs[np.logical_or.reduceat(_IS_KEPT[octets], runs[:, 0])]


def most_frequent(counts: Iterable[tuple[bytes, int]], size: int) -> list[tuple[int, bytes]]:
    """The (count, word) of the most frequent words, in descending order; at most `size`."""
    pairs = ((count, word) for word, count in counts if word not in (PADDING, UNKNOWN))
    return heapq.nlargest(size, pairs)


# The number of words counted in a partition, and the (count, word) of its most frequent ones.
WordRanking = tuple[int, list[tuple[int, bytes]]]


def rank_words(
    _: None, summary: Summary, partitions: list[WordRanking], size: int
) -> tuple[bytes, ...]:
    """All words by id, the two reserved ones first.

    Args:
        summary: The summary of all texts.
        partitions: The most frequent words of each partition.
        size: The maximum number of ids.

    Raises:
        DataError: Counts were lost or repeated by the runner.
    """
    counted = sum(total for total, _ in partitions)
    if counted != summary.words:
        raise DataError(
            f"the texts have {summary.words} words, {counted} were counted for the vocabulary. The "
            "runner lost or repeated some: no dataset was written, run the job again"
        )
    pairs = (pair for _, ranked in partitions for pair in ranked)
    ranked = heapq.nlargest(size - RESERVED_IDS, pairs)
    return (PADDING, UNKNOWN, *(word for _, word in ranked))


def vocabulary_file(vocabulary: tuple[bytes, ...]) -> bytes:
    """The contents of vocabulary.txt: one word per line, from id 2 on.

    The reserved words are left out: `TextVectorization(vocabulary=path)` takes no empty line.
    """
    return b"".join(word + b"\n" for word in vocabulary[RESERVED_IDS:])
