"""Reads TFRecord shards in training code: `tf.data`, NumPy, PyTorch, JAX and random access.

Only `load` needs TensorFlow, only `torch_batches` PyTorch, and only `jax_batches` JAX; each is
imported on first use. `transforms` import TensorFlow when they receive a tensor. Names that are not
in `__all__` are private.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

# Only here: every entry point of both packages imports this file first.
if sys.platform in ("win32", "cygwin"):
    _MESSAGE = "beam-shards runs on Linux and macOS; on Windows, use it inside WSL 2"
    if sys.argv[:1] == ["-m"]:  # `python -m` has not found the module to run yet.
        print(f"error: {_MESSAGE}", file=sys.stderr)
        sys.exit(2)
    raise ImportError(_MESSAGE)

from readers import decoders, transforms
from readers.api import as_numpy, jax_batches, load, state_of, torch_batches
from readers.batches.batch_format import Packed, Padded, Ragged
from readers.batches.options import Order
from readers.batches.stream import Batches
from readers.check import check
from readers.dataset import Dataset
from readers.dataset import open as open
from readers.decoders.record_work import Map
from readers.files.files import ChangedError, ExistsError, RefusedError, StoreError
from readers.format import __version__
from readers.format.findings import CheckResult, Finding
from readers.format.lookup.rows import RowList
from readers.format.manifest import DatasetError, File, Manifest
from readers.format.remarks import Remarks
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import CorruptRecordError
from readers.order.mixture import Mix
from readers.order.state import State
from readers.report import report
from readers.shards.cache import Cache
from readers.shards.decoding import RecordError
from readers.shards.rows import Rows
from readers.source import RecordSource
from readers.verify import Problem, Verification, verify

if TYPE_CHECKING:
    from readers.tensors.torch_dataset import TorchBatches as TorchBatches

__all__ = [
    "Batches",
    "Cache",
    "ChangedError",
    "CheckResult",
    "CorruptRecordError",
    "Dataset",
    "DatasetError",
    "ExistsError",
    "Feature",
    "File",
    "Finding",
    "Manifest",
    "Map",
    "Mix",
    "Order",
    "Packed",
    "Padded",
    "Problem",
    "Ragged",
    "RecordError",
    "RecordSource",
    "RefusedError",
    "Remarks",
    "RowList",
    "Rows",
    "Schema",
    "Shard",
    "Split",
    "State",
    "StoreError",
    "Verification",
    "__version__",
    "as_numpy",
    "check",
    "decoders",
    "jax_batches",
    "load",
    "report",
    "state_of",
    "torch_batches",
    "transforms",
    "verify",
]

# Tracebacks, help and pickles show public names.
for _name in __all__:
    if hasattr(globals()[_name], "__qualname__"):
        globals()[_name].__module__ = __name__

# Hidden from type checkers, which would accept any misspelt name.
if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "TorchBatches":
            return importlib.import_module("readers.tensors.torch_dataset").TorchBatches
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "open"]  # With `import *`, it would replace Python's.
