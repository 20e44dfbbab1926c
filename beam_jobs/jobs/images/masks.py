"""Masks of images: turned upright and resized as their images are, never interpolated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.boxes import AnnotationsOf, Geometry, Resize, is_about_stored
from beam_jobs.jobs.images.coco.objects import CocoObject, object_masks, semantic_mask
from beam_jobs.jobs.images.image_files import open_image
from beam_jobs.jobs.images.pixels import mask_values, resized, turned


class MaskMover(NamedTuple):
    """Moves masks to where their image moves.

    Attributes:
        geometry: The geometry of the image.
        image_size: (height, width) of the result; None keeps the image's own size.
        resize: How the image gets its size.
        about: The pixels that masks are about.
    """

    geometry: Geometry
    image_size: tuple[int, int] | None
    resize: Resize
    about: AnnotationsOf = "auto"

    def moved(self, mask: Image.Image, tie: AnnotationsOf = "stored") -> Image.Image:
        """A mask turned and resized.

        Args:
            mask: The mask, with the size of the image.
            tie: The pixels that it is about if its size does not decide.

        Raises:
            RejectError: The mask has another size than the image.
        """
        size = mask.height, mask.width
        if is_about_stored(size, self.geometry, "its mask is", self.about, tie):
            mask = turned(mask, self.geometry.orientation)
        return resized(mask, self.image_size, self.resize, Image.Resampling.NEAREST)

    def empty(self) -> Image.Image:
        """A mask of zeros."""
        height, width = self.image_size or self.geometry.upright
        return Image.new("L", (width, height))

    def of_objects(
        self, objects: Sequence[CocoObject], size: tuple[int, int], max_pixels: int
    ) -> np.ndarray:
        """The mask of each object, uint8 [n, height, width]: 1 inside, 0 outside.

        Args:
            objects: The n objects.
            size: (height, width) of the annotated image, which no mask is made for before it is checked.
            max_pixels: The most pixels of all masks.

        Raises:
            RejectError: A segmentation is missing or not valid, or there are too many pixels.
        """
        is_about_stored(size, self.geometry, "its segmentation is", self.about)
        shape = len(objects), *(self.image_size or self.geometry.upright)
        if (pixels := math.prod(shape)) > max_pixels:
            raise RejectError(
                f"the masks of its {len(objects)} objects have {pixels} pixels, more than "
                f"--max_pixels {max_pixels}: use --segmentation semantic, or a smaller --image_size"
            )
        result = np.empty(shape, np.uint8)
        for number, mask in enumerate(object_masks(objects, size)):
            result[number] = np.asarray(self.moved(Image.fromarray(mask)))
        return result

    def of_classes(self, objects: Sequence[CocoObject], size: tuple[int, int]) -> Image.Image:
        """The classes of the pixels; arguments and errors as for `of_objects`."""
        is_about_stored(size, self.geometry, "its segmentation is", self.about)
        return self.moved(Image.fromarray(semantic_mask(objects, size)))


def read_mask(opened: BinaryIO, max_pixels: int) -> Image.Image:
    """The values of a mask file, as `mask_values` gives them.

    Raises:
        RejectError: The file cannot be read, is too large, or its values are no classes.
    """
    try:
        with opened as file, open_image(file, max_pixels) as mask:
            return mask_values(mask)
    except RejectError as error:
        raise RejectError(f"its mask: {error}") from None
    except OSError as error:
        raise RejectError(f"its mask cannot be read: {error}") from None
    except Exception as error:  # Pillow's plugins raise nearly everything on broken input
        raise RejectError(f"its mask cannot be decoded: {error}") from None
