"""Mutants are what they are called, and each can be compiled."""

import pytest

from tests.campaigns.mutation.__main__ import drawn, folder_beside
from tests.campaigns.mutation.mutants import lines_of_mutants, mutated
from tests.support.checkout import ROOT

SOURCE = '''"""A module."""

import functools

LIMIT = 3
_TWICE = LIMIT * 2


@functools.lru_cache
def is_small(number, least=0):
    """Whether a number is small."""
    return least <= number < LIMIT


class Basket:
    size: int = 4

    def fill(self, apples):
        if not apples:
            raise ValueError(f"found {apples} apples")
        return min(apples, self.size)
'''


def test_a_module_has_a_mutant_for_each_small_fault():
    lines = enumerate(lines_of_mutants(SOURCE))
    assert {(line, mutated(SOURCE, number)[0]) for number, line in lines} == {
        (5, "3 -> 4"),
        (6, "LIMIT * 2 -> LIMIT + 2"),
        (6, "2 -> 3"),
        (10, "0 -> 1"),
        (12, "return least <= number < LIMIT -> return None"),
        (12, "least <= number < LIMIT -> least < number < LIMIT"),
        (12, "least <= number < LIMIT -> least <= number <= LIMIT"),
        (16, "4 -> 5"),
        (19, "not apples -> apples"),
        (20, "raise ValueError(f'found {apples} apples') -> pass"),
        (21, "return min(apples, self.size) -> return None"),
        (21, "min(apples, self.size) -> max(apples, self.size)"),
    }


@pytest.mark.parametrize(
    ("line", "change", "expected"),
    [(12, "<= LIMIT", True), (5, "3 -> 4", True), (10, "0 -> 1", False), (6, "+ 2", False)],
)
def test_a_mutant_differs_from_the_module_in_one_place(line, change, expected):
    lines = enumerate(lines_of_mutants(SOURCE))
    found = [mutated(SOURCE, number) for number, at in lines if at == line]
    (source,) = (source for words, source in found if words.endswith(change))
    names: dict = {}
    exec(source, names)
    assert names["is_small"](3) == expected


def test_faults_are_drawn_at_different_lines_and_are_the_same_for_the_same_seed(tmp_path):
    for package in ("beam_jobs", "readers"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").write_text(SOURCE)
    faults = drawn(tmp_path, 10, 1)
    assert len({(fault.module, fault.line) for fault in faults}) == 10
    assert faults == drawn(tmp_path, 10, 1) != drawn(tmp_path, 10, 2)
    for fault in faults:
        compile(fault.source, fault.module, "exec")


def test_the_tests_beside_a_module_are_in_the_folder_that_mirrors_its_own():
    assert folder_beside(ROOT, "readers/order/orders.py") == "tests/readers/order"
    assert folder_beside(ROOT, "readers/load.py") == "tests/readers"
