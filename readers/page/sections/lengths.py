"""Lengths: what padding costs, and the buckets, limits and packed rows with which it costs less."""

from __future__ import annotations

import math
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.schema import Feature
from readers.page.distributions.drawings import histograms
from readers.page.lengths.buckets import suggested_boundaries
from readers.page.lengths.code import reading_code
from readers.page.lengths.packing import packed_share
from readers.page.lengths.padding import Lengths, waste
from readers.page.numbers import percent
from readers.page.section import Section, fill
from readers.page.study import Study

BATCH_SIZES = (16, 32, 64, 128, 256)

# The batch for which buckets are suggested, and the rows of packed batches.
_BATCH, _ROWS = 64, 32

_COVERED = (0.99, 0.999)

# A row is a multiple of this, as accelerators like it.
_MULTIPLE = 8

# Features that are shown.
_MOST = 12


class _Limit(NamedTuple):
    """A suggested `max_length`."""

    length: int
    cut_records: str
    cut_cells: str
    waste: str


class _Row(NamedTuple):
    length: int
    filled: str
    records: str


class _Lengths(NamedTuple):
    feature: str
    anchor: str
    split: str
    seen: int
    records: int
    drawing: Element | None
    is_constant: bool
    wastes: list[tuple[int, str, str]]
    boundaries: list[int]
    batch_size: int
    buckets_code: str
    limits: list[_Limit]
    limit_code: str
    rows: list[_Row]
    packing_code: str


def section(study: Study) -> Section | None:
    """The lengths of features with a dimension of unknown size; pictures have a section of their own."""
    names = [name for name, feature in study.manifest.schema.items() if _has_length(feature)]
    shown = [found for name in names[:_MOST] if (found := _lengths(study, name)) is not None]
    if not shown:
        return None
    return Section(
        "lengths",
        "Lengths",
        fill("lengths.html", shown=shown, left=len(names) - len(names[:_MOST])),
    )


def _has_length(feature: Feature) -> bool:
    return feature.has_length and not feature.is_image and feature.shape.count(None) == 1


def _lengths(study: Study, name: str) -> _Lengths | None:
    feature = study.manifest.schema[name]
    parts = {
        split: values.shapes[:, feature.first_unknown]
        for split, values in study.values(name).items()
    }
    if not parts:
        return None
    anchor = study.anchor(name, "").replace("feature", "length")
    split, seen = next(iter(parts.items()))
    lengths = Lengths(np.sort(seen), study.manifest.splits[split].records)
    batch_size = _batch_size(lengths.records)
    boundaries = suggested_boundaries(lengths, batch_size)
    is_constant = bool(np.ptp(np.concatenate(list(parts.values()))) == 0)
    found = [] if is_constant else [_limit(seen, share) for share in _COVERED]
    limits = list({limit.length: limit for limit in found}.values())
    rows = _rows(seen) if not is_constant and seen.max() > 0 else []
    where = {"split": split}
    code = _Code(study, where, name)
    return _Lengths(
        name,
        anchor,
        split,
        len(seen),
        lengths.records,
        histograms(parts, anchor, f"Records by the size of dimension {feature.first_unknown}"),
        is_constant,
        [
            (size, _waste(waste(lengths, size)), _waste(waste(lengths, size, boundaries)))
            for size in BATCH_SIZES
        ],
        boundaries,
        batch_size,
        code.buckets(boundaries, batch_size) if boundaries else "",
        limits,
        code.limited(limits[-1].length, batch_size) if limits else "",
        rows,
        code.packed(rows[-1].length) if rows else "",
    )


class _Code(NamedTuple):
    """Programs that read a feature."""

    study: Study
    where: dict[str, str]
    name: str

    def buckets(self, boundaries: list[int], batch_size: int) -> str:
        """Batches from buckets."""
        buckets = {"bucket_boundaries": {self.name: boundaries}, "batching": "padded"}
        return self._made({"batch_size": batch_size, **buckets, "mask": True, "shuffle": True})

    def limited(self, length: int, batch_size: int) -> str:
        """Batches of one shape."""
        limit = {"max_length": {self.name: length}, "pad_to": "max_length", "batching": "padded"}
        return self._made({"batch_size": batch_size, **limit, "mask": True, "shuffle": True})

    def packed(self, length: int) -> str:
        """Packed batches."""
        rows = {"columns": [self.name], "batch_size": _ROWS, "batching": "packed"}
        return self._made({**rows, "max_length": length, "shuffle": True})

    def _made(self, arguments: dict[str, object]) -> str:
        return reading_code(self.study.directory, {**self.where, **arguments})


def _waste(share: float) -> str:
    """A share to be compared with others, with one digit more than elsewhere."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def _batch_size(records: int) -> int:
    """The batch for which buckets are suggested: a smaller one of few records."""
    return next((size for size in (_BATCH, 32, 16, 8) if records >= 8 * size), 4)


def _limit(seen: np.ndarray, share: float) -> _Limit:
    length = max(1, int(np.quantile(seen, share, method="inverted_cdf")))
    cut = np.minimum(seen, length)
    return _Limit(
        length,
        percent(float((seen > length).mean())),
        percent(1 - float(cut.sum()) / float(seen.sum() or 1)),
        _waste(1 - float(cut.mean()) / length),
    )


def _rows(seen: np.ndarray) -> list[_Row]:
    """Rows of one, two and four times the length that 99.9 % of the records do not exceed."""
    longest = max(1, int(np.quantile(seen, _COVERED[-1], method="inverted_cdf")))
    found = []
    for times in (1, 2, 4):
        length = math.ceil(times * longest / _MULTIPLE) * _MULTIPLE
        filled, records = packed_share(seen, length, _ROWS)
        found.append(_Row(length, _waste(filled), f"{records:,.1f}"))
    return found
