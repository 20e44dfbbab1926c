"""Notes about shards, with which the next run of an unfinished job resumes.

A shard is a pure function of the records that the plan puts there and of the job's options. A small file with a
digest of these is written before the shard gets its name. The next run keeps the shard if the digest is the same
and the checksums of its files agree. If the digest differs, because an input has changed, or if a file is
damaged, the shard is written under a second name: no file ever has two contents.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import google_crc32c

from beam_jobs.dataset.output import Holder, Output
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.labels import Names
from beam_jobs.storage.atomic import Piece, write_file
from beam_jobs.storage.files import content_of, size_and_crc
from readers.format.manifest import join
from readers.format.splits import Shard

DONE = ".done"

_NOTED = re.compile(rf"(?:.*/)?(.+)-\d{{5}}-of-(\d{{5}})\.tfrecord{re.escape(DONE)}")

_MARK = re.compile(r"(\.[0-9a-f]{8})?\.tfrecord\Z")


@dataclass(frozen=True)
class ShardResult:
    """The result of writing one shard.

    Attributes:
        split, index: The numbers of the split and of the shard in it.
        shard: The committed file; None if the split has nothing but rejects.
        rejected: The number of its rejects.
        first_reject: The first reject in the order of keys.
        kept: Whether an earlier run wrote the shard.
        rejects: The path of the list of its rejects in the dataset; empty if there are none.
    """

    split: int
    index: int
    shard: Shard | None
    rejected: int
    first_reject: Reject | None
    kept: bool = False
    rejects: str = ""


class Digest:
    """The digest of everything that determines the bytes of a shard; records are added in order."""

    def __init__(self, output: Output, name: str, names: Names) -> None:
        context = [name, dict(names), output.schema.to_json(), output.options, output.versions()]
        self._hash = hashlib.blake2b(json.dumps(context).encode(), digest_size=16)

    def update(self, records: Iterable[bytes]) -> Digest:
        """Adds the references or the encoded bytes of records; returns itself."""
        for record in records:
            self._hash.update(len(record).to_bytes(8, "little"))
            self._hash.update(record)
        return self

    def text(self) -> str:
        """The hexadecimal digest of the records added so far."""
        return self._hash.hexdigest()


def second_name(name: str, mark: str) -> str:
    """The path of a shard whose name has other contents; `mark` has 8 hex digits."""
    return _MARK.sub(f".{mark}.tfrecord", name)


def noted_shards(names: Iterable[str]) -> tuple[int, int]:
    """How many of some files are notes of shards, and how many shards the splits with such notes will have."""
    notes = [(match[1], int(match[2])) for match in map(_NOTED.fullmatch, names) if match]
    return len(notes), sum(dict(notes).values())


class Note:
    """The note about a shard, which has the shard's regular name, given its regular path in the dataset."""

    def __init__(self, output: Holder, name: str) -> None:
        self._output, self._name = output, name
        self._path = join(output.directory, name + DONE)

    def write(self, digest: str, result: ShardResult, figures: Any, files: Iterable[Piece]) -> None:
        """Notes a shard that is about to appear, with figures (JSON) for `find` to return, and its files."""
        data = json.dumps([digest, asdict(result), figures, *files]).encode()
        write_file(self._path, _crc(data) + b"\n" + data, self._output.staging, replace=True)

    def find(self, digest: Callable[[], str]) -> tuple[str, tuple[ShardResult, Any] | None]:
        """The path of the shard, and its (result, figures); None if it must be written.

        Its digest is computed only if an earlier run has left a note.
        """
        crc, _, data = (content_of(self._path) or b"").partition(b"\n")
        if crc != _crc(data):
            return self._name, None
        noted, result, figures, *files = json.loads(data)
        expected = digest()
        if noted != expected:
            return second_name(self._name, expected[:8]), None
        shard, first = result["shard"], result["first_reject"]
        result["shard"] = shard and Shard(**shard)
        result["first_reject"] = first and Reject(**first)
        states = {self._is_intact(*file) for file in files}
        if False in states:
            return second_name(self._name, uuid.uuid4().hex[:8]), None
        path = shard["path"] if shard else self._name
        return path, None if None in states else (ShardResult(**result | {"kept": True}), figures)

    def _is_intact(self, name: str, size: int, crc32c: int) -> bool | None:
        """Whether a file is as its writer left it; None if it is missing."""
        try:
            return size_and_crc(join(self._output.directory, name)) == (size, crc32c)
        except FileNotFoundError:
            return None
        except OSError:
            return False


def _crc(data: bytes) -> bytes:
    """The first line of a note, in hexadecimal digits."""
    return b"%08x" % google_crc32c.value(data)
