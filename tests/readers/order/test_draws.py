import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readers.order.draws import random_bits, salt_keys, uniforms

LOW = 0xFFFFFFFF


def lowbias32(number: int) -> int:
    """Chris Wellons' finalizer, on integers of any size."""
    number &= LOW
    number = (number ^ number >> 16) * 0x7FEB352D & LOW
    number = (number ^ number >> 15) * 0x846CA68B & LOW
    return number ^ number >> 16


def bits_by_hand(key: int, rounds: list[int]) -> int:
    left, right = key >> 32 & LOW, key & LOW
    for each in rounds:
        left, right = right, left ^ lowbias32(right ^ each)
    return right


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=9), st.text(max_size=9))
def test_random_bits_are_those_of_a_feistel_network(keys, salt):
    rounds = salt_keys(salt).tolist()
    assert len(rounds) == 3
    found = random_bits(np.array(keys, np.int64), salt_keys(salt))
    assert found.tolist() == [bits_by_hand(key, rounds) for key in keys]


def test_the_draws_of_a_record_never_change():
    assert salt_keys("flip").tolist() == [2785660938, 323230887, 705236816]
    found = uniforms(np.array([0, 1, 2**62 + 12345]), ["flip", "crop/x"])
    expected = [[958451, 3135747], [12489733, 13747791], [8749618, 7989680]]
    assert (found * 2**24).tolist() == expected
