"""Takes from root the right to enter every folder, which other users do not have."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import pytest

_LIBC = ctypes.CDLL(None, use_errno=True)

# Source: capabilities(7), capset(2) and linux/capability.h.
_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextlib.contextmanager
def as_any_user() -> Iterator[None]:
    """Lets this thread, and those that it starts, enter only folders whose mode allows it."""
    if os.geteuid():
        yield
        return
    if not hasattr(_LIBC, "capset"):
        pytest.skip("root enters every folder of this system")
    header, data = _Header(_VERSION_3, 0), (_Data * 2)()
    assert _LIBC.capget(ctypes.byref(header), data) == 0
    before = data[0].effective
    data[0].effective = before & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
    assert _LIBC.capset(ctypes.byref(header), data) == 0
    try:
        yield
    finally:
        data[0].effective = before
        assert _LIBC.capset(ctypes.byref(header), data) == 0
