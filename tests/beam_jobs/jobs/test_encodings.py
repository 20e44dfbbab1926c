"""Encodings of single features: which fit, and the records that jobs make with them."""

import json

import numpy as np
import pytest
import tensorflow as tf

import readers
from beam_jobs.cli.images import ImageFlags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.encodings import parse_encodings, with_encodings
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from readers.format.decode.records import Decoder
from readers.format.encode.records import Encoder
from readers.format.encodings.table import ENCODINGS
from readers.format.schema import Feature
from tests.support.commands import run
from tests.support.images import encoded

IMAGES = {"image": ("jpeg", "png"), "mask": ("png",)}
VALUES = {
    "boxes": (Feature("float32", (None, 4)), np.arange(8, dtype=np.float32).reshape(2, 4)),
    "image": (Feature("uint8", (None, None, 3)), np.arange(24, dtype=np.uint8).reshape(2, 4, 3)),
    "double": (Feature("float64", (2,)), np.array([0.1, -2])),
    "label": (Feature("int64"), 7),
    "key": (Feature("string"), "grün"),
    "captions": (Feature("string", (None,), "list"), ["a", "grün"]),
}
FITTING = {
    "boxes": ("tensor", "raw", "list", "zlib", "zlib_shuffled"),
    "image": ("tensor", "raw", "list", "zlib", "jpeg", "png"),
    "double": ("tensor", "raw", "zlib", "zlib_shuffled"),
    "label": ("tensor", "raw", "list", "zlib", "zlib_shuffled"),
    "key": ("tensor", "list", "text", "zlib"),
    "captions": ("tensor", "list"),
}


def test_encodings_are_named_feature_by_feature():
    assert parse_encodings("") == {}
    found = parse_encodings("boxes=list, a=b=raw")
    assert found == {"boxes": "list", "a=b": "raw"}


@pytest.mark.parametrize("text", ["boxes", "=list", "boxes=", "a=raw,a=raw"])
def test_other_forms_are_refused(text):
    with pytest.raises(UsageError, match="expected FEATURE=ENCODING,… such as boxes=list"):
        parse_encodings(text)


@pytest.mark.parametrize("name", FITTING)
def test_an_encoding_that_does_not_fit_is_refused_with_those_that_do(name):
    features = {name: VALUES[name][0]}
    for encoding in {*ENCODINGS, "lits"}:
        if encoding in FITTING[name]:
            assert with_encodings(features, {name: encoding}, IMAGES)[name].encoding == encoding
            continue
        with pytest.raises(UsageError) as error:
            with_encodings(features, {name: encoding}, IMAGES)
        assert error.value.message.endswith(f"can be {', '.join(FITTING[name])}")


def test_lists_of_arrays_and_unknown_features_are_refused():
    features = {"signal": Feature("float32", (None, None), "sequence"), "key": Feature("string")}
    with pytest.raises(UsageError, match=r"float32 \[None, None\] can be only sequence"):
        with_encodings(features, {"signal": "tensor"})
    with pytest.raises(UsageError, match="no feature 'boxes': the records have key, signal"):
        with_encodings(features, {"boxes": "list"})


def pixels_of(folder, **encodings) -> dict:
    """The pixels of the image and the mask in a record that a job makes, by TensorFlow if encoded."""
    for name, kind, shape in (("1.jpg", "JPEG", (4, 6, 3)), ("1.png", "PNG", (4, 6))):
        values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
        (folder / name).write_bytes(encoded(values, kind))
    inputs = Inputs.of([str(folder / "*.jpg")])
    job = ImageJob(
        inputs,
        Labels("none"),
        encoding=encodings.get("image", "tensor"),
        annotations=ImageFlags(masks=str(folder)).annotations(),
        encodings=encodings,
    )
    (source,) = job.sources(inputs.patterns[0])
    data = Encoder(job.schema).encode({**job.load(source), "key": source.key})
    record = Decoder(job.schema).decode(data)
    stored = {name: record[name] for name in ("image", "mask")}
    return {
        name: tf.io.decode_png(value).numpy() if isinstance(value, bytes) else value
        for name, value in stored.items()
    }


@pytest.mark.parametrize("mask", ["tensor", "raw", "list", "png"])
@pytest.mark.parametrize("image", ["tensor", "raw", "list", "png"])
def test_pictures_and_masks_have_the_same_pixels_in_every_encoding(tmp_path, image, mask):
    plain, found = pixels_of(tmp_path), pixels_of(tmp_path, image=image, mask=mask)
    np.testing.assert_array_equal(plain["mask"][..., 0], np.arange(24).reshape(4, 6))
    for name in ("image", "mask"):
        assert found[name].dtype == np.uint8
        np.testing.assert_array_equal(found[name], plain[name])


def test_a_job_of_texts_stores_lists_tensors_and_raw_bytes(tmp_path):
    rows = [{"text": "a b", "kind": "x", "n": 4}, {"text": "grün", "kind": "y", "n": 5}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--label_field", "kind", "--tokens", "bytes", "--extra_features", "n:int64")
    encodings = "text=list,label=raw,tokens=tensor,n=raw,key=tensor"
    out = tmp_path / "out"
    assert (
        run(
            *("text", "--input", tmp_path / "in.jsonl", *flags, "--encodings", encodings),
            *("--output", out, "--direct_num_workers", 1),
        )
        == 0
    )
    manifest = readers.Manifest.read(out)
    assert manifest.options["encodings"] == encodings
    stored = {name: feature.encoding for name, feature in manifest.schema.items()}
    assert stored == parse_encodings(encodings)
    spec = dict.fromkeys(stored, tf.io.FixedLenFeature([], tf.string))
    found = {}
    for data in tf.data.TFRecordDataset([str(out / shard.path) for shard in manifest.shards]):
        record = tf.io.parse_single_example(data, spec)
        tokens = tf.io.parse_tensor(record["tokens"], tf.int64).numpy().tolist()
        label, n = (int(tf.io.decode_raw(record[name], tf.int64)[0]) for name in ("label", "n"))
        found[record["text"].numpy().decode()] = (label, n, tokens)
    assert found == {
        text: (number, 4 + number, [byte + 2 for byte in text.encode()])
        for number, text in enumerate(("a b", "grün"))
    }
    read = {r["text"].decode(): r["tokens"].tolist() for r in readers.RecordSource(out)}
    assert read == {text: tokens for text, (_, _, tokens) in found.items()}
