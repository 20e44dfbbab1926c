"""What a step hands over at the end of a bundle, and beside its main output."""

from __future__ import annotations

from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows

# The tag of (split, Statistics), an output of every step that encodes records.
STATISTICS = "statistics"


def at_end_of_bundle(output: Any) -> Any:
    """An output as `finish_bundle` must hand it over: with a window of its own."""
    if isinstance(output, TaggedOutput):
        return TaggedOutput(output.tag, at_end_of_bundle(output.value))
    return GlobalWindows.windowed_value_at_end_of_window(output)
