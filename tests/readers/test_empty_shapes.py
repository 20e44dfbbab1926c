"""An array without values whose other sizes are huge takes no bytes in a file, and no memory here."""

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.format.encode.records import Encoder
from readers.format.encodings.spec import MAX_EMPTY_SIZE
from readers.format.tfrecord import frame
from tests.support.arrays import serialize_tensor

LONG = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (10**9, 0), (0, 0))
WHY = rf"with a size of 0, others may be at most {MAX_EMPTY_SIZE}"


def example(**features) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def of_bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def of_integers(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def records(encoding: str) -> list[bytes]:
    """A good record, and one of a shape [1000000000, 0]."""
    good = np.arange(6, dtype=np.uint8).reshape(2, 3)
    if encoding == "tensor":
        return [example(x=of_bytes(serialize_tensor(array))) for array in (good, LONG)]
    lists = [(good.reshape(-1).tolist(), good.shape), ((), LONG.shape)]
    return [
        example(x=of_integers(*values), **{"x/shape": of_integers(*shape)})
        for values, shape in lists
    ]


@pytest.fixture(params=["tensor", "list"])
def dataset(request, tmp_path):
    schema = readers.Schema({"x": readers.Feature("uint8", (None, None), request.param)})
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(map(frame, records(request.param))))
    return {"source": str(path), "schema": schema}


@pytest.mark.parametrize("read", ["as_numpy", "load"])
def test_readers_refuse_it(dataset, read):
    options = {"batch_size": 2, "batching": "padded"}
    source, schema = dataset["source"], dataset["schema"]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as caught:
        if read == "as_numpy":
            list(readers.as_numpy(source, schema=schema, **options))
        else:
            list(readers.load(source, schema=schema, **options))
    if read == "as_numpy":
        assert WHY.replace("\\", "") in str(caught.value)


@pytest.mark.parametrize("encoding", ["tensor", "list"])
def test_jobs_do_not_write_it(encoding):
    feature = readers.Feature("uint8", (None, None), encoding)
    with pytest.raises(ValueError, match=WHY):
        Encoder(readers.Schema({"x": feature})).check({"x": LONG})
    longest = np.empty((MAX_EMPTY_SIZE, 0), np.uint8)
    assert Encoder(readers.Schema({"x": feature})).check({"x": longest})
