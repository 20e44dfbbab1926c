"""Strings that run, load or break something where a program takes them for markup, code or a path."""

from __future__ import annotations

from tests.browsers.sample import picture

# Those that run in both browsers as soon as they are parsed in the body of a page. {run} calls a script.
_RUN = (
    "<script>{run}</script>",
    '"><script>{run}</script>',
    "]]><script>{run}</script>",
    "</style><script>{run}</script>",
    "</title></textarea></noscript><script>{run}</script>",
    "<img src=x onerror={run}>",
    "<svg onload={run}>",
    "<svg><script>{run}</script></svg>",
    "<math><mtext><img src=x onerror={run}></mtext></math>",
    "<details open ontoggle={run}>",
    "<iframe srcdoc='<script>with(top){run}</script>'></iframe>",
    "<style onload={run}>x {{}}</style>",
    f"<img src={picture()} onload={{run}}>",
)

# Those that ask the server at {address} for something, at once.
_ASK = (
    "<img src={address}/image.png>",
    "<link rel=stylesheet href={address}/link.css>",
    "<style>@import '{address}/import.css';</style>",
    "<p style='background: url({address}/background.png)'>x</p>",
    "<iframe src={address}/frame.html></iframe>",
    "<svg><image href={address}/drawn.png></image></svg>",
)

# Those that need a click, another place than the body, another reader than a browser, or an old browser.
_REST = (
    '" onmouseover="{run}" autofocus tabindex=1 onfocus="{run}" x="',
    "' onclick='{run}' x='",
    "<svg><animate onbegin={run} attributeName=x dur=1s>",
    "<a href=javascript:{run}>x</a>",
    "<base href={address}/base/>",
    "<meta http-equiv=refresh content='0; url={address}/refresh'>",
    "<noscript><p title='</noscript><img src=x onerror={run}>'>",
    "<svg></p><style><a id='</style><img src=1 onerror={run}>'>",
    "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>",
    "<![CDATA[<script>{run}</script>]]>",
    "&lt;script&gt;{run}&lt;/script&gt;",
    "<scr\0ipt>{run}</scr\0ipt>",
    "\0",
    "javascript:{run}",
    "data:text/html,<script>{run}</script>",
    "{address}/plain",
    "red; background: url({address}/declaration.png)",
    "}} body {{ background: url({address}/rule.png) }}",
    "{{{{7*7}}}}",
    "{{{{constructor.constructor('{run}')()}}}}",
    "{{%raw%}}",
    "{{0.__class__}} %s %n %(x)s",
    "[x](javascript:{run}) ![x]({address}/markdown.png)",
    "../../../../etc/passwd",
    "__proto__",
    "\x1b[31mred\x1b]8;;{address}/terminal\x07x\x1b]8;;\x07\x1b[2J",
    "\u202egnp.exe\u202c \u2066\u2067\u2069\u200f",
    "\ufeff\u200b\u200d\u2028\u2029\u00ad\uffff\ufffe",
    "\ud800",
    "Z\u0336\u0321\u030d\u033f" + "a\u0300\u0301\u0302\u0303\u0304" * 40,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd abc 123",
    "W" * 3000,
    "",
    " ",
)


def hostile_strings(address: str) -> list[str]:
    """All hostile strings; the scripts of string n append n to `window.__ran`.

    Args:
        address: The address of a server that shows whether anything was asked of it.
    """
    return [_filled(text, n, address) for n, text in enumerate((*_RUN, *_ASK, *_REST))]


def page_of(strings: list[str]) -> str:
    """A page that takes strings for markup, each in an element of its own."""
    parts = "\n".join(f"<div>{text}</div>" for text in strings)
    return f"<!doctype html><meta charset=utf-8><title>x</title><body>{parts}"


RUNNING = range(len(_RUN))
ASKING = range(len(_RUN), len(_RUN) + len(_ASK))


def _filled(text: str, number: int, address: str) -> str:
    # Neither quotes nor spaces, so that it fits into any attribute.
    run = f"(window.__ran=window.__ran||[]).push({number})"
    return text.format(run=run, address=address)
