"""Readers of TFRecord shards for training code: `tf.data`, NumPy and random access.

Only `load` and `transforms` need TensorFlow, which is imported when one of them is first used. The
packages below are private.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from readers.export import export_npy
from readers.format.manifest import DatasetError, Manifest
from readers.format.schema import Feature, Schema
from readers.load import load
from readers.numpy_stream import as_numpy
from readers.order.state import State
from readers.source import RecordSource
from readers.verify import verify

if TYPE_CHECKING:
    from readers import transforms

__all__ = [
    "DatasetError",
    "Feature",
    "Manifest",
    "RecordSource",
    "Schema",
    "State",
    "as_numpy",
    "export_npy",
    "load",
    "transforms",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "transforms":
        return importlib.import_module("readers.transforms")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
