"""The pipeline that TensorFlow's guides recommend, on the same shards.

It follows "Better performance with the tf.data API": interleaved files, a shuffle buffer of encoded
pictures, a parallel map that decodes, and prefetching at the end. For crops it decodes only the window,
as the ImageNet recipe of TensorFlow's models does. The order is the same in every run, as ours is.
"""

from __future__ import annotations

import tensorflow as tf
from pictures import AREA, ASPECT, BATCH, CROP, HEIGHT, NUM_SHARDS, SHUFFLE_BUFFER, WIDTH
from reading import Reader, Task


def _encoded(record: tf.Tensor) -> tf.Tensor:
    return tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature([], tf.string)})[
        "image"
    ]


def _decoded(record: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.io.decode_jpeg(_encoded(record), channels=3), (HEIGHT, WIDTH, 3))


def _cropped(dtype: str, record: tf.Tensor) -> tf.Tensor:
    encoded = _encoded(record)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        tf.zeros([1, 0, 4]),
        min_object_covered=0,
        area_range=AREA,
        aspect_ratio_range=ASPECT,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], size[:2]], axis=0)
    image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, (CROP, CROP)))
    return image / 255 if dtype == "float32" else tf.cast(tf.round(image), tf.uint8)


def _open(task: Task) -> tf.data.Dataset:
    files = sorted(str(path) for path in task.store.rglob("*.tfrecord"))
    records = (
        tf.data.Dataset.from_tensor_slices(files)
        .shuffle(len(files), seed=0)
        .interleave(
            tf.data.TFRecordDataset,
            cycle_length=NUM_SHARDS,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .shuffle(SHUFFLE_BUFFER, seed=0)
        .repeat(task.epochs)
    )

    def read(record: tf.Tensor) -> tf.Tensor:
        return _cropped(task.dtype, record) if task.kind.is_cropped else _decoded(record)

    images = records.map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return images.batch(BATCH).prefetch(tf.data.AUTOTUNE)


READER = Reader(modes={"tf.data": _open})
