"""Prints `metadata.json`, the parameters of the flex template: the jobs' flags and their help.

python docker/metadata.py > docker/metadata.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The flags of this checkout, not those of an installed package.
sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from beam_jobs.cli.flags import Flag
from beam_jobs.cli.parser import declared_flags

# Flags without a parameter: a template always runs on Dataflow, which has its own page; it needs no dry runs,
# no file of flags, and nobody reads its stdout.
_COMMAND_ONLY = ("dry_run", "engine", "engine_page", "config", "json")
_REMOTE = r"^[a-z0-9]+://[^*?\[]+$"
_REGEXES = {"output": _REMOTE, "input": "^[a-z0-9]+://.+$", "table": "^[a-z0-9]+://.+$"}
_BEAM_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "sdk_container_image",
        "label": "sdk_container_image",
        "helpText": "The image of this template, which the workers also run.",
        "regexes": ["^[^ ]+$"],
    },
    {
        "name": "max_num_workers",
        "label": "max_num_workers",
        "helpText": "Maximum number of worker machines (default: Dataflow's).",
        "isOptional": True,
        "regexes": [r"^\d+$"],
    },
]


def _regex(name: str, declared: list[Flag]) -> str:
    """Returns the pattern that a value must match in every job with the flag; empty for any value."""
    if name in _REGEXES:
        return _REGEXES[name]
    if all(flag.kind is bool for flag in declared):
        return "^(true|false)$"
    if all(flag.kind is int and not flag.choices for flag in declared):
        return r"^-?\d+$"
    if all(flag.choices for flag in declared):
        choices = [str(choice) for flag in declared for choice in flag.choices]
        return f"^({'|'.join(dict.fromkeys(choices))})$"
    return ""


def _help(by_job: dict[str, Flag], jobs: list[str]) -> str:
    """Returns a flag's help, which names the jobs unless all of them have the same text."""
    texts: dict[str, list[str]] = {}
    for job, flag in by_job.items():
        texts.setdefault(flag.help, []).append(job)
    if list(texts.values()) == [jobs]:
        return next(iter(texts))
    return ". ".join(f"{', '.join(users)}: {text}" for text, users in texts.items())


def parameters() -> Iterator[dict[str, Any]]:
    """Yields the parameters: the job, two options of Beam, and every flag of every job."""
    declared = declared_flags()
    jobs = list(declared)
    yield {
        "name": "job",
        "label": "job",
        "helpText": "The source of a record: an image, a text, a recording, or a record of an "
        "existing TFRecord file.",
        "regexes": [f"^({'|'.join(jobs)})$"],
    }
    yield from _BEAM_PARAMETERS
    for name in dict.fromkeys(name for flags in declared.values() for name in flags):
        if name in _COMMAND_ONLY:
            continue
        by_job = {job: flags[name] for job, flags in declared.items() if name in flags}
        found: dict[str, Any] = {"name": name, "label": name, "helpText": _help(by_job, jobs)}
        if name != "output":
            found["isOptional"] = True
        if regex := _regex(name, list(by_job.values())):
            found["regexes"] = [regex]
        yield found


def metadata() -> dict[str, Any]:
    """Returns the contents of `metadata.json`."""
    return {
        "name": "beam-shards",
        "description": "Writes images, texts and sensor recordings as TFRecord shards of equal size.",
        "parameters": list(parameters()),
    }


if __name__ == "__main__":
    print(json.dumps(metadata(), indent=1, ensure_ascii=False))
