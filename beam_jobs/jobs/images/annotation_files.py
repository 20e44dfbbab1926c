"""Finds and reads files that annotate one image each."""

from __future__ import annotations

import functools
import glob
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from beam_jobs.errors import DataError, RejectError, UsageError
from beam_jobs.jobs.images.boxes import MissingError
from beam_jobs.jobs.images.voc_yolo import MAX_BYTES
from beam_jobs.sources.archives.archive import archive_kind, members
from beam_jobs.sources.archives.member import (
    Member,
    MemberLocation,
    member_bytes,
    open_member,
    read_member,
)
from beam_jobs.sources.source import Source
from beam_jobs.storage.files import open_file, open_seekable
from beam_jobs.storage.listing import match
from beam_jobs.storage.paths import comparable, spellings
from readers.files.local import is_local
from readers.files.stores.ahead import Read
from readers.files.stores.reading import EAGER_BYTES

Content = Literal["boxes", "captions", "mask"]

# The folder of images, and the folder that replaces it in the paths of annotations: of Pascal VOC,
# and of Ultralytics.
LAYOUTS = {"voc": ("JPEGImages", "Annotations"), "yolo": ("images", "labels")}

# A path inside an archive: that of the archive, and that of the member.
_INSIDE = re.compile(r"(.*?\.(?:zip|tar))/(.+)", re.IGNORECASE | re.DOTALL)

# An entry of `Source.joined`: the content of a file, its path, its size, when it was modified, and for a
# member of an archive its location.
Entry = tuple[Any, ...]

# The size of a file in bytes, and when it was modified, in nanoseconds since the epoch.
Status = tuple[int, int]


def _split(path: str) -> tuple[str, str]:
    """The archive and the member that a path names; the path of a file, and no member."""
    found = _INSIDE.fullmatch(path)
    if not found or (is_local(path) and Path(found[1]).is_dir()):
        return path, ""
    return found[1], found[2]


def image_path(source: Source, path: str) -> str:
    """The path of an image, also inside an archive, given its path or that of its archive."""
    return f"{path}/{_member(source)}" if source.archive else path


def _member(source: Source) -> str:
    """The path of an image relative to its archive, or to the root of all images."""
    return source.file.removeprefix(f"{source.archive}/") if source.archive else source.file


@functools.lru_cache(maxsize=4)
def _members(archive: str, _: Status | None) -> dict[str, Member]:
    """The members of an archive by `comparable` name, read again only if its status has changed.

    Raises:
        DataError: It is damaged: lost members would look like images without annotations.
        UsageError: It cannot be read.
    """
    try:
        with open_seekable(archive) as file:
            listed = members(file, archive_kind(archive) or "")
            return {comparable(member.name): member for member in listed}
    except RejectError as error:
        raise DataError(
            f"{archive}: {error}; annotations after the damage would be missing: make the archive again"
        ) from None
    except OSError as error:
        raise UsageError(f"{archive}: cannot be read: {error}") from None


def open_annotations(path: str) -> BinaryIO:
    """Opens a file, or a member of an archive (`x.zip/folder/name`), to be read from front to back.

    Raises:
        OSError: It is missing or cannot be read.
        RejectError: The archive has no such member.
    """
    archive, name = _split(path)
    if not name:
        return open_file(path)
    member = _members(archive, file_status(archive)).get(comparable(name))
    if not member or not member.location:
        raise RejectError(f"the archive has no member {name!r}")
    return open_member(open_file(archive), member.location, name)


