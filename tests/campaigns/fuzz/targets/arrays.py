""".npy and .npz files: by the sensors job, and by NumPy."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import archived
from tests.campaigns.fuzz.target import Target, after_choice
from tests.campaigns.fuzz.targets.recordings import MOST_BYTES, chosen, examining
from tests.campaigns.values import trace


def _npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def _npys() -> list[bytes]:
    wide = np.zeros(3, [("time", "<f8"), ("x", ">i2")])
    old = io.BytesIO()
    np.lib.format.write_array(old, np.arange(4.0), (2, 0))
    return chosen(
        _npy(np.arange(6, dtype="<i2").reshape(3, 2)),
        _npy(np.asfortranarray(np.ones((2, 3), ">f4"))),
        _npy(np.array(5)),
        _npy(np.empty((0, 3))),
        _npy(np.array(["ab", "c"])),
        _npy(np.array([1, "a"], object), allow_pickle=True),
        _npy(wide),
        old.getvalue(),
    )


def _like_numpy(data: bytes, found: Recording) -> None:
    try:
        expected = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # NumPy raises nearly everything on broken input.
        raise AssertionError(f"NumPy refuses what the job takes: {error}") from None
    (array,) = found.arrays.values()
    assert trace(array) == trace(expected), "other values than NumPy's"


def _like_numpy_in_zip(data: bytes, found: Recording) -> None:
    """Compares with NumPy where it takes the file for a zip, which must not begin with other bytes."""
    try:
        archive = np.load(io.BytesIO(data), allow_pickle=False)
        names = [name for name in archive.zip.namelist() if name.endswith(".npy")]
        expected = {name.removesuffix(".npy"): archive[name] for name in names}
    except Exception:  # NumPy raises nearly everything on broken input.
        return
    for name, array in found.arrays.items():
        key = name if name in expected else next(iter(expected), name)
        if len(names) == len(expected) and isinstance(expected.get(key), np.ndarray):
            assert trace(array) == trace(expected[key]), f"other values of {name!r} than NumPy's"


def _npz(compressed: bool, **arrays: Any) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


_NPZ = (
    ReadOptions(max_bytes=MOST_BYTES),
    ReadOptions(max_bytes=MOST_BYTES, arrays=("x",), own_columns=("y",)),
    ReadOptions(max_bytes=MOST_BYTES, own_columns=("y",), recording_column="y"),
)


def _npzs() -> list[bytes]:
    return chosen(
        _npz(False, x=np.arange(6).reshape(3, 2), y=np.array(["a", "b", "a"])),
        _npz(True, x=np.zeros((40, 3), np.float32)),
        _npz(True, **{"a/b": np.arange(3), "key": np.arange(3)}),
        _npz(False),
        variants=len(_NPZ),
    )


_WORDS = [b"'<f8'", b"'|O'", b"fortran_order", b"'shape': ", b"(0, 99999999999)"]

TARGETS = (
    Target("npy", _npys, examining(".npy", (ReadOptions(max_bytes=MOST_BYTES),), _like_numpy),
           words=_WORDS, max_bytes=1024, limits=Limits(memory=32 << 20)),
    Target("npz", _npzs, examining(".npz", _NPZ, _like_numpy_in_zip), after_choice(archived.mutate_zip), _WORDS, max_bytes=2048,
           limits=Limits(memory=32 << 20)),
)  # fmt: skip
