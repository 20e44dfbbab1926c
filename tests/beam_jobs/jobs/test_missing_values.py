"""Missing values, compared with plain definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.arrays import fill_missing

NAN, INF = np.nan, np.inf


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# Missing values.


def test_an_array_without_missing_values_is_the_array_itself():
    for array in (noise(5, 2), np.arange(5), np.ones((0, 3)), np.ones((3, 0)), np.ones(3, bool)):
        for policy in ("reject", "keep", "interpolate"):
            assert fill_missing(array, policy) is array


def test_missing_values_are_counted_and_the_first_is_named():
    array = noise(4, 3)
    array[2, 1], array[3, 0], array[3, 2] = INF, NAN, -INF
    with pytest.raises(RejectError) as caught:
        fill_missing(array, "reject")
    expected = "3 of 12 values are NaN or infinite, the first in row 3, channel 2"
    assert str(caught.value) == expected
    with pytest.raises(RejectError, match=r"^1 of 3 values .* in row 2$"):
        fill_missing(np.array([0, NAN, 1]), "reject")
    with pytest.raises(RejectError, match=r"in row 1, channel 2 1$"):
        fill_missing(np.array([[[0.0, 1], [NAN, 2]]]), "reject")


def line_by_line(values: list[complex]) -> list[complex]:
    """A channel without missing values, interpolated one value after the other."""
    good = [i for i, value in enumerate(values) if np.isfinite(value)]
    result = []
    for i in range(len(values)):
        before = max((g for g in good if g <= i), default=good[0])
        after = min((g for g in good if g >= i), default=good[-1])
        share = (i - before) / (after - before) if after > before else 0
        result.append(values[before] + (values[after] - values[before]) * share)
    return result


@given(
    st.lists(st.sampled_from([NAN, INF, -INF, *range(-3, 4)]), min_size=12, max_size=12),
    st.sampled_from(["float16", "float32", "float64", "complex64"]),
    st.sampled_from([(12,), (12, 1), (4, 3), (3, 2, 2)]),
)
@settings(max_examples=80, deadline=None)
def test_every_channel_is_filled_on_its_own(values, dtype, shape):
    array = np.array(values).reshape(shape).astype(dtype)
    channels = array.reshape(shape[0], -1)
    if np.isfinite(channels).any(0).all():
        expected = np.stack([line_by_line(channel) for channel in channels.T.tolist()], 1)
        found = fill_missing(array, "interpolate")
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(found, expected.reshape(shape), rtol=2e-3, atol=2e-3)
    else:
        with pytest.raises(RejectError, match="no finite value to interpolate from"):
            fill_missing(array, "interpolate")


def test_a_channel_without_numbers_is_named():
    array = noise(4, 3, 2)
    array[:, 1, 0] = NAN
    with pytest.raises(RejectError, match=r"^no finite value to interpolate from, channel 2 1$"):
        fill_missing(array, "interpolate")
    with pytest.raises(RejectError, match=r"^no finite value to interpolate from$"):
        fill_missing(np.array([NAN, INF]), "interpolate")
