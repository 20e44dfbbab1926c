"""The process of a rival of `check_shards.py`: looks for faults, and makes its page.

    python planted_process.py CONTENDER DATASET FOLDER --result FILE --pages FOLDER

The result is which names it gives for each kind of fault it looks for, and the seconds that its page took.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path

from planted.contender import CONTENDERS


def main() -> None:
    """Runs a rival on a dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender")
    parser.add_argument("dataset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--pages", type=Path, required=True)
    flags = parser.parse_args()
    finder = importlib.import_module(CONTENDERS[flags.contender].module)
    named, page = finder.find(flags.dataset, flags.folder, flags.pages)
    began = time.monotonic()
    if page:
        flags.pages.mkdir(parents=True, exist_ok=True)
        page()
    found = {kind: sorted(set(names)) for kind, names in named.items()}
    result = {"named": found, "page_seconds": time.monotonic() - began if page else None}
    flags.result.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
