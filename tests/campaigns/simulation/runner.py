"""Runs the nodes of a pipeline as an engine might that loses, repeats and delays everything."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms import core
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.errors import DataError
from tests.campaigns.simulation.graph import Node, Side, grouped
from tests.campaigns.simulation.world import Died, World, Zombie

# As an engine's restart strategy: then the job fails.
_ATTEMPTS = 4


class JobFailed(Exception):
    """A bundle failed at all attempts, with the last error as its cause."""


# The records that a user's pipeline makes: nobody can know that one is missing.
_GIVEN = ("Given", "WriteShards/Global")

# The outputs of an attempt at a bundle: (tag, element).
_Attempt = Iterator[list[tuple[str | None, Any]] | None]


class Runner:
    """Runs a pipeline once.

    Args:
        world: Its faults, which also say how often attempts fail.
        chance: Draws everything that may differ between two runs.

    Attributes:
        is_alone: Whether a run has reached its last step, and nothing else has written since that listed
            what it deletes.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self._zombies: list[Zombie] = []
        # Some wake at once, some after the steps that follow, some after the job.
        self._pace = 10 ** chance.uniform(-3, 0)

    def run(self, nodes: Iterable[Node]) -> None:
        """Runs all nodes.

        Raises:
            JobFailed: A bundle failed for good.
            Crash: The whole job ended.
        """
        values: dict[int, list[Any]] = {}
        self.is_alone = False
        for node in nodes:
            self.is_alone |= node.name.endswith("/Commit")
            outputs = self._outputs(node, values)
            for tag, number in node.outputs.items():
                found = outputs.get(tag, [])
                given = node.name.endswith(_GIVEN)
                values[number] = found if given else self._handed_over(found)

    def beside(self, attempt: Callable[[], Any]) -> None:
        """Lets something run beside all that follows, as an attempt that was believed dead does."""
        self._zombies.append(Zombie(attempt))

    def let_zombies_end(self) -> None:
        """Lets all attempts that were believed dead run to their ends."""
        while self._zombies:
            self.step_zombie(always=True)

    def _outputs(self, node: Node, values: dict[int, list[Any]]) -> dict[str | None, list[Any]]:
        transform = node.transform
        inputs = [element for number in node.inputs for element in values[number]]
        if isinstance(transform, beam.WindowInto):  # All have one window.
            return {None: inputs}
        if isinstance(transform, beam.ParDo):
            return self._par_do(node, inputs, values)
        self._chance.shuffle(inputs)
        if isinstance(transform, core.Create):
            return {None: list(transform.values)}
        if isinstance(transform, core.Impulse):
            return {None: [b""]}
        if isinstance(transform, beam.GroupByKey):
            return {None: grouped(inputs)}
        if isinstance(transform, beam.CombineGlobally):
            return {None: [self._combined(transform.fn, inputs)]}
        if isinstance(transform, beam.CombinePerKey):
            found = [(k, self._combined(transform.fn, each)) for k, each in grouped(inputs)]
            return {None: found}
        assert isinstance(transform, beam.Flatten | beam.Reshuffle), node.name
        return {None: inputs}

    def _combined(self, fn: Any, elements: list[Any]) -> Any:
        """Combines elements in accumulators of any number."""
        fn = beam.CombineFn.maybe_from_callable(fn)
        accumulators = []
        for bundle in self._bundles(elements):
            accumulator = fn.create_accumulator()
            for element in bundle:
                accumulator = fn.add_input(accumulator, element)
            accumulators.append(fn.compact(accumulator))
        return fn.extract_output(fn.merge_accumulators([*accumulators, fn.create_accumulator()]))

    def _bundles(self, elements: list[Any]) -> Iterator[list[Any]]:
        elements = list(elements)
        self._chance.shuffle(elements)
        while elements:
            size = self._chance.choice([1, 2, 5, len(elements)])
            yield elements[:size]
            del elements[:size]

    def _handed_over(self, elements: list[Any]) -> list[Any]:
        """The elements that the next step gets."""
        faults, found = self._world.faults, []
        for element in elements:
            drawn = self._chance.random()
            times = 0 if drawn < faults.lost else 2 if drawn < faults.lost + faults.repeated else 1
            self._world.struck["lost" if not times else "repeated"] += times != 1
            found += [element] * times
        return found

    def _par_do(
        self, node: Node, elements: list[Any], values: dict[int, list[Any]]
    ) -> dict[str | None, list[Any]]:
        try:
            sides = [
                side.value(values[side.collection]) if isinstance(side, Side) else side
                for side in node.sides
            ]
        except ValueError as error:  # Beam's own, for a singleton that was lost or repeated.
            raise JobFailed(node.name) from DataError(str(error))
        outputs: dict[str | None, list[Any]] = {}
        for bundle in self._bundles(elements):
            for tag, element in self._succeeding(node, bundle, sides):
                outputs.setdefault(tag, []).append(element)
        return outputs

    def _succeeding(
        self, node: Node, bundle: list[Any], sides: list[Any]
    ) -> list[tuple[str | None, Any]]:
        """The outputs of the first attempt at a bundle that succeeds."""
        if self._chance.random() < self._world.faults.zombie:
            self._world.struck["zombie"] += 1
            attempt = self._attempt(node, bundle, sides)
            self.beside(lambda: list(attempt))
        failure: BaseException | None = None
        for _ in range(_ATTEMPTS):
            try:
                for outputs in self._attempt(node, bundle, sides):
                    self.step_zombie()
                    if outputs is not None:
                        return outputs
            except (Exception, Died) as error:
                failure = error
        raise JobFailed(node.name) from failure

    def _attempt(self, node: Node, bundle: list[Any], sides: list[Any]) -> _Attempt:
        """Yields None between elements, and all outputs at the end."""
        step = copy.deepcopy(node.step)
        outputs: list[tuple[str | None, Any]] = []
        try:
            step.setup()
            step.start_bundle()
            for element in bundle:
                for output in step.process(element, *sides) or ():
                    outputs.append(_tagged(output))
                if self._chance.random() < self._world.faults.retried:
                    self._world.struck["retried"] += 1
                    raise Died(node.name)
                yield None
            for output in step.finish_bundle() or ():
                outputs.append(_tagged(output))
        except BaseException:
            if self._chance.random() < 0.5:  # Otherwise the process is gone.
                step.teardown()
            raise
        yield outputs

    def step_zombie(self, always: bool = False) -> None:
        """Lets one of the attempts that were believed dead do a little more."""
        if self._zombies and (always or self._chance.random() < self._pace):
            self.is_alone = False
            zombie = self._chance.choice(self._zombies)
            if zombie.step():
                self._zombies.remove(zombie)


def _tagged(output: Any) -> tuple[str | None, Any]:
    if isinstance(output, WindowedValue):
        output = output.value
    if isinstance(output, TaggedOutput):
        tag, value = output.tag, output.value
        return tag, value.value if isinstance(value, WindowedValue) else value
    return None, output
