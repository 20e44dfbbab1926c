"""Images in memory, encoded by Pillow, and one that Pillow would hand to another program."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, ExifTags, Image

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 40 40
%%EndComments
0 0 40 40 rectfill
%%EOF
"""


def mark_of_ghostscript(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """The path of a file that appears when somebody starts Ghostscript (`gs`)."""
    mark, program = folder / "started", folder / "gs"
    program.write_text(f'#!/bin/sh\necho "$@" >> {mark}\n')
    program.chmod(0o755)
    patch.setenv("PATH", str(folder), prepend=":")
    patch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow looks for it once per process.
    return mark


def encoded(pixels: np.ndarray | Image.Image, kind: str, orientation: int = 0, **options) -> bytes:
    """The bytes of an image file.

    Args:
        pixels: An image, or uint8 [height, width] or [height, width, channels].
        kind: Pillow's name of the format: "JPEG", "PNG", ...
        orientation: The EXIF orientation, 1 to 8; 0 writes none.
        options: Pillow's options of the format.
    """
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    if orientation:
        exif: Any = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        options["exif"] = exif.tobytes()
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()
