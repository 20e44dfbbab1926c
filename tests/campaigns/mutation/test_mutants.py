import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.mutation.equivalent import equivalents
from tests.campaigns.mutation.mutants import mutants_of
from tests.campaigns.mutation.swap import ImportFailsError, Live
from tests.campaigns.mutation.targets import TARGETS
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


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that this process has imported, and its file."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fruit_of_mutants.py").write_text(SOURCE)
    import fruit_of_mutants

    yield fruit_of_mutants, tmp_path / "fruit_of_mutants.py"
    del sys.modules["fruit_of_mutants"]


def swapped(path, change):
    (mutant,) = (m for m in mutants_of(path, "fruit") if m.key.endswith(change))
    Live({path}).swap(mutant)


def test_a_module_has_a_mutant_for_each_small_fault(module):
    assert [mutant.key.removeprefix("fruit ") for mutant in mutants_of(module[1], "fruit")] == [
        "module: 3 -> 4",
        "module: LIMIT * 2 -> LIMIT + 2",
        "module: 2 -> 3",
        "is_small: 0 -> 1",
        "is_small: return least <= number < LIMIT -> return None",
        "is_small: least <= number < LIMIT -> least < number < LIMIT",
        "is_small: least <= number < LIMIT -> least <= number <= LIMIT",
        "Basket: 4 -> 5",
        "Basket.fill: not apples -> apples",
        "Basket.fill: raise ValueError(f'found {apples} apples') -> pass",
        "Basket.fill: return min(apples, self.size) -> return None",
        "Basket.fill: min(apples, self.size) -> max(apples, self.size)",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("LIMIT -> least <= number <= LIMIT", (True, 2, 6)),
        ("min(apples, self.size) -> max(apples, self.size)", (False, 4, 6)),
        ("Basket: 4 -> 5", (False, 2, 6)),
        ("module: 3 -> 4", (True, 2, 8)),
        ("module: LIMIT * 2 -> LIMIT + 2", (False, 2, 5)),
    ],
)
def test_a_mutant_takes_effect_through_references_that_others_have(module, change, expected):
    fruit, path = module
    is_small, basket = fruit.is_small, fruit.Basket()
    assert (is_small(3), basket.fill(2), fruit._TWICE) == (False, 2, 6)
    is_small.cache_clear()
    swapped(path, change)
    assert (is_small(3), basket.fill(2), fruit._TWICE) == expected


def test_a_default_is_changed_for_later_calls(module):
    fruit, path = module
    swapped(path, "is_small: 0 -> 1")
    assert not fruit.is_small(0)
    swapped(path, "Basket: 4 -> 5")
    assert fruit.Basket().fill(9) == 5


def test_a_module_that_cannot_be_imported_any_more_is_noticed(module):
    path = module[1]
    path.write_text(path.read_text().replace("LIMIT = 3", "LIMIT = min(3, 3 or None)"))
    with pytest.raises(ImportFailsError):
        swapped(path, "3 or None -> None")


def test_every_equivalent_mutant_has_a_reason_and_exists():
    keys = {
        mutant.key
        for target in TARGETS.values()
        for module in target.modules
        for mutant in mutants_of(ROOT / module, module)
    }
    assert set(equivalents()) <= keys


def test_the_tests_of_every_target_exist():
    files = [test for target in TARGETS.values() for test in target.tests]
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.slow
def test_a_campaign_reports_what_no_test_notices(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-m", "tests.campaigns.mutation", "index", "--log", str(log)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| readers/format/index.py |" in done.stdout
    assert "\treaders/format/index.py" in Path(log).read_text()
