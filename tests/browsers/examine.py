"""Looks for faults of a page at three widths and in both colour schemes: `python -m tests.browsers.examine FILE OUT`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browsers import faults
from tests.browsers.chromium import Page, chromium
from tests.engines.services import EngineError

WIDTHS = (390, 1024, 1920)
SCHEMES = ("light", "dark")


def examine(page: Page, path: Path, output: Path | None = None) -> list[str]:
    """The faults of a page, each with the width and the scheme where it was found.

    Args:
        page: The tab of a browser.
        path: The page, a file of HTML.
        output: A folder for a screenshot of each width and scheme, and for the page as it is printed:
            `report-390-dark.png`, `report.pdf`.
    """
    found = []
    for width in WIDTHS:
        for scheme in SCHEMES:
            page.open(path, width, scheme)
            if output:
                (output / f"{path.stem}-{width}-{scheme}.png").write_bytes(page.pixels(whole=True))
            here = faults.overflow(page) + faults.inaccessible(page)
            if scheme == "light" and width != WIDTHS[-1]:
                # The keyboard is tested first, because a click moves the place where the next Tab begins.
                here += faults.unreached(page) if width == 1024 else []
                here += faults.broken_links(page) + faults.broken_tabs(page)
                here += faults.broken_folds(page)
            # Last, because what a click does counts, too.
            here += faults.disquiet(page)
            found += [f"{width} {scheme}: {fault}" for fault in here]
    page.open(path, WIDTHS[0])
    if output:
        (output / f"{path.stem}.pdf").write_bytes(page.pdf())
    return (
        found
        + faults.active_parts(page)
        + faults.broken_pictures(page)
        + faults.lost_in_print(page)
    )


def main(arguments: list[str]) -> int:
    """Writes screenshots and prints the faults; 1 if there are any, 2 if the file or the browser is missing."""
    if len(arguments) != 2 or not Path(arguments[0]).is_file():
        print("usage: python -m tests.browsers.examine FILE OUT", file=sys.stderr)
        return 2
    path, output = map(Path, arguments)
    output.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder, chromium(Path(folder)) as page:
            found = examine(page, path, output)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*found, f"{len(found)} faults; the screenshots are in {output}"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
