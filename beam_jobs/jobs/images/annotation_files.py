"""Files that annotate one image each: where they are, and how they are read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.voc_yolo import MAX_BYTES
from beam_jobs.sources.source import Source
from beam_jobs.storage.files import open_file
from beam_jobs.storage.paths import is_local

T = TypeVar("T")

Content = Literal["boxes", "captions", "mask"]

# The folder of images, and the folder that replaces it in the paths of annotations: of Pascal VOC,
# and of Ultralytics.
LAYOUTS = {"voc": ("JPEGImages", "Annotations"), "yolo": ("images", "labels")}


def file_status(path: str) -> tuple[int, int] | None:
    """Size and modification time of a local file, None if it is missing; (0, 0) if it is remote."""
    if not is_local(path):
        return 0, 0
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _stem(path: str) -> str:
    """The name of a file without its folder and its last extension."""
    return path.rsplit("/", 1)[-1].rsplit(".", 1)[0]


class AnnotationFiles(NamedTuple):
    """Files with the names of images and another extension, one for each image.

    Attributes:
        content: What the files hold.
        folder: The folder they are in; empty if they are next to the images, or where `layout` puts
            them.
        extension: Their extension, without the dot.
        layout: The name of a folder of images, and of the folder that replaces it in the path of
            the file; None if there is no such convention.
    """

    content: Content
    folder: str
    extension: str
    layout: tuple[str, str] | None = None

    def candidates(self, source: Source, path: str) -> list[str]:
        """The paths at which the file of an image may be, the likeliest first.

        A folder of their own repeats the folders of the images, or holds all files side by side.

        Args:
            source: The image.
            path: The image's path.
        """
        if not self.folder:
            return [self._default_path(path)]
        name = f"{_stem(path)}.{self.extension}"
        subfolder = source.file.rpartition("/")[0]
        return [f"{self.folder}/{subfolder}/{name}"] * bool(subfolder) + [f"{self.folder}/{name}"]

    def _default_path(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        parts = folder.split("/")
        if self.layout and self.layout[0] in parts:
            last = len(parts) - 1 - parts[::-1].index(self.layout[0])
            parts[last] = self.layout[1]
        return f"{'/'.join(parts)}/{_stem(name)}.{self.extension}"

    def include(self, path: str, root: str) -> bool:
        """Whether a path among the images under `root` is that of one of these files."""
        if not path.endswith(f".{self.extension}"):
            return False
        if not self.folder:
            return path == self._default_path(path)
        return path.startswith(f"{self.folder}/") and not root.startswith(f"{self.folder}/")

    def find(self, source: Source, path: str) -> list[tuple[str, str, int, int]]:
        """The file of an image as an entry of `Source.joined`; every candidate if it is remote."""
        found: list[tuple[str, str, int, int]] = []
        for candidate in self.candidates(source, path):
            if status := file_status(candidate):
                found.append((self.content, candidate, *status))
                if is_local(candidate):  # Whether a remote one exists is not known.
                    break
        return found


def open_joined(source: Source, content: Content, opener: Callable[[str], T]) -> T | None:
    """Opens the file with some content that is joined to a source; None if no file is joined.

    Raises:
        RejectError: The file cannot be opened.
    """
    paths = [path for joined, path, _, _ in source.joined if joined == content]
    if not paths:
        return None
    for path in paths[:-1]:
        with contextlib.suppress(OSError):
            return opener(path)
    try:
        return opener(paths[-1])
    except OSError as error:
        raise RejectError(f"{paths[-1]}: cannot be read: {error}") from None


def read_joined(source: Source, content: Content) -> bytes | None:
    """Reads the file with some content that is joined to a source, up to one byte over `MAX_BYTES`.

    Returns None if no file is joined.

    Raises:
        RejectError: The file cannot be read.
    """

    def read(path: str) -> bytes:
        with open_file(path) as file:
            return file.read(MAX_BYTES + 1)

    return open_joined(source, content, read)
