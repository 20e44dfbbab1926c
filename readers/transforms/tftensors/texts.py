"""Tensors of texts -> token ids."""

from __future__ import annotations

import itertools
import re

import numpy as np
import tensorflow as tf

from readers.format.manifest import RESERVED_IDS, UNKNOWN_ID
from readers.transforms.text import PUNCTUATION

_PUNCTUATION = f"[{re.escape(PUNCTUATION.decode())}]"


class TensorTokenizer:
    """Texts -> ids of words or bytes.

    Args:
        words: All words by id, from `RESERVED_IDS` on; None for bytes.
        most: The most tokens of a text that are kept; None keeps all.
    """

    def __init__(self, words: list[bytes] | None, most: int | None) -> None:
        self._ids_of = self._ids_of_bytes if words is None else self._ids_of_words
        self._id_of = _Words(words or [])
        self._most = most

    def __call__(self, texts: tf.Tensor, length: int | None) -> tf.Tensor | tf.RaggedTensor:
        """The ids of texts, string [B]: int64 [B, length], or a RaggedTensor [B, None]."""
        ids = self._ids_of(texts)
        return ids if length is None else ids.to_tensor(shape=[texts.shape[0], length])

    def _ids_of_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        plain = tf.strings.regex_replace(tf.strings.lower(texts), _PUNCTUATION, "")
        words = tf.strings.split(plain)[:, : self._most]
        return words.with_flat_values(self._id_of(words.flat_values))

    def _ids_of_bytes(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._most:
            texts = tf.strings.substr(texts, 0, self._most)
        octets = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
        return tf.RaggedTensor.from_row_lengths(
            tf.cast(octets, tf.int64) + RESERVED_IDS, tf.strings.length(texts), validate=False
        )


class _Words:
    """The ids of words, in constants sorted by hash.

    Unlike a table of tf.lookup, constants are part of every saved model that uses them, whichever
    object holds them.
    """

    def __init__(self, words: list[bytes]) -> None:
        # The first call may trace a graph, which must not own what later calls use.
        with tf.init_scope():
            known = tf.constant(words, tf.string)
            self._salt, hashes = next(
                (salt, hashes)
                for salt in itertools.count()
                if np.unique(hashes := _hashes(known, salt).numpy()).size == len(words)
            )
            order = np.argsort(hashes)
            self._sorted, self._known = tf.constant(hashes[order]), tf.gather(known, order)
            self._ids = tf.constant(order + RESERVED_IDS, tf.int64)

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """The id of each word, int64 [n]."""
        if not self._known.shape[0]:
            return tf.fill(tf.shape(words), tf.constant(UNKNOWN_ID, tf.int64))
        places = tf.searchsorted(self._sorted, _hashes(words, self._salt))
        places = tf.minimum(places, self._known.shape[0] - 1)
        found = tf.gather(self._known, places) == words
        return tf.where(found, tf.gather(self._ids, places), UNKNOWN_ID)


def _hashes(words: tf.Tensor, salt: int) -> tf.Tensor:
    return tf.strings.to_hash_bucket_strong(words, 2**63 - 1, [salt, 0])
