"""The rows of the objects that `write` takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beam_jobs.errors import UsageError

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
