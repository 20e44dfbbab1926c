"""Files that say something of a picture: its boxes, its captions, its mask."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import Boxes
from beam_jobs.jobs.images.coco import CocoAnnotations
from beam_jobs.jobs.images.voc_yolo import MAX_BYTES, read_class_names, voc_boxes, yolo_boxes
from beam_jobs.sources.classes import Names
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import COLUMN, Source, column_of
from beam_jobs.storage.files import open_file, open_seekable, read_bytes
from beam_jobs.storage.paths import absolute_path, is_local

T = TypeVar("T")

# Pictures among which one at least must have a file of boxes, or the folder is the wrong one.
_TRIED = 100


def _stat(path: str) -> tuple[int, int] | None:
    """Size and time of modification of a local file, or None; nothing is asked of a remote one."""
    if not is_local(path):
        return 0, 0
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=4)
def _read_coco(path: str, _: tuple[int, int] | None) -> CocoAnnotations:
    return CocoAnnotations.read(path)


def _coco(path: str) -> CocoAnnotations:
    return _read_coco(path, _stat(path))


def _stem(key: str) -> str:
    """The name of a file without its folder and its last extension."""
    return key.rsplit("/", 1)[-1].rsplit(".", 1)[0]


# The folder of pictures, and the one that annotations have in its place: of Pascal VOC, and as
# Ultralytics has it.
_LAYOUTS = {"voc": ("JPEGImages", "Annotations"), "yolo": ("images", "labels")}


class _Kind(NamedTuple):
    """Files beside pictures, one of each.

    Attributes:
        name: What they say.
        folder: Where they lie; empty for where the pictures are, or as `layout` says.
        extension: Of their names.
        layout: A folder's name, and the name of the one in whose place they lie.
    """

    name: str
    folder: str
    extension: str
    layout: tuple[str, str] | None = None

    def files(self, source: Source, path: str) -> list[str]:
        """Where that of a picture may lie, the likelier place first.

        In a folder of their own they lie as the pictures do below theirs, or all side by side.

        Args:
            path: Of the picture.
        """
        if not self.folder:
            return [self.beside(path)]
        name = f"{_stem(path)}.{self.extension}"
        below = source.file.rpartition("/")[0]
        return [f"{self.folder}/{below}/{name}"] * bool(below) + [f"{self.folder}/{name}"]

    def beside(self, path: str) -> str:
        """That of a picture, where they have no folder of their own."""
        folder, _, name = path.rpartition("/")
        parts = folder.split("/")
        if self.layout and self.layout[0] in parts:
            last = len(parts) - 1 - parts[::-1].index(self.layout[0])
            parts[last] = self.layout[1]
        return f"{'/'.join(parts)}/{_stem(name)}.{self.extension}"


@dataclass(frozen=True)
class Beside:
    """Where boxes, captions and masks of pictures come from.

    Attributes:
        boxes: "coco", "voc", "yolo", or empty for none.
        boxes_path: The COCO file, or the folder of the others; empty for the usual place.
        class_names: Of the classes of boxes by id, where they are known before any picture is.
        captions: "coco", "txt", "column", or empty for none.
        captions_path: The COCO file, the folder, or the column.
        masks: The folder of masks; empty for none.
    """

    boxes: str = ""
    boxes_path: str = ""
    class_names: tuple[str, ...] = ()
    captions: str = ""
    captions_path: str = ""
    masks: str = ""

    @classmethod
    def parse(cls, boxes: str, class_names: str, captions: str, masks: str) -> Beside:
        """What the flags `--boxes`, `--class_names`, `--captions` and `--masks` ask for.

        Raises:
            UsageError: One of them cannot be meant so, or its file cannot be read.
        """
        mode, _, path = boxes.partition(":")
        if mode not in ("", "coco", "voc", "yolo") or (mode == "coco" and not path):
            raise UsageError(f"--boxes {boxes}: expected coco:FILE, voc, voc:DIR, yolo or yolo:DIR")
        if class_names and mode != "yolo":
            raise UsageError(
                "--class_names says what the numbers in YOLO files mean: add --boxes yolo"
            )
        names: tuple[str, ...] = ()
        path = absolute_path(path) if path else ""
        if class_names:
            try:
                names = read_class_names(read_bytes(absolute_path(class_names)), class_names)
            except OSError as error:
                raise UsageError(f"--class_names {class_names}: cannot be read: {error}") from None
        if mode == "coco":
            names = _coco(path).category_names
            if not names:
                raise UsageError(
                    f"--boxes {boxes}: the file has no categories: are these captions?"
                )
        said, _, where = captions.partition(":")
        if said not in ("", "coco", "txt", "column") or (said in ("coco", "column") and not where):
            raise UsageError(
                f"--captions {captions}: expected coco:FILE, txt, txt:DIR or {COLUMN}NAME"
            )
        if where and said != "column":
            where = absolute_path(where)
        if said == "coco":
            _coco(where)
        return cls(mode, path, names, said, where, absolute_path(masks) if masks else "")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold captions."""
        return (self.captions_path,) if self.captions == "column" else ()

    @property
    def known_classes(self) -> Names:
        """The names of classes that are known before any picture is."""
        if self.boxes == "yolo" or self.class_names:
            return {"box_labels": self.class_names}
        return {}

    def says(self, path: str, root: str = "") -> bool:
        """Whether a file among pictures is none, as it is what says something of them.

        Args:
            root: Of the pictures.
        """
        for kind in self._kinds:
            if not path.endswith(f".{kind.extension}"):
                continue
            if not kind.folder:
                if path == kind.beside(path):
                    return True
            elif path.startswith(f"{kind.folder}/") and not root.startswith(f"{kind.folder}/"):
                return True
        return False

    def attach(self, source: Source, path: str) -> Source:
        """The source with what is said of it, or with the files that say it.

        Args:
            path: Of the picture.

        Raises:
            UsageError: It lies in an archive, and files beside it are asked for.
        """
        if source.error:
            return source
        if (source.archive or source.packed) and self._kinds:
            raise UsageError(
                f"{source.key}: files beside it are only found in folders: unpack the archive, or "
                f"use --boxes coco:FILE and --captions {COLUMN}txt"
            )
        if source.packed:
            return source
        row = dict(source.row)
        try:
            if self.boxes == "coco":
                coco = _coco(self.boxes_path)
                row["boxes"] = _packed(_found(coco.boxes(source.file), coco, source))
            if self.captions == "coco":
                coco = _coco(self.captions_path)
                row["captions"] = _found(coco.captions(source.file), coco, source)
        except RejectError as error:
            return source._replace(error=str(error))
        joined = []
        for kind in self._kinds:
            for file in kind.files(source, path):
                if status := _stat(file):
                    joined.append((kind.name, file, *status))
                    if is_local(file):  # Of a remote one nobody knows whether it is there.
                        break
        return source._replace(row=row, joined=tuple(joined))

    @functools.cached_property
    def _kinds(self) -> list[_Kind]:
        """The files beside pictures that are asked for."""
        kinds = []
        if self.boxes in ("voc", "yolo"):
            extension = "xml" if self.boxes == "voc" else "txt"
            kinds.append(_Kind("boxes", self.boxes_path, extension, _LAYOUTS[self.boxes]))
        if self.captions == "txt":
            kinds.append(_Kind("captions", self.captions_path, "txt"))
        if self.masks:
            kinds.append(_Kind("mask", self.masks, "png"))
        return kinds

    def check(self, inputs: Inputs) -> None:
        """Makes sure that the files of boxes, captions and masks are the right ones.

        Raises:
            UsageError: All files are such files, none of the first pictures has one, two pictures
                share one, or one would be two things.
        """
        first = [source for p in inputs.patterns for source, _ in inputs.first(p, _TRIED)]
        if not first and self._kinds:
            raise UsageError(
                "--input: all files are what --boxes, --captions and --masks name; keep these in a "
                "folder of their own"
            )
        tried = [
            self.attach(source, inputs.path_of(source)) for source in first if not source.error
        ]
        if not tried:
            return
        self._check_shared(tried)
        for kind in self._kinds:
            if not any(part[0] == kind.name for source in tried for part in source.joined):
                flag = {"boxes": f"--boxes {self.boxes}", "captions": f"--captions {self.captions}"}
                files = " or ".join(kind.files(tried[0], inputs.path_of(tried[0])))
                raise UsageError(
                    f"{flag.get(kind.name, '--masks')}: none of the first {len(tried)} pictures has "
                    f"such a file; that of {tried[0].key} would be {files}"
                )

    def _check_shared(self, tried: list[Source]) -> None:
        owners: dict[str, tuple[str, str]] = {}
        for source in tried:
            for name, file, _, _ in source.joined:
                said, picture = owners.setdefault(file, (name, source.file))
                if said != name:
                    raise UsageError(f"{file}: it cannot be {said} and {name} at once")
                if picture != source.file and is_local(file):
                    raise UsageError(
                        f"{file}: {picture} and {source.file} would share it; lay such files out in "
                        "folders as the pictures are"
                    )

    def boxes_of(self, source: Source) -> Boxes:
        """The boxes of a picture.

        Raises:
            RejectError: Nothing can be learned of them.
        """
        if self.boxes == "coco":
            return _unpacked(column_of(source.row, "boxes"))
        files = _joined(source, "boxes")
        if self.boxes == "yolo":
            # A picture of nothing has an empty file, or none.
            return yolo_boxes(_read(files) if files else b"", self.class_names)
        if not files:
            raise RejectError("it has no annotation")
        return voc_boxes(_read(files))

    def captions_of(self, source: Source) -> list[str]:
        """The captions of a picture.

        Raises:
            RejectError: There are none to be had.
        """
        if self.captions == "coco":
            return list(column_of(source.row, "captions"))
        if self.captions == "column":
            value = column_of(source.row, self.captions_path)
            found = value if isinstance(value, list) else [value]
            if not all(isinstance(caption, str) for caption in found):
                raise RejectError(f"captions {value!r:.80}: expected text, or a list of texts")
            return found
        if not (files := _joined(source, "captions")):
            raise RejectError("it has no file of captions")
        try:
            data = _read(files)
            if len(data) > MAX_BYTES:
                raise RejectError(f"its captions are longer than {MAX_BYTES >> 20} MiB")
            lines = data.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise RejectError(f"its captions are not UTF-8: {error}") from None
        return [line.strip() for line in lines if line.strip()]

    def open_mask(self, source: Source) -> BinaryIO:
        """The mask of a picture, open for reading.

        Raises:
            RejectError: There is none, or it cannot be read.
        """
        if not (files := _joined(source, "mask")):
            raise RejectError("it has no mask")
        return _first_of(files, open_seekable)


