"""Runs a job with the parameters of the flex template; Dataflow's launcher starts it in the image.

Every template parameter has a name and a value, so the job is a parameter too, and a switch is true
or false.
"""

from __future__ import annotations

import sys

from beam_jobs.__main__ import main
from beam_jobs.cli.parser import declared_flags

# The flags that take no value.
_SWITCHES = {
    name
    for flags in declared_flags().values()
    for name, declared in flags.items()
    if declared.kind is bool
}


def command_line(parameters: list[str]) -> list[str]:
    """Returns the launcher's parameters as arguments of `python -m beam_jobs`."""
    job, rest = [], []
    for parameter in parameters:
        name, _, value = parameter.removeprefix("--").partition("=")
        if name == "job":
            job = [value]
        elif name in _SWITCHES:
            rest += [f"--{name}"] if value.lower() == "true" else []
        else:
            rest.append(parameter)
    return [*job, *rest]


if __name__ == "__main__":
    sys.exit(main(command_line(sys.argv[1:])))
