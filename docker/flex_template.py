"""What Dataflow's launcher runs in the image: a job from the parameters of the flex template.

A template knows parameters of a name and a value alone, so the job is one of them, and a switch is
true or false.
"""

from __future__ import annotations

import sys

from beam_jobs.__main__ import main
from beam_jobs.cli.flags import switches


def command_line(parameters: list[str]) -> list[str]:
    """The arguments of `python -m beam_jobs` for those that the launcher gives."""
    job, rest = [], []
    for parameter in parameters:
        name, _, value = parameter.removeprefix("--").partition("=")
        if name == "job":
            job = [value]
        elif name in switches():
            rest += [f"--{name}"] if value.lower() == "true" else []
        else:
            rest.append(parameter)
    return [*job, *rest]


if __name__ == "__main__":
    sys.exit(main(command_line(sys.argv[1:])))
