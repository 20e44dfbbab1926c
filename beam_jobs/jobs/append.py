"""The inputs of `--append`: their keys continue those of the dataset."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from beam_jobs.errors import UsageError
from beam_jobs.jobs.job import Job
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.table_inputs import RowInputs
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.paths import absolute, common_root
from readers.format.manifest import Manifest, open_generation


def appended_job(job: Job, directory: str, prefix: str) -> Job:
    """A job whose keys begin where those of a dataset do, and which has its vocabulary or tokenizer.

    Raises:
        UsageError: There is no dataset, or the inputs are not below the folder of the first inputs.
    """
    try:
        parent = open_generation(directory).manifest
        vocabulary, tokenizer = parent.tokens(directory, read_bytes)
    except (ValueError, OSError) as error:
        raise UsageError(f"--append: {error}") from None
    inputs = _inputs(job.inputs, parent, prefix)
    changes: dict[str, Any] = {"inputs": inputs}
    if hasattr(job, "labels"):
        changes["labels"] = replace(job.labels, root=inputs.root)
    if vocabulary:
        changes["vocabulary"] = vocabulary
    if tokenizer:
        changes |= {"tokens": "file", "tokenizer": tokenizer}
    return replace(job, **changes)


def _inputs(inputs: Inputs, parent: Manifest, prefix: str) -> Inputs:
    if prefix:
        if isinstance(inputs, RowInputs):
            raise UsageError("--key_prefix: the keys of a --table come from its rows: drop it")
        return replace(inputs, prefix=prefix)
    options = parent.options
    named = options.get("input") or options.get("table") or []
    root = common_root([absolute(pattern) for pattern in named]) if named else inputs.root
    has_own_keys = inputs.key.startswith("column:")
    if has_own_keys or inputs.root == root:
        return inputs
    if isinstance(inputs, RowInputs) or not f"{inputs.root}/".startswith(f"{root}/"):
        raise UsageError(
            f"the keys of the dataset are paths below {root}, but the inputs are in {inputs.root}: add "
            f"--key_prefix {os.path.basename(inputs.root)}/"
        )
    return replace(inputs, root=root)
