"""The flags of the images job."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from beam_jobs.cli.flags import flag
from beam_jobs.cli.inputs import InputFlags, label_flag
from beam_jobs.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.jobs.images.annotations import ImageAnnotations
    from beam_jobs.jobs.images.image_job import ImageJob
    from beam_jobs.jobs.job import FileJob, Job

# Words of the job, whose modules import Pillow and NumPy; a test compares them.
ImageEncoding = Literal["tensor", "raw", "list", "zlib", "zlib_shuffled", "jpeg", "png", "source"]
MAX_PIXELS = 89_478_485

_MAX_RECORD_BYTES = 1 << 31  # protobuf's limit

_MAX_READ = 2 * MAX_PIXELS  # Pillow rejects larger images, unless a program changes its limit.

_BYTES = {"uint8": 1, "uint16": 2, "float32": 4}


@dataclass(frozen=True)
class ImageFlags(InputFlags):
    """The flags of the images job."""

    title = "records"

    label: str = label_flag("")
    image_size: str = flag(
        "none",
        "height and width in pixels, such as 224x224; none keeps each image's own size",
        metavar="HxW",
        check="jobs.images.pixels:parse_image_size",
        everyday=True,
    )
    resize: Literal["stretch", "fit", "crop"] = flag(
        "stretch",
        "stretch to --image_size, fit inside it with black borders, or crop the center",
        needs="image_size",
    )
    channels: Literal[1, 3, 4] = flag(
        3,
        "1 for grayscale, 3 for RGB, 4 for RGBA; without 4, transparent pixels are blended with white",
    )
    dtype: Literal["uint8", "uint16", "float32"] = flag(
        "uint8",
        "uint8: the upper byte of 16-bit pixels; uint16: 16-bit pixels as they are, and 8-bit pixels times 257; "
        "float32: floating-point pixels as they are, and integers scaled to 0..1",
    )
    encoding: Literal["auto", ImageEncoding] = flag(
        "auto",
        "source: the file's own bytes if TensorFlow can decode them, otherwise JPEG for photographs and PNG for the "
        "rest; jpeg, png: compressed again; tensor: pixels, fastest to read; raw: pixels without dtype and shape; "
        "list: pixels as numbers of the Example; zlib: as raw, but compressed; zlib_shuffled: after sorting the bytes by "
        "their place in a number; auto: source, or tensor with --image_size, --dtype or --frames all",
        everyday=True,
    )
    strip_metadata: bool = flag(
        False,
        "remove EXIF, XMP, comments and other texts from the files that --encoding source stores",
        unset="keep them",
    )
    image_info: bool = flag(
        False,
        "store `height`, `width` and `depth` of the stored image, int64, and `filename`, its file without folders",
    )
    jpeg_exact: bool = flag(
        False,
        "decode JPEGs at full size, then resize them, as Pillow's resize does; without this flag the JPEG decoder "
        "first scales down by 1/2, 1/4 or 1/8, which is faster and changes pixels slightly",
        needs="image_size",
    )
    frames: Literal["first", "all"] = flag(
        "first",
        "which frames of animated GIF, WebP, PNG and AVIF files, and pages of TIFF files, become records: the "
        "first, or all, with keys FILE#1, FILE#2, ... in one split",
        excludes="boxes masks",
    )
    max_pixels: int = flag(
        MAX_PIXELS,
        "maximum pixels of an image (height times width); larger ones are rejected. A process needs about 20 "
        "bytes of memory per pixel, and 75 for dtypes other than uint8",
        least=1,
    )
    boxes: str = flag(
        "",
        "boxes of objects, from a COCO file; a .csv or another table with a row for each box; or Pascal VOC's .xml or "
        "YOLO's .txt files that are named like the images, in DIR or in the format's usual folder",
        metavar="coco:FILE|csv:FILE|voc[:DIR]|yolo[:DIR]",
        check="jobs.images.annotations:parse_annotations --boxes",
        everyday=True,
    )
    box_order: Literal["yxyx", "xyxy"] = flag(
        "yxyx",
        "corners of `boxes`: y0, x0, y1, x1, or with xyxy x0, y0, x1, y1; keypoints are then x, y and visibility",
        needs="boxes",
    )
    yolo_lines: Literal["auto", "polygons", "poses"] = flag(
        "auto",
        "lines of more than five values in --boxes yolo: polygons, stored as the boxes around them, or poses, stored as "
        "their boxes; auto: poses if all lines of the first files have equally many values, and boxes hold the rest",
        needs="boxes",
    )
    box_unit: Literal["auto", "pixels", "fractions"] = flag(
        "auto",
        "the unit of corners in --boxes csv:FILE; auto: fractions if none is above 1.01, else pixels",
        needs="boxes",
    )
    class_names: str = flag(
        "",
        "class names for --boxes yolo: a text file with one name per line, or a data.yaml",
        unset="class numbers only",
        metavar="FILE",
        needs="boxes",
    )
    captions: str = flag(
        "",
        "captions, from a COCO file, or from .txt files that are named like the images with one caption per line; for "
        "a column: --extra_features captions:string[]",
        metavar="coco:FILE|txt[:DIR]",
        check="jobs.images.annotations:parse_annotations --captions",
    )
    masks: str = flag(
        "",
        "a folder with a PNG for each image, with the image's name, whose values are class ids; its subfolders are "
        "those of the images, or it has none",
        metavar="DIR",
    )
    segmentation: Literal["none", "instances", "semantic"] = flag(
        "none",
        "masks of the objects in --boxes coco:FILE, from their polygons or RLE: instances, one mask per box, a "
        "byte per pixel; semantic, one PNG whose values are class ids plus 1",
    )
    keypoints: bool = flag(
        False,
        "the keypoints of the objects in --boxes coco:FILE: y, x and visibility of each",
    )
    unannotated: Literal["auto", "keep", "reject"] = flag(
        "auto",
        "images without boxes, captions or a mask: reject them, or keep and count them, as records with no boxes, "
        "no captions and a mask of zeros; auto keeps images without a YOLO file, and rejects all others",
        needs="boxes captions masks",
    )
    annotations_of: Literal["auto", "stored", "upright"] = flag(
        "auto",
        "what --boxes and --masks refer to if EXIF rotates an image: stored, its pixels in the file; upright, the "
        "image as viewers show it; auto compares sizes, and takes stored if both fit (upright for YOLO boxes)",
        needs="boxes masks",
    )

    @property
    def image_encoding(self) -> ImageEncoding:
        """The encoding of `image`."""
        chosen = self.feature_encodings.get("image", self.encoding)
        if chosen == "auto":
            keeps_pixels = self.image_size == "none" and self.dtype == "uint8"
            is_file = keeps_pixels and self.frames == "first" and self.max_pixels <= _MAX_READ
            chosen = "source" if is_file else "tensor"
        return cast(ImageEncoding, chosen)

    def validate(self) -> None:
        from beam_jobs.jobs.images.pixels import parse_image_size

        super().validate()
        size = parse_image_size(self.image_size)
        if self.image_encoding == "source" and size:
            raise UsageError("--encoding source stores the files unchanged: drop --image_size")
        if self.image_encoding == "source" and self.frames == "all":
            raise UsageError(
                "--frames all: --encoding source stores all frames in one record; use png or tensor"
            )
        if self.strip_metadata and self.image_encoding != "source":
            raise UsageError(
                f"--strip_metadata: --encoding {self.image_encoding} stores no metadata: drop it"
            )
        self._check_pixels()
        if size and math.prod(size) * self.channels * _BYTES[self.dtype] >= _MAX_RECORD_BYTES:
            raise UsageError(
                f"--image_size {self.image_size}: too large to store: a record must be smaller than 2 GiB"
            )

    def _check_pixels(self) -> None:
        from readers.format.schema import IMAGE_ENCODINGS

        if self.image_encoding == "jpeg" and self.channels == 4:
            raise UsageError("--channels 4: JPEG has no alpha; use --encoding png or tensor")
        encoded = self.image_size == "none" and self.image_encoding in IMAGE_ENCODINGS
        if encoded and self.max_pixels > _MAX_READ:
            raise UsageError(
                f"--max_pixels {self.max_pixels}: readers decode images of at most {_MAX_READ} pixels; "
                "use --encoding tensor, or add --image_size"
            )
        wide = ("tensor", "raw", "list", "zlib", "zlib_shuffled")
        kept = {"uint8": (*wide[:-1], *IMAGE_ENCODINGS), "uint16": (*wide, "png"), "float32": wide}
        if self.image_encoding not in (encodings := kept[self.dtype]):
            given = "--encoding " if self.image_encoding == self.encoding else "--encodings image="
            raise UsageError(
                f"--dtype {self.dtype}: {given}{self.image_encoding} cannot store such pixels; use "
                f"{' or '.join(encodings)}"
            )

    def annotations(self) -> ImageAnnotations:
        """The annotations to read; files that are common to all images are read here.

        Raises:
            UsageError: A value is not valid or needs another flag, or its file cannot be read.
        """
        from beam_jobs.jobs.images.annotations import (
            ImageAnnotations,
            parse_annotations,
            with_names,
        )
        from beam_jobs.storage.paths import absolute_path

        boxes, boxes_path = parse_annotations(self.boxes, "--boxes")
        if self.class_names and boxes != "yolo":
            raise UsageError("--class_names names the classes in YOLO files: add --boxes yolo")
        if self.segmentation == "semantic" and self.masks:
            raise UsageError(
                "--segmentation semantic: --masks makes the feature `mask`, too; drop one"
            )
        if (self.keypoints or self.segmentation != "none") and boxes != "coco":
            name = "--keypoints" if self.keypoints else f"--segmentation {self.segmentation}"
            raise UsageError(f"{name}: these are in COCO files: add --boxes coco:FILE")
        captions, captions_path = parse_annotations(self.captions, "--captions")
        annotations = ImageAnnotations(
            boxes=boxes,
            boxes_path=boxes_path,
            captions=captions,
            captions_path=captions_path,
            masks=absolute_path(self.masks) if self.masks else "",
            about=self.annotations_of,
            segmentation=self.segmentation,
            unannotated=self.unannotated,
            box_order=self.box_order,
            yolo_lines=self.yolo_lines,
            box_unit=self.box_unit,
        )
        return with_names(annotations, self.class_names, self.keypoints)

    def make_job(self, columns: tuple[str, ...], output: str, max_bytes: int) -> ImageJob:
        from beam_jobs.jobs.images.image_job import ImageJob
        from beam_jobs.jobs.images.pixels import parse_image_size

        annotations = self.annotations()
        extras = self.extras
        names = [*columns, *(extra.column for extra in extras)]
        inputs, labels = self.find_inputs(self.label, names, output)
        inputs = replace(
            inputs, skips=functools.partial(annotations.is_annotation, root=inputs.root)
        )
        annotations = annotations.check_files(inputs)
        return ImageJob(
            inputs=replace(inputs, max_bytes=max_bytes),
            labels=self.effective_labels(labels, inputs),
            image_size=parse_image_size(self.image_size),
            resize=self.resize,
            channels=self.channels,
            encoding=self.image_encoding,
            extras=extras,
            annotations=annotations,
            jpeg_exact=self.jpeg_exact,
            frames=self.frames,
            dtype=self.dtype,
            max_pixels=self.max_pixels,
            strip_metadata=self.strip_metadata,
            image_info=self.image_info,
            encodings=self.feature_encodings,
        )

    def encoded_job(self, job: Job, encoding: str) -> FileJob:
        chosen = cast(ImageEncoding, encoding)
        replace(self, encoding=chosen, encodings="", strip_metadata=False).validate()
        others = {name: e for name, e in self.feature_encodings.items() if name != "image"}
        return replace(cast("ImageJob", job), encoding=chosen, encodings=others)
