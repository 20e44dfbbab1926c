"""`python -m readers bench`: how many records a second each part of reading gives here, and which is the limit."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pkgutil
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from readers import decoders
from readers.api import as_numpy, load, torch_batches
from readers.decoders.decoder import Decoder, called
from readers.files.local import is_local
from readers.files.processors import on_all_processors, processors
from readers.format.display import counted, format_bytes, format_table
from readers.format.schema import Schema
from readers.format.tfrecord import CorruptRecordError
from readers.shards.cache import Cache
from readers.shards.resolve import resolve
from readers.source import RecordSource

# Bytes that are decoded, and records that are mapped, again and again.
_DECODED, _MAPPED = 32 << 20, 256

# The smallest idle share that is worth a change.
_LITTLE = 0.01

_DECODER = re.compile(
    r"([^=]+)=(?:(Decode|Skip)|(Resize|CenterCrop|RandomResizedCrop):(\d{1,4})(?:x(\d{1,4}))?)"
)


@dataclass(frozen=True)
class Rate:
    """Records a second of a part of reading, or of a way to a training step: `together` is with all parts before it.

    `cure` says what to change if a part is the limit, `ahead` whether a way makes batches during a step, not after it.
    """

    name: str
    alone: float = 0
    together: float = 0
    ahead: bool = True
    cure: str = ""

    def idle_share(self, batch_size: int, step: float) -> float:
        """The share of the time in which a step of so many seconds has no batch to work on."""
        making = batch_size / self.together
        waiting = max(making - step, 0) if self.ahead else making
        return waiting / (waiting + step)


@dataclass(frozen=True)
class Timings:
    """The rates of parts and ways, with batches of a size; `step` is in seconds, or None if it is unknown."""

    title: str
    parts: Sequence[Rate]
    ways: Sequence[Rate]
    batch_size: int
    step: float | None

    @property
    def idle(self) -> dict[str, float]:
        """The idle share of a step with each way; empty if the step is unknown."""
        step = self.step
        return {way.name: way.idle_share(self.batch_size, step) for way in self.ways if step}

    @property
    def advice(self) -> str:
        """What to change, in one line."""
        limit, idle = min(self.parts, key=lambda part: part.alone), self.idle
        cure = f"{limit.name} is the limit: {limit.cure}"
        if not self.step:
            return cure
        need = f"the {self.batch_size / self.step:,.0f} records a second of a step"
        enough = [name for name, share in idle.items() if share < _LITTLE]
        if not enough:
            return f"no way gives {need}; {cure}"
        worst = max(self.ways, key=lambda way: idle[way.name])
        if worst.name in enough:
            return f"nothing to change: every way gives {need}"
        why = ", as its loop is the limit" if 0 < worst.alone < limit.alone else ""
        share = f"{worst.name} leaves it idle for {idle[worst.name]:.0%}{why}"
        return f"use {' or '.join(enough)}, which gives {need}: {share}"

    def __str__(self) -> str:
        step = f"  idle share of a step of {self.step * 1000:g} ms" if self.step else ""
        rows = [["records a second", f"{'alone':>9}", f"{'together':>9}", step]]
        for rate in (*self.parts, *self.ways):
            both = [f"{n:9,.0f}" if n else "" for n in (rate.alone, rate.together)]
            share = f"{self.idle[rate.name]:6.0%}" if rate.name in self.idle else ""
            rows.append([rate.name, *both, share])
        return f"{self.title}\n\n{format_table(rows)}\n\n{self.advice}"

    def to_json(self) -> dict[str, Any]:
        """The same for a program; a rate of 0 was not measured."""
        return {**asdict(self), "idle": self.idle, "advice": self.advice}


def decoders_of(texts: Sequence[str]) -> dict[str, Decoder]:
    """The decoders of texts such as `image=RandomResizedCrop:224`; raises ValueError for any other text."""
    found: dict[str, Decoder] = {}
    for text in texts:
        spelled = _DECODER.fullmatch(text)
        if not spelled or spelled[1] in found:
            raise ValueError(
                f"--decoders {text!r}: expected FEATURE=Resize:SIZE, CenterCrop:SIZE, RandomResizedCrop:SIZE, Decode "
                "or Skip, once for a feature, as in image=RandomResizedCrop:224 or image=Resize:240x320"
            )
        name, whole, resized, height, width = spelled.groups()
        size = [] if whole else [(int(height), int(width or height))]
        found[name] = getattr(decoders, whole or resized)(*size)
    return found


def step_of(text: str | None) -> float | None:
    """The seconds of a text such as `120ms` or `0.2s`, if there is one; raises ValueError for any other text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text or "1s")
    if not found or not float(found[1]):
        raise ValueError(f"--step {text!r}: expected a time such as 120ms or 0.2s")
    return float(found[1]) / {"ms": 1000, "s": 1}[found[2]] if text else None


def function_of(name: str | None) -> Any:
    """The function with a name such as `augment:halves`, if there is one; raises ValueError if it is not found."""
    try:
        return pkgutil.resolve_name(name) if name else None
    except Exception as error:  # A module may raise anything.
        raise ValueError(f"--map {name!r}: expected MODULE:FUNCTION; {error}") from error


def rate_of(items: Iterator[Any], each: int, seconds: float) -> float:
    """Records a second of an iterator, `each` with an item, after a quarter of the time to warm up."""
    next(items)
    for duration in (seconds / 4, seconds):
        count, began = 0, time.perf_counter()
        while (now := time.perf_counter()) < began + duration or not count:
            next(items)
            count += 1
    return each * count / (now - began)


