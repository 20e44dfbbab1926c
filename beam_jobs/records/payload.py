"""Payloads of blocks of encoded records.

A payload is a framed Example followed by the key, or a mark followed by a reject as JSON. A frame begins
with the length of its data, so NumPy can split all payloads of a block at once.
"""

from __future__ import annotations

import numpy as np

from beam_jobs.records.ragged import Ragged
from beam_jobs.records.rejects import Reject
from readers.format.tfrecord import FRAME_BYTES

# These marks are where the length of a record would be, and no record is that long.
_REJECTED = b"\xff" * 8

_PLANNED = b"\xfe" + b"\xff" * 7


def pack_record(key: str, body: bytes | Reject, planned: bool = False) -> bytes:
    """Packs a framed Example and its key, or a reject.

    Args:
        key: The record's key.
        body: The framed Example or the reject.
        planned: Whether the plan counts the reject as a record.
    """
    if isinstance(body, Reject):
        mark = _PLANNED if planned else _REJECTED
        return mark + body.to_json().encode()
    return body + key.encode("utf-8", "surrogateescape")


def is_planned(payload: bytes) -> bool:
    """Whether a payload is a reject that the plan counts as a record."""
    return payload.startswith(_PLANNED)


def unpack_reject(payload: bytes) -> Reject:
    """The reject in a payload."""
    return Reject.from_json(payload[len(_REJECTED) :])


def frame_lengths(payloads: Ragged) -> np.ndarray:
    """Size of the frame at the beginning of each payload, in bytes, int64 [n]; 0 for a reject."""
    starts = payloads.ends - payloads.lengths
    octets = np.frombuffer(payloads.data, np.uint8)
    heads = octets[starts[:, None] + np.arange(8)].view("<u8").reshape(-1)
    rejected = heads >= np.uint64(2**64 - 2)
    return np.where(rejected, 0, heads.astype(np.int64) + FRAME_BYTES)
