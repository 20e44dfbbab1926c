"""The kinds of pictures that `read_shards.py` reads, and the work that a contender does with each.

    jpeg         the whole picture, decoded: uint8 [375, 500, 3]
    jpeg_train   a random resized crop of 224x224, mirrored half of the time: uint8, or float32 from 0 to 1

Each library returns its own layout, [height, width, 3] or [3, height, width], and resizes with its own
bilinear filter.
"""

from __future__ import annotations

from dataclasses import dataclass

BATCH = 64
PICTURES = 3008  # 47 batches, 160 MB
NUM_SHARDS = 16
SHUFFLE_BUFFER = 1024  # pictures, in readers that shuffle a stream

HEIGHT, WIDTH = 375, 500
CROP = 224
# The range of a crop's area, as a part of the picture's, and of its width divided by its height.
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)


@dataclass(frozen=True)
class PictureKind:
    """The work that is done with each picture.

    Attributes:
        name: The dataset's name.
        dtypes: The dtypes in which it is measured.
        height, width: The size of the result in pixels.
    """

    name: str
    dtypes: tuple[str, ...]
    height: int
    width: int

    @property
    def is_cropped(self) -> bool:
        """Whether a random part of each picture is used."""
        return (self.height, self.width) == (CROP, CROP)

    @property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """The shapes that a result may have."""
        return (self.height, self.width, 3), (3, self.height, self.width)


KINDS = {
    kind.name: kind
    for kind in (
        PictureKind("jpeg", ("uint8",), HEIGHT, WIDTH),
        PictureKind("jpeg_train", ("uint8", "float32"), CROP, CROP),
    )
}
