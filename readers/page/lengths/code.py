"""Python code that reads a dataset with the arguments that a report suggests, to be copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def reading_code(directory: str, arguments: Mapping[str, Any]) -> str:
    """A program that makes batches with `readers.as_numpy`, in ASCII.

    Args:
        directory: The dataset's directory.
        arguments: The arguments by name: text, numbers, and lists and dicts of these.
    """
    lines = [f"    {name}={value!a}," for name, value in arguments.items()]
    return "\n".join(
        [
            "import readers",
            "",
            "batches = readers.as_numpy(",
            f"    {directory!a},",
            *lines,
            ")",
        ]
    )


def normalizing_code(
    directory: str,
    split: str,
    feature: str,
    dtype: str,
    moments: Sequence[Sequence[float]],
    is_fixed: bool,
) -> str:
    """A program that makes batches of which a feature is normalized, in ASCII.

    Args:
        directory: The dataset's directory.
        split: The split.
        feature: The feature, and `dtype` its dtype.
        moments: The mean of each channel, and the standard deviation of each.
        is_fixed: Whether all records have one shape; otherwise batches are lists of arrays.
    """
    name = ascii(feature)
    mean, std = (ascii(tuple(numbers)) for numbers in moments)
    batching = "dense" if is_fixed else "ragged"
    lines = [
        "import readers",
        "from readers import transforms",
        "",
        f"moments = transforms.Moments({mean}, {std}, {dtype!a})",
        "",
        "",
        "def normalized(batch, keys):",
        f"    return {{**batch, {name}: transforms.normalize(batch[{name}], moments)}}",
        "",
        "",
        "batches = readers.as_numpy(",
        f"    {directory!a},",
        f"    split={split!a},",
        "    batch_size=32,",
        f"    batching={batching!a},",
        "    transform=normalized,",
        ")",
    ]
    return "\n".join(lines)
