"""The rows of the objects that `write` takes, and the key, the split and the features of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.plan.placement import Placement
from beam_jobs.writing.encode import RunEncoder

# The name of a feature, or a function of a record.
Rule = str | Callable[[Mapping[str, Any]], Any]

# Rows of a DataFrame that are converted together.
_ROWS = 1024


def splits_in(records: Any) -> dict[str, Any] | None:
    """Split -> its records, of a dict of them, a `DatasetDict` or a builder of TFDS; None for other objects."""
    if hasattr(records, "as_dataset"):
        return {name: records.as_dataset(split=name) for name in records.info.splits}
    return dict(records) if isinstance(records, Mapping) else None


def rows_of(records: Any) -> Iterator[Any]:
    """Yields the rows of an iterable, a `tf.data.Dataset`, or a DataFrame of pandas; UsageError for others."""
    if hasattr(records, "as_numpy_iterator"):
        yield from records.as_numpy_iterator()
    elif hasattr(records, "iloc"):
        for start in range(0, len(records), _ROWS):
            yield from records.iloc[start : start + _ROWS].to_dict("records")
    elif isinstance(records, Iterable) and not isinstance(records, str | bytes):
        yield from records
    else:
        raise UsageError(f"expected records, or a function with inputs=[...], got {records!r:.80}")


@dataclass(frozen=True)
class RowRules:
    """The rules for the key and the split of a row; see `write`."""

    placement: Placement
    features: frozenset[str]
    key: Rule | None
    group_by: Rule | None

    def encode(self, encoder: RunEncoder, row: Any, number: str, split: int | None = None) -> None:
        """Adds a row to an encoder, given its number for want of another key, and its split if that is known.

        Raises:
            UsageError: It has no key, no group or no features.
            DataError: It does not fit the schema, and may not be rejected.
        """
        key, features = row if isinstance(row, tuple) and len(row) == 2 else (number, row)
        for rule in (self.key, self.group_by) if isinstance(features, Mapping) else ():
            if rule is not None:
                text = _text(rule, features)
                if rule is self.key:
                    key = text
                if rule is self.group_by:
                    split = self.placement.split(text)
                if isinstance(rule, str) and rule not in self.features:
                    features = {name: value for name, value in features.items() if name != rule}
        encoder.add(key, features, split)


def _text(rule: Rule, features: Mapping[str, Any]) -> str:
    """The text that a rule gives; integers and NumPy scalars are converted, UsageError for others."""
    value = rule(features) if callable(rule) else features.get(rule)
    if isinstance(value, np.ndarray | np.generic) and not value.ndim:
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str | int):
        raise UsageError(
            f"key or group {rule!r:.80}: expected a text or an integer of the record, got {value!r:.80}; it has "
            f"{', '.join(map(str, features))}"
        )
    return str(value)
