import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from beam_jobs.columns import Ragged, pack, unpack

arrays = nps.arrays(
    st.sampled_from(["<u8", "<i8", "u1", "<u4", "<f8", ">u8", ">i4"]),
    nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)
strings = st.lists(st.binary(max_size=9), max_size=9).map(Ragged.of)


@given(st.lists(arrays | strings, max_size=5), st.booleans(), st.integers(0, 600))
@settings(max_examples=100, deadline=None)
def test_columns_come_back_as_they_were(columns, compress, more):
    columns = [*columns, Ragged.of([b"x" * more])]
    found = unpack(pack(*columns, compress=compress))
    for mine, theirs in zip(found, columns, strict=True):
        if isinstance(theirs, Ragged):
            assert list(mine) == list(theirs)
        else:
            assert mine.dtype == theirs.dtype.newbyteorder("<") and mine.shape == theirs.shape
            np.testing.assert_array_equal(mine, theirs)


def test_texts_may_have_lone_surrogates():
    assert Ragged.of_texts(["a", "", "\ud800", "\u00e4"]).texts() == ["a", "", "\ud800", "\u00e4"]
