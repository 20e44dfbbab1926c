"""Files that say something of a picture: its boxes, its captions, its mask."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.annotations import (
    MAX_BYTES,
    read_class_names,
    voc_boxes,
    yolo_boxes,
)
from beam_jobs.boxes import Boxes
from beam_jobs.coco import CocoAnnotations
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.files import absolute_path, is_local, open_file, read_bytes
from beam_jobs.inputs import Inputs
from beam_jobs.labels import Names
from beam_jobs.sources import COLUMN, Source, column_of

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

    def says(self, path: str) -> bool:
        """Whether a file among pictures is none, as it is what says something of them."""
        return any(file == path for _, file in self._files(path))

    def attach(self, source: Source, path: str) -> Source:
        """The source with what is said of it, or with the files that say it.

        Args:
            path: Of the picture.

        Raises:
            UsageError: It lies in an archive, and files beside it are asked for.
        """
        if source.error:
            return source
        if (source.archive or source.packed) and any(self._files(path)):
            raise UsageError(
                f"{source.key}: files beside it are only found in folders: unpack the archive, or "
                f"use --boxes coco:FILE and --captions {COLUMN}txt"
            )
        if source.packed:
            return source
        row = dict(source.row)
        try:
            if self.boxes == "coco":
                row["boxes"] = _packed(_coco(self.boxes_path).boxes(source.file))
            if self.captions == "coco":
                row["captions"] = _found(_coco(self.captions_path).captions(source.file))
        except RejectError as error:
            return source._replace(error=str(error))
        joined = []
        for name, file in self._files(path):
            if status := _stat(file):
                joined.append((name, file, *status))
        return source._replace(row=row, joined=tuple(joined))

    def _files(self, path: str) -> Iterator[tuple[str, str]]:
        """Yields (what it says, path) of the files beside a picture."""
        if self.boxes in ("voc", "yolo"):
            yield "boxes", self.boxes_file(path)
        if self.captions == "txt":
            yield "captions", _sibling(path, self.captions_path, "txt")
        if self.masks:
            yield "mask", _sibling(path, self.masks, "png")

    def boxes_file(self, path: str) -> str:
        """The VOC or YOLO file of a picture.

        Without a folder it is `../Annotations` of one called `JPEGImages`, as in Pascal VOC;
        `labels` in the place of `images`, as Ultralytics has it; or the picture's own.
        """
        extension = "xml" if self.boxes == "voc" else "txt"
        if self.boxes_path:
            return _sibling(path, self.boxes_path, extension)
        folder, _, name = path.rpartition("/")
        parts = folder.split("/")
        ours, theirs = (
            ("JPEGImages", "Annotations") if self.boxes == "voc" else ("images", "labels")
        )
        if ours in parts:
            last = len(parts) - 1 - parts[::-1].index(ours)
            parts[last] = theirs
        return f"{'/'.join(parts)}/{_stem(name)}.{extension}"

    def check(self, inputs: Inputs) -> None:
        """Makes sure that the folder of boxes, captions or masks is the right one.

        Raises:
            UsageError: None of the first pictures has a file there.
        """
        tried = [
            self.attach(source, inputs.path_of(source))
            for pattern in inputs.patterns
            for source, _ in inputs.first(pattern, _TRIED)
            if not source.error
        ]
        if not tried:
            return
        for name, file in self._files(inputs.path_of(tried[0])):
            if not any(part[0] == name for source in tried for part in source.joined):
                flag = {"boxes": f"--boxes {self.boxes}", "captions": f"--captions {self.captions}"}
                raise UsageError(
                    f"{flag.get(name, '--masks')}: none of the first {len(tried)} pictures has "
                    f"such a file; that of {tried[0].key} would be {file}"
                )

    def boxes_of(self, source: Source) -> Boxes:
        """The boxes of a picture.

        Raises:
            RejectError: Nothing can be learned of them.
        """
        if self.boxes == "coco":
            return _unpacked(column_of(source.row, "boxes"))
        file = _joined(source, "boxes")
        if self.boxes == "yolo":
            # A picture of nothing has an empty file, or none.
            return yolo_boxes(_read(file) if file else b"", self.class_names)
        if not file:
            raise RejectError("it has no annotation")
        return voc_boxes(_read(file))

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
        if not (file := _joined(source, "captions")):
            raise RejectError("it has no file of captions")
        try:
            data = _read(file)
            if len(data) > MAX_BYTES:
                raise RejectError(f"its captions are longer than {MAX_BYTES >> 20} MiB")
            lines = data.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise RejectError(f"its captions are not UTF-8: {error}") from None
        return [line.strip() for line in lines if line.strip()]

    def mask_file(self, source: Source) -> str:
        """The mask of a picture.

        Raises:
            RejectError: There is none.
        """
        if not (file := _joined(source, "mask")):
            raise RejectError("it has no mask")
        return file


def _sibling(path: str, folder: str, extension: str) -> str:
    return f"{folder or path.rpartition('/')[0]}/{_stem(path)}.{extension}"


def _joined(source: Source, name: str) -> str:
    return next((path for joined, path, _, _ in source.joined if joined == name), "")


def _read(path: str) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RejectError(f"{path}: cannot be read: {error}") from None


def _found(said: Any) -> Any:
    if said is None:
        raise RejectError("the COCO file has no picture of this name")
    return said


def _packed(boxes: Boxes | None) -> list[Any]:
    found: Boxes = _found(boxes)
    return [found.corners.tolist(), found.names, found.size]


def _unpacked(packed: list[Any]) -> Boxes:
    corners, names, size = packed
    return Boxes(np.array(corners, np.float64).reshape(-1, 4), tuple(names), tuple(size))
