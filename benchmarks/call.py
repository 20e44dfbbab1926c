"""Calls a function in the environment of a contender, for all benchmarks that compare.

    python call.py MODULE:FUNCTION ARGUMENTS RESULT

ARGUMENTS is a JSON object with the arguments by name; RESULT is the file for the result of the function.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from measure import BenchmarkError


def main() -> None:
    """Calls the function."""
    name, arguments, result = sys.argv[1:]
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    except BenchmarkError as error:
        sys.exit(str(error))
    Path(result).write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # without waiting for workers that would go on reading; the caller ends them


if __name__ == "__main__":
    main()
