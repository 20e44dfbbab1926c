"""All faults of a page that holds everything in itself, in a browser, at three widths and in both colour schemes."""

from __future__ import annotations

from pathlib import Path

from tests.browsers.accessibility import inaccessible
from tests.browsers.browser import SCHEMES, WIDTHS, Browser
from tests.browsers.keyboard import unreached
from tests.browsers.printing import lost_in_print
from tests.browsers.quiet import active_parts, disquiet
from tests.browsers.working import broken_folds, broken_links, broken_pictures, broken_tabs

_TABS_AT = 1024


def examine(browser: Browser, path: Path, output: Path | None = None) -> list[str]:
    """The faults of a page, each with the browser, the width and the scheme where it was found.

    Args:
        browser: The browser.
        path: The page, a file of HTML.
        output: A folder for a screenshot of each width and scheme, and for the page as it is printed:
            `report-firefox-390-dark.png`, `report-firefox.pdf`.
    """
    found = []
    for width in WIDTHS:
        for scheme in SCHEMES:
            page = browser.open(path, width, scheme)
            if output:
                page.screenshot(output / f"{path.stem}-{browser.name}-{width}-{scheme}.png")
            faults = [f"wider than the window: {name}" for name in page.overflow()]
            faults += inaccessible(page)
            if scheme == SCHEMES[0]:
                # The keyboard is tested first, because a click moves the place where the next Tab begins.
                faults += unreached(page) if width == _TABS_AT else []
                faults += broken_links(page) + broken_tabs(page) + broken_folds(page)
            if (width, scheme) == (WIDTHS[0], SCHEMES[0]):
                faults += active_parts(page) + broken_pictures(page)
                pdf = page.pdf()
                if output:
                    (output / f"{path.stem}-{browser.name}.pdf").write_bytes(pdf)
                faults += lost_in_print(page, pdf)
            # Last, because what a click does counts, too.
            faults += disquiet(page)
            found += [f"{browser.name} {width} {scheme}: {fault}" for fault in faults]
    return found
