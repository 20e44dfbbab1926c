"""Pipelines in IPython, where Beam imports pandas."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import apache_beam as beam
import apache_beam.pipeline
import pytest

from beam_jobs.engines.notebooks import allow_notebooks
from tests.support.checkout import ROOT

SHELL = SimpleNamespace(config={"IPKernelApp": {}}, execution_count=7)


def label_of_a_transform():
    return (beam.Pipeline() | "Numbers" >> beam.Create([1])).producer.full_label


# No pandas, and one without what Beam wants of it.
@pytest.mark.parametrize("pandas", [None, SimpleNamespace(__version__="3.1.1")])
def test_transforms_are_applied_in_a_notebook_whatever_pandas_there_is(monkeypatch, pandas):
    applied = apache_beam.pipeline.alter_label_if_ipython
    monkeypatch.setattr(apache_beam.pipeline, "alter_label_if_ipython", applied)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    allow_notebooks()
    assert apache_beam.pipeline.alter_label_if_ipython is applied
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SHELL))
    with pytest.raises((ImportError, AttributeError)):
        label_of_a_transform()
    allow_notebooks()
    assert label_of_a_transform().startswith("Numbers/")


def test_the_labels_of_a_notebook_stay_if_beam_can_make_them(monkeypatch):
    applied = apache_beam.pipeline.alter_label_if_ipython
    name = "apache_beam.runners.interactive.interactive_environment"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SHELL))
    allow_notebooks()
    assert apache_beam.pipeline.alter_label_if_ipython is applied


CELLS = """
import json, sys
from types import SimpleNamespace
shell = SimpleNamespace(config={"IPKernelApp": {}}, execution_count=7)
sys.modules.update(IPython=SimpleNamespace(get_ipython=lambda: shell), pandas=None)

import apache_beam as beam
import numpy as np
from beam_jobs import Feature, Schema, WriteShards
from beam_jobs.__main__ import main
import readers

directory = sys.argv[1]
schema = Schema({"x": Feature("int64")})
with beam.Pipeline() as pipeline:
    pipeline | beam.Create([(str(i), {"x": i}) for i in range(5)]) | WriteShards(directory + "/a", schema)
np.save(directory + "/b.npy", np.ones((3, 2), "f4"))
code = main(["sensors", "--input", directory + "/b.npy", "--output", directory + "/b", "--label", "none"])
print(json.dumps([code, *(len(readers.RecordSource(directory + name)) for name in ("/a", "/b"))]))
"""


@pytest.mark.slow
def test_jobs_run_in_a_notebook(tmp_path):
    command = [sys.executable, "-c", CELLS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 5, 1], done.stderr
