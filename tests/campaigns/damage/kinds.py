"""The datasets that are damaged: those of the corpus, and files without a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from readers.format.schema import Schema
from readers.format.tfrecord import frame
from tests.campaigns.values import read_files
from tests.corpus.makers.datasets import OURS
from tests.support.indexes import index_of_file
from tests.support.plain import example


@dataclass(frozen=True)
class Kind:
    """The bytes of an intact dataset.

    Attributes:
        name: Its name.
        files: The content of each file, by its path in the directory.
        schema: The features of files without a manifest; None for a dataset.
        key: The feature that tells its records apart.
    """

    name: str
    files: Mapping[str, bytes]
    schema: Schema | None = None
    key: str = "key"

    @property
    def shards(self) -> list[str]:
        """The names of the files with records."""
        return [name for name in self.files if name.endswith(".tfrecord")]

    @property
    def units(self) -> list[str | None]:
        """What readers read: splits, or all files."""
        return sorted({self.unit_of(name) for name in self.shards})

    def unit_of(self, shard: str) -> str | None:
        """What a file with records, or an index, belongs to."""
        return None if self.schema is not None else shard.split("/")[-1].split("-")[0]


def _of_corpus(name: str) -> Kind:
    # Records of a reshard job have no key; these have labels that differ.
    return Kind(name, read_files(OURS / name), key="label" if "steps" in name else "key")


_WAVES = Schema({"key": ("string", ()), "wave": ("float32", (2,), "list")})


def _waves(first: int, count: int) -> bytes:
    values = (
        {"key": [b"wave %d" % n], "wave": [n / 4, -n / 4]} for n in range(first, first + count)
    )
    return b"".join(frame(example(**value)) for value in values)


def _foreign() -> Kind:
    files = {f"{n}.tfrecord": _waves(3 * n, 3) for n in range(2)}
    return Kind("plain_files", files, _WAVES)


def _long() -> Kind:
    """Records without a manifest but with an index, of different sizes, so that a swap moves others."""
    values = ({"key": [b"%d" % n], "wave": [0.5] * n} for n in range(1, 5))
    schema = Schema({"key": ("string", ()), "wave": ("float32", (None,), "list")})
    data = b"".join(frame(example(**each)) for each in values)
    files = {"a.tfrecord": data, "a.tfrecord.index": index_of_file(data)}
    return Kind("files_of_lists", files, schema)


def kinds() -> dict[str, Kind]:
    """All kinds, by name."""
    found = [_of_corpus(path.name) for path in sorted(OURS.iterdir())]
    found += [_foreign(), _long()]
    return {kind.name: kind for kind in found}
