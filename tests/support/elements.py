"""The size of every element that a runner groups, combines or hands to all workers."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.runners.portability.fn_api_runner import execution


def _sizes(data: bytes, coder: Any) -> Iterator[int]:
    """Yields the size in bytes of each of the elements that a worker handed over together."""
    stream = create_InputStream(data)
    left = stream.size()
    while left:
        coder.decode_from_stream(stream, True)
        yield left - stream.size()
        left = stream.size()


@contextlib.contextmanager
def largest_elements() -> Iterator[dict[str, int]]:
    """The largest element in bytes by grouping (`group NAME`) and by side input (`side NAME`).

    Pipelines of the DirectRunner in this process are measured, where combines are lifted as Beam
    does it for Flink and Spark: what enters the grouping is the accumulator of a bundle.
    """
    found: dict[str, int] = collections.defaultdict(int)
    names: dict[int, str] = {}
    buffer_of = execution.BundleContextManager.get_buffer
    append = execution.GroupingBuffer.append
    commit = execution.FnApiRunnerExecutionContext.commit_side_inputs_to_state

    def see(name: str, data: bytes, coder: Any) -> None:
        found[name] = max(found[name], *_sizes(data, coder), 0)

    def named_buffer(self: Any, buffer_id: bytes, transform_id: str) -> Any:
        buffer = buffer_of(self, buffer_id, transform_id)
        kind, name = execution.split_buffer_id(buffer_id)
        if kind == "group":
            components = self.execution_context.pipeline_components
            names[id(buffer)] = components.transforms[name].unique_name
        return buffer

    def measured_append(self: Any, data: bytes) -> None:
        see(f"group {names[id(self)]}", data, self._pre_grouped_coder.get_impl())
        append(self, data)

    def measured_commit(self: Any, sides: Any) -> None:
        for buffer_id, _ in sides.values():
            _, name = execution.split_buffer_id(buffer_id)
            coder = self.pipeline_context.coders[self.safe_coders[self.data_channel_coders[name]]]
            for data in self.pcoll_buffers.get(buffer_id, ()):
                unique = self.pipeline_components.pcollections[name].unique_name
                see(f"side {unique}", data, coder.get_impl())
        commit(self, sides)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution.BundleContextManager, "get_buffer", named_buffer)
        patch.setattr(execution.GroupingBuffer, "append", measured_append)
        patch.setattr(
            execution.FnApiRunnerExecutionContext, "commit_side_inputs_to_state", measured_commit
        )
        yield found
