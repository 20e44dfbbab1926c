"""The features about an image: its size in the record, and the name of its file."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from beam_jobs.errors import UsageError
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.extra_features import parse_extra_features
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from readers.format.schema import Feature
from tests.support.images import encoded


def job(**options) -> ImageJob:
    return ImageJob(Inputs((), ""), Labels("none"), image_info=True, **options)


def size_in(value: np.ndarray | bytes) -> tuple[int, ...]:
    """The shape of an image in a record, decoded by TensorFlow if it is encoded."""
    return tf.io.decode_image(value).shape if isinstance(value, bytes) else value.shape


@pytest.mark.parametrize("size", [None, (16, 8)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoding": "jpeg"},
        {"encoding": "png", "channels": 4},
        {"encoding": "raw", "dtype": "float32", "channels": 1},
        {"encoding": "source"},
    ],
    ids=str,
)
@pytest.mark.parametrize(("kind", "orientation"), [("PNG", 0), ("JPEG", 6), ("TIFF", 6)])
def test_sizes_are_those_of_the_image_in_the_record(size, options, kind, orientation):
    if size and options.get("encoding") == "source":
        return
    data = encoded(np.zeros((40, 60, 3), np.uint8), kind, orientation)
    source = Source("x.zip/cat/Käse 1.jpg")
    record = job(image_size=size, **options).decode(source, io.BytesIO(data))
    found = tuple(record[name] for name in ("height", "width", "depth"))
    assert found == size_in(record["image"])
    assert found[:2] == (size or ((60, 40) if orientation else (40, 60)))
    assert record["filename"] == "Käse 1.jpg"


def test_every_frame_has_the_name_of_its_file():
    out = io.BytesIO()
    frames = [Image.new("L", (9, 5), value) for value in (0, 255)]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    found = dict(job(frames="all").records_of(Source("a/b.gif"), out.getvalue()))
    assert list(found) == ["a/b.gif#1", "a/b.gif#2"]
    for record in found.values():
        assert (record["filename"], record["height"], record["width"]) == ("b.gif", 5, 9)


def test_the_features_are_whole_numbers_and_a_text():
    schema = job().schema
    assert [schema[name] for name in ("height", "width", "depth")] == [Feature("int64")] * 3
    assert schema["filename"] == Feature("string")
    assert "height" not in ImageJob(Inputs((), ""), Labels("none")).schema


def test_a_column_may_not_have_the_name_of_such_a_feature():
    clashing = job(extras=parse_extra_features("height:int64"))
    with pytest.raises(UsageError, match="--extra_features height: the records have a feature of"):
        clashing.schema  # noqa: B018
