"""The versions of Beam's runners that docs/engines.md says work with the installed Beam."""

import pytest

from tests.engines.packages import RUNNERS
from tests.engines.versions import row
from tests.support.checkout import ROOT

TABLE = (ROOT / "docs/engines.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("engine", RUNNERS)
def test_the_runners_of_all_tests_are_in_the_table(engine):
    assert row(engine, RUNNERS[engine], "the same") in TABLE
