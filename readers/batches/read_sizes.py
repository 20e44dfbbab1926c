"""How many records to decode, fetch or shuffle together, computed from their mean size."""

from __future__ import annotations

import math

from readers.shards.plan import Plan

# Decoding records together takes about 100 NumPy calls. Fewer calls per batch matter more than the processor's
# cache: `load` delivers shuffled pictures of 12 KiB and ragged recordings of 6.6 KB 1.1 to 1.4 times as fast
# as with 2 MiB, and `as_numpy` 1.15 to 1.3 times. But the pixels of images take ten times the memory.
CHUNK_RECORDS, _CHUNK_BYTES, _IMAGE_BYTES = 4096, 8 << 20, 2 << 20

# Bytes fetched from a store together, in many concurrent requests, and held until decoded.
_AHEAD_BYTES, _AHEAD_RECORDS = 32 << 20, 65_536

# How many of these, or of shuffle windows, threads fetch while one is decoded. With 50 ms per request, two are
# 1.6 times as fast as one, and three 1.1 times as fast as two.
WINDOWS_AHEAD = 2

# The memory of a shuffle window. TensorFlow allocates a large window anew each time: with windows
# of 32 MiB, images are read twice as fast as with 128 MiB.
_WINDOW_BYTES, _WINDOW_RECORDS = 32 << 20, 65_536

# A window of few records shuffles poorly, so large records may take more memory.
_FEW_RECORDS, _FEW_RECORDS_BYTES = 1024, 128 << 20


def records_together(plan: Plan) -> int:
    """How many records to read and decode together."""
    grow = [f for f in plan.stored.values() if f.is_image or f.codec.is_packed]
    nbytes, size = _IMAGE_BYTES if grow else _CHUNK_BYTES, plan.record_bytes or 1
    size += sum(math.prod(f.known_sizes) for f in grow if f.codec.is_packed)
    return max(min(CHUNK_RECORDS, int(nbytes / size)), 1)


def records_ahead(plan: Plan) -> int:
    """How many records to fetch from a store together, unless a shuffle window determines it."""
    return math.ceil(min(_AHEAD_BYTES / (plan.record_bytes or 1), _AHEAD_RECORDS))


def default_window(plan: Plan) -> int:
    """How many records to shuffle together, depending on their number and mean size."""
    size = plan.record_bytes or 1
    fitting = max(_WINDOW_BYTES / size, min(_FEW_RECORDS, _FEW_RECORDS_BYTES / size))
    return max(1, min(plan.records, int(fitting), _WINDOW_RECORDS))
