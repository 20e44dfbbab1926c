"""Steps that several pipelines share."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import apache_beam as beam
import apache_beam.pipeline
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSideInput, TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import no_annotations
from apache_beam.utils.interactive_utils import is_in_ipython

from beam_jobs import progress
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.engines.pool import Pool, Window, call_pickled, shared_pool
from beam_jobs.packages import check_crc32c
from beam_jobs.records.pieces import Divisible, Piece, cut, joined, merged
from beam_jobs.sources.chunks import Task

T = TypeVar("T")

# The pass that only reads references, and counts files; all others count bytes.
PLANNING = "planning"

# The fork server loads these once, so that a process of the pool starts in milliseconds. Names,
# because the process that runs the pipeline of a text job does not need Pillow.
_PRELOAD = (
    "beam_jobs.dataset.encoded_records",
    "beam_jobs.jobs.file_shards",
    "beam_jobs.jobs.images.image_job",
    "beam_jobs.jobs.reshard.reshard_job",
    "beam_jobs.jobs.sensors.sensor_job",
    "beam_jobs.jobs.text.text_job",
)


def loading_pool(processes: int) -> Pool:
    """The pool that loads and encodes, shared by all steps in this process."""
    return shared_pool(processes, _PRELOAD)


class PoolStep(beam.DoFn, Generic[T]):
    """Element -> the result of a function, which runs in the pool.

    Results are handed over when further elements arrive, or at the end of the bundle.

    Args:
        function: Takes an element; or if there are side inputs, these, and returns a function that takes an element.
    """

    def __init__(self, function: Callable[..., Any], processes: int) -> None:
        self._function, self._processes = function, processes

    def setup(self) -> None:
        check_crc32c()

    def start_bundle(self) -> None:
        self._window: Window[T] = loading_pool(self._processes).window()
        self._call: Callable[..., T] | None = None

    @no_annotations  # Beam would read the annotation of *sides as a promise of side inputs.
    def process(self, element: Any, *sides: Any) -> Iterator[Any]:
        if self._call is None:
            self._call = self._begun(*sides)
        for result in self._window.submit(self._call, element):
            yield from self._finished(result)

    def _begun(self, *sides: Any) -> Callable[..., T]:
        """The function to submit in this bundle."""
        function = self._function(*sides) if sides else self._function
        return partial(call_pickled, pickle.dumps(function))

    def finish_bundle(self) -> Iterator[Any]:
        for result in self._window.drain():
            yield from map(at_end_of_bundle, self._finished(result))

    def _finished(self, result: T) -> Iterator[Any]:
        yield result


class ReadTasks(PoolStep[T]):
    """Task -> the result of a function: a pass over all files, with progress in bytes."""

    def __init__(self, phase: str, function: Callable[..., Any], processes: int) -> None:
        super().__init__(function, processes)
        self._phase = phase

    def start_bundle(self) -> None:
        super().start_bundle()
        self._sizes: deque[int] = deque()

    @no_annotations
    def process(self, task: Task, *sides: Any) -> Iterator[Any]:
        progress.advance(self._phase, 0)
        self._sizes.append(task.count if self._phase == PLANNING else task.size)
        yield from super().process(task, *sides)

    def _finished(self, result: T) -> Iterator[Any]:
        progress.advance(self._phase, self._sizes.popleft())
        yield result


# The tag of (split, Statistics), an output of every step that encodes records.
STATISTICS = "statistics"


def at_end_of_bundle(output: Any) -> Any:
    """The output in a window, which Beam requires in `finish_bundle`."""
    if isinstance(output, TaggedOutput):
        return TaggedOutput(output.tag, at_end_of_bundle(output.value))
    return GlobalWindows.windowed_value_at_end_of_window(output)


D = TypeVar("D", bound=Divisible)


class MergeBundle(beam.DoFn):
    """Elements -> (key, piece) of all in a bundle."""

    def __init__(self, empty: Callable[[], Any]) -> None:
        self._empty = empty

    def start_bundle(self) -> None:
        self._merged = self._empty()

    def process(self, element: Any) -> Iterator[tuple[Any, Any]]:
        self._merged.merge(element)
        if self._merged.is_full:
            yield from self._merged.pieces()
            self._merged = self._empty()

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(at_end_of_bundle, self._merged.pieces())


def _merge_group(
    group: tuple[Any, Iterable[Any]], empty: Callable[[], Divisible]
) -> Iterator[Divisible]:
    """Merges pieces with one key; yields one piece, or several if that would be too large."""
    for _, piece in merged(group[1], empty).pieces():
        yield piece


class MergeInPieces(beam.PTransform, Generic[D]):
    """PCollection of `Divisible` -> the pieces of all of them together, for `AsMerged`.

    Not a combine, whose accumulators would grow: a bundle hands over pieces, each within the limit.
    """

    def __init__(self, empty: Callable[[], D]) -> None:
        super().__init__()
        self._empty = empty

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        return (
            elements
            | "MergeBundle" >> beam.ParDo(MergeBundle(self._empty))
            | "GroupPieces" >> beam.GroupByKey()
            | "MergePieces" >> beam.FlatMap(_merge_group, self._empty)
        )


class AsMerged(AsSideInput, Generic[D]):
    """The side input of `Divisible` objects, merged in a step with a name; it is checked to be complete."""

    def __init__(self, elements: beam.PCollection, name: str, empty: Callable[[], D]) -> None:
        super().__init__(elements | name >> MergeInPieces(empty))
        self._empty = empty

    def _view_options(self) -> dict[str, Any]:
        return {**super()._view_options(), "empty": self._empty}

    @staticmethod
    def _from_runtime_iterable(pieces: Iterable[Any], options: dict[str, Any]) -> Any:
        whole = merged(pieces, options["empty"])
        whole.check()
        return whole


def once(
    start: beam.Pipeline | beam.PCollection, name: str, function: Callable[..., Any], *sides: Any
) -> beam.PCollection:
    """The step that calls a function once: PCollection of its result.

    Args:
        start: The pipeline, or a PCollection of one None.
        function: Takes the values of `sides`.
        sides: Side inputs, and values that are known when the graph is built.
    """
    if not isinstance(start, beam.PCollection):
        start |= f"{name}Once" >> beam.Create([None])
    return start | name >> beam.Map(_called, function, *sides)


@no_annotations  # Beam would read the annotation of *arguments as a promise of side inputs.
def _called(_: None, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _cut_value(value: Any) -> Iterator[Piece]:
    yield from cut(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class AsWhole(AsSideInput):
    """The side input of one value of any size, which crosses the network in pieces, given a name of the value."""

    def __init__(self, value: beam.PCollection, name: str) -> None:
        super().__init__(value | f"Cut{name}" >> beam.FlatMap(_cut_value))

    @staticmethod
    def _from_runtime_iterable(pieces: Iterable[Piece], options: dict[str, Any]) -> Any:
        return pickle.loads(joined(pieces))


def with_list(key: int, values: Iterable[T]) -> tuple[int, list[T]]:
    """A group with a list, because a runner may free the elements once a step has received them."""
    return key, list(values)


def counted(result: ShardResult) -> ShardResult:
    """A shard, which is added to Beam's counters."""
    shard = result.shard
    Metrics.counter("shards", "kept" if result.kept else "written").inc(1 if shard else 0)
    Metrics.counter("shards", "records").inc(shard.records if shard else 0)
    Metrics.counter("shards", "bytes").inc(shard.bytes if shard else 0)
    Metrics.counter("shards", "rejected").inc(result.rejected)
    return result


def allow_notebooks() -> None:
    """Lets pipelines be built in a notebook although Beam cannot import its interactive runner.

    In a notebook, Beam puts the number of the cell before the label of each transform, and imports
    that runner to do so. Without pandas, or with pandas 3, this import fails; labels then stay as
    they are.
    """
    # Beam's check imports IPython wherever it is installed.
    if "IPython" not in sys.modules or not is_in_ipython():
        return
    try:
        importlib.import_module("apache_beam.runners.interactive.interactive_environment")
    except Exception:  # An AttributeError with pandas 3.
        apache_beam.pipeline.alter_label_if_ipython = lambda transform, pvalueish: None
