"""The rules for near duplicates among a job's records, and the sketches that find them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.plan.equality import Equality, Similarity
from beam_jobs.plan.near_keys import SketchBlock, sketch_blocks
from readers.format.decode.images import decode_image
from readers.format.features import kind_of
from readers.format.schema import Feature
from readers.format.similarity.likeness import Kind, Sketches

_KINDS: dict[str, Kind] = {"picture": "picture", "text": "text", "signal": "recording"}


class Compared(NamedTuple):
    """The features that are compared.

    Attributes:
        kind: Their kind.
        features: One picture, all texts, or all signals of a record.
    """

    kind: Kind
    features: Mapping[str, Feature]


def compared_of(features: Mapping[str, Feature], classes: Sequence[str] = ()) -> Compared:
    """The features to compare: the only picture, else all texts that are not classes, else all signals.

    Raises:
        UsageError: The records have none of these features.
    """
    for kind, name in _KINDS.items():
        found = {n: f for n, f in features.items() if kind_of(f, n in classes) == kind}
        if found:
            some = dict(list(found.items())[:1]) if kind == "picture" else found
            return Compared(name, some)
    raise UsageError(
        "--drop_near_duplicates and --keep_out compare pictures, texts, and signals [time] or "
        f"[time, channels]; the records have only {', '.join(features)}"
    )


@dataclass(frozen=True)
class Near:
    """The rules for near duplicates.

    Attributes:
        likeness: The measure of similarity.
        compared: The features that are compared.
        drops: Whether records that are near an earlier one of the job are dropped.
        kept_out: The directory of the dataset, if its records are kept out of another.
        keep_out: Other datasets, as (`Job`, the rules by which its records are compared); records that are near one
            of theirs are dropped.
    """

    likeness: Similarity
    compared: Compared
    drops: bool = True
    kept_out: str = ""
    keep_out: tuple[tuple[Any, Near], ...] = ()

    @property
    def phase(self) -> str:
        """The name in progress of the pass that makes the sketches."""
        return "comparing" if isinstance(self.likeness, Equality) else "sketching"

    def value_of(self, record: Mapping[str, Any]) -> Any:
        """The argument of `Similarity.sketch` for a record; None if a picture cannot be decoded."""
        values = [record[name] for name in self.compared.features]
        if self.likeness.kind == "text":
            texts = [bytes(np.asarray(value, object).item()) for value in values]
            return self.value_of_texts(texts)
        if self.likeness.kind == "recording":
            return [np.asarray(value) for value in values]
        if not isinstance(values[0], bytes):
            return np.asarray(values[0])
        ((name, feature),) = self.compared.features.items()
        try:
            return decode_image(name, feature, values[0])
        except ValueError:
            return None

    def value_of_texts(self, texts: Sequence[bytes]) -> str | bytes:
        """The argument of `Similarity.sketch` for a record, given its texts in UTF-8."""
        if not isinstance(self.likeness, Equality):
            return "\n".join(text.decode("utf-8", "replace") for text in texts)
        # Lengths, so that texts which differ in where one ends are not equal.
        return texts[0] if len(texts) == 1 else b"".join(b"%d:%b" % (len(t), t) for t in texts)


class Sketched(NamedTuple):
    """The sketches of the records of a task, or of a block of references.

    Attributes:
        blocks: Blocks of the records that have one.
        records: The number of the job's records, with or without a sketch; 0 if they are of `--keep_out`.
        chunks: The number of chunks of the task.
    """

    blocks: list[SketchBlock]
    records: int
    chunks: int = 0


@dataclass
class SketchBuilder:
    """Makes the sketches of the records of a task, whose id is `owner`."""

    near: Near
    owner: str
    _records: int = 0
    _columns: list[tuple[np.ndarray, np.ndarray, Sketches]] = field(default_factory=list)

    def skip(self, records: int) -> None:
        """Counts records that have no sketch."""
        self._records += records

    def add(self, numbers: np.ndarray, orders: np.ndarray, values: Sequence[Any]) -> None:
        """Adds records.

        Args:
            numbers: int64 [n], the number of each among the records of the task.
            orders: uint64 [n], its place in the global order.
            values: From `Near.value_of`; None for a record without one.
        """
        self._records += len(values)
        there = [row for row, value in enumerate(values) if value is not None]
        if there:
            sketches = self.near.likeness.sketch([values[row] for row in there])
            self._columns.append((numbers[there], orders[there], sketches))

    def finish(self, chunks: int = 0) -> Sketched:
        """The sketches of all records that were added."""
        near, blocks = self.near, list[SketchBlock]()
        if self._columns:
            numbers, orders, sketches = zip(*self._columns, strict=True)
            every = Sketches(*(np.concatenate(column) for column in zip(*sketches, strict=True)))
            columns = np.concatenate(numbers), np.concatenate(orders), every
            blocks += sketch_blocks(f"{near.kept_out}{self.owner}", *columns, bool(near.kept_out))
        return Sketched(blocks, 0 if near.kept_out else self._records, chunks)
