"""A page that runs nothing, asks for nothing and says nothing, and that has nothing that could."""

from __future__ import annotations

from tests.browsers.page import Page

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


def disquiet(page: Page) -> list[str]:
    """A line for everything that the page logged, asked for, opened or ran."""
    found = [f"in the console: {message}" for message in page.messages()]
    found += [f"request: {url}" for url in page.requests()]
    found += [f"frame or window: {url}" for url in page.frames()]
    found += [f"dialog: {message}" for message in page.dialogs()]
    ran = page.ran()
    return found if ran is None else [*found, f"script: {ran}"]


def active_parts(page: Page) -> list[str]:
    """A line for each element and attribute that could run or load something."""
    found: list[str] = page.evaluate(_ACTIVE)
    return found
