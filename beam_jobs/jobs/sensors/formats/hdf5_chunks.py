"""Chunks of HDF5 files that unpack to more than their values take: HDF5 itself unpacks them to their end."""

from __future__ import annotations

import math
import zlib
from typing import Any

from h5py import h5z

from beam_jobs.errors import RejectError

# Filters that unpack a few bytes to many: DEFLATE, SZIP, and the LZF of h5py.
_PACKING = (h5z.FILTER_DEFLATE, h5z.FILTER_SZIP, h5z.FILTER_LZF)

# In bytes: what filters may add to the values, and the size up to which a chunk does no harm. A byte of
# DEFLATE unpacks to at most 1,032.
_SLACK = 64 << 10
_HARMLESS = (256 << 20) // 1032


def check_chunks(name: str, item: Any) -> None:
    """Checks the chunks of an array before any of them is read.

    Large ones are unpacked twice, here no further than their values reach.

    Args:
        name: The path of the array.
        item: The array in the file.

    Raises:
        RejectError: A chunk unpacks to more than its values take, or is packed more than once.
    """
    plist = item.id.get_create_plist()
    filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
    if not filters or item.chunks is None:
        return
    if sum(filters.count(number) for number in _PACKING) > 1:
        raise RejectError(f"array {name!r} is packed more than once: write it with one filter")
    most = math.prod(item.chunks) * item.dtype.itemsize
    most += most // 8 + _SLACK
    large = list[Any]()

    def note(chunk: Any) -> None:
        if chunk.size > _HARMLESS:
            large.append(chunk)

    item.id.chunk_iter(note)
    # Checksums come after the filter that packs, which HDF5 therefore sees first.
    packed = [number for number in filters if number != h5z.FILTER_FLETCHER32]
    is_deflated = bool(packed) and packed[-1] == h5z.FILTER_DEFLATE
    for chunk in large:
        size = chunk.size
        if size <= most and is_deflated and not chunk.filter_mask:
            _, data = item.id.read_direct_chunk(chunk.chunk_offset)
            size = _unpacked_size(data, most)
        if size > most:
            raise RejectError(
                f"array {name!r}: a chunk unpacks to {size} bytes or more, expected at most {most} for its "
                "values"
            )


def _unpacked_size(data: bytes, most: int) -> int:
    """How many bytes data unpacks to, as far as one more than `most`."""
    try:
        return len(zlib.decompressobj().decompress(data, most + 1))
    except zlib.error:
        return 0  # HDF5 will say what is wrong.
