"""Prints `metadata.json`, the parameters of the flex template: the flags of the jobs and their help.

python docker/metadata.py > docker/metadata.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from beam_jobs.cli.flags import declared_flags

# Of the command alone: a dry run is made on the user's own machine, and a template is for Dataflow.
_NOT_OF_A_JOB = ("dry_run", "engine")
_REMOTE = r"^[a-z0-9]+://[^*?\[]+$"
_REGEXES = {"output": _REMOTE, "input": "^[a-z0-9]+://.+$", "table": "^[a-z0-9]+://.+$"}
_BEAMS = [
    {
        "name": "sdk_container_image",
        "label": "sdk_container_image",
        "helpText": "The image of this template, which the workers run as well.",
        "regexes": ["^[^ ]+$"],
    },
    {
        "name": "max_num_workers",
        "label": "max_num_workers",
        "helpText": "Machines at most (default: Dataflow's own).",
        "isOptional": True,
        "regexes": [r"^\d+$"],
    },
]


def _regex(name: str, declared: list[dict[str, Any]]) -> str:
    """What a value must match in every job that has the flag; empty for anything."""
    if name in _REGEXES:
        return _REGEXES[name]
    if all(flag.get("action") == "store_true" for flag in declared):
        return "^(true|false)$"
    if all(flag.get("type") is int and not flag.get("choices") for flag in declared):
        return r"^-?\d+$"
    if all(flag.get("choices") for flag in declared):
        choices = [str(choice) for flag in declared for choice in flag["choices"]]
        return f"^({'|'.join(dict.fromkeys(choices))})$"
    return ""


def _help(by_job: dict[str, dict[str, Any]], jobs: list[str]) -> str:
    """The help of a flag, with the jobs that it is for where it is not for all alike."""
    texts: dict[str, list[str]] = {}
    for job, flag in by_job.items():
        texts.setdefault(flag["help"], []).append(job)
    if list(texts.values()) == [jobs]:
        return next(iter(texts))
    return ". ".join(f"{', '.join(mine)}: {text}" for text, mine in texts.items())


def parameters() -> Iterator[dict[str, Any]]:
    """Yields the parameters: the job, what Beam must know, and every flag of every job."""
    declared = declared_flags()
    jobs = list(declared)
    yield {
        "name": "job",
        "label": "job",
        "helpText": "What a record is: a picture, a text, a recording, or one of anybody's TFRecord "
        "files.",
        "regexes": [f"^({'|'.join(jobs)})$"],
    }
    yield from _BEAMS
    for name in dict.fromkeys(name for flags in declared.values() for name in flags):
        if name in _NOT_OF_A_JOB:
            continue
        by_job = {job: flags[name] for job, flags in declared.items() if name in flags}
        found: dict[str, Any] = {"name": name, "label": name, "helpText": _help(by_job, jobs)}
        if name != "output":
            found["isOptional"] = True
        if regex := _regex(name, list(by_job.values())):
            found["regexes"] = [regex]
        yield found


def metadata() -> dict[str, Any]:
    """The whole file."""
    return {
        "name": "beam-shards",
        "description": "Raw images, texts and sensor arrays to exactly balanced TFRecord shards.",
        "parameters": list(parameters()),
    }


if __name__ == "__main__":
    print(json.dumps(metadata(), indent=1, ensure_ascii=False))
