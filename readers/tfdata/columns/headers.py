"""The headers of many serialized TensorProtos, read together."""

from __future__ import annotations

import tensorflow as tf

from readers.format.dtypes import TENSORFLOW_DTYPES


def read_headers(
    elements: tf.Tensor, dtype: str, rank: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The shapes of TensorProtos and the positions of their values.

    A header as `serialize_tensor` writes it is a sequence of varints: 8 and the dtype; 18 and the
    number of bytes of the shape; for each dimension 18 and its number of bytes, which is 0 for an
    empty dimension, and otherwise followed by 8 and the size; finally, unless there are no values,
    34 and their number of bytes.

    Args:
        elements: string [B], serialized TensorProtos.
        dtype, rank: What they should hold.

    Returns:
        canonical: bool [B], whether the header has this form, dtype and rank, and its sizes agree
            with the length of the element.
        shapes: int64 [B, rank], the shape; undefined where the header is not canonical.
        starts: int32 [B], the position of the values; undefined where it is not canonical.
    """
    width = 16 + 12 * rank
    octets = tf.cast(tf.io.decode_raw(elements, tf.uint8, fixed_length=width), tf.int64)
    varints, ends = _varints(octets, 4 + 4 * rank + 2)
    total = tf.cast(tf.strings.length(elements), tf.int64)

    def at(cursor: tf.Tensor) -> tf.Tensor:
        return tf.gather(varints, cursor, batch_dims=1)

    def end(cursor: tf.Tensor) -> tf.Tensor:
        return tf.gather(ends, cursor, batch_dims=1)

    canonical = tf.reduce_all(varints[:, :3] == [8, TENSORFLOW_DTYPES[dtype], 18], axis=1)
    cursor = tf.fill(tf.shape(elements), 4)
    sizes = []
    for _ in range(rank):
        empty = at(cursor + 1) == 0
        nbytes = end(cursor + 3) - end(cursor + 1)
        written = (at(cursor + 1) == nbytes) & (at(cursor + 2) == 8)
        canonical &= (at(cursor) == 18) & (empty | written)
        sizes.append(tf.where(empty, tf.zeros_like(total), at(cursor + 3)))
        cursor += tf.where(empty, 2, 4)
    shapes = tf.stack(sizes, axis=1) if rank else tf.zeros([tf.size(total), 0], tf.int64)
    # Floats: a product of integers could wrap around.
    product = tf.reduce_prod(tf.cast(shapes, tf.float64), axis=1)
    content = product * tf.cast(tf.as_dtype(dtype).size, tf.float64)
    starts = tf.where(content == 0.0, end(cursor - 1), end(cursor + 1))
    tagged = (at(cursor) == 34) & (tf.cast(at(cursor + 1), tf.float64) == content)
    canonical &= (content == 0.0) | tagged
    canonical &= varints[:, 3] == end(cursor - 1) - ends[:, 3]
    canonical &= tf.cast(total - starts, tf.float64) == content
    canonical &= tf.reduce_all(shapes >= 0, axis=1)
    return canonical, shapes, tf.cast(starts, tf.int32)


def _varints(octets: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The first varints of each row, and the position after each, both int64 [B, count]."""
    rows = tf.shape(octets, tf.int64)[0]
    ordinal = tf.cumsum(tf.cast(octets < 128, tf.int64), axis=1, exclusive=True)
    ordinal = tf.minimum(ordinal, count)
    segments = ordinal + (tf.range(rows) * (count + 1))[:, None]
    ends = tf.cumsum(_summed(tf.ones_like(octets), segments, rows, count), axis=1)
    begins = tf.pad(ends, [[0, 0], [1, 0]])
    place = tf.range(tf.shape(octets, tf.int64)[1]) - tf.gather(begins, ordinal, batch_dims=1)
    shifted = tf.bitwise.left_shift(octets & 127, 7 * tf.minimum(place, tf.constant(8, tf.int64)))
    return _summed(shifted, segments, rows, count), ends


def _summed(values: tf.Tensor, segments: tf.Tensor, rows: tf.Tensor, count: int) -> tf.Tensor:
    sums = tf.math.unsorted_segment_sum(values, segments, rows * (count + 1))
    return tf.reshape(sums, [-1, count + 1])[:, :count]
