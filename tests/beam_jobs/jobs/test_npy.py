"""The reader of `.npy` files, compared with `np.load`."""

import io
import pickle
import struct

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.npy import parse_npy


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npy_of(header: str | bytes, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A `.npy` file with any text as its header."""
    text = header.encode("utf-8" if version >= (3, 0) else "latin1")
    length = struct.pack("<I" if version[0] > 1 else "<H", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def header(descr: object = "<f4", fortran: object = False, shape: object = (2,)) -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': {fortran!r}, 'shape': {shape!r}, }}"


def same_array(data: bytes) -> np.ndarray:
    """The array, after checking that `np.load` gives the same."""
    found = parse_npy(data)
    expected = np.load(io.BytesIO(data), allow_pickle=False)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
    assert found.flags.f_contiguous == expected.flags.f_contiguous
    assert found.flags.c_contiguous == expected.flags.c_contiguous
    return found


@given(
    hnp.arrays(
        st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes()),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    ),
    st.sampled_from("CF"),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_array_is_what_numpy_reads(array, order, version):
    array = np.asarray(array, order=order)
    assume(array.dtype.itemsize and array.flags.aligned and not array.dtype.hasobject)
    buffer = io.BytesIO()
    try:
        np.lib.format.write_array(buffer, array, version)
        np.load(io.BytesIO(buffer.getvalue()))
    except (UnicodeError, ValueError, SyntaxError):  # names that this version cannot hold
        assume(False)
    assume(array.dtype.names is None or version < (3, 0))
    same_array(buffer.getvalue())


def test_an_array_may_be_transposed_sliced_or_reversed_before_it_is_saved():
    array = np.arange(60, dtype=">i4").reshape(3, 4, 5)
    for saved in (array.T, array[::2, ::-1], array[..., 0], np.asfortranarray(array), array[:0].T):
        np.testing.assert_array_equal(same_array(npy(saved)), saved)


def test_bytes_after_an_array_are_ignored_unless_they_are_another_array():
    array = np.arange(6.0).reshape(2, 3)
    same_array(npy(array[:0]) + b"more")
    with pytest.raises(RejectError, match="a second array follows"):
        parse_npy(npy(array) + npy(array))


@pytest.mark.filterwarnings("ignore:.*additional header parsing")
def test_headers_of_other_writers_are_read():
    data = np.arange(6, dtype="<f4").tobytes()
    for text in (
        header(shape=(2, 3)),
        header(shape=(2, 3)) + " " * 300,
        "{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}",
        '{"descr":"<f4","fortran_order":False,"shape":(2,3)}',
        header(descr="f4", shape=(2, 3)),
        header(shape=(2, 1, 3)).replace("1", "1L"),  # as Python 2 wrote it
    ):
        for version in ((1, 0), (2, 0), (3, 0)):
            if "L" in text and version == (3, 0):
                continue
            # Without NumPy's padding the values lie at odd addresses.
            for padding in range(4):
                assert same_array(npy_of(text + " " * padding, data, version)).size == 6


@pytest.mark.parametrize(
    "data",
    [
        *(npy(np.arange(100.0))[:keep] for keep in (0, 1, 6, 7, 8, 9, 10, 50, 127, 128, 135, 927)),
        npy_of(header(), bytes(7)),
        npy_of(header(shape=(-2,)), bytes(8)),
        npy_of(header(shape=(2.0,)), bytes(8)),
        npy_of(header(shape=2), bytes(8)),
        npy_of(header(shape=(1,) * 65), bytes(8)),
        npy_of(header(fortran=0), bytes(8)),
        npy_of(header(descr="<x9"), bytes(8)),
        npy_of(header(descr=None), bytes(8)),
        npy_of(header(descr=("<f4", (2,))), bytes(16)),
        npy_of("{'descr': '<f4', 'fortran_order': False, }", bytes(8)),
        npy_of(header()[:-1] + "'more': 1}", bytes(8)),
        npy_of("__import__('os').system('true')", bytes(8)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (print(1),)}", bytes(8)),
        npy_of(header() + "#" * 20_000, bytes(8), (2, 0)),  # takes long to parse
        npy_of("(" * 9000, bytes(8), (2, 0)),
        npy_of(header(), bytes(8))[:8] + b"\xff\xff" + header().encode(),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + header().encode(),
        b"\x93NUMPX\x01\x00" + npy_of(header(), bytes(8))[8:],
        *(npy_of(header(), bytes(8), v) for v in ((0, 0), (1, 1), (2, 1), (4, 0), (255, 255))),
    ],
    ids=lambda data: repr(data[10:50]),
)
def test_a_header_that_numpy_refuses_is_refused(data):
    with pytest.raises(Exception):  # noqa: B017  (NumPy's own are of many kinds)
        np.load(io.BytesIO(data), allow_pickle=False)
    with pytest.raises(Exception):  # noqa: B017
        parse_npy(data)


@pytest.mark.parametrize(("descr", "shape"), [("0f2", (0, 3)), ("2f4", (0,)), ("(2,1)f4", (1,))])
def test_a_dtype_with_a_shape_of_its_own_is_refused(descr, shape):
    """NumPy reads it, but no array has it, and with none of its values the shapes would differ."""
    with pytest.raises(ValueError, match=r"^dtype "):
        parse_npy(npy_of(header(descr=descr, shape=shape, fortran=True), bytes(8)))


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**63,), (10**30,), (2**62, 4, 0, 2**62)])
def test_a_shape_that_no_memory_holds_is_refused_at_once(shape):
    data = npy_of(header(shape=shape), bytes(64))
    with pytest.raises((ValueError, OverflowError)):
        parse_npy(data)


@pytest.mark.parametrize(
    "descr", ["|O", "O", [("a", "<f4"), ("b", "|O")], [("a", [("b", "|O", (2,))])]], ids=str
)
def test_objects_are_refused_even_if_there_are_none(descr):
    for shape in ((0,), (1,), (3,)):
        for version in ((1, 0), (2, 0)):
            data = npy_of(header(descr=descr, shape=shape), pickle.dumps([1]) * 9, version)
            with pytest.raises(RejectError, match="pickled objects, which are never loaded"):
                parse_npy(data)
