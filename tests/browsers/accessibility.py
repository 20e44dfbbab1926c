"""Faults of accessibility that axe finds in a page, by the rules of WCAG and by its own."""

from __future__ import annotations

from tests.browsers.page import Page
from tests.engines.packages import axe

_RUN = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(rule =>
  rule.nodes.map(node => `${rule.id}: ${rule.help}: ${node.target.flat().join(" ")}`)))"""


def inaccessible(page: Page) -> list[str]:
    """A line for each element that breaks a rule."""
    # A sandbox has a window of its own: the page does not see axe, and its policy does not stop axe.
    source = axe().read_text("utf-8")
    page.evaluate(f"(() => {{ {source}\n return null }})()")
    found: list[str] = page.evaluate(_RUN)
    return found