def _joined(source: Source, name: str) -> list[str]:
    return [path for joined, path, _, _ in source.joined if joined == name]


def _first_of(paths: list[str], taken: Callable[[str], T]) -> T:
    """What is taken of the first of some files that is there."""
    for path in paths[:-1]:
        with contextlib.suppress(OSError):
            return taken(path)
    try:
        return taken(paths[-1])
    except OSError as error:
        raise RejectError(f"{paths[-1]}: cannot be read: {error}") from None


def _read(paths: list[str]) -> bytes:
    def read(path: str) -> bytes:
        with open_file(path) as file:
            return file.read(MAX_BYTES + 1)

    return _first_of(paths, read)


def _found(said: T | None, coco: CocoAnnotations, source: Source) -> T:
    if said is None:
        other = coco.called_alike(source.file)
        has = f"; it has {other!r}, name the folder above with --input" if other else ""
        raise RejectError(f"the COCO file has no picture of this name{has}")
    return said


def _packed(boxes: Boxes) -> list[Any]:
    return [boxes.corners.tolist(), boxes.names, boxes.size]


def _unpacked(packed: list[Any]) -> Boxes:
    corners, names, size = packed
    return Boxes(np.array(corners, np.float64).reshape(-1, 4), tuple(names), tuple(size))
