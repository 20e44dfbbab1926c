"""`Batches`: an iterator over passes, with a state after each batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sized
from typing import Any, Generic, TypeVar

from readers.batches.batch_format import check_number
from readers.batches.batch_slice import BatchSlice
from readers.batches.batch_source import BatchSource
from readers.batches.by_length.batches import BatchesByLength
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.batches.prefetch import prefetched
from readers.batches.reading import batches_from
from readers.format.decode.column import Allocator
from readers.format.schema import format_shape
from readers.order.state import Cursor, State
from readers.shards.plan import Plan

_Batch = TypeVar("_Batch")


class Batches(Iterator[_Batch], Generic[_Batch]):
    """An iterator over batches, returned by `as_numpy` and `jax_batches`.

    A `for` loop over it is a pass of `repeat` epochs, and the next loop reads the next epochs. It can be pickled, and each
    process opens the files itself. `close`, or the end of a `with` block, releases files and memory immediately.
    """

    def __init__(
        self,
        plan: Plan,
        options: ReadOptions,
        convert: Callable[[BatchSlice, Allocator], _Batch],
        prefetch: int = 0,
    ) -> None:
        self._plan, self._options = plan, options
        self._convert, self._prefetch = convert, check_number("prefetch", prefetch, 0)
        self._opened: tuple[int, BatchSource] | None = None
        self._ahead: Iterator[tuple[_Batch, tuple[Cursor, int]]] | None = None
        self._cursor: Cursor
        self._begin(0)
        state, repeat = self.state(), options.repeat
        if repeat and state.epoch and not (state.epoch % repeat or state.place):
            # Nothing is left of the pass in which it resumes; the next one is the first.
            self._pass, self._end = -1, self._cursor

    @property
    def _source(self) -> BatchSource:
        """The source of batches, opened by this process: a fork must not use the files of its parent."""
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
            made = batches_from(source, self._convert, (self._cursor, 0), self._end)
            self._ahead = prefetched(made, self._prefetch) if self._prefetch else made
        try:
            batch, (self._cursor, _) = next(self._ahead)
        except BaseException as error:
            # A generator that raised would otherwise end the pass as if all batches had been read.
            self._ahead, self._has_ended = None, isinstance(error, StopIteration)
            raise
        return batch

    def __len__(self) -> int:
        """The number of batches in a pass from the start of an epoch; TypeError if passes never end."""
        return self._source.batches_of_pass(max(self._pass, 0))

    def __repr__(self) -> str:
        return f"Batches({described(self._plan, self._options, self)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_ahead": None}

    def __enter__(self) -> Batches[_Batch]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases files and memory; the next batch opens them again."""
        self._opened = self._ahead = None

    @property
    def skipped(self) -> int:
        """The number of damaged records found so far, with `on_corrupt="skip"`."""
        return len(self._source.records.skipped)

    def state(self) -> State:
        """The state to resume from after the batches returned so far."""
        return self._source.state(self._cursor)


def open_batches(plan: Plan, options: ReadOptions) -> BatchSource:
    """Opens the batches of a plan."""
    return BatchesByLength(plan, options) if options.by_length else BatchesByStep(plan, options)


def described(plan: Plan, options: ReadOptions, batches: Sized) -> str:
    """The text of `repr(batches)`: split, number and size of batches, order and features."""
    count = "endless batches" if options.repeat is None else "batches"
    if options.repeat is not None and not options.by_length:  # Counting those needs all lengths.
        count = f"{len(batches):,} batches"
    order = "shuffled" if options.order.shuffle else "in order"
    features = ", ".join(
        f"{name}: {feature.dtype} {format_shape(feature.shape)}"
        for name, feature in plan.schema.items()
    )
    by = options.format.batching
    return f"{plan.name}, {count} of {options.batch_size}, {by}, {order}; {features}"
