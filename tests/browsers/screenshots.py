"""Screenshots of a page in Chromium and Firefox, and its faults: `python -m tests.browsers.screenshots FILE OUT`."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.browsers.browser import BROWSERS
from tests.browsers.examine import examine
from tests.engines.services import EngineError


def main(arguments: list[str]) -> int:
    """Writes the screenshots and prints the faults; 1 if there are any, 2 if a browser is missing."""
    if len(arguments) != 2 or not Path(arguments[0]).is_file():
        print("usage: python -m tests.browsers.screenshots FILE OUT", file=sys.stderr)
        return 2
    path, output = map(Path, arguments)
    output.mkdir(parents=True, exist_ok=True)

    def examined(name: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder, BROWSERS[name](Path(folder)) as browser:
            return examine(browser, path, output)

    try:
        with ThreadPoolExecutor(len(BROWSERS)) as threads:
            faults = [fault for found in threads.map(examined, BROWSERS) for fault in found]
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults; the screenshots are in {output}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
