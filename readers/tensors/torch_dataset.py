"""Batches as PyTorch tensors, shared between the workers of a `DataLoader`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from readers.batches.batch_format import check_number
from readers.batches.batch_slice import BatchSlice, ToArrays, Transform
from readers.batches.batch_source import BatchSource
from readers.batches.options import ReadOptions
from readers.batches.prefetch import prefetched
from readers.batches.reading import batches_from
from readers.batches.stream import described, open_batches
from readers.format.decode.column import Allocator
from readers.hosts import HostShard, host_of
from readers.order.state import State
from readers.shards.plan import Plan

try:
    import torch
    from torch.multiprocessing.reductions import reduce_tensor
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError:
    raise ImportError("readers.torch_batches needs PyTorch: pip install torch") from None


class TorchBatches(IterableDataset[Any]):
    """The batches of `readers.torch_batches`, for a `DataLoader` with `batch_size=None`.

    Each pass over it reads the next epochs. The workers of a loader take turns, batch by batch, so
    any number of them returns the same batches in the same order.

    `drawn` is whether this process drew the seed, which other hosts then do not know. Workers ignore
    `prefetch`, because they read ahead anyway.
    """

    def __init__(
        self,
        plan: Plan,
        options: ReadOptions,
        shard: HostShard | None,
        drawn: bool,
        transform: Transform | None,
        prefetch: int,
    ) -> None:
        self._plan, self._options, self._shard, self._drawn = plan, options, shard, drawn
        self._to_arrays = ToArrays(plan.schema, options, transform)
        self.prefetch = check_number("prefetch", prefetch, 0)
        self.passes = _PassCounter()
        self._opened: tuple[tuple[Any, ...], BatchSource] | None = None

    def __iter__(self) -> TorchPass:
        if sys._getframe(1).f_locals.get("auto_collation"):  # Of a DataLoader that makes batches.
            raise ValueError("DataLoader: pass batch_size=None, for a dataset of batches")
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        if info:
            ForkingPickler.register(torch.Tensor, _reduced)
        number = self.passes.begin(info.seed - info.id if info else None, worker)
        return TorchPass(self, number, worker, workers)

    def __len__(self) -> int:
        """The number of batches in a pass from the start of an epoch; TypeError if passes never end."""
        return self.source().batches_of_pass()

    def __repr__(self) -> str:
        return f"TorchBatches({described(self._plan, self._options, self)})"

    def __getstate__(self) -> dict[str, Any]:
        # A spawned process cannot ask torch.distributed for its rank.
        return {**self.__dict__, "_shard": self._host(), "_opened": None}

    def state(self, steps: int) -> State:
        """Returns the state after the first `steps` batches of a loader, over all passes.

        `readers.torch_batches(..., state=)` resumes from it with any number of workers and, in the
        global order, with any number of hosts.
        """
        return self.source().state_after(steps)

    def source(self) -> BatchSource:
        """The source of this host's batches, opened by this process."""
        host = self._host()
        key = os.getpid(), host
        if self._opened is None or self._opened[0] != key:
            # Several hosts that each drew a seed are an error, as for `seed=None`.
            seed = None if self._drawn and host[1] > 1 else self._options.seed
            options = replace(self._options, shard=host, seed=seed)
            self._opened = key, open_batches(self._plan, options)
        return self._opened[1]

    def _host(self) -> tuple[int, int]:
        host: tuple[int, int] = host_of(self._shard, workers_share=False)
        return host

    def tensors(self, records: BatchSlice, empty: Allocator) -> Any:
        """Converts records to a batch: a dict or a tuple of tensors."""
        batch = self._to_arrays(records, empty)
        if isinstance(batch, tuple):
            return tuple(tensor_of(array) for array in batch)
        return {name: tensor_of(array) for name, array in batch.items()}


