"""`shard="auto"`: the index of this host and the number of hosts. Only frameworks that the program has imported are asked."""

from __future__ import annotations

import contextlib
import functools
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

# The argument `shard` of a reader; a `tf.distribute.InputContext`, which has no type stubs, is accepted, too.
HostShard = Host | Literal["auto"]

# Launchers set them for parts of one job and for separate programs, so they cause a warning and divide nothing. An
# allocation without `srun` has SLURM_NTASKS, but no step.
_LAUNCHERS = (
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


def host_of(shard: Any, workers_share: bool = True) -> Any:
    """The (index, count) that a reader's argument `shard` means; a pair stays as it is.

    "auto" takes the first of `_SOURCES` that is set up, or (0, 1) without one. None is (0, 1). The first time that one
    of several processes is (0, 1), it warns. If the workers of a PyTorch `DataLoader` share the records, worker w of n
    on host i of count is (i * n + w, count * n).
    """
    if hasattr(shard, "input_pipeline_id") and hasattr(shard, "num_input_pipelines"):
        return shard.input_pipeline_id, shard.num_input_pipelines
    if shard is None:
        with contextlib.suppress(ValueError):
            source, (_, count) = _this_host(workers_share)
            if count > 1:
                _warn(f"this is one of {count} processes, from {source}", "'auto'")
        return 0, 1
    if not (isinstance(shard, str) and shard == "auto"):
        return shard
    source, host = _this_host(workers_share)
    _LOGGER.info("shard='auto': %s, from %s", host, source)
    return host


def jax_host(process: Host) -> Host:
    """The host that JAX names; it warns if JAX knows one process, and this is one of several."""
    if process[1] == 1:
        with contextlib.suppress(ValueError):
            source, (index, count) = _this_host(workers_share=False)
            if count > 1:
                found = f"JAX knows only this process, which is {index} of {count}, from {source}"
                _warn(found, f"({index}, {count})")
    return process


def _this_host(workers_share: bool) -> tuple[str, Host]:
    """The source that is set up, and this host according to it."""
    hosts = ((name, find()) for name, find in _SOURCES.items())
    source, (index, count) = next(((name, host) for name, host in hosts if host), ("", (0, 1)))
    if not source:
        _warn_of_launcher()
    worker, workers = torch_worker() if workers_share else (0, 1)
    loader = f"{workers} workers of a DataLoader" if workers > 1 else ""
    text = " and ".join(filter(None, (source, loader))) or "a single process"
    return text, (index * workers + worker, count * workers)


def _warn_of_launcher() -> None:
    """Warns if a launcher has started several processes, which may or may not share the records."""
    for rank, size in _LAUNCHERS:
        index, count = os.environ.get(rank, "0"), os.environ.get(size, "1")
        if count.isdecimal() and int(count) > 1:
            _warn(f"this is process {index} of {count}, from {rank}", f"({index}, {count})")


@functools.cache
def _warn(found: str, shard: str) -> None:
    """Warns, once per process, that a reader gives all records to one of several processes."""
    frame, level = inspect.currentframe(), 1
    # AutoGraph adds frames between `load` and the functions it calls.
    while frame and str(frame.f_globals.get("__name__")).split(".")[0] in ("readers", "tensorflow"):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{found}, and each of them reads all records: set shard={shard} to divide the records, or shard=(0, 1) to read "
        "all of them in each process or if a tf.distribute strategy divides the batches",
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
    # Asking for the number of processes would initialise a backend.
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
            f"shard='auto': TF_CONFIG names the task {kind!r} {index}, which is not a chief or worker "
            "of its cluster; set shard=(index, count)"
        )
    return index + (sizes["chief"] if kind == "worker" else 0), sum(sizes.values())


def _rank() -> Host | None:
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if not rank or not size:
        return None
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise ValueError(
            f"shard='auto': RANK={rank!r}, WORLD_SIZE={size!r}: expected numbers, the rank below the size"
        )
    return int(rank), int(size)


_SOURCES: dict[str, Callable[[], Host | None]] = {
    "torch.distributed": _torch,
    "JAX": _jax,
    "TF_CONFIG": _tf_config,
    "RANK and WORLD_SIZE": _rank,
}
