"""What is wrong with a page that holds everything in itself: each function returns a line for each fault."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from typing import Any

from pypdf import PdfReader

from tests.browsers.chromium import NAME_OF, Page
from tests.engines.packages import axe

# Of each kind, the first ones are tried.
_LINKS, _GROUPS, _TABS, _FOLDS, _STOPS = 6, 2, 3, 3, 12

_SEEN = "(element => element.checkVisibility({visibilityProperty: true}))"

# A link that skips the navigation is left of the page until it has the focus.
_POINTED_AT = f"""(element => {_SEEN}(element) && element.getBoundingClientRect().right + scrollX > 0
  && element.getBoundingClientRect().bottom + scrollY > 0)"""

# Which elements of the page are seen, one character each.
_WHICH_ARE_SEEN = f"[...document.body.querySelectorAll('*')].map(e => {_SEEN}(e) ? 1 : 0).join('')"

_WORD = re.compile(r"[A-Za-z0-9]{3,}")

_AXE = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(rule =>
  rule.nodes.map(node => `${rule.id}: ${rule.help}: ${node.target.flat().join(" ")}`)))"""

# Elements that end right of the window, unless they are inside of one that scrolls or hides what is too wide.
_OVERFLOW = f"""(() => {{
  const root = document.documentElement, limit = root.clientWidth;
  if (Math.max(root.scrollWidth, document.body.scrollWidth) <= limit) return [];
  const wide = [...document.querySelectorAll("body *")].filter(element =>
    element.getBoundingClientRect().right + scrollX > limit + 0.5
    && [...element.children].every(child => child.getBoundingClientRect().right + scrollX <= limit + 0.5));
  const names = wide.slice(0, 5).map({NAME_OF});
  return names.length ? names : [`${{root.scrollWidth}} pixels instead of ${{limit}}`];
}})()"""

# Whatever could run or load something later, when the user points at it for example, as the browser has understood
# the page. Links to other sites are no fault: only a click follows them.
_ACTIVE = """(() => {
  const found = [];
  const elements = "script, iframe, frame, object, embed, applet, base, form, portal, foreignObject, animate, set,"
    + " math, template, noscript, meta[http-equiv=refresh i]";
  for (const element of document.querySelectorAll(elements)) found.push(`element ${element.localName}`);
  for (const element of document.querySelectorAll("*")) {
    for (const {name, value} of element.attributes) {
      const text = value.replace(/[\\u0000-\\u0020]/g, "").toLowerCase();
      const where = `${element.localName} ${name}="${value.slice(0, 60)}"`;
      if (/^on/i.test(name)) found.push(where);
      const held = element.localName === "a" ? /^(#|https:\\/\\/)/ : /^(#|data:((image|audio)\\/|,$))/;
      if (/^(href|xlink:href|src|srcset|action|formaction|data|poster|background|ping|manifest)$/i.test(name)
          && !held.test(text)) found.push(where);
      if (name === "style" && /url\\(|expression|image-set|@import/.test(text)) found.push(where);
    }
  }
  return found;
})()"""

_PICTURES = """Promise.all([...document.images].map(image => image.decode().then(() => null,
  () => `picture "${image.alt}" cannot be decoded`))).then(all => all.filter(fault => fault !== null))"""

_LINKS_AND_IDS = """(() => {
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  const twice = ids.filter((id, number) => ids.indexOf(id) !== number);
  const links = [...document.querySelectorAll("a[href^='#']")].map(link => link.getAttribute("href"));
  const lost = links.filter(link => !ids.includes(decodeURIComponent(link.slice(1))));
  return [...twice.map(id => `id ${id} occurs twice`), ...lost.map(link => `${link} leads nowhere`)];
})()"""


def disquiet(page: Page) -> list[str]:
    """What the page logged, asked for, opened or ran."""
    ran = page.ran()
    return page.told() if ran is None else [*page.told(), f"script: {ran}"]


def active_parts(page: Page) -> list[str]:
    """Elements and attributes that could run or load something."""
    return _lines(page, _ACTIVE)


def inaccessible(page: Page) -> list[str]:
    """Elements that break a rule of axe."""
    return _lines(page, f"(() => {{ {axe().read_text('utf-8')}\n return {_AXE} }})()")


def overflow(page: Page) -> list[str]:
    """Elements that make the page wider than the window."""
    return [f"wider than the window: {name}" for name in _lines(page, _OVERFLOW)]


def broken_pictures(page: Page) -> list[str]:
    """Pictures that the browser cannot decode."""
    return _lines(page, _PICTURES)


def broken_links(page: Page) -> list[str]:
    """Links within the page that do not lead to a visible element, and ids that occur twice."""
    found = _lines(page, _LINKS_AND_IDS)
    for number, name in enumerate(_mark(page, "a[href^='#']:not([href='#'])", _LINKS, _POINTED_AT)):
        page.click(_marked(number))
        # It may begin to scroll after it seemed settled, on a busy machine.
        place: dict[str, Any] = page.evaluate(
            f"""(async () => {{
              const link = {_marked(number)}.getAttribute("href");
              const look = () => {{
                const target = document.getElementById(decodeURIComponent(link.slice(1)));
                const top = target ? target.getBoundingClientRect().top : NaN;
                return {{followed: location.hash === link, seen: target !== null && {_SEEN}(target),
                         near: -2 <= top && top < innerHeight}};
              }};
              const last = performance.now() + 3000;
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
    for group in page.evaluate(
        "[...new Set([...document.querySelectorAll('input[type=radio]')]"
        ".filter(e => !e.closest('details:not([open])')).map(e => e.name))]"
    )[:_GROUPS]:
        tabs = f"document.querySelectorAll({json.dumps(f'input[name={json.dumps(group)}]')})"
        for number in range(min(page.evaluate(f"{tabs}.length"), _TABS)):
            tab, before = f"{tabs}[{number}]", page.evaluate(_WHICH_ARE_SEEN)
            was = page.evaluate(f"{tab}.checked")
            page.click(f"{tab}.labels[0]")
            if not page.evaluate(f"{tab}.checked"):
                found.append(f"a click does not choose the tab {number} of {group}")
            elif not was and page.evaluate(_WHICH_ARE_SEEN) == before:
                found.append(f"the tab {number} of {group} shows nothing else")
        page.evaluate(f"({tabs}[0].click(), {tabs}[0].focus())")
        page.press("ArrowRight")
        if not page.evaluate(f"{tabs}.length < 2 || {tabs}[1].checked"):
            found.append(f"the right arrow does not choose the next tab of {group}")
    return found


def broken_folds(page: Page) -> list[str]:
    """`details` that a click on their summary does not open or close."""
    found = []
    for number, name in enumerate(_mark(page, "summary", _FOLDS)):
        before = page.evaluate(f"{_marked(number)}.parentElement.open")
        page.click(_marked(number))
        if page.evaluate(f"{_marked(number)}.parentElement.open") == before:
            found.append(f"a click on {name} neither opens nor closes it")
        elif before:  # Left open, it would move what is below.
            page.click(_marked(number))
    return found


def unreached(page: Page) -> list[str]:
    """The elements that Tab does not reach, or whose focus is not seen; of the first 12 of the page."""
    # Of radio buttons, Tab reaches the chosen one.
    stops = "a[href], summary, button, select, input:not([type=radio]), input[type=radio]:checked"
    names = _mark(page, stops, _STOPS)
    left, unseen = set(range(len(names))), []
    # A table that scrolls is a stop, too.
    for _ in range(4 * len(names)):
        if not left:
            break
        page.press("Tab")
        number = int(page.evaluate("document.activeElement.dataset.tested ?? -1"))
        if number not in left:
            continue
        left.remove(number)
        with_focus = page.pixels()
        page.evaluate("document.activeElement.blur()")
        page.settle()
        if page.pixels() == with_focus:
            unseen.append(f"{names[number]} looks the same with and without the focus")
    return [*(f"Tab does not reach {names[number]}" for number in left), *unseen]


def lost_in_print(page: Page) -> list[str]:
    """Words of a page that its print lacks, because they are cut, and sheets without text and picture."""
    sheets = PdfReader(io.BytesIO(page.pdf())).pages
    texts = [sheet.extract_text() for sheet in sheets]
    # A line may break inside a word, letters of one word may be placed one by one, and others be one ligature.
    printed = re.sub(r"\s", "", unicodedata.normalize("NFKC", "".join(texts)))
    wanted = dict.fromkeys(_WORD.findall(page.printed_text()))
    found = [f"printed without {word!r}" for word in wanted if word not in printed]
    for number, (sheet, text) in enumerate(zip(sheets, texts, strict=True), 1):
        if not text.strip() and not sheet.images:
            found.append(f"sheet {number} of {len(sheets)} is empty")
    return found


def _lines(page: Page, script: str) -> list[str]:
    found: list[str] = page.evaluate(script)
    return found


def _mark(page: Page, elements: str, most: int, where: str = _SEEN) -> list[str]:
    """Numbers the first elements of a CSS selector of which a function in JavaScript is true; returns their names."""
    return _lines(
        page,
        f"""(() => {{
          document.querySelectorAll("[data-tested]").forEach(e => e.removeAttribute("data-tested"));
          const found = [...document.querySelectorAll({json.dumps(elements)})].filter({where});
          found.slice(0, {most}).forEach((element, number) => element.dataset.tested = number);
          return found.slice(0, {most}).map({NAME_OF});
        }})()""",
    )


def _marked(number: int) -> str:
    return f"document.querySelector(\"[data-tested='{number}']\")"
