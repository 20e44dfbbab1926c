"""`beam-shards bench`: measures the records per second of each part of reading, and names the slowest."""

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
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.tfrecord import CorruptRecordError
from readers.order.split import parse_split
from readers.shards.cache import Cache
from readers.shards.resolve import resolve
from readers.source import RecordSource

# Bytes that are decoded, and records that are mapped, repeatedly.
_DECODED, _MAPPED = 32 << 20, 256

# The smallest idle share worth improving.
_LITTLE = 0.01

_DECODER = re.compile(
    r"([^=]+)=(?:(Skip)|(Resize|CenterCrop|RandomResizedCrop):(\d{1,4})(?:x(\d{1,4}))?)"
)


@dataclass(frozen=True)
class Rate:
    """The records per second of a part of reading, or of a reader.

    `advice` is how to make a part faster. `ahead` is whether a reader prepares batches while a step computes.
    """

    name: str
    rate: float
    advice: str = ""
    ahead: bool = True

    def idle_share(self, batch_size: int, step: float) -> float:
        """The share of the time that a training step, of `step` seconds, waits for batches."""
        making = batch_size / self.rate
        waiting = max(making - step, 0) if self.ahead else making
        return waiting / (waiting + step)


@dataclass(frozen=True)
class Timings:
    """The rates of parts and readers. `step` is the duration of a training step in seconds; None if unknown."""

    title: str
    parts: Sequence[Rate]
    ways: Sequence[Rate]
    batch_size: int
    step: float | None

    @property
    def idle(self) -> dict[str, float]:
        """The idle share of a step with each reader; empty if the step is unknown."""
        step = self.step
        return {way.name: way.idle_share(self.batch_size, step) for way in self.ways if step}

    @property
    def advice(self) -> str:
        """What to change first, in one sentence."""
        slowest, idle = min(self.parts, key=lambda part: part.rate), self.idle
        advice = f"the slowest part is {slowest.name}: {slowest.advice}"
        if not self.step:
            return advice
        need = f"the {self.batch_size / self.step:,.0f} records per second that the step needs"
        enough = [name for name, share in idle.items() if share < _LITTLE]
        if not enough:
            return f"no reader delivers {need}; {advice}"
        if len(enough) == len(idle):
            return f"nothing to change: every reader delivers {need}"
        worst = max(idle, key=lambda name: idle[name])
        share = f"with {worst}, the step is idle {idle[worst]:.0%} of the time"
        return f"use {enough[0]}, which delivers {need}; {share}"

    def __str__(self) -> str:
        step = f"  idle share of a {self.step * 1000:g} ms step" if self.step else ""
        rows = [["records per second", f"{'part':>9}", f"{'reader':>9}", step]]
        rows += [[part.name, f"{part.rate:9,.0f}", "", ""] for part in self.parts]
        shares = {name: f"{share:6.0%}" for name, share in self.idle.items()}
        for way in self.ways:
            rows.append([way.name, "", f"{way.rate:9,.0f}", shares.get(way.name, "")])
        return f"{self.title}\n\n{format_table(rows)}\n\n{self.advice}"

    def to_json(self) -> dict[str, Any]:
        """The timings as JSON values."""
        return {**asdict(self), "idle": self.idle, "advice": self.advice}


def decoders_of(texts: Sequence[str]) -> dict[str, Decoder]:
    """Parses texts such as `image=RandomResizedCrop:224`; raises ValueError for any other text."""
    found: dict[str, Decoder] = {}
    for text in texts:
        spelled = _DECODER.fullmatch(text)
        if not spelled or spelled[1] in found:
            raise ValueError(
                f"--decoders {text!r}: expected FEATURE=Resize:SIZE, CenterCrop:SIZE, RandomResizedCrop:SIZE or "
                "Skip, once per feature, such as image=RandomResizedCrop:224 or image=Resize:240x320"
            )
        name, whole, resized, height, width = spelled.groups()
        size = [] if whole else [(int(height), int(width or height))]
        found[name] = getattr(decoders, whole or resized)(*size)
    return found