def file_status(path: str) -> Status | None:
    """The status of a local file, or of the local archive that it is in; None if it is missing or remote."""
    path, _ = _split(path)
    if not is_local(path):
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class Statuses:
    """The statuses of files: local files are looked up one by one, folders in stores are listed once."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[str, Status]] = {}

    def of(self, path: str) -> Status | None:
        """The status of a file; None if it is missing."""
        if is_local(path):
            return file_status(path)
        folder, _, name = path.rpartition("/")
        pattern = f"{glob.escape(folder)}/*.{glob.escape(name.rpartition('.')[2])}"
        if pattern not in self._folders:
            self._folders[pattern] = {f.path: (f.size, f.modified) for f in match(pattern)}
        return self._folders[pattern].get(path)


def stem_of(path: str) -> str:
    """The name of a file without its folder and its last extension."""
    return path.rsplit("/", 1)[-1].rsplit(".", 1)[0]


class AnnotationFiles(NamedTuple):
    """Files with the names of images and another extension, one for each image.

    Attributes:
        content: What the files hold.
        flag: The flag that names them.
        folder: The folder they are in; empty if they are next to the images, or where `layout` puts
            them.
        extension: Their extension, without the dot.
        layout: The name of a folder of images, and of the folder that replaces it in the path of
            the file; None without such a convention.
    """

    content: Content
    flag: str
    folder: str
    extension: str
    layout: tuple[str, str] | None = None

    def candidates(self, source: Source, path: str) -> list[str]:
        """The possible paths of an image's file, given the image's path, the likeliest first.

        In a separate folder: `folder/sub/name`, then `folder/name`. In an archive with that folder and the
        images, the images have a top folder too, so all ends of `sub` are tried.
        """
        if not self.folder:
            return [self._default_path(path)]
        name = f"{stem_of(path)}.{self.extension}"
        subfolders = _member(source).split("/")[:-1]
        starts = range(len(subfolders) + 1) if source.archive else (0, len(subfolders))
        paths = ["/".join((self.folder, *subfolders[start:], name)) for start in starts]
        return list(dict.fromkeys(paths))

    def _default_path(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        parts = folder.split("/")
        if self.layout and self.layout[0] in parts:
            last = len(parts) - 1 - parts[::-1].index(self.layout[0])
            parts[last] = self.layout[1]
        return f"{'/'.join(parts)}/{stem_of(name)}.{self.extension}"

    def include(self, path: str, root: str) -> bool:
        """Whether a path among the images under `root` is that of one of these files."""
        if not path.endswith(f".{self.extension}"):
            return False
        if not self.folder:
            return path == self._default_path(path)
        return path.startswith(f"{self.folder}/") and not root.startswith(f"{self.folder}/")

    def find(self, source: Source, path: str, statuses: Statuses) -> list[Entry]:
        """The file of an image as an entry of `Source.joined`; no entry if it is missing.

        Raises:
            RejectError: It is a member of an archive that cannot be read.
            JobError: Its archive is damaged, or cannot be read.
        """
        candidates = map(spellings, self.candidates(source, path))
        for candidate in itertools.chain.from_iterable(candidates):
            archive, name = _split(candidate)
            if not (status := statuses.of(archive)):
                continue
            if not name:
                return [(self.content, candidate, *status)]
            if member := _members(archive, status).get(comparable(name)):
                if member.error:
                    raise RejectError(f"{candidate}: {member.error}")
                return [(self.content, candidate, member.size, status[1], member.location)]
        return []


def joined_reads(source: Source, content: Content | None = None) -> Iterator[Read]:
    """Yields the reads of the files that are joined to a source; of those with some content, if given."""
    for found, path, size, _, *location in source.joined:
        if content not in (None, found):
            continue
        if not location:
            yield Read(path, 0, EAGER_BYTES, size)
        else:
            (archive, member), at = _split(path), MemberLocation(*location[0])
            needed = member_bytes(at, member)
            if 0 < needed <= EAGER_BYTES:
                yield Read(archive, at.offset, needed, needed)


def read_joined(source: Source, content: Content, limit: int = MAX_BYTES) -> bytes:
    """Reads the file with some content that is joined to a source.

    Raises:
        MissingError: No such file is joined.
        RejectError: The file has more than `limit` bytes, or cannot be read.
    """
    entry = next((entry for entry in source.joined if entry[0] == content), None)
    if entry is None:
        raise MissingError(f"no {content} found")
    _, path, _, _, *location = entry
    archive, member = _split(path) if location else (path, "")
    try:
        with open_file(archive) as file:
            if location:
                return read_member(file, MemberLocation(*location[0]), member, limit)
            data = file.read(limit + 1)
        if len(data) > limit:
            raise RejectError(f"it has more than {limit} bytes")
    except (OSError, RejectError) as error:
        raise RejectError(f"{path}: cannot be read: {error}") from None
    return data


def check_shared(images: list[Source]) -> None:
    """Checks that no two images have the same file, and that no file is of two kinds.

    Raises:
        UsageError: There is such a file.
    """
    owners: dict[str, tuple[str, str]] = {}
    for source in images:
        for content, file, *_ in source.joined:
            first_content, first_image = owners.setdefault(file, (content, source.file))
            if first_content != content:
                raise UsageError(f"{file}: it cannot be both {first_content} and {content}")
            if first_image != source.file:
                raise UsageError(
                    f"{file}: {first_image} and {source.file} would share it; arrange such files "
                    "in folders as the images are"
                )
