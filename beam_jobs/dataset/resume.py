"""Notes about committed shards, with which the next run of an unfinished job resumes.

A shard is a pure function of the records that the plan puts there and of the job's options. While
the dataset is unfinished, a digest of these is kept in a small file. The next run keeps the shard
if the digest is the same and the checksums of its files agree.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from beam_jobs.dataset.directory import DONE
from beam_jobs.dataset.output import Output
from beam_jobs.packages import versions
from beam_jobs.records.rejects import Reject, rejects_file
from beam_jobs.sources.classes import Names
from beam_jobs.storage.atomic import STAGING, delete_files, write_file
from beam_jobs.storage.files import content_of, read_bytes, size_and_crc
from readers.format.index import Index, head_crc32c
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.splits import Shard

_NOTED = re.compile(rf"(?:.*/)?(.+)-\d{{5}}-of-(\d{{5}})\.tfrecord{re.escape(DONE)}")


@dataclass(frozen=True)
class ShardResult:
    """The result of writing one shard.

    Attributes:
        split, index: The numbers of the split and of the shard in it.
        shard: The committed file; None if the split has nothing but rejects.
        rejected: The number of its rejects.
        first_reject: The first reject in the order of keys.
        kept: Whether an earlier run wrote the shard.
        rejects_crc32c: The checksum of the list of its rejects, if there are any.
    """

    split: int
    index: int
    shard: Shard | None
    rejected: int
    first_reject: Reject | None
    kept: bool = False
    rejects_crc32c: int = 0


class Digest:
    """The digest of everything that decides the bytes of a shard; records are added in order."""

    def __init__(self, output: Output, name: str, names: Names) -> None:
        context = [name, dict(names), output.schema.to_json(), output.options, versions()]
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


def _path(name: str) -> str:
    return f"{STAGING}/{name}{DONE}"


def noted_shards(names: Iterable[str]) -> tuple[int, int]:
    """How many shards are noted, and how many there will be in the splits that have a noted one.

    Args:
        names: The names of files, of which those of notes count.
    """
    found = [(match[1], int(match[2])) for match in map(_NOTED.fullmatch, names) if match]
    return len(found), sum(dict(found).values())


def note_done(directory: str, name: str, digest: str, result: ShardResult, figures: Any) -> None:
    """Writes the note that a shard is committed, with figures (JSON) for `find_done` to return."""
    note = {"digest": digest, "result": asdict(result), "figures": figures}
    write_file(directory, _path(name), json.dumps(note).encode())


def read_note(directory: str, name: str) -> bytes | None:
    """The unchecked note about a shard; None if none can be read."""
    return content_of(join(directory, _path(name)))


def find_done(
    directory: str, name: str, digest: str, noted: bytes | None = None
) -> tuple[ShardResult, Any] | None:
    """The (result, figures) of a shard committed with this digest; None if it must be written.

    Args:
        noted: The note that `read_note` returned; None reads it.
    """
    noted = noted or read_note(directory, name)
    if noted is None:
        return None
    try:
        note = json.loads(noted)
        if note["digest"] != digest:
            return None
        result = _result_of(note["result"], name)
        if not _is_whole(directory, name, result):
            return None
        return result, note["figures"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # Whatever is wrong with the note, writing the shard again is right.


def _result_of(found: dict[str, Any], name: str) -> ShardResult:
    """The result in a note, as that of a kept shard; a wrong note raises an error of any kind."""
    shard = Shard(**found["shard"]) if found["shard"] else None
    first = Reject(**found["first_reject"]) if found["first_reject"] else None
    result = ShardResult(**(found | {"shard": shard, "first_reject": first, "kept": True}))
    numbers = [result.split, result.index, result.rejected, result.rejects_crc32c]
    numbers += [number for name, number in asdict(shard).items() if name != "file"] if shard else []
    texts = [first.key, first.stage, first.error] if first else []
    if not all(type(n) is int for n in numbers) or not all(type(t) is str for t in texts):
        raise ValueError("a field has the wrong type")
    if shard and shard.file != name:
        raise ValueError("the note is of another shard")
    return result


def forget_done(directory: str, name: str) -> None:
    """Removes the note about a shard before it is changed; several workers may do so at once."""
    try:
        delete_files([join(directory, _path(name))])
    except OSError:
        if read_note(directory, name) is not None:
            raise


def _is_whole(directory: str, name: str, result: ShardResult) -> bool:
    """Whether all files of a shard are as their writer left them."""
    if shard := result.shard:
        path = join(directory, name)
        if size_and_crc(path) != (shard.bytes, shard.crc32c):
            return False
        index = read_bytes(path + INDEX_SUFFIX)
        if (len(index), head_crc32c(index)) != (shard.index_bytes, shard.index_crc32c):
            return False
        Index.of_bytes(index, name)
    rejects = join(directory, rejects_file(name))
    return not result.rejected or size_and_crc(rejects)[1] == result.rejects_crc32c
