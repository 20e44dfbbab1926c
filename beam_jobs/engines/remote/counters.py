"""The job's own counters, in the forms in which engines show them while a job runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping

# The URN of such a counter among metrics.
COUNTER = "beam:metric:user:sum_int64:v1"


def counters_in(text: str) -> dict[str, int]:
    """The counters in the JSON that Beam's runner for Flink prints of all metrics.

    Returns:
        "namespace/name" -> the sum over all steps; nothing for a text of another form.
    """
    try:
        infos = json.loads(text)["metrics"]["attempted"]
        return summed(
            (info["labels"], base64.b64decode(info["payload"]))
            for info in infos
            if info["urn"] == COUNTER
        )
    except (ValueError, KeyError, TypeError):
        return {}


def summed(counters: Iterable[tuple[Mapping[str, str], bytes]]) -> dict[str, int]:
    """The sum of each counter over all steps, by "namespace/name".

    Args:
        counters: (labels, payload) of Beam's monitoring infos of type sum_int64.
    """
    found: dict[str, int] = {}
    for labels, payload in counters:
        name = f"{labels['NAMESPACE']}/{labels['NAME']}"
        found[name] = found.get(name, 0) + _varint(payload)
    return found


def _varint(data: bytes) -> int:
    """The number in Beam's encoding: seven bits a byte, the lowest first."""
    return sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(data))
