"""SequenceExamples as plain TensorFlow writes them, against `tf.io.parse_sequence_example`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import readers
from beam_jobs import WriteShards
from beam_jobs.errors import UsageError
from readers.format.decode.records import Decoder
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from tests.support.arrays import as_lists, assert_same, nested, random_array
from tests.support.plain import example, jpeg, sequence_example, tensor, write_plain


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def all_ways(path, schema, batching, **arguments):
    """The same batches from each reader: one with TensorFlow and one with NumPy."""
    arguments = {"schema": schema, "batch_size": 2, "batching": batching, **arguments}
    return {
        "TensorFlow": list(readers.load(path, **arguments)),
        "NumPy": list(readers.as_numpy(path, **arguments)),
    }


def assert_all_ways(expected, path, schema, batching="ragged", **arguments):
    """Asserts that each reader gives these values of `x`, one for each record."""
    for way, batches in all_ways(path, schema, batching, **arguments).items():
        assert [row for batch in batches for row in nested(batch["x"])] == expected, way


def test_a_schema_distinguishes_the_context_from_feature_lists(tmp_path):
    records = [
        sequence_example(
            {"label": n, "name": f"clip {n}"},
            tokens=[n + 1] * n,
            audio=[[0.5 + n, 1.0 * step] for step in range(n)],
            words=[f"word {step}" for step in range(n)],
        )
        for n in (2, 0, 3, 1, 2)
    ]
    path = write_plain(tmp_path / "a.tfrecord", records)
    schema = Schema(
        {
            "label": Feature("int64"),
            "name": Feature("string"),
            "tokens": Feature("int64", (None,), "list steps"),
            "audio": Feature("float32", (None, 2), "list steps"),
            "words": Feature("string", (None,), "text steps"),
        }
    )
    context, lists, lengths = tf.io.parse_sequence_example(
        records,
        {
            "label": tf.io.FixedLenFeature([], tf.int64),
            "name": tf.io.FixedLenFeature([], tf.string),
        },
        {
            "tokens": tf.io.FixedLenSequenceFeature([], tf.int64),
            "audio": tf.io.FixedLenSequenceFeature([2], tf.float32),
            "words": tf.io.FixedLenSequenceFeature([], tf.string),
        },
    )
    for way, (batch,) in all_ways(path, schema, readers.Padded(mask=True), batch_size=5).items():
        for name, value in {**context, **lists}.items():
            np.testing.assert_array_equal(batch[name], value, err_msg=f"{way} {name}")
        steps = tf.sequence_mask(lengths["tokens"])
        np.testing.assert_array_equal(batch["tokens_mask"], steps, err_msg=way)
        np.testing.assert_array_equal(batch["audio_mask"], steps, err_msg=way)
    source = readers.RecordSource(path, schema=schema)
    for row, record in enumerate(source):
        count = lengths["tokens"][row]
        assert record["audio"].shape == (count, 2)
        assert record["audio"].dtype == np.float32
        for name, value in lists.items():
            np.testing.assert_array_equal(record[name], value[row][:count])
        assert record["label"] == context["label"][row]


WIRE = {"string": tf.string, "float32": tf.float32}


def on_the_wire(array):
    """The array as a list of an Example holds it."""
    if array.dtype == object:
        return array
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


WRITE = {"list": on_the_wire, "raw": np.ndarray.tobytes, "tensor": tensor}


@pytest.mark.parametrize("dtype", ["string", "int16"])
def test_steps_of_several_lengths_are_doubly_ragged(tmp_path, rng, dtype):
    sizes = [[2, 0, 3], [], [1], [0, 0], [4, 1]]
    values = [[random_array(rng, dtype, (size,)) for size in record] for record in sizes]
    records = [sequence_example(x=[on_the_wire(v) for v in record]) for record in values]
    path = write_plain(tmp_path / "a.tfrecord", records)
    schema = Schema({"x": Feature(dtype, (None, None), "list steps")})
    wire = tf.io.RaggedFeature(WIRE.get(dtype, tf.int64))
    _, lists, _ = tf.io.parse_sequence_example(records, sequence_features={"x": wire})
    expected = tf.cast(lists["x"], tf.as_dtype(dtype))
    assert_all_ways(expected.to_list(), path, schema)
    for way, (batch,) in all_ways(path, schema, "padded", batch_size=5).items():
        np.testing.assert_array_equal(batch["x"], expected.to_tensor(), err_msg=way)
    for record, arrays in zip(readers.RecordSource(path, schema=schema), values, strict=True):
        for found, array in zip(record["x"], arrays, strict=True):
            assert_same(np.asarray(found, array.dtype), array)


@pytest.mark.parametrize(
    ("dtype", "encoding"), [("uint8", "tensor"), ("float32", "raw"), ("int32", "list")]
)
def test_steps_of_one_shape_are_one_array(tmp_path, rng, encoding, dtype):
    values = [random_array(rng, dtype, (count, 2, 3)) for count in (3, 0, 1)]
    records = [sequence_example({"y": 1}, x=map(WRITE[encoding], array)) for array in values]
    path = write_plain(tmp_path / "a.tfrecord", records)
    schema = Schema({"x": Feature(dtype, (None, 2, 3), f"{encoding} steps")})
    for batches in all_ways(path, schema, "ragged").values():
        for row, array in zip(
            (row for batch in batches for row in batch["x"]), values, strict=True
        ):
            assert_same(row, array)
    for record, array in zip(readers.RecordSource(path, schema=schema), values, strict=True):
        assert_same(record["x"], array)


@pytest.mark.parametrize("size", [(6, 8), (None, None)])
def test_the_frames_of_a_video_are_decoded(tmp_path, size):
    def frame(step):
        height, width = size if size[0] else (6 + step, 8)
        return jpeg(np.full((height, width, 3), 20 * step + 10, np.uint8))

    records = [sequence_example({"label": n}, frames=map(frame, range(n))) for n in (2, 0, 3)]
    path = write_plain(tmp_path / "a.tfrecord", records)
    schema = Schema(
        {"frames": Feature("uint8", (None, *size, 3), "jpeg steps"), "label": ("int64",)}
    )
    # Batches of one, so that one of them has no frames.
    for way, batches in all_ways(path, schema, "ragged", batch_size=1).items():
        for batch, count in zip(batches, (2, 0, 3), strict=True):
            pictures = list(batch["frames"][0])
            assert len(pictures) == count, way
            for step, pixels in enumerate(pictures):
                pixels = pixels.to_tensor() if isinstance(pixels, tf.RaggedTensor) else pixels
                expected = tf.io.decode_jpeg(frame(step), dct_method="INTEGER_ACCURATE")
                np.testing.assert_array_equal(pixels, expected, err_msg=way)
    source = readers.RecordSource(path, schema=schema)
    for record in (source[2], source.__getitems__([0, 1, 2] * 9)[2]):
        assert [picture.shape[2] for picture in record["frames"]] == [3, 3, 3]


def test_feature_lists_are_truncated_counted_bucketed_and_packed_like_lists(tmp_path, rng):
    values = [random_array(rng, "float32", (count, 2)) for count in (3, 0, 1, 5, 2, 4)]
    steps = write_plain(tmp_path / "a", [sequence_example(x=list(array)) for array in values])
    lists = write_plain(tmp_path / "b", [example(x=array) for array in values])
    schema, list_schema = (
        Schema({"x": ("float32", (None, 2), encoding)}) for encoding in ("list steps", "list")
    )
    for arguments in (
        {"batching": readers.Padded(max_length=3, lengths=True)},
        {"batching": readers.Packed(6)},
    ):
        found = readers.as_numpy(lists, schema=list_schema, batch_size=2, **arguments)
        expected = as_lists(found)
        for way, batches in all_ways(steps, schema, **arguments).items():
            assert as_lists(batches) == expected, (way, arguments)


def test_steps_of_several_lengths_are_truncated_within_each_step(tmp_path):
    sizes = [[2, 5], [4], []]
    records = [sequence_example(x=[[7] * size for size in record]) for record in sizes]
    path = write_plain(tmp_path / "a", records)
    schema = Schema({"x": ("int64", (None, None), "list steps")})
    assert_all_ways([[[7] * 2], [[7] * 4], []], path, schema, readers.Ragged(1))
    with pytest.raises(ValueError, match="lengths=True: the arrays of 'x' differ in length"):
        readers.as_numpy(path, schema=schema, batch_size=1, batching=readers.Padded(lengths=True))


def test_a_missing_feature_list_has_no_steps_as_in_tensorflow(tmp_path):
    records = [sequence_example({"y": 1}), sequence_example({"y": 2}, x=[[1], [2]])]
    path = write_plain(tmp_path / "a.tfrecord", records)
    schema = Schema({"x": Feature("int64", (None,), "list steps"), "y": Feature("int64")})
    for way, (batch,) in all_ways(path, schema, "padded").items():
        assert np.asarray(batch["x"]).tolist() == [[0, 0], [1, 2]], way


def test_a_feature_list_is_never_taken_from_the_context(tmp_path):
    # An Example is a SequenceExample that only has a context.
    records = [example(x=np.arange(2).tobytes()) for _ in range(3)]
    path = write_plain(tmp_path / "a.tfrecord", records)
    schema = Schema({"x": Feature("int64", (None, 2), "raw steps")})
    assert_all_ways([[], [], []], path, schema)


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_any_feature_lists_equal_those_of_tensorflow(rows):
    records = [sequence_example({"z": 1}, x=record, y=record[:1]) for record in rows]
    wire = tf.io.RaggedFeature(tf.int64)
    _, lists, _ = tf.io.parse_sequence_example(records, sequence_features={"x": wire})
    decoder = Decoder(Schema({"x": Feature("int64", (None, None), "list steps")}))
    found = [[step.tolist() for step in decoder.decode(record)["x"]] for record in records]
    assert found == lists["x"].to_list() == rows


# Records that do not fit the schema.


def test_feature_lists_cannot_be_written():
    schema = Schema({"x": Feature("int64", (None,), "list steps")})
    with pytest.raises(ValueError, match=r"feature 'x' .* but not written; use the encoding"):
        Encoder(schema)
    with pytest.raises(UsageError, match="feature lists can be read, but not written"):
        WriteShards("out", schema=schema)
