"""Decoders of the images in records, for the argument `decoders=` of readers.

Each decodes the stored bytes of a feature in every record before batching, so that images of many
sizes become dense batches. They run on all processors, without the interpreter's lock, and give the
same pixels in `load`, `as_numpy`, `torch_batches` and `jax_batches`.
"""

from readers.decoders.decoder import Decoder, Skip
from readers.decoders.resized import CenterCrop, RandomResizedCrop, Resize

__all__ = [
    "CenterCrop",
    "Decoder",
    "RandomResizedCrop",
    "Resize",
    "Skip",
]


def __dir__() -> list[str]:
    return __all__
