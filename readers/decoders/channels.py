"""Keeps some channels of recordings, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from readers.decoders.decoder import Batch, Decoder
from readers.format.decode.column import FeatureColumn
from readers.format.display import first_names
from readers.format.schema import Feature, Schema

_NAMES_SHOWN = 12


@dataclass(frozen=True)
class Channels(Decoder):
    """Keeps channels of an array [..., channels], by their `places` in the last axis, in the order of the result."""

    places: tuple[int, ...]

    @classmethod
    def named(cls, feature: str, chosen: Sequence[str], names: Sequence[str]) -> Channels:
        """The decoder that keeps the `chosen` ones of the channels with `names`, in this order.

        Raises ValueError if a channel of the feature does not exist, or two have its name.
        """
        is_list = isinstance(chosen, (list, tuple)) and len(chosen) > 0
        wrong = [name for name in chosen if names.count(name) != 1] if is_list else [chosen]
        if wrong:
            listed = first_names(list(names), _NAMES_SHOWN) if names else "without names"
            raise ValueError(
                f"columns: {wrong[0]!r} is not the name of one channel of {feature!r}; its channels are {listed}"
            )
        return cls(tuple(map(names.index, chosen)))

    def features(self, name: str, stored: Schema) -> dict[str, Feature]:
        """The feature with the remaining channels."""
        return {name: replace(stored[name], shape=(*stored[name].shape[:-1], len(self.places)))}

    def columns(self, name: str, stored: Schema, batch: Batch) -> dict[str, FeatureColumn]:
        """A copy of the remaining channels."""
        column = batch.columns[name]
        if column.shapes is None:
            return {name: FeatureColumn(column.flat()[..., self.places])}
        shapes = column.shapes.copy()
        shapes[:, -1] = len(self.places)
        rows = column.flat().reshape(-1, *stored[name].known_sizes[-1:])
        return {name: FeatureColumn(rows[:, self.places].reshape(-1), shapes)}
