"""The work on each record before batching: decoders, and then a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from readers.decoders.decoder import Batch, Decoder, called, check_no_tensor, checked_value
from readers.format.decode.column import FeatureColumn, column_of
from readers.format.decode.image_columns import of_each_row
from readers.format.dtypes import dtype_name
from readers.format.schema import Feature, Schema

# (record, key) -> the record to use instead.
RecordFunction = Callable[[dict[str, Any], int], dict[str, Any]]


@dataclass(frozen=True)
class Map:
    """A function of each record, and the features that it returns: `map=readers.Map(mix, {...})`.

    Attributes:
        function: Receives a record, a dict of NumPy arrays by feature name, and its key, and returns the record to use instead.
        schema: The features of the returned records, as for `Schema`: `{"tokens": ("int32",
            [None])}`. None takes them from the first returned record: a value that fits the dataset's feature
            of the same name keeps that feature; the sizes of all others are fixed.

    Raises:
        ValueError: The function cannot be called, or a feature is not valid.

    Example:
        >>> def energy(record, key):
        ...     return {"energy": np.square(record["signal"]).mean(0), "label": record["label"]}
        >>> mapped = readers.Map(energy, {"energy": ("float32", [3]), "label": "int64"})
        >>> next(readers.as_numpy("shards/sensors", 8, map=mapped))["energy"].shape
        (8, 3)
    """

    function: RecordFunction
    schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(f"map={self.function!r}: expected a function of (record, key)")
        if self.schema is not None and not isinstance(self.schema, Schema):
            object.__setattr__(self, "schema", Schema(self.schema))


@dataclass(frozen=True)
class RecordWork:
    """The work on each record: decoders, then optionally a function.

    `stored` has the features before the work, `schema` those after it, and `made` those that the decoders make.
    """

    stored: Schema
    decoders: Mapping[str, Decoder]
    schema: Schema
    made: Mapping[str, Feature] = field(default_factory=dict)
    function: RecordFunction | None = None

    @classmethod
    def of_decoders(cls, stored: Schema, decoders: Mapping[str, Decoder]) -> RecordWork:
        """The work of decoders without a function; ValueError if a feature does not exist, or does not suit its decoder."""
        made: dict[str, Feature] = {}
        for name, decoder in decoders.items():
            if name not in stored:
                raise ValueError(
                    f"decoders: {name!r} is not among the features that are read: {', '.join(stored)}"
                )
            found = decoder.features(name, stored)
            others = {*made, *decoders} - {name}
            twice = [other for other in found if other in others]
            if twice:
                raise ValueError(f"decoders: two decoders make the feature {twice[0]!r}")
            made |= found
        return cls(stored, decoders, Schema({**stored, **made}), made)

    def columns(self, batch: Batch) -> dict[str, FeatureColumn]:
        """The columns after the work; ValueError if it fails, or if the function returns other features than declared."""
        columns = dict(batch.columns)
        for name, decoder in self.decoders.items():
            columns |= decoder.columns(name, self.stored, batch)
        if self.function:
            return self._mapped(self.function, replace(batch, columns=columns))
        return {name: columns[name] for name in self.schema}

    def _mapped(self, function: RecordFunction, batch: Batch) -> dict[str, FeatureColumn]:
        keys, columns = batch.keys.tolist(), {n: c.arrays() for n, c in batch.columns.items()}

        def work(row: int) -> dict[str, Any]:
            record = {name: column[row] for name, column in columns.items()}
            return self._checked(called(function, "map", record, keys[row]))

        values = of_each_row(work, len(keys), batch.located)
        return {
            name: column_of(feature, [record[name] for record in values])
            for name, feature in self.schema.items()
        }

    def _checked(self, record: Any) -> dict[str, Any]:
        """A record that the function returned, with values in the form for `column_of`."""
        if not isinstance(record, Mapping) or set(record) != set(self.schema):
            found = ", ".join(map(str, record)) if isinstance(record, Mapping) else repr(record)
            raise ValueError(
                f"map returned {found:.200}; expected a dict of {', '.join(self.schema)}: declare other "
                "features with readers.Map(function, schema)"
            )
        return {n: checked_value(n, f, record[n]) for n, f in self.schema.items()}


def check_decoders(decoders: Any) -> None:
    """Raises ValueError unless the argument `decoders` of a reader is a dict of decoders."""
    if not isinstance(decoders, Mapping) or not all(
        isinstance(decoder, Decoder) for decoder in decoders.values()
    ):
        raise ValueError(
            f"decoders={decoders!r}: expected decoders by feature name, such as "
            '{"image": readers.decoders.Resize(224)}'
        )


def schema_of_record(record: Any, decoded: Schema) -> Schema:
    """Infers the features of a record that a function returned; ValueError if it is not a dict of arrays.

    A value that fits the feature of its name in `decoded` has that feature. All others get the sizes in this record.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"map returned {type(record).__name__}; expected a dict of arrays by name")
    return Schema({name: _feature_of(name, value, decoded) for name, value in record.items()})


def _feature_of(name: str, value: Any, decoded: Schema) -> Feature:
    check_no_tensor(name, value)
    if name in decoded:
        try:
            checked_value(name, decoded[name], value)
        except ValueError:
            pass
        else:
            return decoded[name]
    array = np.asarray(value)
    found = Feature(dtype_name(array.dtype), array.shape)
    checked_value(name, found, value)
    return found
