"""The images job: a record is an image file, decoded, turned upright and resized."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Literal

import numpy as np
from PIL import Image, ImageOps

from beam_jobs.errors import RejectError
from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.file_passes import FilesInParts
from beam_jobs.jobs.images.annotation_files import Statuses, joined_reads
from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.boxes import Geometry, Resize
from beam_jobs.jobs.images.features import AnnotationReader
from beam_jobs.jobs.images.image_files import (
    MAX_PIXELS,
    Frames,
    check_decodable,
    check_pixels,
    count_frames,
    decoding,
    has_more_frames,
    losses,
    orientation_of,
    stored_bits,
    stored_size,
)
from beam_jobs.jobs.images.kept_files import kept_file
from beam_jobs.jobs.images.pixels import (
    compressed,
    has_wide_pixels,
    readers_decode_alike,
    resized,
    resized_by_planes,
    to_mode,
    wide_pixels,
)
from beam_jobs.jobs.job import complete_schema
from beam_jobs.jobs.near import Compared
from beam_jobs.jobs.record import Record
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels, Names
from beam_jobs.sources.source import Source
from beam_jobs.storage.limits import check_bytes
from readers.files.stores.ahead import Read
from readers.files.stores.reading import EAGER_BYTES
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema

ImageEncoding = Literal["tensor", "raw", "list", "zlib", "zlib_shuffled", "jpeg", "png", "source"]

ImageDtype = Literal["uint8", "uint16", "float32"]

# Antialiased when it shrinks an image, as in training pipelines.
_FILTER = Image.Resampling.BILINEAR

# Encodings that this job computes; JPEG would change the class ids of a mask.
_COMPRESSED = {"image": IMAGE_ENCODINGS, "mask": ("png",)}

# The bytes of an Example besides its image; only sizes of shards depend on it.
_OVERHEAD_BYTES = 200

# Formats of photographs, whose pixels take a multiple of the file's bytes in a PNG.
_LOSSY = ("JPEG", "MPO", "HEIF", "AVIF")

_MORE_FRAMES = "only its first frame was stored; --frames all makes a record of each"

# Features about the image of a record.
_INFO = {
    "height": Feature("int64"),
    "width": Feature("int64"),
    "depth": Feature("int64"),
    "filename": Feature("string"),
}


@dataclass(frozen=True)
class ImageJob(FilesInParts):
    """The images job.

    Attributes:
        inputs: The image files.
        labels: Where labels come from.
        image_size: (height, width) in pixels; None keeps each image's own size.
        resize: "stretch" to the size, "fit" inside it with black borders, or "crop" the center.
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA.
        encoding: "tensor", "raw", "list", "zlib" or "zlib_shuffled" for pixels; "jpeg"; "png"; or "source" for the files' bytes up to
            the end of the image if all readers decode them alike, else "jpeg" or "png".
        extras: Columns that become features.
        annotations: Where boxes, captions and masks come from.
        jpeg_exact: Whether JPEGs are decoded at their full size before they are resized.
        frames: Whether the first frame of a file is a record, or every frame.
        dtype: "uint8", "uint16" for 16 bits, or "float32" for floating-point pixels as they are and
            others from 0 to 1.
        max_pixels: The most pixels of an image and of a mask; larger ones are rejected.
        strip_metadata: Whether EXIF, XMP and comments are removed from files that are kept.
        image_info: Whether records have the size of their image and the name of its file.
        encodings: The encodings of features that are chosen by name; that of `image` is `encoding`.
    """

    inputs: Inputs
    labels: Labels
    image_size: tuple[int, int] | None = None
    resize: Resize = "stretch"
    channels: int = 3
    encoding: ImageEncoding = "tensor"
    extras: tuple[ExtraFeature, ...] = ()
    annotations: ImageAnnotations = field(default_factory=ImageAnnotations)
    jpeg_exact: bool = False
    frames: Frames = "first"
    dtype: ImageDtype = "uint8"
    max_pixels: int = MAX_PIXELS
    strip_metadata: bool = False
    image_info: bool = False
    encodings: Encodings = field(default_factory=dict)

    @property
    def has_windows(self) -> bool:
        return self.frames == "all"

    @property
    def schema(self) -> Schema:
        """The schema: the image and its annotations, then key, label and extra columns."""
        height, width = self.image_size or (None, None)
        own = {"image": Feature(self.dtype, (height, width, self.channels), self.encoding)}
        if self.annotations.boxes:
            own["boxes"] = Feature("float32", (None, 4))
            own["box_labels"] = Feature("int64", (None,), "list")
        if self.annotations.captions:
            own["captions"] = Feature("string", (None,), "list")
        if self.annotations.keypoints:
            own["keypoints"] = Feature("float32", (None, len(self.annotations.keypoints), 3))
        if self.annotations.segmentation == "instances":
            own["instance_masks"] = Feature("uint8", (None, height, width))
        if self.annotations.has_mask:
            own["mask"] = Feature("uint8", (height, width, 1), "png")
        if self.image_info:
            own |= _INFO
        return complete_schema(own, self.labels, self.extras, self.encodings, _COMPRESSED)

    def decoded(self) -> ImageJob:
        chosen = {n: e for n, e in self.encodings.items() if n not in _COMPRESSED}
        masks = {"mask": "tensor"} if self.annotations.has_mask else {}
        return replace(self, encoding="tensor", encodings={**chosen, **masks})

    @property
    def record_channels(self) -> int | None:
        return self.channels

    @property
    def class_names(self) -> Names:
        return {**self.labels.class_names, **self.annotations.class_names_by_feature}

    @property
    def compared(self) -> Compared:
        return Compared("picture", {"image": self.schema["image"]})

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        statuses = Statuses()
        for source in self.inputs.sources(pattern, limit):
            path = self.inputs.path_of(source)
            yield self.annotations.with_annotations(source, path, statuses)

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        for member, data in self.inputs.unpacked(source):
            yield self.annotations.with_annotations(member, "", Statuses()), data

    def reads(self, source: Source) -> Iterator[Read]:
        yield from self.inputs.reads(source, EAGER_BYTES)
        yield from joined_reads(source)

    @property
    def has_classes(self) -> bool:
        return self.annotations.boxes == "voc"

    def class_reads(self, source: Source) -> Iterator[Read]:
        return joined_reads(source, "boxes")

    def classes_of(self, source: Source) -> Mapping[str, Iterable[str]]:
        if not self.has_classes or source.error:
            return {}
        boxes = self.annotations.found(self.annotations.boxes_of, source)
        return {"box_labels": boxes.names} if boxes else {}

    def load(self, source: Source) -> Record:
        """Reads and decodes an image and its annotations.

        Returns:
            `image`: the pixels [H, W, C], or encoded bytes. As far as the job has annotations: `boxes`,
            float32 [n, 4]; `box_labels`, the n class names; `keypoints`, float32 [n, k, 3]; `instance_masks`, uint8
            [n, H, W]; `captions`, texts; `mask`, a PNG or uint8 [H, W, 1]. With
            `image_info` also `height`, `width`, `depth`, and `filename`, a text.

        Raises:
            RejectError: The file cannot be read or decoded, or an annotation does not fit it.
        """
        check_bytes(source.size, self.inputs.max_bytes, "it has")
        try:
            file = self.inputs.open(source)
        except OSError as error:
            raise RejectError(f"cannot be read: {error}") from None
        with file:
            return self.decode(source, file)

    def decode(self, source: Source, file: BinaryIO) -> Record:
        """The features that `load` returns, of an open image file.

        Raises:
            RejectError: The file cannot be decoded, or an annotation does not fit it.
        """
        with decoding(file, self.max_pixels) as image:
            record = self._record(source, image, file)
            if has_more_frames(image):
                record.remarks += (_MORE_FRAMES,)
        return record

    def _record(self, source: Source, image: Image.Image, file: BinaryIO) -> Record:
        """The record of the current frame of an image."""
        pixels, geometry, remarks = self._converted(image, file)
        record = Record({"image": pixels}, remarks)
        geometry = geometry._replace(about=self.annotations.about)
        AnnotationReader(self.annotations, source, geometry, self.max_pixels).add_to(record)
        if mask := record.get("mask"):
            record["mask"] = _stored(mask, self.encodings.get("mask", "png"))
        if self.image_info:
            height, width = geometry.written
            record.update(height=height, width=width, depth=self.channels)
            record["filename"] = source.file.rpartition("/")[2]
        return record

    def parts_of(self, source: Source, data: bytes) -> list[tuple[str, int]]:
        keys = [source.key]
        if self.frames == "all":
            with decoding(io.BytesIO(data), self.max_pixels) as image:
                count = count_frames(image, len(data))
            keys = [f"{source.key}#{number}" for number in range(1, count + 1)]
        size = len(data) // len(keys)
        if self.encoding not in IMAGE_ENCODINGS:
            height, width = self.image_size or stored_size(io.BytesIO(data), self.max_pixels)
            size = height * width * self.channels * np.dtype(self.dtype).itemsize
        return [(key, size + _OVERHEAD_BYTES) for key in keys]

    def records_of(self, source: Source, data: bytes) -> Iterator[tuple[str, Record]]:
        file = io.BytesIO(data)
        if self.frames == "first":
            yield source.key, self.decode(source, file)
            return
        with decoding(file, self.max_pixels) as image:
            for number in range(count_frames(image, len(data))):
                image.seek(number)
                check_pixels(image, self.max_pixels)
                yield f"{source.key}#{number + 1}", self._record(source, image, file)

    def _converted(
        self, image: Image.Image, file: BinaryIO
    ) -> tuple[np.ndarray | bytes, Geometry, tuple[str, ...]]:
        """The current frame of an image as a record has it, pixels [H, W, C] or a file; its geometry; and remarks."""
        check_decodable(image, file, self.dtype)
        if image.mode == "F" and self.dtype != "float32":
            raise RejectError(
                "its pixels are floating-point numbers: convert it to 8 or 16 bit, or add --dtype float32"
            )
        bits = 0 if self.dtype != "uint8" and has_wide_pixels(image) else stored_bits(image)
        stored, is_tiff = (image.height, image.width), image.format == "TIFF"
        if self.encoding == "source" and readers_decode_alike(image, self.channels):
            image.load()  # a broken image is rejected in every encoding
            file.seek(0)
            if kept := kept_file(file.read(), self.strip_metadata):
                return kept, Geometry(stored), ()
        encoding: str = self.encoding
        if encoding == "source":
            encoding = "jpeg" if image.format in _LOSSY and self.channels != 4 else "png"
        orientation = orientation_of(image)
        self._draft(image, orientation)
        upright = None
        if self.dtype == "uint8":
            if orientation != 1:  # otherwise Pillow would only copy it
                image = ImageOps.exif_transpose(image)
            upright = to_mode(image, self.channels)
            decoded = upright.height, upright.width
            pixels = _stored(self._resized(upright), encoding)
        else:
            wide = wide_pixels(image, file, self.channels, self.dtype)
            decoded = wide.shape[0], wide.shape[1]
            pixels = _stored(self._resized_wide(wide), encoding)
        remarks = tuple(losses(image, bits, upright, self.channels))
        if is_tiff:  # Pillow states the upright size before it decodes and turns it.
            stored = Geometry(decoded, orientation).upright
        geometry = Geometry(stored, orientation, decoded, self.image_size, self.resize)
        return pixels, geometry, remarks

    def _draft(self, image: Image.Image, orientation: int) -> None:
        if self.image_size and not self.jpeg_exact and image.format in ("JPEG", "MPO"):
            height, width = self.image_size
            swapped = orientation in (5, 6, 7, 8)
            # The JPEG decoder scales by 1/2, 1/4 or 1/8 at little cost, never below this size:
            # 2.3 times as fast from 640x480 to 224x224.
            image.draft(None, (height, width) if swapped else (width, height))

    def _resized_wide(self, pixels: np.ndarray) -> np.ndarray:
        if self.image_size and self.image_size != pixels.shape[:2]:
            pixels = resized_by_planes(pixels, self._resized)
        if self.dtype == "uint16":
            pixels = np.clip(np.rint(pixels), 0, 65535).astype(np.uint16)
        return pixels

    def _resized(self, image: Image.Image) -> Image.Image:
        return resized(image, self.image_size, self.resize, _FILTER)


def _stored(image: Image.Image | np.ndarray, encoding: str) -> np.ndarray | bytes:
    """An image as a record has it: a file, or pixels [height, width, channels]."""
    if encoding in IMAGE_ENCODINGS:
        return compressed(image, encoding)
    pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels
