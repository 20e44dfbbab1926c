"""What a user can do with a page by pointing: links, tabs and folds; and its pictures."""

from __future__ import annotations

import json
from typing import Any

from tests.browsers.page import NAME_OF, Page

# Of each kind, the first ones are tried.
_LINKS, _GROUPS, _TABS, _FOLDS = 12, 4, 4, 6

# A page may begin to scroll after it seemed settled, on a busy machine.
_SCROLL_MS = 3000

_SEEN = "element => element.checkVisibility({visibilityProperty: true})"

# A link that skips the navigation is left of the page until it has the focus.
_POINTED_AT = f"""element => ({_SEEN})(element) && element.getBoundingClientRect().right + scrollX > 0
  && element.getBoundingClientRect().bottom + scrollY > 0"""

# Which elements of the page are seen, one character each.
_WHICH_ARE_SEEN = (
    f"[...document.body.querySelectorAll('*')].map(e => ({_SEEN})(e) ? 1 : 0).join('')"
)


def mark(page: Page, elements: str, most: int, where: str = _SEEN) -> list[str]:
    """Gives some elements the attribute `data-tested`: 0, 1, 2 ...; returns their names.

    Args:
        page: The page.
        elements: A CSS selector.
        most: How many to mark.
        where: Which of them, a function in JavaScript; by default, those that are seen.
    """
    names: list[str] = page.evaluate(
        f"""(() => {{
          document.querySelectorAll("[data-tested]").forEach(e => e.removeAttribute("data-tested"));
          const found = [...document.querySelectorAll({json.dumps(elements)})].filter({where});
          found.slice(0, {most}).forEach((element, number) => element.dataset.tested = number);
          return found.slice(0, {most}).map({NAME_OF});
        }})()"""
    )
    return names


def broken_links(page: Page) -> list[str]:
    """Links of the navigation and of the page that do not lead to a visible element, and ids that occur twice."""
    found: list[str] = page.evaluate(
        """(() => {
          const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
          const twice = ids.filter((id, number) => ids.indexOf(id) !== number);
          const links = [...document.querySelectorAll("a[href^='#']")].map(link => link.getAttribute("href"));
          const lost = links.filter(link => !ids.includes(decodeURIComponent(link.slice(1))));
          return [...twice.map(id => `id ${id} occurs twice`), ...lost.map(link => `${link} leads nowhere`)];
        })()"""
    )
    for number, name in enumerate(mark(page, "a[href^='#']:not([href='#'])", _LINKS, _POINTED_AT)):
        page.click(f"[data-tested='{number}']")
        place: dict[str, Any] = page.evaluate(
            f"""(async () => {{
              const link = document.querySelector("[data-tested='{number}']").getAttribute("href");
              const look = () => {{
                const target = document.getElementById(decodeURIComponent(link.slice(1)));
                const top = target ? target.getBoundingClientRect().top : NaN;
                return {{followed: location.hash === link, seen: target !== null && ({_SEEN})(target),
                         near: -2 <= top && top < innerHeight}};
              }};
              const last = performance.now() + {_SCROLL_MS};
              while (Object.values(look()).includes(false) && performance.now() < last)
                await new Promise(done => setTimeout(done, 20));
              return look();
            }})()"""
        )
        if not all(place.values()):
            missing = ", ".join(key for key, value in place.items() if not value)
            found.append(f"a click on {name} does not show its target (not {missing})")
    return found


def broken_tabs(page: Page) -> list[str]:
    """Radio buttons that a click on their label, or an arrow key, does not choose, or that show nothing else."""
    found = []
    for name in page.evaluate(
        "[...new Set([...document.querySelectorAll('input[type=radio]')].filter(e => !e.closest('details:not([open])')).map(e => e.name))]"
    )[:_GROUPS]:
        group = f"input[type=radio][name={json.dumps(name)}]"
        count = page.evaluate(f"document.querySelectorAll({json.dumps(group)}).length")
        for number in range(min(count, _TABS)):
            before = page.evaluate(_WHICH_ARE_SEEN)
            tab = f"document.querySelectorAll({json.dumps(group)})[{number}]"
            was = page.evaluate(f"{tab}.checked")
            label: str | None = page.evaluate(
                f"""(() => {{
                  document.querySelectorAll("[data-tested]").forEach(e => e.removeAttribute("data-tested"));
                  const label = {tab}.labels[0];
                  if (label) label.dataset.tested = "tab";
                  return label ? {NAME_OF}(label) : null;
                }})()"""
            )
            if label is None:
                found.append(f"tab {number} of {name!r} has no label")
                continue
            page.click("[data-tested=tab]")
            if not page.evaluate(f"{tab}.checked"):
                found.append(f"a click on {label} does not choose the tab")
            elif not was and page.evaluate(_WHICH_ARE_SEEN) == before:
                found.append(f"the tab of {label} shows nothing else")
        page.evaluate(f"document.querySelectorAll({json.dumps(group)})[0].click()")
        page.evaluate(f"document.querySelectorAll({json.dumps(group)})[0].focus()")
        page.press("Right")
        if count > 1 and not page.evaluate(
            f"document.querySelectorAll({json.dumps(group)})[1].checked"
        ):
            found.append(f"the right arrow does not choose the next tab of {name!r}")
    return found


def broken_folds(page: Page) -> list[str]:
    """`details` that a click on their summary does not open or close."""
    found = []
    for number, name in enumerate(mark(page, "summary", _FOLDS)):
        fold = f"document.querySelector(\"[data-tested='{number}']\").parentElement"
        before = page.evaluate(f"{fold}.open")
        page.click(f"[data-tested='{number}']")
        if page.evaluate(f"{fold}.open") == before:
            found.append(f"a click on {name} neither opens nor closes it")
        elif before:  # Left open, it would move what is below.
            page.click(f"[data-tested='{number}']")
    return found


def broken_pictures(page: Page) -> list[str]:
    """Pictures that the browser cannot decode."""
    found: list[str] = page.evaluate(
        """Promise.all([...document.images].map(image => image.decode().then(() => null,
          () => `picture "${image.alt}" cannot be decoded`)))
        .then(all => all.filter(fault => fault !== null))"""
    )
    return found
