"""Requests to the REST interfaces of engines."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from beam_jobs.engines.remote.job import NoAnswer

_SECONDS = 5


def ask(address: str, path: str, method: str = "GET") -> Any:
    """The JSON that an engine answers; None if the answer is empty.

    Args:
        address: The engine's address, such as http://host:8081.
        path: What is asked for, with a leading slash.
        method: The HTTP method.

    Raises:
        NoAnswer: Nothing answers there, or something else than JSON.
    """
    url = address.rstrip("/") + path
    try:
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            data = answer.read()
            return json.loads(data) if data else None
    except urllib.error.URLError as error:
        raise NoAnswer(f"{address} does not answer ({error.reason})") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NoAnswer(f"{address} does not answer ({error})") from None


def page_address(given: str) -> str:
    """The address of a page as people type it, without a final slash: `host:8081` has http."""
    address = given.strip().rstrip("/")
    return address if "://" in address or not address else f"http://{address}"
