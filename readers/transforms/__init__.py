"""Transforms of batches for training: augmentation, normalization.

Each takes TensorFlow tensors (in `load` or `tf.data.Dataset.map`) or NumPy arrays (in `as_numpy`), and returns the same kind: a
tensor if any argument is one, otherwise an array. Pass PyTorch tensors as `tensor.numpy()`. Random transforms depend only on a
key for each record, and draw the same numbers for both kinds. TensorFlow is imported only when a tensor is passed.
"""

from readers.transforms.draws import below, uniform
from readers.transforms.images import random_crop, random_flip, to_float
from readers.transforms.normalize import Moments, normalize

__all__ = [
    "Moments",
    "below",
    "normalize",
    "random_crop",
    "random_flip",
    "to_float",
    "uniform",
]


def __dir__() -> list[str]:
    return __all__
