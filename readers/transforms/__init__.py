"""Transforms of batches for training: augmentation, normalization.

Each takes either TensorFlow's tensors, as for `load` or `tf.data.Dataset.map`, or NumPy arrays, as
for `as_numpy`, and returns the same kind: a tensor if an argument is one, otherwise an array. Give
tensors of PyTorch as `tensor.numpy()`. Random transforms depend only on a key for each record, and
draw the same numbers for both kinds. TensorFlow is imported when a tensor comes in, so NumPy is
enough for arrays.
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
