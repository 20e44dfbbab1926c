"""The annotations of images: finds and reads their boxes, captions and masks, as flags name them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from beam_jobs.errors import RejectError, UsageError, reason_of
from beam_jobs.jobs.images.annotation_files import (
    LAYOUTS,
    AnnotationFiles,
    Statuses,
    check_shared,
    image_path,
    read_joined,
    stem_of,
)
from beam_jobs.jobs.images.boxes import (
    LARGEST_FRACTION,
    AnnotationsOf,
    Boxes,
    BoxOrder,
    MissingError,
)
from beam_jobs.jobs.images.coco_file import BoxUnit, CocoFile, coco_file, reversed_name
from beam_jobs.jobs.images.coco_objects import CocoObject, Segmentation
from beam_jobs.jobs.images.voc_yolo import (
    YoloLines,
    read_class_names,
    text_lines,
    voc_boxes,
    yolo_boxes,
    yolo_lines_of,
)
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Names, label_names
from beam_jobs.sources.source import Source
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES
from beam_jobs.storage.paths import absolute_path

BoxFormat = Literal["", "coco", "csv", "voc", "yolo"]

CaptionFormat = Literal["", "coco", "txt"]

# By flag: the formats, and how a value is written.
_FORMATS = {
    "--boxes": (get_args(BoxFormat), "coco:FILE, csv:FILE, voc, voc:DIR, yolo or yolo:DIR"),
    "--captions": (get_args(CaptionFormat), "coco:FILE, txt or txt:DIR"),
}

# Whether images without an annotation are records; "auto" keeps those without a YOLO file.
Unannotated = Literal["auto", "keep", "reject"]

_NO_FILE = "it has no YOLO file, and was taken for an image without objects"

T = TypeVar("T")
U = TypeVar("U")

_MAX_MASK_CLASSES = 255

# If none of the first images has a file of annotations, the folder is the wrong one.
_IMAGES_CHECKED = 100


@dataclass(frozen=True)
class ImageAnnotations:
    """The sources of boxes, captions and masks of images.

    Attributes:
        boxes: The format of the boxes; empty for none.
        boxes_path: The COCO file, the table, or the folder of VOC or YOLO files; empty for the usual place.
        class_names: Names of the boxes' classes by id that are known before any image is read.
        captions: The format of the captions; empty for none.
        captions_path: The COCO file, or the folder of text files.
        masks: The folder of masks; empty for none.
        about: The pixels to which boxes and masks refer.
        segmentation: The masks that are made of COCO's segmentations.
        keypoints: The names of COCO's keypoints; empty for no keypoints.
        unannotated: The treatment of images without an annotation.
        box_order: The order of the corners of boxes, and of the axes of keypoints.
        in_pixels: Whether corners are in pixels of images whose size is not stated.
        yolo_lines: The meaning of lines with more than five values in YOLO files.
        box_unit: The unit of corners in a table.
    """

    boxes: BoxFormat = ""
    boxes_path: str = ""
    class_names: tuple[str, ...] = ()
    captions: CaptionFormat = ""
    captions_path: str = ""
    masks: str = ""
    about: AnnotationsOf = "auto"
    segmentation: Segmentation = "none"
    keypoints: tuple[str, ...] = ()
    unannotated: Unannotated = "auto"
    in_pixels: bool = False
    box_order: BoxOrder = "yxyx"
    yolo_lines: YoloLines = "auto"
    box_unit: BoxUnit = "auto"

    @property
    def has_mask(self) -> bool:
        """Whether records have a mask of classes."""
        return bool(self.masks) or self.segmentation == "semantic"

    @property
    def details(self) -> bool:
        """Whether masks or keypoints of objects are read, not only boxes."""
        return self.segmentation != "none" or bool(self.keypoints)

    @property
    def class_names_by_feature(self) -> Names:
        """Names of classes and keypoints, by feature, that are known before any image is read."""
        names: dict[str, tuple[str, ...]] = {}
        if self.boxes in ("csv", "yolo") or self.class_names:
            names["box_labels"] = self.class_names
        if self.segmentation == "semantic":
            names["mask"] = ("background", *self.class_names)
        if self.keypoints:
            names["keypoints"] = self.keypoints
        return names

    @functools.cached_property
    def _files(self) -> list[AnnotationFiles]:
        """The files for each image, by the flags that name them."""
        files = []
        if self.boxes in ("voc", "yolo"):
            extension, layout = ("xml" if self.boxes == "voc" else "txt"), LAYOUTS[self.boxes]
            flag = f"--boxes {self.boxes}"
            files.append(AnnotationFiles("boxes", flag, self.boxes_path, extension, layout))
        if self.captions == "txt":
            files.append(AnnotationFiles("captions", "--captions txt", self.captions_path, "txt"))
        if self.masks:
            files.append(AnnotationFiles("mask", "--masks", self.masks, "png"))
        return files

    def is_annotation(self, path: str, root: str = "") -> bool:
        """Whether the file of a path among the images under `root` is not an image, but annotates one."""
        whole = path in (self.boxes_path, self.captions_path)
        return whole or any(files.include(path, root) for files in self._files)

    def with_annotations(self, source: Source, path: str, statuses: Statuses) -> Source:
        """The source of an image with its annotations, or with the files that hold them.

        Args:
            path: The image's path, or that of its archive.

        Raises:
            UsageError: The image is in a `.tar.gz` or in Parquet, and the annotations are files.
            DataError: An archive of annotations is damaged.
        """
        if source.error:
            return source
        unlisted = source.packed or (source.archive and not source.location)
        if unlisted and self._files:
            flags = " and ".join(files.flag for files in self._files)
            raise UsageError(
                f"{source.key}: {flags} cannot be read with archives that are read "
                "from front to back: unpack it, or make it a .zip or .tar; --boxes coco:FILE works as it is"
            )
        if source.packed:
            return source
        row = dict(source.row)
        try:
            whole = self._coco_files
            if "boxes" in whole and (boxes := self.found(whole["boxes"].boxes, source.file)):
                row["boxes"] = [boxes.corners.tolist(), *boxes[1:4]]
                row |= {"objects": boxes.objects} if self.details else {}
            if "captions" in whole:
                texts = self.found(whole["captions"].captions, source.file)
                row |= {} if texts is None else {"captions": texts}
            path = image_path(source, path)
            joined = [
                entry for files in self._files for entry in files.find(source, path, statuses)
            ]
        except RejectError as error:
            return source._replace(error=str(error))
        return source._replace(row=row, joined=tuple(joined))

    @property
    def _coco_files(self) -> dict[str, CocoFile]:
        """The COCO files, or the table, that annotate all images: of `boxes`, and of `captions`."""
        files = {}
        if self.boxes in ("coco", "csv"):
            flag, path = f"--boxes {self.boxes}", self.boxes_path
            files["boxes"] = coco_file(flag, path, self.details, self.box_unit)
        if self.captions == "coco":
            files["captions"] = coco_file("--captions coco", self.captions_path)
        return files

    def found(self, read: Callable[[U], T], source: U) -> T | None:
        """An annotation that a function reads; None if it is missing and the image is kept."""
        try:
            return read(source)
        except MissingError:
            if self.unannotated != "keep":
                raise
            return None

    def check_files(self, inputs: Inputs) -> ImageAnnotations:
        """Checks with the first images that the folders of annotations are the right ones.

        Returns these annotations, and what the lines of YOLO files are.

        Raises:
            UsageError: All inputs are annotations, none of the first images has a file of one kind,
                two images share a file or an entry of a COCO file, or a file would be of two kinds.
            DataError: An archive of annotations is damaged.
        """
        self._check_entries(inputs)
        if not self._files:
            return self
        first = [source for source, _ in inputs.first(_IMAGES_CHECKED)]
        if not first:
            raise UsageError(
                "--input: all files belong to --boxes, --captions and --masks; keep these in a "
                "separate folder"
            )
        statuses = Statuses()
        images = [
            self.with_annotations(source, inputs.path_of(source), statuses)
            for source in first
            if not source.error
        ]
        if not images:
            return self
        check_shared(images)
        for files in self._files:
            if not any(joined[0] == files.content for source in images for joined in source.joined):
                path = image_path(images[0], inputs.path_of(images[0]))
                expected = " or ".join(files.candidates(images[0], path))
                raise UsageError(
                    f"{files.flag}: none of the first {len(images)} images has such a file; that of "
                    f"{images[0].key} would be {expected}"
                )

        if self.boxes != "yolo" or self.yolo_lines != "auto":
            return self
        data = []
        for source in images:
            with contextlib.suppress(RejectError):
                data.append(read_joined(source, "boxes"))
        return replace(self, yolo_lines=yolo_lines_of(data))

    def _check_entries(self, inputs: Inputs) -> None:
        """Checks all images, because an entry `1.jpg` fits a file of this name in any folder."""
        once, twice = set[int](), set[int]()
        for name in () if inputs.in_one_folder or not self._coco_files else _names_in(inputs):
            stem = hash(stem_of(name))
            (twice if stem in once else once).add(stem)
        for coco in self._coco_files.values() if twice else ():
            owners: dict[int, str] = {}
            for name in _names_in(inputs):
                if hash(stem_of(name)) not in twice:
                    continue
                with contextlib.suppress(MissingError):
                    row = coco.row(name)
                    if (other := owners.setdefault(row, name)) != name:
                        entry = reversed_name(coco.names[row])
                        raise coco.error(
                            f"its entry {entry!r} would annotate both {other} and {name}: add the "
                            f"folders to its names, such as {other!r}"
                        )

    def boxes_of(self, source: Source) -> Boxes:
        """The boxes of an image.

        Raises:
            RejectError: The file of its boxes is missing, cannot be read, or is not valid.
        """
        if self.boxes in ("coco", "csv"):
            if "boxes" not in source.row:
                raise MissingError("no boxes found")
            corners, names, size, remarks = source.row["boxes"]
            objects = [CocoObject(*values) for values in source.row.get("objects", ())]
            corners = np.array(corners, np.float64).reshape(-1, 4)
            size = tuple(size) if size else None
            return Boxes(corners, tuple(names), size, tuple(remarks), objects)
        if self.boxes == "voc":
            return voc_boxes(read_joined(source, "boxes"))
        try:
            data = read_joined(source, "boxes")
        except MissingError:
            # In YOLO, an image without objects has an empty file, or no file.
            if self.unannotated != "auto":
                raise
            return Boxes.of([], remarks=(_NO_FILE,))
        return yolo_boxes(data, self.class_names, self.yolo_lines)

    def captions_of(self, source: Source) -> list[str]:
        """The captions of an image; raises what `boxes_of` does."""
        if self.captions == "coco":
            if "captions" not in source.row:
                raise MissingError("no captions found")
            return list(source.row["captions"])
        lines = text_lines(read_joined(source, "captions"))
        return [line.strip() for line in lines if line.strip()]

    def mask_of(self, source: Source) -> bytes:
        """The file of the mask of an image; raises what `boxes_of` does."""
        return read_joined(source, "mask", DEFAULT_RECORD_BYTES)


def _names_in(inputs: Inputs) -> Iterator[str]:
    """Yields the paths of all images that are known before one is read."""
    for source in inputs.named():
        if not (source.error or source.packed):
            yield source.file


def parse_annotations(text: str, flag: str) -> tuple[Any, str]:
    """The format in `--boxes` or `--captions`, and the absolute path of its file or folder; empty without one.

    Raises:
        UsageError: The text is not valid.
    """
    formats, expected = _FORMATS[flag]
    kind, _, path = text.partition(":")
    if kind not in formats or (kind in ("coco", "csv") and not path):
        raise UsageError(f"{flag} {text}: expected {expected}")
    return kind, absolute_path(path) if path else ""


def with_names(
    annotations: ImageAnnotations, class_names: str, keypoints: bool
) -> ImageAnnotations:
    """The annotations with the names of classes in a file, and of those and keypoints in a COCO file or table of boxes.

    Raises:
        UsageError: A file cannot be read, or lacks the annotations that flags ask for.
    """
    path, segmentation = annotations.boxes_path, annotations.segmentation
    if annotations.captions == "coco":
        coco_file("--captions coco", annotations.captions_path)
    if class_names:
        try:
            names = read_class_names(read_bytes(absolute_path(class_names)), class_names)
        except OSError as error:
            reason = reason_of(error)
            raise UsageError(f"--class_names {class_names}: cannot be read: {reason}") from None
        return replace(annotations, class_names=names)
    if annotations.boxes == "csv":
        table = coco_file("--boxes csv", path, unit=annotations.box_unit)
        names, in_pixels = label_names(table.category_names), table.unsized == "pixels"
        return replace(annotations, class_names=names, in_pixels=in_pixels)
    if annotations.boxes != "coco":
        return annotations
    coco = coco_file("--boxes coco", path, keypoints or segmentation != "none")
    names = coco.category_names
    if not names:
        raise coco.error("the file has no categories: are these captions?")
    if 0 < coco.largest <= LARGEST_FRACTION:
        raise coco.error("all boxes lie in one pixel: are they fractions of the image?")
    if segmentation == "semantic" and len(names) > _MAX_MASK_CLASSES:
        raise UsageError(
            f"--segmentation semantic: found {len(names)} categories, but a mask has room for "
            f"{_MAX_MASK_CLASSES}; use --segmentation instances"
        )
    if keypoints and not coco.keypoint_names:
        raise UsageError(
            f"--keypoints: no category in {path} has keypoints; name a file such as "
            "person_keypoints_train2017.json with --boxes coco:FILE"
        )
    return replace(
        annotations, class_names=names, keypoints=coco.keypoint_names if keypoints else ()
    )