def step_of(text: str | None) -> float | None:
    """The seconds of a text such as `120ms` or `0.2s`; None for None. Raises ValueError for any other text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text or "1s")
    if not found or not float(found[1]):
        raise ValueError(f"--step {text!r}: expected a time such as 120ms or 0.2s")
    return float(found[1]) / {"ms": 1000, "s": 1}[found[2]] if text else None


def function_of(name: str | None) -> Any:
    """Imports a function by a name such as `augment:halves`; None for None. Raises ValueError for an unknown name."""
    try:
        return pkgutil.resolve_name(name) if name else None
    except Exception as error:  # A module may raise anything.
        raise ValueError(f"--map {name!r}: expected MODULE:FUNCTION; {error}") from error


def rate_of(items: Iterator[Any], each: int, seconds: float) -> float:
    """Records per second of an iterator with `each` records per item, after warming up for a quarter of the time."""
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
    """Measures each part of reading, and each reader, for `seconds` seconds; `how` are arguments of `as_numpy`."""
    columns, size, seeds = how.get("columns"), how["batch_size"], itertools.count()
    plan = resolve(directory, split, None, columns)
    if not plan.records:
        raise ValueError(f"{directory}: {plan.name} has no records to measure")
    how |= {"split": plan.name, "shuffle": True, "repeat": None, "remainder": "drop"}

    def rate(**others: Any) -> float:
        # Each in a different order: records that were just read may still be in memory.
        with as_numpy(directory, seed=next(seeds), **{**how, **others}) as batches:
            return rate_of(batches, size, seconds)

    first, skip = _least(plan.schema)
    found = rate(columns=[first], decoders=skip, map=None)
    parts = [Rate("reading and checksums", found, reading_advice(directory))]
    counts = {name: split.records for name, split in Manifest.read(directory).splits.items()}
    runs = parse_split(plan.name, counts)
    name, start, stop = max(runs, key=lambda run: run[2] - run[1])
    count = max(int(_DECODED / (plan.record_bytes or 1)), size)
    few = f"{name}[{start}:{min(start + count, stop)}]"
    with tempfile.TemporaryDirectory() as folder:
        found = rate(split=few, cache=Cache(folder), map=None)
    decode = decoding_advice(plan.schema, how["decoders"])
    parts.append(Rate("decoding into batches", found, decode))
    if how["map"]:
        source = RecordSource(directory, few, columns=columns, decoders=how["decoders"])
        records = source[:_MAPPED]

        def mapped(number: int) -> None:
            called(how["map"], "map", dict(records[number]), number)

        again = "apply it to whole batches (transform=), or once when the dataset is written"
        calls = map(on_all_processors, itertools.repeat(mapped), itertools.repeat(len(records)))
        parts.append(Rate("map", rate_of(calls, len(records), seconds), again))
    ways = [Rate("as_numpy", rate(), ahead=False), Rate("as_numpy(prefetch=2)", rate(prefetch=2))]
    if importlib.util.find_spec("torch"):
        ways += _of_torch(directory, how, seconds)
    if importlib.util.find_spec("tensorflow"):
        ways += _of_tensorflow(directory, how, seconds)
    kind = f"{counted(plan.records, 'record')} of {format_bytes(plan.record_bytes or 0)}"
    title = f"{directory}, {plan.name}: {kind}, {size} per batch"
    return Timings(f"{title}, {counted(processors(), 'processor')}", parts, ways, size, step)


def reading_advice(directory: str) -> str:
    """How to read faster."""
    if is_local(directory):
        in_order = "read its shards from front to back (readers.Order(by='interleave'))"
        return f"keep the dataset on a faster disk, {in_order}, or write smaller records"
    return "keep shards on a local disk (cache=readers.Cache(DIR)), or write smaller records"


def decoding_advice(schema: Schema, decoded: Mapping[str, Decoder]) -> str:
    """How to decode faster."""
    skipped = {name for name, decoder in decoded.items() if isinstance(decoder, decoders.Skip)}
    images = [name for name, f in schema.items() if f.is_image and name not in skipped]
    if not images:
        return "read fewer features (columns=), or use more processors"
    if all(schema[name].is_fixed for name in images):
        return "store the pixels of images (--encoding raw), which takes more space, or use more processors"
    whole = [name for name in images if name not in decoded and not schema[name].is_fixed]
    other = f"decode large ones to it (--decoders {whole[0]}=Resize:224)" if whole else ""
    return f"write images at the model's size (--image_size 224x224), or {other or 'use more processors'}"


def _least(schema: Schema) -> tuple[str, dict[str, Decoder]]:
    """The feature that is fastest to decode, and `Skip` for it if it is an image."""
    costs = {n: (f.is_image, not f.is_fixed, f.dtype == "string") for n, f in schema.items()}
    name = min(costs, key=lambda name: costs[name])
    return name, {name: decoders.Skip()} if costs[name][0] and not schema[name].step else {}


def _of_torch(directory: str, how: Mapping[str, Any], seconds: float) -> Iterator[Rate]:
    from torch.utils.data import DataLoader

    size, batches = how["batch_size"], torch_batches(directory, **how, prefetch=2)
    yield Rate("torch_batches(prefetch=2)", rate_of(iter(batches), size, seconds))
    workers = min(processors(), 4)
    loader = DataLoader(batches, batch_size=None, num_workers=workers)
    yield Rate(f"torch_batches, {workers} workers", rate_of(iter(loader), size, seconds))


def _of_tensorflow(directory: str, how: Mapping[str, Any], seconds: float) -> Iterator[Rate]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs a lot when it starts.
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # TensorFlow would take all GPU memory.

    @tf.function
    def several(iterator: Any, count: Any) -> None:
        for _ in tf.range(count):
            next(iterator)

    size, dataset = how["batch_size"], load(directory, **how)
    try:
        loop = rate_of(iter(dataset), size, seconds)
        yield Rate("load, in a loop", loop)
        count = max(int(loop / size * seconds / 8), 1)
        calls = map(several, itertools.repeat(iter(dataset)), itertools.repeat(tf.constant(count)))
        yield Rate("load, in a tf.function", rate_of(calls, size * count, seconds))
    except tf.errors.OpError as error:
        raise CorruptRecordError(str(error)) from error
