"""A page without a mouse: Tab reaches everything, and the user sees where."""

from __future__ import annotations

from tests.browsers.page import Page
from tests.browsers.working import mark

# Of radio buttons, Tab reaches the chosen one, or the first.
_REACHED = "a[href], summary, button, select, input:not([type=radio]), input[type=radio]:checked"

_STOPS = 30


def unreached(page: Page) -> list[str]:
    """The elements that Tab does not reach, or whose focus is not seen; of the first 30 of the page."""
    names = mark(page, _REACHED, _STOPS)
    reached: set[int] = set()
    unseen = []
    # A table that scrolls is a stop, too.
    for _ in range(4 * len(names)):
        if len(reached) == len(names):
            break
        page.press("Tab")
        number = page.evaluate("document.activeElement.dataset.tested ?? null")
        if number is None or int(number) in reached:
            continue
        reached.add(int(number))
        with_focus = page.pixels()
        page.evaluate("document.activeElement.blur()")
        page.settle()
        if page.pixels() == with_focus:
            unseen.append(f"{names[int(number)]} looks the same with and without the focus")
    missing = [name for number, name in enumerate(names) if number not in reached]
    return [*(f"Tab does not reach {name}" for name in missing), *unseen]
