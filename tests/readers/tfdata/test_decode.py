"""`decode_batch` against TensorFlow's own parsers, NumPy and Pillow."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from readers.batches.batch_format import BatchFormat
from readers.format.encode import Encoder
from readers.format.schema import Feature, Schema
from readers.tfdata.batching import batch_of
from readers.tfdata.decode import decode_batch
from tests.support.arrays import assert_same, random_array
from tests.support.images import encoded
from tests.support.plain import example, tensor


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def decoded(examples, feature, batching="ragged"):
    """The values of each record, decoded as a batch in a graph, as `tf.data` does."""
    schema = Schema({"x": feature})

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def run(serialized):
        return batch_of(decode_batch(serialized, schema), schema, BatchFormat(batching))["x"]

    return run(tf.constant(examples, tf.string))


def rows(batch):
    """The records of a batch as arrays, each of its own shape."""
    for row in batch:
        yield row.to_tensor().numpy() if isinstance(row, tf.RaggedTensor) else row.numpy()


# `tests/readers/test_foreign.py` reads every dtype.
@pytest.mark.parametrize(
    ("dtype", "shape", "encoding", "found"),
    [
        ("bfloat16", (3,), "tensor", [(3,)] * 3),
        ("uint8", (None, 3), "tensor", [(200, 3), (1, 3), (0, 3)]),
        ("float32", (None, 2, None), "tensor", [(1, 2, 3), (3, 2, 1)]),
        ("float32", (0, 3), "list", [(0, 3)] * 2),
        ("int64", (None,), "list", [(3,), (0,), (300,), (1,)]),
        ("int16", (None, None), "list", [(2, 3), (4, 1), (1, 150)]),
        ("int16", (None, None), "raw", [(2, 3), (4, 1), (1, 150)]),
    ],
)
def test_a_batch_has_the_arrays_that_were_encoded(rng, dtype, shape, encoding, found):
    schema = Schema({"x": (dtype, shape, encoding)})
    expected = [random_array(rng, dtype, size) for size in found]
    batch = decoded([Encoder(schema).encode({"x": a}) for a in expected], schema["x"])
    assert batch.shape.as_list() == [len(found), *shape]
    for row, array in zip(rows(batch), expected, strict=True):
        assert_same(row, array)


@given(st.data())
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
def test_any_batch_of_known_and_unknown_dimensions_round_trips(data):
    rank = data.draw(st.integers(1, 3))
    spec = [data.draw(st.sampled_from([None, None, 1, 2, 130])) for _ in range(rank)]
    count = data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    arrays = [
        random_array(rng, "int16", [data.draw(st.integers(0, 3)) if d is None else d for d in spec])
        for _ in range(count)
    ]
    schema = Schema({"x": Feature("int16", spec, "tensor")})
    examples = [Encoder(schema).encode({"x": a}) for a in arrays]

    columns = decode_batch(tf.constant(examples), schema)
    if None in spec:
        assert columns["x"].shapes.numpy().tolist() == [list(a.shape) for a in arrays]
        flat = np.concatenate([a.reshape(-1) for a in arrays])
        assert columns["x"].values.numpy().tobytes() == flat.tobytes()
    else:
        assert_same(columns["x"].values.numpy(), np.stack(arrays))


@pytest.mark.parametrize("shape", [(2, 2), (None, None)])
def test_tensors_written_as_float_val_can_be_read(shape):
    arrays = [np.array([[1, 2], [3, 4]], "f4"), np.full((2, 2), 7, "f4")]
    protos = [
        tensor(arrays[0]),
        # make_tensor_proto writes equal values once, in float_val.
        tf.compat.v1.make_tensor_proto(7.0, shape=[2, 2]).SerializeToString(),
    ]
    assert b"\x2a" in protos[1]
    batch = decoded([example(x=p) for p in protos], Feature("float32", shape, "tensor"))
    for row, array in zip(rows(batch), arrays, strict=True):
        assert_same(row, array)


def test_sequences_keep_their_arrays_separate_by_record(rng):
    arrays = [
        [random_array(rng, "float32", (n, 2)) for n in lengths]
        for lengths in [(1, 3), (), (2,), (0, 4)]
    ]
    schema = Schema({"x": ("float32", (None, None, 2), "sequence")})
    examples = [Encoder(schema).encode({"x": a}) for a in arrays]
    batch = decoded(examples, schema["x"])
    assert batch.shape.as_list() == [4, None, None, 2]
    for record, expected in zip(batch, arrays, strict=True):
        assert record.nrows() == len(expected)
        for row, array in zip(record, expected, strict=True):
            assert_same(row.numpy(), array)


def serialized(array):
    return example(x=tensor(array))


@pytest.mark.parametrize(
    ("data", "feature", "message"),
    [
        (serialized(np.ones(3, "f8")), Feature("float32", (3,)), r"\(tensor\).*of\] \[float64"),
        (serialized(np.ones(4, "f4")), Feature("float32", (3,)), r"float32 \[3\].*\[\[4\]\]"),
        (serialized(np.ones((2, 3), "f4")), Feature("float32", (None, 2)), r"None, 2\].*\[\[2 3\]"),
        (example(x=b"junk"), Feature("float32", (None,)), "an unknown dtype"),
        (example(x=b"12345"), Feature("int32", (None,), "raw"), r"int32 \[None\] \(raw\).*whole"),
        (example(x=[1, 2, 3]), Feature("int64", (None, 2), "list"), "multiple of 2 values"),
        (example(x=[1, 300]), Feature("uint8", (None,), "list"), r"found\] \[1 300\]"),
        (
            example(x=[1, 2, 3], **{"x/shape": [2, 2]}),
            Feature("int64", (None, None), "list"),
            r"shape\] \[\[2 2\]\] \[does not hold the number of values\] \[3\]",
        ),
        (
            example(x=encoded(np.zeros((4, 5), np.uint8), "PNG")),
            Feature("uint8", (4, 4, 1), "png"),
            r"uint8 \[4, 4, 1\] \(png\).*\[\[4 5 1\]\]",
        ),
        (example(x=[b"junk"]), Feature("int32", (2, 3), "sequence"), r"found arrays:\] \[1\]"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_by_feature(data, feature, message):
    message = f"(?s)feature x: expected .*{message}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decoded([data], feature)


@pytest.mark.parametrize("batching", ["padded", "ragged"])
@pytest.mark.parametrize("damaged", [lambda p: p[:-1], lambda p: p + b"abcd"])
def test_a_tensor_of_the_wrong_size_is_an_error(batching, damaged):
    whole = tensor(np.ones((50, 6), "f4"))
    # Next to an intact one: alone, a later op might fail because of the size.
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?i)parse"):
        decoded(
            [example(x=damaged(whole)), example(x=whole)], Feature("float32", (None, 6)), batching
        )


def test_a_missing_feature_is_reported_by_name():
    with pytest.raises(tf.errors.InvalidArgumentError, match="x"):
        decoded([example(y=[1])], Feature("int64"))
