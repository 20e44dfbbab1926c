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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from beam_jobs.dataset.lease import Holder
from beam_jobs.dataset.output import Output
from beam_jobs.records.rejects import Reject, rejects_file
from beam_jobs.sources.labels import Names
from beam_jobs.storage.atomic import write_file
from beam_jobs.storage.files import content_of, read_bytes, size_and_crc
from readers.format.index import Index, head_crc32c
from readers.format.manifest import INDEX_SUFFIX, join
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
        rejects_crc32c: The checksum of this list.
    """

    split: int
    index: int
    shard: Shard | None
    rejected: int
    first_reject: Reject | None
    kept: bool = False
    rejects: str = ""
    rejects_crc32c: int = 0


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

    def write(self, digest: str, result: ShardResult, figures: Any) -> None:
        """Notes a shard that is about to appear, with figures (JSON) for `find` to return."""
        note = {"digest": digest, "result": asdict(result), "figures": figures}
        write_file(self._path, json.dumps(note).encode(), self._output.staging, replace=True)

    def find(self, digest: Callable[[], str]) -> tuple[ShardResult, Any] | str:
        """The (result, figures) of the shard, or the path under which it must be written.

        Its digest is computed only if an earlier run has left a note.
        """
        try:
            note = json.loads(content_of(self._path) or b"")
        except (ValueError, RecursionError):
            return self._name
        if not isinstance(note, dict):
            return self._name
        expected = digest()
        if note.get("digest") != expected:
            return second_name(self._name, expected[:8])
        try:
            result, figures = self._result_of(note["result"]), note["figures"]
        except (ValueError, KeyError, TypeError):
            return self._name  # Whatever is wrong with the note, write the shard again.
        states = set(self._states(result))
        if states <= {True}:
            return result, figures
        if False in states:
            return second_name(self._name, uuid.uuid4().hex[:8])
        return result.shard.path if result.shard else self._name

    def _result_of(self, values: dict[str, Any]) -> ShardResult:
        """The result in a note, marked as kept; a wrong note raises an error of any kind."""
        shard = Shard(**values["shard"]) if values["shard"] else None
        first = Reject(**values["first_reject"]) if values["first_reject"] else None
        result = ShardResult(**(values | {"shard": shard, "first_reject": first, "kept": True}))
        numbers = [result.split, result.index, result.rejected, result.rejects_crc32c]
        numbers += (
            [n for name, n in asdict(shard).items() if name not in ("path", "index_path")]
            if shard
            else []
        )
        texts = [first.key, first.stage, first.error] if first else []
        if not all(type(n) is int for n in numbers) or not all(type(t) is str for t in texts):
            raise ValueError("a field has the wrong type")
        path = shard.path if shard else self._name
        if _MARK.sub(".tfrecord", path) != self._name:
            raise ValueError("the note is of another shard")
        if result.rejected and result.rejects != rejects_file(path):
            raise ValueError("the rejects are of another shard")
        return result

    def _states(self, result: ShardResult) -> Iterator[bool | None]:
        """Yields of each file of a shard whether it is as its writer left it; None if it is missing."""
        if shard := result.shard:
            yield self._is_intact(shard.path, shard.crc32c, shard.bytes)
            yield self._is_intact_index(shard)
        if result.rejected:
            yield self._is_intact(result.rejects, result.rejects_crc32c)

    def _is_intact(self, name: str, crc32c: int, size: int | None = None) -> bool | None:
        try:
            there = size_and_crc(join(self._output.directory, name))
        except FileNotFoundError:
            return None
        except OSError:
            return False
        return there == (there[0] if size is None else size, crc32c)

    def _is_intact_index(self, shard: Shard) -> bool | None:
        name = shard.path + INDEX_SUFFIX
        try:
            data = read_bytes(join(self._output.directory, name))
            Index.of_bytes(data, name)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return False
        return (len(data), head_crc32c(data)) == (shard.index_bytes, shard.index_crc32c)
