"""Batches one after another, pass after pass, with a state after each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sized
from typing import Any, Generic, TypeVar

from readers.batches.batch_slice import BatchSlice
from readers.batches.by_length.batches import BatchesByLength, open_by_length
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.batches.prefetch import prefetched
from readers.format.decode.column import Allocator
from readers.format.schema import format_shape
from readers.order.state import Cursor, State
from readers.shards.plan import Plan

_Batch = TypeVar("_Batch")


class Batches(Iterator[_Batch], Generic[_Batch]):
    """The batches of `as_numpy` and `jax_batches`, one after another.

    A `for` loop over them is a pass of `repeat` epochs, and the loop after it reads the next ones.
    They can be pickled, and each process opens the files itself. `close`, or the end of a `with`
    block, releases files and memory at once.

    Args:
        plan: What to read.
        options: How to read.
        convert: Makes a batch of records, with the allocator of large arrays.
        prefetch: How many batches a thread makes ahead; 0 for no thread.
    """

    def __init__(
        self,
        plan: Plan,
        options: ReadOptions,
        convert: Callable[[BatchSlice, Allocator], _Batch],
        prefetch: int = 0,
    ) -> None:
        self._plan, self._options = plan, options
        self._convert, self._prefetch = convert, prefetch
        self._opened: tuple[int, Any] | None = None
        self._ahead: Iterator[tuple[_Batch, tuple[Any, int]]] | None = None
        self._begin(0)
        state, repeat = self.state(), options.repeat
        if repeat and state.epoch and not (state.epoch % repeat or state.place):
            # It resumes at the end of a pass, of which nothing is left; the next one is the first.
            self._pass = -1
            self._end = state.epoch if isinstance(self._cursor, Cursor) else self._cursor

    @property
    def _source(self) -> Any:
        """The batches, opened by this process: a fork must not use the files of its parent.

        They are found from a cursor: the number of a step, or a `Cursor`.
        """
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), open_batches(self._plan, self._options)
            self._ahead = None
        return self._opened[1]

    def _begin(self, number: int) -> None:
        self._pass, self._has_ended = number, False
        self._cursor, self._end = self._source.bounds_of(number)

    def __iter__(self) -> Batches[_Batch]:
        if self._has_ended:
            self._begin(self._pass + 1)
        return self

    def __next__(self) -> _Batch:
        source = self._source
        if self._ahead is None:
            made = made_from(source, self._convert, (self._cursor, 0), self._end)
            self._ahead = prefetched(made, self._prefetch) if self._prefetch else made
        try:
            batch, (self._cursor, _) = next(self._ahead)
        except BaseException as error:
            # After an error, the generator would end the pass as if all batches had been read.
            self._ahead, self._has_ended = None, isinstance(error, StopIteration)
            raise
        return batch

    def __len__(self) -> int:
        """The number of batches in a pass from the beginning of an epoch.

        Raises:
            TypeError: There is no end.
            ValueError: By length, there are too few records for one batch.
        """
        return batches_of_pass(self._source, self._options, max(self._pass, 0))

    def __repr__(self) -> str:
        return f"Batches({described(self._plan, self._options, self)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_ahead": None}

    def __enter__(self) -> Batches[_Batch]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases files and memory; a batch that is asked for afterwards opens them again."""
        self._opened = self._ahead = None

    @property
    def skipped(self) -> int:
        """The number of damaged records found so far, with `on_corrupt="skip"`."""
        skipped: int = self._source.skipped
        return skipped

    def state(self) -> State:
        """The state to resume from after the batches returned so far."""
        state: State = self._source.state(self._cursor, self._options.seed or 0)
        return state


def made_from(
    source: Any,
    convert: Callable[[BatchSlice, Allocator], _Batch],
    first: tuple[Any, int],
    end: Any,
    turn: tuple[int, int] = (0, 1),
) -> Iterator[tuple[_Batch, tuple[Any, int]]]:
    """Yields the batches of a pass, each with where the next one is and its number.

    Not a method: a generator that refers to the object which holds it would keep files open until
    the garbage collector finds the cycle.

    Args:
        source: The batches of this host.
        convert: Makes a batch of records, with the allocator of large arrays.
        first: Where the first batch is, and its number in the pass.
        end: The end of the pass.
        turn: The number of this worker, and how many there are.
    """
    cursor, number = first
    worker, workers = turn
    reader, empty = source.reader(turn, number), source.memory.empty
    # By length, the next batch is found from this one, whichever worker reads it.
    following = 1 if isinstance(cursor, Cursor) else workers
    number += (worker - number) % workers
    while found := reader.batch(cursor, end):
        records, cursor = found
        yield convert(records, empty), (cursor, number + following)
        number += workers


def batches_of_pass(
    source: BatchesByStep | BatchesByLength, options: ReadOptions, number: int = 0
) -> int:
    """The number of batches in a pass from the beginning of an epoch.

    Raises:
        TypeError: There is no end.
        ValueError: By length, there are too few records for one batch.
    """
    if options.repeat is None:
        raise TypeError("with repeat=None there is no last batch to count to")
    if isinstance(source, BatchesByLength):
        return source.steps_of_pass(number)
    return options.repeat * source.schedule.steps_per_epoch


def open_batches(
    plan: Plan, options: ReadOptions, every: int = 1
) -> BatchesByStep | BatchesByLength:
    """The batches of a plan; with `every`, each `every`th step is read, unless they are found by length."""
    return open_by_length(plan, options) or BatchesByStep(plan, options, every)


def described(plan: Plan, options: ReadOptions, batches: Sized) -> str:
    """What the `repr` of batches says: the split, how many batches of what size, the order, the features."""
    try:
        count = f"{len(batches):,} batches"
    except (TypeError, ValueError):
        count = "batches without end" if options.repeat is None else "batches"
    order = "shuffled" if options.order.shuffle else "in order"
    features = ", ".join(
        f"{name}: {feature.dtype} {format_shape(feature.shape)}"
        for name, feature in plan.schema.items()
    )
    by = options.format.batching
    return f"{plan.name}, {count} of {options.batch_size}, {by}, {order}; {features}"


def state_after(source: BatchesByStep | BatchesByLength, steps: int, options: ReadOptions) -> State:
    """The state after the first batches.

    Args:
        source: The batches.
        steps: The number of batches, over all passes.
        options: How they are read.

    Raises:
        ValueError: There are fewer batches before the end.
    """
    end = None if options.order.each_pass else source.bounds_of(0)[1]
    seed = options.seed or 0
    if isinstance(source, BatchesByStep):
        last = steps if end is None else min(steps, end)
        state = source.state(last, seed)
    else:
        cursors = [source.begin, *itertools.islice(source.cursors(end), steps)]
        last = len(cursors) - 1
        state = source.state(cursors[-1], seed)
    if last < steps:
        raise ValueError(f"steps={steps}: there are {last} batches in a pass")
    return state
