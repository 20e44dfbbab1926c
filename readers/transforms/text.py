"""Texts -> token ids, as the text job makes them: for new texts at inference time."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from readers.files.remote import open_file, path_text
from readers.format.manifest import (
    RESERVED_IDS,
    TOKENIZER,
    UNKNOWN_ID,
    VOCABULARY,
    DatasetError,
    Manifest,
    join,
)

# The same as in beam_jobs/jobs/text/tokens.py; a test compares the two.
_PUNCTUATION = r"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']"

_BYTES = 256


class Vectorizer(tf.Module):
    """Converts text to token ids with a dataset's vocabulary, as the job that wrote it did.

    It is a `tf.Module`, so that a saved model includes the vocabulary.

    Args:
        directory: A dataset written by the text job with `--tokens words` or `--tokens bytes`.
        length: The number of ids per text: longer texts are truncated, shorter ones padded with 0.
            None keeps all ids.

    Attributes:
        size: The number of ids: 0 for padding, 1 for unknown tokens, and one for each token.

    Raises:
        ValueError: The dataset has no tokens, or `length` is not at least 1.
        DatasetError: (a ValueError) There is no manifest, or the vocabulary does not match it.
        FileNotFoundError: The vocabulary is missing.

    Example:
        >>> vectorizer = Vectorizer("shards/reviews", length=100)
        >>> vectorizer(tf.constant(["a nice place"])).shape
        TensorShape([1, 100])
    """

    size: int

    def __init__(self, directory: str | os.PathLike[str], length: int | None = None) -> None:
        super().__init__()
        directory = path_text(directory)
        if length is not None and (type(length) is not int or length < 1):
            raise ValueError(f"length={length!r}: expected a number of ids of at least 1, or None")
        manifest = Manifest.read(directory)
        self._tokens, self._most = manifest.options.get("tokens"), _most(manifest.options)
        if self._tokens == "words":
            words = _words(join(directory, VOCABULARY), manifest.vocabulary)
            ids = tf.range(RESERVED_IDS, RESERVED_IDS + len(words), dtype=tf.int64)
            table = tf.lookup.KeyValueTensorInitializer(tf.constant(words, tf.string), ids)
            self._table = tf.lookup.StaticHashTable(table, UNKNOWN_ID)
            self.size = RESERVED_IDS + len(words)
        elif self._tokens == "bytes":
            self.size = RESERVED_IDS + _BYTES
        elif manifest.tokenizer:
            raise ValueError(
                f"{directory}: it was tokenized by a tokenizer that TensorFlow cannot run: use "
                f"tokenizers.Tokenizer.from_file({join(directory, TOKENIZER)!r})"
            )
        else:
            raise ValueError(
                f"{directory}: it was written without tokens, so there is no vocabulary: run the "
                "text job with --tokens words or --tokens bytes"
            )
        self._length = length

    def __call__(self, texts: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """The token ids of texts: int64 [B, length], or a RaggedTensor [B, None].

        Args:
            texts: string [B], in UTF-8.

        Raises:
            ValueError: `texts` is not a batch of texts.
        """
        texts = tf.convert_to_tensor(texts)
        if texts.shape.rank != 1:
            raise ValueError(f"expected a batch of texts [B], found the shape {texts.shape}")
        ids = self._ids_of_words(texts) if self._tokens == "words" else self._ids_of_bytes(texts)
        if self._length is None:
            return ids
        return ids.to_tensor(shape=[texts.shape[0], self._length])

    def _ids_of_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        plain = tf.strings.regex_replace(tf.strings.lower(texts), _PUNCTUATION, "")
        return self._table.lookup(tf.strings.split(plain)[:, : self._most])

    def _ids_of_bytes(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._most:
            texts = tf.strings.substr(texts, 0, self._most)
        octets = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
        return tf.RaggedTensor.from_row_lengths(
            tf.cast(octets, tf.int64) + RESERVED_IDS, tf.strings.length(texts), validate=False
        )


def _most(options: dict[str, Any]) -> int | None:
    """The number of tokens per text that the job kept; None for all."""
    found = options.get("max_length")
    return found if type(found) is int and found > 0 else None


def _words(path: str, tokens: int) -> list[bytes]:
    """The words of a vocabulary, from id 2 on; `tokens` counts them and the reserved ids."""
    try:
        with open_file(path) as file:
            words = file.read().split(b"\n")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: the manifest lists {tokens:,} tokens, but the file is missing"
        ) from None
    if words.pop() or not tokens - RESERVED_IDS == len(words) == len(set(words)):
        raise DatasetError(
            f"{path}: expected {tokens - RESERVED_IDS:,} lines with a different word in each, found "
            f"{len(words):,} lines with {len(set(words)):,} different words; it is damaged or from "
            "another run of the job"
        )
    return words
