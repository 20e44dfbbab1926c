"""Steps that several pipelines share."""

from __future__ import annotations

import abc
import importlib
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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


class WindowStep(beam.DoFn, Generic[T]):
    """A step whose tasks run in the pool.

    Results are handed over when further tasks arrive, or at the end of the bundle.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def setup(self) -> None:
        check_crc32c()

    def start_bundle(self) -> None:
        self._window: Window[T] = loading_pool(self._processes).window()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Iterator[Any]:
        """Starts `function(*arguments)`; yields the outputs of tasks that are done."""
        for result in self._window.submit(function, *arguments):
            yield from self._finished(result)

    def finish_bundle(self) -> Iterator[Any]:
        for result in self._window.drain():
            yield from map(at_end_of_bundle, self._finished(result))

    def _finished(self, result: T) -> Iterator[Any]:
        yield from self.outputs(result)

    def outputs(self, result: T) -> Iterator[Any]:
        """Yields the outputs of the step for a result: by default the result itself."""
        yield result


class TaskStep(WindowStep[T], abc.ABC):
    """A step that reads tasks: a pass over all files, with progress in bytes."""

    def __init__(self, phase: str, processes: int) -> None:
        super().__init__(processes)
        self._phase = phase

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packed: bytes | None = None
        self._sizes: deque[int] = deque()

    @abc.abstractmethod
    def work(self, *sides: Any) -> Callable[[Task], T]:
        """The function that does a task, made from the side inputs; pickled once for each bundle."""

    @no_annotations  # Beam would read the annotation of *sides as a promise of side inputs.
    def process(self, task: Task, *sides: Any) -> Iterator[Any]:
        if self._packed is None:
            self._packed = pickle.dumps(self.work(*sides))
        progress.advance(self._phase, 0)
        self._sizes.append(task.count if self._phase == PLANNING else task.size)
        yield from self.submit(call_pickled, self._packed, task)

    def _finished(self, result: T) -> Iterator[Any]:
        progress.advance(self._phase, self._sizes.popleft())
        yield from self.outputs(result)


class ReadTasks(TaskStep[T]):
    """Task -> the result of a function."""

    def __init__(self, phase: str, read: Callable[[Any], T], processes: int) -> None:
        super().__init__(phase, processes)
        self._read = read

    def work(self) -> Callable[[Any], T]:
        return self._read


# The tag of (split, Statistics), an output of every step that encodes records.
STATISTICS = "statistics"


def at_end_of_bundle(output: Any) -> Any:
    """The output in a window, which Beam requires in `finish_bundle`."""
    if isinstance(output, TaggedOutput):
        return TaggedOutput(output.tag, at_end_of_bundle(output.value))
    return GlobalWindows.windowed_value_at_end_of_window(output)


D = TypeVar("D", bound=Divisible)


class _MergeBundle(beam.DoFn, Generic[D]):
    """Elements -> (key, piece) of all in a bundle."""

    def __init__(self, empty: Callable[[], D]) -> None:
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
            | "MergeBundle" >> beam.ParDo(_MergeBundle(self._empty))
            | "GroupPieces" >> beam.GroupByKey()
            | "MergePieces" >> beam.FlatMap(_merge_group, self._empty)
        )


class AsMerged(AsSideInput, Generic[D]):
    """The side input of pieces, merged into the whole after a check that it is complete."""

    def __init__(self, pieces: beam.PCollection, empty: Callable[[], D]) -> None:
        super().__init__(pieces)
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


def in_pieces(value: beam.PCollection, name: str) -> beam.PCollection:
    """The step that cuts one value into pieces for `AsWhole`, given a name of the value."""
    return value | f"Cut{name}" >> beam.FlatMap(_cut_value)


def as_whole(value: beam.PCollection, name: str) -> AsWhole:
    """The side input of one value of any size, which crosses the network in pieces."""
    return AsWhole(in_pieces(value, name))


class AsWhole(AsSideInput):
    """The side input of pieces as the value that `in_pieces` cut."""

    @staticmethod
    def _from_runtime_iterable(pieces: Iterable[Piece], options: dict[str, Any]) -> Any:
        return pickle.loads(joined(pieces))


def count_shard(result: ShardResult) -> None:
    """Adds a shard to Beam's counters, in the thread that runs the step."""
    shard = result.shard
    Metrics.counter("shards", "kept" if result.kept else "written").inc(1 if shard else 0)
    Metrics.counter("shards", "records").inc(shard.records if shard else 0)
    Metrics.counter("shards", "bytes").inc(shard.bytes if shard else 0)
    Metrics.counter("shards", "rejected").inc(result.rejected)


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
