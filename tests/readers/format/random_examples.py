"""Examples of random values, of each kind of feature that the kernel reads."""

from __future__ import annotations

import numpy as np

from readers.format.dtypes import numpy_dtype
from readers.format.encode.records import Encoder

FEATURES = {
    "image": ("uint8", (2, 3, 1)),
    "label": ("int64", (), "list"),
    "signal": ("float32", (None, 2)),
    "grid": ("int16", (None, None)),
    "tokens": ("int64", (None,), "list"),
    "shorts": ("uint16", (None,), "list"),
    "floats": ("float32", (None,), "list"),
    "three": ("float32", (3,), "list"),
    "plane": ("int32", (None, None), "list"),
    "cube": ("float32", (None, 2, None), "raw"),
    "pair": ("int32", (2,), "list"),
    "octet": ("int8", (), "list"),
    "unsigned": ("uint64", (2,)),
    "flag": ("bool", (), "list"),
    "flags": ("bool", (None,)),
    "raw": ("float64", (2,), "raw"),
    "rawer": ("int16", (None, 2), "raw"),
    "scalar": ("float64", ()),
    "wide": ("complex64", (3,)),
    "nothing": ("float32", (0, 3)),
    "half": ("float16", (None,)),
    "halves": ("float16", (3,), "list"),
    "narrow": ("float16", (None,), "list"),
    "text": ("string", ()),
    "photo": ("uint8", (None, None, 3), "jpeg"),
    "zipped": ("float32", (None, 2), "zlib"),
    "zip": ("int16", (3,), "zlib_shuffled"),
    "zips": ("complex64", (None, None), "zlib_shuffled"),
    "long": ("string", (), "zlib"),
}


def array(rng, feature, sizes):
    """A random array of a feature, with one of some sizes in each unknown dimension."""
    shape = [int(rng.choice(sizes)) if size is None else size for size in feature.shape]
    dtype = numpy_dtype(feature.dtype)
    if feature.is_image:
        return rng.bytes(1 + int(rng.choice(sizes)))
    if dtype.hasobject:
        return "".join(map(chr, rng.integers(1, 2000, int(rng.choice(sizes))))).encode()
    if dtype.kind in "iub":
        bounds = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        # The int64 list of an Example holds no larger numbers.
        few = [bounds[0], 0, 1, min(bounds[1], 127), min(bounds[1], 2**63 - 1)]
        return rng.choice(np.array(few, dtype), shape)
    return (rng.standard_normal(shape) * 9).astype(dtype)


def examples_of(schema, rows, seed=0, sizes=(1, 2, 7, 150)):
    """Serialized Examples of random arrays."""
    rng, encoder = np.random.default_rng(seed), Encoder(schema)
    return [
        encoder.encode({name: array(rng, feature, sizes) for name, feature in schema.items()})
        for _ in range(rows)
    ]
