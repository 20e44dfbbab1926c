"""Pipelines in IPython, where Beam imports pandas."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import apache_beam as beam
import apache_beam.pipeline
import pytest

from beam_jobs.pipeline.steps import allow_notebooks

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