def bench(
    directory: str, split: str | None, step: float | None, seconds: float, **how: Any
) -> Timings:
    """What each part of reading, and each way to a training step, gives on this machine, in a random order.

    PyTorch and TensorFlow are measured if they are installed.

    Args:
        directory, split: Arguments of `readers.as_numpy`.
        step: The length of a training step in seconds; None if it is unknown.
        seconds: How long each rate is measured.
        how: The arguments `batch_size`, `batching`, `decoders` and `map` of `readers.as_numpy`.

    Raises:
        ValueError, OSError: The readers raise it.
    """
    plan, size, seeds = resolve(directory, split, None, None), how["batch_size"], itertools.count()
    how |= {"split": plan.name, "shuffle": True, "repeat": None, "remainder": "drop"}

    def rate(**others: Any) -> float:
        # Each in another order: what was read before may still be in memory.
        with as_numpy(directory, seed=next(seeds), **{**how, **others}) as batches:
            return rate_of(batches, size, seconds)

    first, skip = _least(plan.schema)
    read, decode = _cures(plan.schema, how["decoders"], is_local(directory))
    found = rate(columns=[first], decoders=skip, map=None)
    parts = [Rate("reading and checksums", found, cure=read)]
    with tempfile.TemporaryDirectory() as folder:
        count = min(max(int(_DECODED / (plan.record_bytes or 1)), size), plan.records)
        few = f"{plan.name.partition('[')[0]}[:{count}]"
        found = rate(split=few, cache=Cache(folder), map=None)
    parts.append(Rate("decoding into batches", found, cure=decode))
    if how["map"]:
        records = RecordSource(directory, few, decoders=how["decoders"])[:_MAPPED]

        def mapped(number: int) -> None:
            called(how["map"], "map", dict(records[number]), number)

        again = "do it for whole batches (transform=), or once, when the dataset is written"
        calls = map(on_all_processors, itertools.repeat(mapped), itertools.repeat(len(records)))
        parts.append(Rate("map", rate_of(calls, len(records), seconds), cure=again))
    ways = [Rate("as_numpy", together=rate(), ahead=False)]
    ways.append(Rate("as_numpy(prefetch=2)", together=rate(prefetch=2)))
    if importlib.util.find_spec("torch"):
        from torch.utils.data import DataLoader

        batches = torch_batches(directory, **how, prefetch=2)
        found = rate_of(iter(batches), size, seconds)
        ways.append(Rate("torch_batches(prefetch=2)", together=found))
        workers = min(processors(), 4)
        loader = iter(DataLoader(batches, batch_size=None, num_workers=workers))
        name, found = f"torch_batches, {workers} workers", rate_of(loader, size, seconds)
        ways.append(Rate(name, together=found))
    if importlib.util.find_spec("tensorflow"):
        ways += _of_tensorflow(directory, how, seconds)
    kind = f"{counted(plan.records, 'record')} of {format_bytes(plan.record_bytes or 0)}"
    title = (
        f"{directory}, {plan.name}: {kind}, {size} in a batch, {counted(processors(), 'processor')}"
    )
    return Timings(title, parts, ways, size, step)


def _least(schema: Schema) -> tuple[str, dict[str, Decoder]]:
    """The feature that takes the least to decode, and the decoder that leaves a picture as it is."""
    costs = {n: (f.is_image, not f.is_fixed, f.dtype == "string") for n, f in schema.items()}
    name = min(costs, key=lambda name: costs[name])
    return name, {name: decoders.Skip()} if costs[name][0] and not schema[name].step else {}


def _cures(schema: Schema, given: Mapping[str, Decoder], is_on_disk: bool) -> tuple[str, str]:
    """What to change if reading, and if decoding, is the limit."""
    pictures = [name for name, feature in schema.items() if feature.is_image]
    decode = "write smaller pictures (--image_size)" if pictures else "read fewer features"
    if whole := [name for name in pictures if name not in given]:
        decode = f"decode pictures at the model's size (--decoders {whole[0]}=Resize:224)"
    many = "several processes (torch_batches in a DataLoader with num_workers=)"
    place = "faster disk" if is_on_disk else "disk of this machine (cache=)"
    return (
        f"more threads will not help; keep the dataset on a {place}, or write smaller records",
        f"{decode}, or use {many if processors() > 8 else 'more processors'}",
    )


def _of_tensorflow(directory: str, how: Mapping[str, Any], seconds: float) -> Iterator[Rate]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # It says a lot when it starts.
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # It would take all memory of one.

    @tf.function
    def several(iterator: Any, count: Any) -> None:
        for _ in tf.range(count):
            next(iterator)

    size, dataset = how["batch_size"], load(directory, **how)
    try:
        both = dataset, tf.data.Dataset.from_tensors(next(iter(dataset))).repeat()
        loop, bare = (rate_of(iter(each), size, seconds) for each in both)
        yield Rate("load, in a loop", bare, loop)
        count = max(int(loop / size * seconds / 8), 1)
        calls = (map(several, *map(itertools.repeat, (iter(d), tf.constant(count)))) for d in both)
        graph, bare = (rate_of(each, size * count, seconds) for each in calls)
        yield Rate("load, in a tf.function", bare, graph)
    except tf.errors.OpError as error:
        raise CorruptRecordError(str(error)) from error
