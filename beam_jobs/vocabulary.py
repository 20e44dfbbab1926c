"""Words and their ids, as Keras `TextVectorization` makes them, from counts over the whole split.

Source: keras/src/layers/preprocessing/{text_vectorization,index_lookup}.py: lower case and
punctuation are those of ASCII, words are separated by ASCII whitespace, ids follow falling counts,
and ties falling words.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np

PADDING, UNKNOWN = b"", b"[UNK]"
_FIRST_ID = 2

# Byte tokens keep the two reserved ids as words do.
BYTE_OFFSET = 2

_PUNCTUATION = rb"""!"#$%&()*+,-./:;<=>?@[\]^_`{|}~'"""

# Counts travel in so many elements a block, whatever the number of words; each is merged by one
# worker, so this also bounds what one holds of the vocabulary of the web.
_PARTITIONS = 16

WordCounts = tuple[bytes, bytes]


def words(text: str) -> list[bytes]:
    """The words of a text, standardised."""
    return text.encode("utf-8", "surrogateescape").lower().translate(None, _PUNCTUATION).split()


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


def most_frequent(counts: Iterable[tuple[bytes, int]], size: int) -> list[tuple[int, bytes]]:
    """The (count, word) of the most frequent words, falling; at most `size`."""
    named = ((count, word) for word, count in counts if word not in (PADDING, UNKNOWN))
    return heapq.nlargest(size, named)


class CountWordsFn(beam.CombineFn):
    """Packed counts of one partition -> its most frequent words.

    Args:
        size: How many words at most.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def create_accumulator(self) -> Counter[bytes]:
        return Counter()

    def add_input(self, accumulator: Counter[bytes], element: WordCounts) -> Counter[bytes]:
        accumulator.update(unpack_counts(element))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Counter[bytes]]) -> Counter[bytes]:
        merged: Counter[bytes] = Counter()
        for accumulator in accumulators:
            merged.update(accumulator)
        return merged

    def extract_output(self, accumulator: Counter[bytes]) -> list[tuple[int, bytes]]:
        return most_frequent(accumulator.items(), self._size)


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


class BuildVocabulary(beam.PTransform):
    """PCollection of `pack_counts` -> PCollection of one tuple of all tokens by id.

    Args:
        size: How many ids there may be, the two reserved ones included.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def expand(self, counts: beam.PCollection) -> beam.PCollection:
        partitions = (
            counts
            | "Count" >> beam.CombinePerKey(CountWordsFn(self._size - _FIRST_ID))
            | "Words" >> beam.Values()
        )
        return (
            counts.pipeline
            | "Once" >> beam.Create([None])
            | "Rank" >> beam.Map(vocabulary_of, beam.pvalue.AsList(partitions), self._size)
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

    def __call__(self, text: str) -> np.ndarray:
        """The ids of a text's tokens, int64 [n]."""
        if self._words:
            unknown = self._ids[UNKNOWN]
            found = [self._ids.get(word, unknown) for word in words(text)[: self._stop]]
            return np.array(found, np.int64)
        octets = text.encode("utf-8", "surrogateescape")[: self._stop]
        return np.frombuffer(octets, np.uint8).astype(np.int64) + BYTE_OFFSET
