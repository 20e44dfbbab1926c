"""The contenders of `compressed_values.py`: each writes some arrays, then yields counts of those that it reads.

The first item that a contender yields says that its packages are imported, the second that all values are written; the next
two are endless iterators over the numbers of values in batches, in order and at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 128


def ours(values: list[Any], path: str, encoding: str) -> Iterator[Any]:
    """A TFRecord file; `text` and `zlib text` store uint8 values as texts."""
    import readers
    from readers.format.encode.records import Encoder
    from readers.format.tfrecord import frame

    feature = (values[0].dtype.name, (None, *values[0].shape[1:]), encoding)
    if encoding.endswith("text"):
        feature, values = ("string", (), encoding.split()[0]), [bytes(value) for value in values]
    encoder = Encoder(schema := readers.Schema({"x": feature}))
    yield None
    with Path(path).open("wb") as file:
        file.writelines(frame(encoder.encode({"x": value})) for value in values)
    yield None
    for shuffle in (False, True):
        batches = readers.as_numpy(
            path, BATCH, batching="ragged", shuffle=shuffle, repeat=None, schema=schema
        )
        yield (len(batch["x"]) for batch in batches)


def array_record(values: list[Any], path: str, options: str) -> Iterator[Any]:
    """The bytes of each value, which the reader makes an array of."""
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from array_record.python.array_record_module import ArrayRecordWriter

    yield None
    writer = ArrayRecordWriter(path, options)
    for value in values:
        writer.write(value.tobytes())
    yield writer.close()
    source = ArrayRecordDataSource(path)
    for shuffles in (False, True):
        found = map(source.__getitems__, _batches(len(values), shuffles))
        yield (len([np.frombuffer(data, values[0].dtype) for data in some]) for some in found)


def mds(values: list[Any], path: str, compression: str) -> Iterator[Any]:
    """MDS shards of the default size."""
    import streaming

    yield None
    columns = {"x": f"ndarray:{values[0].dtype.name}"}
    with streaming.MDSWriter(out=path, columns=columns, compression=compression) as writer:
        for value in values:
            writer.write({"x": value})
    yield None
    source = streaming.StreamingDataset(local=path, batch_size=BATCH)
    for shuffles in (False, True):
        batches = _batches(len(values), shuffles)
        yield (len([source[number] for number in numbers]) for numbers in batches)


def litdata(values: list[Any], path: str, compression: str) -> Iterator[Any]:
    """Chunks of 64 MB; the time of writing includes the start of the process that does."""
    import litdata

    yield None
    kwargs = {"chunk_bytes": "64MB", "num_workers": 1, "compression": compression}
    yield litdata.optimize(
        partial(_item, values), list(range(len(values))), path, verbose=False, **kwargs
    )
    source = litdata.StreamingDataset(path)
    for shuffles in (False, True):
        batches = _batches(len(values), shuffles)
        yield (len([source[number] for number in numbers]) for numbers in batches)


def _item(values: list[Any], number: int) -> dict[str, Any]:
    return {"x": values[number]}


def _batches(count: int, shuffles: bool) -> Iterator[list[int]]:
    """Numbers in batches, without end."""
    rng = np.random.default_rng(0)
    while True:
        numbers = rng.permutation(count) if shuffles else np.arange(count)
        for first in range(0, count, BATCH):
            yield numbers[first : first + BATCH].tolist()
