"""A Beam combiner for anything that merges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import apache_beam as beam


class Mergeable(Protocol):
    """What can take in another one of its kind, in any order."""

    def merge(self, other: Any, /) -> None:
        """Adds what another one has seen."""


T = TypeVar("T", bound=Mergeable)


class MergeFn(beam.CombineFn, Generic[T]):
    """Merges elements into one.

    Args:
        empty: Makes one that has seen nothing.
    """

    def __init__(self, empty: Callable[[], T]) -> None:
        self._empty = empty

    def create_accumulator(self) -> T:
        return self._empty()

    def add_input(self, accumulator: T, element: T) -> T:
        accumulator.merge(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[T]) -> T:
        merged = self._empty()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: T) -> T:
        return accumulator
