"""A picture that cannot be decoded is an error that names its file, record and feature in every reader.

For a campaign over more damage: `python -m tests.readers.test_damaged_pictures 10000 [first_seed]`.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import readers
from readers.head import shown_records
from tests.support.checkout import ROOT
from tests.support.datasets import write_dataset
from tests.support.images import encoded

# On these Pillow raises NotImplementedError, IndexError, RuntimeError, and an error of its own.
HOSTILE = [path.read_bytes() for path in sorted((ROOT / "tests/corpus/hostile/pictures").iterdir())]

ENCODINGS = ("jpeg", "png", "source")

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 20, 3), np.uint8)

_NAMED = r"train-00000-of-00001\.tfrecord: record {number}\b.*feature 'image'"

# Pictures of a dataset in a campaign.
_TOGETHER = 200


def seeds() -> list[bytes]:
    """Whole pictures of each format that readers decode, and of some that they do not."""
    image = Image.fromarray(PIXELS)
    made = [encoded(image, kind) for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "ICO")]
    made.append(encoded(image, "JPEG", progressive=True, orientation=6))
    made += [encoded(image.convert(mode), "PNG") for mode in ("P", "L", "LA", "RGBA", "1", "I;16")]
    animated = [image, Image.fromarray(255 - PIXELS)]
    for kind in ("GIF", "PNG", "WEBP"):
        made.append(encoded(image, kind, save_all=True, append_images=animated[1:]))
    return [*made, *HOSTILE]


def damaged(data: bytes, draw: random.Random) -> bytes:
    """A picture with a few other bytes, or without some of them."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        found[draw.randrange(min(len(found), draw.choice((64, 1 << 20))))] = draw.randrange(256)
    if draw.random() < 0.2:
        del found[draw.randrange(1, len(found)) :]
    return bytes(found)


def dataset_of(folder: Path, encoding: str, pictures: Sequence[bytes]) -> Path:
    schema = readers.Schema({"image": readers.Feature("uint8", (None, None, 3), encoding)})
    return write_dataset(folder, schema, {"train": [[{"image": data} for data in pictures]]})


def outcome(dataset: Path, number: int) -> str:
    """`decoded` or `refused`, the same from a source and in a batch; an error must name the record."""
    named = re.compile(_NAMED.format(number=number), re.S)
    found = []
    for read in (
        lambda: readers.RecordSource(dataset)[number],
        lambda: list(
            readers.as_numpy(
                dataset, split=f"train[{number}:{number + 1}]", batch_size=1, batching="ragged"
            )
        ),
    ):
        try:
            read()
            found.append("decoded")
        except ValueError as error:
            assert named.search(str(error)), error
            found.append("refused")
    assert found[0] == found[1], found
    return found[0]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_picture_on_which_pillow_raises_any_error_names_its_record(encoding, tmp_path):
    dataset = dataset_of(tmp_path / "pictures", encoding, HOSTILE)
    assert [outcome(dataset, number) for number in range(len(HOSTILE))] == ["refused"] * 4
    with pytest.raises(ValueError, match=_NAMED.format(number=0)):
        list(shown_records(str(dataset), None, 1))


def test_a_damaged_picture_is_decoded_or_names_its_record(tmp_path):
    draw = random.Random(0)
    pictures = [damaged(data, draw) for data in seeds()]
    dataset = dataset_of(tmp_path / "pictures", "source", pictures)
    found = Counter(outcome(dataset, number) for number in range(len(pictures)))
    assert found.keys() == {"decoded", "refused"}


def _campaign(count: int, first: int) -> None:
    every, seen = seeds(), Counter[str]()
    for seed in range(first, first + -(-count // _TOGETHER)):
        draw = random.Random(seed)
        pictures = [damaged(draw.choice(every), draw) for _ in range(_TOGETHER)]
        with tempfile.TemporaryDirectory() as folder:
            dataset = dataset_of(Path(folder, "pictures"), ENCODINGS[seed % 3], pictures)
            for number in range(_TOGETHER):
                try:
                    seen[outcome(dataset, number)] += 1
                except Exception as error:
                    print(f"seed {seed}, picture {number}: {type(error).__name__}: {error}")
                    raise
    print(dict(seen))


if __name__ == "__main__":
    _campaign(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
