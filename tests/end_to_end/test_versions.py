"""The versions of Beam's runners that docs/engines.md says work with the installed Beam."""

import pytest

from tests.engines.packages import RUNNERS
from tests.engines.versions import newest, published, row, tried
from tests.support.checkout import ROOT

pytestmark = pytest.mark.engines

TABLE = (ROOT / "docs/engines.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("engine", RUNNERS)
def test_the_runners_of_all_tests_are_in_the_table(engine):
    assert row(engine, RUNNERS[engine], "the same") in TABLE


@pytest.mark.parametrize("engine", RUNNERS)
def test_the_newest_runner_of_the_registry_is_in_the_table_or_tried(engine):
    found = newest(engine)
    known = row(engine, found, "")[:-3]
    if not any(line.startswith(known) for line in TABLE):
        pytest.fail(f"docs/engines.md lacks this row: {row(engine, found, tried(engine, found))}")


def test_a_module_that_the_registry_lacks_has_no_versions():
    assert published("beam-runners-of-nobody") == []
