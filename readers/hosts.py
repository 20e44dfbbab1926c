"""`shard="auto"`: the number of this host among how many. Frameworks are asked only if the program has imported them."""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal

_LOGGER = logging.getLogger("readers")

Host = tuple[int, int]


# What the argument `shard` of a reader may be, if not None, or a `tf.distribute.InputContext`, which has no type stubs.
Shard = Host | Literal["auto"]

_WARNED = False


def host_of(shard: Any, workers_share: bool = True) -> Any:
    """The (index, count) that the argument `shard` of a reader means; a pair stays as it is.

    For "auto", the first of `_SOURCES` that is set up decides; without one this is the only host, (0, 1). None is
    (0, 1), with a warning, the first time, if "auto" is anything else. If workers of a PyTorch `DataLoader` share,
    worker w of n on host i of count is (i * n + w, count * n).
    """
    if shard is None:
        _warn_if_one_of_several(workers_share)
        return 0, 1
    if hasattr(shard, "input_pipeline_id") and hasattr(shard, "num_input_pipelines"):
        return shard.input_pipeline_id, shard.num_input_pipelines
    if not (isinstance(shard, str) and shard == "auto"):
        return shard
    source, host = _this_host(workers_share)
    _LOGGER.info("shard='auto': %s, from %s", host, source)
    return host


def _this_host(workers_share: bool) -> tuple[str, Host]:
    """This host, and what says so."""
    hosts = ((name, find()) for name, find in _SOURCES.items())
    single = "a single process", (0, 1)
    source, (index, count) = next(((name, host) for name, host in hosts if host), single)
    worker, workers = torch_worker() if workers_share else (0, 1)
    if workers > 1:
        source += f" and {workers} workers of a DataLoader"
    return source, (index * workers + worker, count * workers)


def _warn_if_one_of_several(workers_share: bool) -> None:
    """Warns, once a process, that a reader gives all records to one of several hosts."""
    global _WARNED
    try:
        source, host = _this_host(workers_share)
    except ValueError:
        return
    if host[1] > 1 and not _WARNED:
        _WARNED = True
        frame, level = inspect.currentframe(), 1
        # Between `load` and what it opens, AutoGraph has frames of its own.
        while frame and frame.f_globals["__name__"].split(".")[0] in ("readers", "tensorflow"):
            frame, level = frame.f_back, level + 1
        warnings.warn(
            f"this is one of {host[1]} readers, says {source}, and each of them reads all records: give "
            "shard='auto' to divide them, or shard=(0, 1) if that is meant, or if a tf.distribute strategy "
            "divides the batches",
            stacklevel=level,
        )


def _torch() -> Host | None:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def torch_worker() -> Host:
    """The number of this worker process of a DataLoader, and how many there are."""
    data: Any = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data else None
    return (worker.id, worker.num_workers) if worker else (0, 1)


def _jax() -> Host | None:
    jax: Any = sys.modules.get("jax")
    # Asking for the number of processes would initialise a backend that nothing has set up yet.
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()


def _tf_config() -> Host | None:
    """The index of this task, the chief before the workers."""
    text = os.environ.get("TF_CONFIG", "")
    if not text.strip():
        return None
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster", {}), config.get("task", {})
        sizes = {kind: len(cluster.get(kind, ())) for kind in ("chief", "worker")}
        kind, index = task.get("type"), int(task.get("index", 0))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"shard='auto': TF_CONFIG={text[:200]!r} is not valid: {error}") from None
    if not sum(sizes.values()):
        return None
    if kind not in sizes or not 0 <= index < sizes[kind]:
        raise ValueError(
            f"shard='auto': TF_CONFIG names the task {kind!r} {index}, which is no chief or worker of "
            "its cluster; give shard=(index, count)"
        )
    return index + (sizes["chief"] if kind == "worker" else 0), sum(sizes.values())


def _rank() -> Host | None:
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if not rank or not size:
        return None
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise ValueError(
            f"shard='auto': RANK={rank!r}, WORLD_SIZE={size!r}: expected a rank below the size"
        )
    return int(rank), int(size)


_SOURCES: dict[str, Callable[[], Host | None]] = {
    "torch.distributed": _torch,
    "JAX": _jax,
    "TF_CONFIG": _tf_config,
    "RANK and WORLD_SIZE": _rank,
}
