"""The versions of Beam's runners that docs/deploy/engines.md says work with the installed Beam."""

import apache_beam
import pytest

from tests.engines.packages import FLINK_VERSION, RUNNERS, SPARK_VERSION
from tests.support.checkout import ROOT

TABLE = (ROOT / "docs/deploy/engines.md").read_text(encoding="utf-8").splitlines()
CLUSTERS = {"flink": f"Flink {FLINK_VERSION}", "spark": f"Spark {SPARK_VERSION}"}


@pytest.mark.parametrize("engine", RUNNERS)
def test_the_runners_of_all_tests_are_in_the_table(engine):
    runner = RUNNERS[engine]
    cells = [apache_beam.__version__, f"{runner.module} {runner.version}", runner.service]
    assert f"| {' | '.join([*cells, CLUSTERS[engine], 'the same'])} |" in TABLE
