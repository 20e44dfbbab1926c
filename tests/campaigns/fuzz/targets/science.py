"""HDF5, MATLAB and EDF files, the first two in the process of their own in which jobs read them."""

from __future__ import annotations

import io
from typing import Any

import edfio
import h5py
import numpy as np
import scipy.io

from beam_jobs.jobs.sensors.read_options import ReadOptions
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.target import Target
from tests.campaigns.fuzz.targets.recordings import MOST_BYTES, chosen, examining

_VARIANTS = (
    ReadOptions(max_bytes=MOST_BYTES),
    ReadOptions(max_bytes=MOST_BYTES, arrays=("x",), own_columns=("label",)),
)


def _h5(version: str, **options: Any) -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w", libver=version) as file:
        file.create_dataset("x", data=np.arange(24.0).reshape(12, 2), **options)
        file["group/y"] = np.arange(3)
        file.attrs["label"] = "walk"
    return out.getvalue()


def _h5s() -> list[bytes]:
    return chosen(
        _h5("latest"), _h5("earliest"), _h5("latest", chunks=(4, 2), compression="gzip"), variants=2
    )


def _matlabs() -> list[bytes]:
    found = []
    for options in ({}, {"do_compression": True}, {"format": "4"}):
        out = io.BytesIO()
        scipy.io.savemat(out, {"x": np.arange(6.0).reshape(3, 2), "label": "walk"}, **options)
        found.append(out.getvalue())
    return chosen(*found, variants=2)


def _edfs() -> list[bytes]:
    found = []
    for notes in (None, [edfio.EdfAnnotation(0.5, 1, "walk")]):
        signals = [edfio.EdfSignal(np.sin(np.arange(20.0)), 10, label=name) for name in ("x", "y")]
        out = io.BytesIO()
        edfio.Edf(signals, annotations=notes).write(out)
        found.append(out.getvalue())
    return chosen(*found)


# The other process is not measured: it has its own limit.
_LIMITS = Limits(memory=32 << 20)

TARGETS = (
    Target("hdf5", _h5s, examining(".h5", _VARIANTS), None, (b"\x89HDF\r\n\x1a\n", b"TREE", b"HEAP", b"OHDR"),
           8192, _LIMITS),
    Target("matlab", _matlabs, examining(".mat", _VARIANTS), None, (b"MATLAB 5.0", b"\0\1IM"), 2048, _LIMITS),
    Target("edf", _edfs, examining(".edf", _VARIANTS[:1]), None, (b"EDF+C", b"EDF Annotations", b"\x14\x14\0"),
           2048, _LIMITS),
)  # fmt: skip
