"""Texts -> words and token ids, in any process: nothing here imports Beam.

Source: keras/src/layers/preprocessing/{text_vectorization,index_lookup}.py: lower case and
punctuation are those of ASCII, words are separated by ASCII whitespace.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

PADDING, UNKNOWN = b"", b"[UNK]"

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


class Tokenizer:
    """Text -> token ids.

    Args:
        tokens: "words" or "bytes".
        vocabulary: With "words", all tokens by id.
        max_length: How many tokens of a text are kept; 0 for all.
    """

    def __init__(self, tokens: str, vocabulary: tuple[bytes, ...], max_length: int) -> None:
        self._words = tokens == "words"
        self._ids = {word: id_ for id_, word in enumerate(vocabulary)}
        self._stop = max_length or None

    def __call__(self, text: bytes) -> np.ndarray:
        """The ids of the tokens of a text in UTF-8, int64 [n]."""
        if self._words:
            unknown = self._ids[UNKNOWN]
            found = [self._ids.get(word, unknown) for word in words(text)[: self._stop]]
            return np.array(found, np.int64)
        return np.frombuffer(text[: self._stop], np.uint8).astype(np.int64) + BYTE_OFFSET
