"""Values compressed with zlib: TensorFlow undoes them, and damage, cuts and false sizes are errors."""

import random
import tracemalloc
import zlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from readers.format.decode.records import Decoder
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from tests.readers.format.mutations import mutated
from tests.support.plain import example, write_plain

DTYPES = sorted(TENSORFLOW_DTYPES.keys() - {"string"})
DEFLATE = 1032  # bytes that one byte of a stream stands for at most


def stored(data):
    """The value `x` and the sizes `x/shape` in a serialized Example, as TensorFlow finds them."""
    features = tf.train.Example.FromString(data).features.feature
    assert len(features["x"].bytes_list.value) == 1
    return features["x"].bytes_list.value[0], list(features["x/shape"].int64_list.value)


def read(feature, value, *sizes):
    """What readers find in an Example with any bytes and sizes; the message if they raise an error."""
    data = example(x=[value], **{"x/shape": list(sizes)} if sizes else {})
    try:
        return Decoder(Schema({"x": feature})).decode(data)["x"]
    except ValueError as error:
        return str(error)


def by_tensorflow(value, dtype, shape, is_shuffled):
    """A value of numbers as docs/write/encodings.md says that TensorFlow reads it."""
    octets = tf.io.decode_raw(tf.io.decode_compressed(value, "ZLIB"), tf.uint8)
    if dtype == "bool":
        return tf.reshape(tf.cast(octets, tf.bool), shape).numpy()
    size = numpy_dtype(dtype).itemsize
    rows = tf.transpose(tf.reshape(octets, [size, -1])) if is_shuffled else octets
    return tf.reshape(tf.bitcast(tf.reshape(rows, [-1, size]), tf.as_dtype(dtype)), shape).numpy()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_tensorflow_and_readers_find_the_array_that_was_written(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    dtype_of = numpy_dtype(dtype)
    names = ["zlib", "zlib_shuffled"] if dtype_of.itemsize > 1 else ["zlib"]
    name = data.draw(st.sampled_from(names))
    shape = data.draw(st.lists(st.integers(0, 5), max_size=3))
    hidden = [None if data.draw(st.booleans()) else size for size in shape]
    octets = data.draw(st.binary(min_size=16 * 125, max_size=16 * 125))
    count = int(np.prod(shape))
    array = np.frombuffer(octets, np.uint8 if dtype == "bool" else dtype_of, count)
    array = (array % 2 == 1 if dtype == "bool" else array).reshape(shape)
    feature = Feature(dtype, hidden, name)
    value, sizes = stored(Encoder(Schema({"x": feature})).encode({"x": array}))
    assert sizes == (shape if None in hidden else [])
    found = read(feature, value, *sizes)
    assert (found.dtype, list(found.shape)) == (dtype_of, shape)
    assert found.tobytes() == array.tobytes()
    theirs = by_tensorflow(value, dtype, shape, name == "zlib_shuffled")
    assert theirs.tobytes() == array.tobytes()


@given(st.text(max_size=300))
@settings(max_examples=30, deadline=None)
def test_a_text_is_the_stream_of_its_utf8_and_the_number_of_its_bytes(text):
    value, sizes = stored(Encoder(Schema({"x": ("string", (), "zlib")})).encode({"x": text}))
    assert tf.io.decode_compressed(value, "ZLIB").numpy() == text.encode()
    assert sizes == [len(text.encode())]
    assert read(Feature("string", (), "zlib"), value, *sizes).item() == text.encode()


@pytest.mark.parametrize(
    "feature",
    [("string", (2,), "zlib"), ("string", (), "zlib_shuffled"), ("uint8", (2,), "zlib_shuffled")],
)
def test_other_values_are_not_accepted(feature):
    with pytest.raises(ValueError, match="expected numbers"):
        Feature(*feature)


SPECS = [
    Feature("int16", (40,), "zlib"),
    Feature("int16", (None, 4), "zlib_shuffled"),
    Feature("string", (), "zlib"),
]
CONTENT = bytes(range(80))
SIZES = dict(zip(SPECS, [(), (10, 4), (80,)], strict=True))


@pytest.mark.parametrize("feature", SPECS, ids=str)
def test_only_a_whole_stream_of_the_stated_bytes_is_read(feature):
    sizes, whole = SIZES[feature], zlib.compress(CONTENT)
    assert not isinstance(read(feature, whole, *sizes), str)
    for cut in range(len(whole)):
        assert isinstance(read(feature, whole[:cut], *sizes), str)
    # TensorFlow accepts both, and returns a part of the value for the second.
    assert "of 80 bytes, found 80 and other data" in read(feature, whole + b"x", *sizes)
    assert "and no end" in read(feature, whole[:-9], *sizes)
    assert "of 80 bytes, found 72" in read(feature, zlib.compress(CONTENT[:72]), *sizes)
    more = read(feature, zlib.compress(CONTENT + b"x"), *sizes)
    assert "of 80 bytes, found 81" in more
    if sizes:
        for wrong in (
            (),
            (9, *sizes[1:]),
            (11, *sizes[1:]),
            (-10, *sizes[1:]),
            (*sizes, 1),
            (1 << 62,) * len(sizes),
        ):
            assert "feature 'x'" in read(feature, whole, *wrong)


@given(st.sampled_from(SPECS), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_a_changed_stream_gives_the_value_or_an_error(feature, seed):
    data = mutated(random.Random(seed), zlib.compress(CONTENT))
    found = read(feature, data, *SIZES[feature])
    if not isinstance(found, str):
        # Adler-32, and not chance: the bytes are those that were written.
        assert found.tolist() == read(feature, zlib.compress(CONTENT), *SIZES[feature]).tolist()


def test_a_bomb_takes_no_more_memory_than_the_record_states():
    bomb = zlib.compress(bytes(64 << 20), 9)
    assert len(bomb) * DEFLATE > 64 << 20 > len(bomb) * (DEFLATE - 10)
    tracemalloc.start()
    for feature, sizes in ((SPECS[0], ()), (Feature("uint8", (None,), "zlib"), (1 << 16,))):
        assert "and no end" in read(feature, bomb, *sizes)
    for size in (len(bomb) * DEFLATE + 1, 1 << 31, 1 << 62):
        found = read(Feature("uint8", (None,), "zlib"), bomb, size)
        assert found.endswith(f"a zlib stream of {len(bomb)} bytes cannot hold {size} bytes")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("times", [1, 60], ids=["one thread", "threads"])
@pytest.mark.parametrize("encoding", ["zlib", "zlib_shuffled", "text"])
def test_a_batch_gives_the_values_and_names_the_record_with_a_damaged_one(
    encoding, times, tmp_path
):
    """Its frame has the right CRC32C, so only the stream shows the damage."""
    content, sizes, feature = CONTENT * times, [10 * times, 4], ("int16", (None, 4), encoding)
    array = np.frombuffer(content, "<i2").reshape(sizes)
    if encoding == "text":
        array, sizes, feature = content, [len(content)], ("string", (), "zlib")
    schema = Schema({"id": ("int64",), "x": feature})
    records = [Encoder(schema).encode({"id": n, "x": array}) for n in range(50)]
    path = write_plain(tmp_path / "some.tfrecord", records)
    for batch in readers.as_numpy(path, 10, batching="padded", schema=schema):
        assert all(np.array_equal(found, array) for found in batch["x"])
    records[7] = example(id=7, x=[zlib.compress(content)[:-2]], **{"x/shape": sizes})
    write_plain(path, records)
    end = f"{path}: record 7 at byte .*feature 'x' .*found {len(content)} and no end"
    with pytest.raises(ValueError, match=end):
        list(readers.as_numpy(path, 10, batching="padded", schema=schema))
