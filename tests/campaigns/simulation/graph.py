"""A Beam pipeline as a list of nodes, which a simulated runner can run many times."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, Pipeline, PipelineVisitor
from apache_beam.pvalue import AsSideInput, AsSingleton, PCollection
from apache_beam.transforms import core

# These are nodes as a whole; what they consist of is the runner's business.
_WHOLE = (core.Create, core.CombineGlobally, core.CombinePerKey, beam.Reshuffle)


@dataclass
class Node:
    """A transform.

    Attributes:
        name: Its full label.
        transform: The transform.
        inputs: The collections that it reads, by number.
        outputs: Tag -> collection that it writes, by number.
        step: The DoFn of a ParDo, of which each attempt has a copy.
        sides: (kind of side input, number of its collection), or a plain value, in the order of the arguments.
    """

    name: str
    transform: beam.PTransform
    inputs: list[int]
    outputs: dict[str | None, int]
    step: Any = None
    sides: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Side:
    """A side input.

    Attributes:
        kind: How its collection is seen.
        options: The options of that.
        collection: The number of the collection.
    """

    kind: type[AsSideInput]
    options: dict[str, Any]
    collection: int

    def value(self, elements: list[Any]) -> Any:
        """What a step gets.

        Raises:
            ValueError: A singleton is lost, which Beam shows to the step as an object of its own, or repeated.
        """
        if self.kind is AsSingleton and not elements:
            raise ValueError("a singleton is lost")
        return self.kind._from_runtime_iterable(elements, self.options)


class _Collector(PipelineVisitor):
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[PCollection] = []  # So that no two have the same id.
        self._inside: AppliedPTransform | None = None

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        if self._inside is None and isinstance(transform_node.transform, _WHOLE):
            self._inside = transform_node
            self._add(transform_node)

    def leave_composite_transform(self, transform_node: AppliedPTransform) -> None:
        if self._inside is transform_node:
            self._inside = None

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        if self._inside is None:
            self._add(transform_node)

    def _number(self, collection: PCollection) -> int:
        self._kept.append(collection)
        return self._numbers.setdefault(id(collection), len(self._numbers))

    def _add(self, applied: AppliedPTransform) -> None:
        transform = applied.transform
        node = Node(
            applied.full_label,
            transform,
            [self._number(found) for found in applied.inputs if isinstance(found, PCollection)],
            {tag: self._number(found) for tag, found in applied.outputs.items()},
        )
        if isinstance(transform, beam.ParDo):
            node.step = transform.fn
            arguments, named = transform.raw_side_inputs
            assert not named, applied.full_label
            node.sides = [self._side(argument) for argument in arguments]
        self.nodes.append(node)

    def _side(self, argument: Any) -> Any:
        if not isinstance(argument, AsSideInput):
            return argument
        return Side(type(argument), argument._view_options(), self._number(argument.pvalue))


def nodes_of_pipeline(pipeline: Pipeline) -> list[Node]:
    """The nodes of a pipeline that is built, each after those that it depends on."""
    collector = _Collector()
    pipeline.visit(collector)
    return collector.nodes


def grouped(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, list[Any]]]:
    """(key, its values) for each key."""
    found: dict[bytes, tuple[Any, list[Any]]] = {}
    for key, value in pairs:
        found.setdefault(pickle.dumps(key), (key, []))[1].append(value)
    return list(found.values())
