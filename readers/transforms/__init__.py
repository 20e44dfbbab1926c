"""Transforms of batches for training: image decoding, augmentation, normalization, token ids.

They are TensorFlow functions for `tf.data.Dataset.map`. Random transforms depend only on a key for
each record.
"""

from importlib.util import find_spec

if find_spec("tensorflow") is None:
    raise ImportError("readers.transforms needs TensorFlow: pip install 'beam-shards[tensorflow]'")

from readers.transforms.draws import below, uniform
from readers.transforms.images import (
    decode_images,
    random_brightness,
    random_crop,
    random_flip,
    resize,
    to_float,
)
from readers.transforms.normalize import Moments, normalize
from readers.transforms.text import Vectorizer

__all__ = [
    "Moments",
    "Vectorizer",
    "below",
    "decode_images",
    "normalize",
    "random_brightness",
    "random_crop",
    "random_flip",
    "resize",
    "to_float",
    "uniform",
]
