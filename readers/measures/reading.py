"""Reads the records of a sample, in which a picture may be one that cannot be decoded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from readers.format.manifest import DatasetError
from readers.format.tfrecord import CorruptRecordError
from readers.source import RecordSource


class Undecodable:
    """Stands for the pixels of a picture that cannot be decoded."""


class SampleReader:
    """Reads some features of the records of a part of a split.

    Args:
        directory: The dataset's directory.
        part: The part, such as `train[:100]`.
        columns: The features.
        pictures: Which of them are pictures.
    """

    def __init__(
        self, directory: str, part: str, columns: Sequence[str], pictures: Collection[str]
    ) -> None:
        self._directory, self._part = directory, part
        self._columns, self._pictures = columns, pictures
        self._source = RecordSource(directory, part, columns)

    def read(self, numbers: range) -> list[Mapping[str, Any]]:
        """The records of some numbers; `Undecodable` in place of a picture that is.

        Raises:
            ValueError: A record cannot be read, or another feature cannot be decoded.
        """
        try:
            return list(self._source.__getitems__(numbers))
        except (CorruptRecordError, DatasetError):
            raise
        except ValueError:
            if not self._pictures:
                raise
            return [self._one(number) for number in numbers]

    def _one(self, number: int) -> Mapping[str, Any]:
        try:
            return self._source[number]
        except (CorruptRecordError, DatasetError):
            raise
        except ValueError:
            pass
        others = [name for name in self._columns if name not in self._pictures]
        record: dict[str, Any] = {}
        if others:
            record |= RecordSource(self._directory, self._part, others)[number]
        for name in self._pictures:
            try:
                record |= RecordSource(self._directory, self._part, [name])[number]
            except (CorruptRecordError, DatasetError):
                raise
            except ValueError:
                record[name] = Undecodable()
        return record
