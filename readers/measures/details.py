"""What a report shows of a sample, and the checks do not need: values, channels of signals, words of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.schema import Schema
from readers.measures.channels import MOST_CHANNELS, Channels
from readers.measures.values import Collector, Values, joined
from readers.measures.words import Words, merged


@dataclass(frozen=True)
class Details:
    """What was found in some records, by feature.

    Attributes:
        values: Shapes and values of each feature.
        channels: The channels of each signal.
        words: The words of each text.
    """

    values: Mapping[str, Values]
    channels: Mapping[str, Channels]
    words: Mapping[str, Words]


class DetailsCollector:
    """Collects details from records one after another.

    Args:
        schema: The features.
        kinds: Feature -> its kind, as `kinds_of` names it.
        each: Feature -> how many rows of values to draw of each record.
    """

    def __init__(self, schema: Schema, kinds: Mapping[str, str], each: Mapping[str, int]) -> None:
        self._values = {name: Collector(feature, each[name]) for name, feature in schema.items()}
        self._channels = {
            name: Channels(_channels(feature.shape))
            for name, feature in schema.items()
            if kinds.get(name) == "signal"
        }
        self._words = {name: Words() for name, kind in kinds.items() if kind == "text"}

    def add(self, record: Mapping[str, Any], number: int) -> None:
        """Adds a record.

        Args:
            record: The values by feature name.
            number: The number of the record.
        """
        for name, collector in self._values.items():
            collector.add(record[name], number)
        with np.errstate(all="ignore"):  # Squares of the largest floats are infinite.
            for name, channels in self._channels.items():
                channels.add(record[name])
        for name, words in self._words.items():
            words.add(record[name])

    def details(self) -> Details:
        """What was collected."""
        values = {name: collector.values() for name, collector in self._values.items()}
        words = {name: each.pruned() for name, each in self._words.items()}
        return Details(values, self._channels, words)


def joined_details(parts: Sequence[Details]) -> Details:
    """The details of runs of records, at least one, as those of all of them."""
    first, *others = parts
    return Details(
        {name: joined([part.values[name] for part in parts]) for name in first.values},
        {
            name: channels.merge([part.channels[name] for part in others])
            for name, channels in first.channels.items()
        },
        {name: merged(part.words[name] for part in parts) for name in first.words},
    )


def _channels(shape: tuple[int | None, ...]) -> int:
    """The channels of a signal that are looked at; those of an unknown number are one each in the first records."""
    return min(MOST_CHANNELS, shape[1] or 1) if len(shape) == 2 else 1
