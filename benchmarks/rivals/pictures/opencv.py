"""Decoding with OpenCV, for libraries that leave it to their users: it is faster than Pillow."""

from __future__ import annotations

import cv2
import numpy as np
from pictures import CROP, draw_crop
from reading import Task


def read(task: Task, data: bytes, rng: np.random.Generator) -> np.ndarray:
    """Returns a picture, decoded, and cropped if the task says so.

    Args:
        task: The kind of the pictures and their dtype.
        data: The bytes of a JPEG.
        rng: The source of random numbers.
    """
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if task.kind.is_cropped:
        top, left, height, width = draw_crop(rng, *image.shape[:2])
        crop = image[top : top + height, left : left + width]
        image = cv2.resize(crop, (CROP, CROP), interpolation=cv2.INTER_LINEAR)
        if rng.random() < 0.5:
            image = cv2.flip(image, 1)
    return image * np.float32(1 / 255) if task.dtype == "float32" else image
