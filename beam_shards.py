"""The command `beam-shards`: the jobs of `beam_jobs`, and the commands of `readers` on a dataset."""

from __future__ import annotations

import sys

# The commands of `python -m readers`. Importing them takes five times as long as this help.
READERS = {
    "info": "show the schema, splits, labels and statistics",
    "head": "show the first records",
    "verify": "compare every byte with the manifest; exit code 1 if there is a problem",
    "check": "look for problems in the data; exit code 1 if there is an error",
    "report": "write an HTML page about the records, their values and their problems",
    "card": "write README.md, and the files with which TensorFlow Datasets opens the shards",
    "files": "print the path of each shard, for other programs",
    "log": "list the generations: their dates, commands and records",
    "diff": "count the keys in which two generations or datasets differ",
    "bench": "measure how fast this machine reads, and name the slowest part",
}


def main() -> int:
    """Runs the command that was typed; returns the exit code."""
    if len(sys.argv) > 1 and sys.argv[1] in READERS:
        from readers.__main__ import main as read

        return read()
    from beam_jobs.__main__ import program

    return program(_write)


def _write(arguments: list[str]) -> int:
    """Runs a job, or shows the help or a mistake; returns the exit code."""
    from beam_jobs.__main__ import failed, show
    from beam_jobs.__main__ import main as write
    from beam_jobs.changes.command import CHANGES
    from beam_jobs.cli.parser import COMMANDS
    from beam_jobs.errors import did_you_mean

    first, names = arguments[0] if arguments else "", [*COMMANDS, *CHANGES, *READERS]
    if not first:
        print(_help(COMMANDS, CHANGES), file=sys.stderr)
        return 2
    if first in ("-h", "--help", "--help-all", "--help_all"):
        return show(_help(COMMANDS, CHANGES))
    if first.startswith("-") or first in COMMANDS or first in CHANGES:
        return write(arguments)
    message = f"unknown command {first}: expected {', '.join(names[:-1])} or {names[-1]}"
    return failed(f"{message}{did_you_mean(first, names)}", 2, "--json" in arguments)


def _help(jobs: dict[str, str], changes: dict[str, str]) -> str:
    lines = ["usage: beam-shards COMMAND [flags]; beam-shards COMMAND --help shows the flags"]
    groups = ("write a dataset", jobs), ("change a dataset", changes), ("use a dataset", READERS)
    for title, commands in groups:
        lines += [f"\n{title}:", *(f"  {name:9} {text}" for name, text in commands.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
