"""Shards that an earlier, unfinished run of the same job has committed, and what it knew of them.

A shard is a pure function of the records that the plan puts there and of the job's options. A
digest of those stands in a small file beside the shard as long as the dataset is unfinished. The
next run takes the shard as it is if the digest is the same and the file's own checksum agrees.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import google_crc32c

from beam_jobs.dataset.directory import DONE
from beam_jobs.dataset.output import Output
from beam_jobs.packages import versions
from beam_jobs.records.rejects import Reject, rejects_file
from beam_jobs.sources.classes import Names
from beam_jobs.storage.atomic import STAGING, delete_files, write_file
from beam_jobs.storage.files import open_file, read_bytes
from beam_jobs.storage.objects import is_store, store_of
from readers.format.manifest import INDEX_SUFFIX, Shard, join

_READ_BYTES = 4 << 20


@dataclass(frozen=True)
class ShardResult:
    """What a shard's writer did.

    Attributes:
        split, index: Which shard.
        shard: The committed file; None where a split has nothing but rejects.
        index_bytes: Of its index.
        largest: Bytes of its largest record, framing included.
        rejected: All rejects of this shard.
        first_reject: In the order of keys.
        kept: Whether an earlier run had written it.
        index_crc32c: Of its index.
        rejects_crc32c: Of the list of its rejects, where there are any.
    """

    split: int
    index: int
    shard: Shard | None
    index_bytes: int
    largest: int
    rejected: int
    first_reject: Reject | None
    kept: bool = False
    index_crc32c: int = 0
    rejects_crc32c: int = 0


class Digest:
    """The digest of all that decides the bytes of a shard.

    Args:
        output: The dataset.
        name: Of the shard.
        names: Of classes, by feature.
    """

    def __init__(self, output: Output, name: str, names: Names) -> None:
        context = [name, dict(names), output.schema.to_json(), output.options, versions()]
        self._hash = hashlib.blake2b(json.dumps(context).encode(), digest_size=16)

    def update(self, records: Iterable[bytes]) -> Digest:
        """Adds records, in order: their references, or their encoded bytes; returns itself."""
        for record in records:
            self._hash.update(len(record).to_bytes(8, "little"))
            self._hash.update(record)
        return self

    def text(self) -> str:
        """The digest of what was added so far."""
        return self._hash.hexdigest()


def _path(name: str) -> str:
    return f"{STAGING}/{name}{DONE}"


def note_done(directory: str, name: str, digest: str, result: ShardResult, figures: Any) -> None:
    """Leaves the note that a shard is committed, for a run after this one.

    Args:
        name: Of the shard.
        digest: As `Digest.text` gives it.
        figures: JSON values to find again.
    """
    note = {"digest": digest, "result": asdict(result), "figures": figures}
    write_file(directory, _path(name), json.dumps(note).encode())


def read_note(directory: str, name: str) -> bytes | None:
    """The note on a shard, whatever it says; None where there is none that can be read."""
    try:
        return read_bytes(join(directory, _path(name)))
    except OSError:
        return None


def find_done(
    directory: str, name: str, digest: str, noted: bytes | None = None
) -> tuple[ShardResult, Any] | None:
    """The (result, figures) of a committed shard; None where it must be written.

    Args:
        noted: As `read_note` gave it; None to look now.
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
        return None  # Whatever is wrong with it, writing the shard anew is right.


def _result_of(found: dict[str, Any], name: str) -> ShardResult:
    """The result in a note, as the result of a kept shard.

    Raises:
        KeyError, TypeError, ValueError: It is none, or one of another shard.
    """
    shard = Shard(**found["shard"]) if found["shard"] else None
    first = Reject(**found["first_reject"]) if found["first_reject"] else None
    result = ShardResult(**(found | {"shard": shard, "first_reject": first, "kept": True}))
    numbers = [result.split, result.index, result.index_bytes, result.index_crc32c]
    numbers += [result.largest, result.rejected, result.rejects_crc32c]
    numbers += [shard.records, shard.bytes, shard.crc32c] if shard else []
    texts = [first.key, first.stage, first.error] if first else []
    if not all(type(n) is int for n in numbers) or not all(type(t) is str for t in texts):
        raise ValueError("a field has the wrong type")
    if shard and shard.file != name:
        raise ValueError("the note is of another shard")
    return result


def forget_done(directory: str, name: str) -> None:
    """Removes the note of a shard that is about to be changed; several workers may do so at once."""
    try:
        delete_files([join(directory, _path(name))])
    except OSError:
        if read_note(directory, name) is not None:
            raise


def _is_whole(directory: str, name: str, result: ShardResult) -> bool:
    """Whether all files of a shard are as their writer left them."""
    shard = result.shard
    expected = {}
    if shard:
        expected[name] = shard.bytes, shard.crc32c
        expected[name + INDEX_SUFFIX] = result.index_bytes, result.index_crc32c
    if any(_size_and_crc(join(directory, file)) != found for file, found in expected.items()):
        return False
    if not result.rejected:
        return True
    return _size_and_crc(join(directory, rejects_file(name)))[1] == result.rejects_crc32c


def _size_and_crc(path: str) -> tuple[int, int]:
    if is_store(path):
        size, known = store_of(path).checksum(path)
        if known is not None:
            return size, known
    size = crc = 0
    with open_file(path) as file:
        while data := file.read(_READ_BYTES):
            size += len(data)
            crc = google_crc32c.extend(crc, data)
    return size, crc