class TorchPass(Iterator[Any]):
    """One pass over the batches, or a worker's share of it.

    torchdata's `StatefulDataLoader` calls `state_dict` and `load_state_dict` in every worker; their
    states fit only the same number of workers.
    """

    def __init__(self, dataset: TorchBatches, number: int, worker: int, workers: int) -> None:
        self._dataset, self._turn = dataset, (worker, workers)
        self._batches = dataset.source()
        self._number = number
        begin, self._end = self._batches.bounds_of(number)
        # The cursor of the next batch, whichever worker reads it, and its number in the pass.
        self._next = begin, 0
        self._ahead = self._begin()

    def _begin(self) -> Iterator[tuple[Any, tuple[Any, int]]]:
        tensors, prefetch = self._dataset.tensors, self._dataset.prefetch
        made = batches_from(self._batches, tensors, self._next, self._end, self._turn)
        # Workers read ahead anyway.
        return prefetched(made, prefetch) if prefetch and get_worker_info() is None else made

    def __next__(self) -> Any:
        try:
            batch, self._next = next(self._ahead)
        except BaseException as error:
            # A generator that raised would otherwise end the pass as if all batches had been read.
            if not isinstance(error, StopIteration):
                self._ahead = self._begin()
            raise
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The position in this pass, with the dataset and the workers that it fits."""
        return {**self._fits(), "pass": self._number, "batch": self._next[1]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes a pass; ValueError if the state has another dataset, order, host or number of workers."""
        for name, mine in self._fits().items():
            if state.get(name) != mine:
                raise ValueError(f"the state has {name}={state.get(name)!r}, expected {mine!r}")
        self._number = state["pass"]
        self._dataset.passes.resume(self._number, self._turn[0])
        begin, self._end = self._batches.bounds_of(self._number)
        self._next = self._batches.after(begin, state["batch"], self._end)
        self._ahead = self._begin()

    def _fits(self) -> dict[str, Any]:
        begun = self._dataset.state(0)
        return {
            "dataset": begun.dataset,
            "order": begun.order,
            "seed": begun.seed,
            "begin": [begun.epoch, begun.place, *begun.held],
            "worker": [*self._turn],
        }


# Larger tensors are cheaper in shared memory than through the pipe.
_SMALL_BYTES = 64 << 10


def _reduced(tensor: torch.Tensor) -> Any:
    """How a worker sends a tensor to the training process.

    PyTorch sends a file descriptor for each tensor, and the training process asks the worker for it in several
    messages. While that process computes in Python, a tensor takes 3 to 7 ms of the one thread that receives all batches.
    """
    if tensor.nbytes <= _SMALL_BYTES and not tensor.requires_grad:
        with contextlib.suppress(TypeError, RuntimeError):  # NumPy lacks the dtype or layout.
            return torch.from_numpy, (tensor.numpy(),)
    return reduce_tensor(tensor)


# The most workers of a loader that are distinguished.
_MOST_WORKERS = 1024


class _PassCounter:
    """Numbers the passes over a dataset, so that all workers of a loader read the same one.

    A loader starts new workers for each pass, which do not know of earlier passes. So each worker stores the number
    of the pass it begins, and a mark for the loader's pass, in one word of shared memory, which is written atomically.
    A worker that finds the mark in its own word begins another pass with the same seed; a worker that finds it in
    another worker's word begins the same pass.
    """

    def __init__(self) -> None:
        # For each worker: the number of the pass after the one it has begun, times 2^31, plus its mark.
        self._words = torch.zeros(_MOST_WORKERS, dtype=torch.int64).share_memory_()
        self._mine: tuple[int, int] | None = None

    def begin(self, seed: int | None, worker: int = 0) -> int:
        """The number of the pass that a worker begins, from 0. All workers of one pass have the same seed."""
        mark = 0 if seed is None else 1 + seed % (2**31 - 1)
        words = self._words.numpy()
        counts, marks = words >> 31, words & (2**31 - 1)
        same = (marks == mark) & (counts > 0)
        if self._mine and self._mine[1] == mark:
            number = self._mine[0] + 1  # A persistent worker, or a process without workers.
        elif same[worker % _MOST_WORKERS]:
            number = int(counts[worker % _MOST_WORKERS])
        else:
            number = int(counts[same].max() - 1 if mark and same.any() else counts.max())
        self._note(number, mark, worker)
        return number

    def resume(self, number: int, worker: int = 0) -> None:
        """Continues counting from a pass that began earlier."""
        assert self._mine is not None
        self._note(number, self._mine[1], worker)

    def _note(self, number: int, mark: int, worker: int) -> None:
        self._mine = number, mark
        self._words[worker % _MOST_WORKERS] = (number + 1) * 2**31 + mark


def tensor_of(array: Any) -> Any:
    """A tensor that shares an array's memory; lists of bytes, or of tensors of different sizes."""
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype.hasobject:
        return [
            tensor_of(value) if isinstance(value, np.ndarray) else value for value in array.tolist()
        ]
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
