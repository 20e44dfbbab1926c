"""A plan in few bytes, for what TensorFlow keeps until the process ends.

A part takes a kilobyte as an object, and some 30 bytes here: with a thousand shards, each dataset that was opened and
deleted would leave a megabyte.
"""

from __future__ import annotations

import pickle
import zlib
from dataclasses import astuple, replace

from readers.shards.plan import Part, Plan


class PackedPlan:
    """The same plan again whenever it is called.

    Args:
        plan: The plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._rest = replace(plan, parts=(), fingerprint=())
        packed = [astuple(part) for part in plan.parts], plan.fingerprint
        self._packed = zlib.compress(pickle.dumps(packed, pickle.HIGHEST_PROTOCOL), 1)

    def __call__(self) -> Plan:
        parts, fingerprint = pickle.loads(zlib.decompress(self._packed))
        found = tuple(Part(*values) for values in parts)
        return replace(self._rest, parts=found, fingerprint=fingerprint)
