"""Records that are encoded before the shuffle, as the payloads of a block.

A payload is a framed Example and then the key, or a mark and then the reject as JSON. A frame
begins with the length of its data, so a whole block is taken apart without a look at each record.
"""

from __future__ import annotations

import numpy as np

from beam_jobs.records.ragged import Ragged
from beam_jobs.records.rejects import Reject
from readers.format.tfrecord import FRAME_BYTES

# In the place of a length that no record has.
_REJECTED = b"\xff" * 8

_PLANNED = b"\xfe" + b"\xff" * 7


def pack_record(key: str, body: bytes | Reject, planned: bool = False) -> bytes:
    """A payload: the framed Example and the key, or the reason why there is none.

    Args:
        planned: Whether the plan took the reject for a record.
    """
    if isinstance(body, Reject):
        mark = _PLANNED if planned else _REJECTED
        return mark + body.to_json().encode("utf-8", "surrogateescape")
    return body + key.encode("utf-8", "surrogateescape")


def is_planned(payload: bytes) -> bool:
    """Whether the plan took the reject in a payload for a record."""
    return payload.startswith(_PLANNED)


def unpack_reject(payload: bytes) -> Reject:
    """The reject in a payload that has no frame."""
    return Reject.from_json(payload[len(_REJECTED) :])


def frame_lengths(payloads: Ragged) -> np.ndarray:
    """The bytes of the frame at the beginning of each payload, int64 [n]; 0 for a reject."""
    starts = payloads.ends - payloads.lengths
    octets = np.frombuffer(payloads.data, np.uint8)
    heads = octets[starts[:, None] + np.arange(8)].view("<u8").reshape(-1)
    rejected = heads >= np.uint64(2**64 - 2)
    return np.where(rejected, 0, heads.astype(np.int64) + FRAME_BYTES)
