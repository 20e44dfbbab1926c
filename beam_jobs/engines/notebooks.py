"""Lets Beam build pipelines in IPython and Jupyter without pandas."""

from __future__ import annotations

import importlib
import sys

import apache_beam.pipeline
from apache_beam.utils.interactive_utils import is_in_ipython


def allow_notebooks() -> None:
    """Lets pipelines be built in a notebook although Beam cannot import its interactive runner.

    In a notebook, Beam puts the number of the cell before the label of each transform, and imports
    that runner to do so. Without pandas, or with pandas 3, this import fails; labels then stay as
    they are.
    """
    # Beam's check imports IPython wherever it is installed.
    if "IPython" not in sys.modules or not is_in_ipython():
        return
    try:
        importlib.import_module("apache_beam.runners.interactive.interactive_environment")
    except Exception:  # An AttributeError with pandas 3.
        apache_beam.pipeline.alter_label_if_ipython = lambda transform, pvalueish: None
