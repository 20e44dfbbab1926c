"""Strings that run, load or break something where a program takes them for markup, code or a path, and a dataset of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from readers.format.schema import Schema
from tests.support.datasets import Record, manifest_bytes, write_dataset
from tests.support.images import encoded

# Nobody listens there.
ADDRESS = "http://127.0.0.1:9"

# Those that run as soon as they are parsed in the body of a page. {run} calls a script.
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
)

# Those that ask {address} for something, at once.
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
    "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>",
    "&lt;script&gt;{run}&lt;/script&gt;",
    "<scr\0ipt>{run}</scr\0ipt>",
    "javascript:{run}",
    "red; background: url({address}/declaration.png)",
    "}} body {{ background: url({address}/rule.png) }}",
    "{{{{7*7}}}}",
    "{{0.__class__}} %s %n %(x)s",
    "[x](javascript:{run}) ![x]({address}/markdown.png)",
    "../../../../etc/passwd",
    "__proto__",
    "\x1b[31mred\x1b]8;;{address}/terminal\x07x\x1b]8;;\x07\x1b[2J",
    "\u202egnp.exe\u202c \u2066\u2067\u2069\u200f\ufeff\u200b\u2028\uffff\ufffe",
    "\ud800",
    "Z\u0336\u0321\u030d\u033f" + "a\u0300\u0301\u0302\u0303\u0304" * 40,
    "W" * 3000,
    "",
)

RUNNING = range(len(_RUN))
ASKING = range(len(_RUN), len(_RUN) + len(_ASK))
# The scripts of string n append n to `window.__ran`; neither quotes nor spaces, so that they fit into any attribute.
STRINGS = [
    text.format(run=f"(window.__ran=window.__ran||[]).push({n})", address=ADDRESS)
    for n, text in enumerate((*_RUN, *_ASK, *_REST))
]


def write_hostile(folder: Path) -> Path:
    """Writes a dataset whose names and values are the strings, as far as its format permits; returns its directory.

    It has features of all kinds, with the numbers that are hardest to draw, and an empty split.
    """
    names = [text for text in STRINGS if _is_name(text)][:12]
    own: dict[str, Any] = dict.fromkeys(("key", "text", "caption", *names), ("string", ()))
    own |= {
        "label": ("int64", ()),
        "words": ("string", (None,)),
        "image": ("uint8", (None, None, 3), "png"),
        "signal": ("float64", (None, 2)),
        "half": ("float16", (2,)),
        "short": ("bfloat16", (None,)),
        "complex": ("complex64", (3,)),
        "large": ("uint64", ()),
        "steps": ("float32", (None, None), "sequence"),
        "wide": ("float64", ()),
        "grid": ("int64", (None, None)),
    }
    rng = np.random.default_rng(0)
    values = [text.encode("utf-8", "replace") for text in STRINGS]
    records: list[Record] = []
    for number in range(10):
        record: Record = {
            name: values[(4 * number + place) % len(values)]
            for place, name in enumerate(["key", "text", "caption", *names])
        }
        words = [*values[number::10], "\ud800".encode("utf-8", "surrogatepass"), b"\xff<script>\0"]
        record |= {
            "label": [2**63 - 1, -(2**63), number][number % 3],
            "words": np.array(words, object),
            "image": encoded(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8), "PNG"),
            "signal": np.array([[1e308, -1e308]] * (number % 3)).reshape(-1, 2),
            "half": np.array([np.nan, np.inf], np.float16),
            "short": np.full(number, number, ml_dtypes.bfloat16),
            "complex": np.ones(3, np.complex64),
            "large": 2**64 - 1 - number,
            "steps": [np.ones(2, np.float32)] * (number % 4),
            "wide": 10.0 ** rng.integers(-300, 300),
            "grid": np.ones((number % 3, number % 2), np.int64),
        }
        records.append(record)
    directory = folder / "<svg onload=(window.__ran=window.__ran||[]).push(1000)> &amp; {{7*7}}"
    splits = {"train": [records], "__proto__": [records[:1]], "empty": []}
    write_dataset(directory, Schema(own), splits)
    _make_hostile(directory / "manifest.json", STRINGS)
    return directory


def _is_name(text: str) -> bool:
    try:
        Schema({text: ("string", ())})
    except ValueError:
        return False
    return bool(text.strip())


def _make_hostile(path: Path, strings: Sequence[str]) -> None:
    manifest = json.loads(path.read_text("utf-8"))
    manifest["label_names"] = list(strings)
    manifest["class_names"] = {"label": list(strings)}
    manifest["options"] = {"job": "images", "input": list(strings), "nested": [{"x": strings[0]}]}
    manifest["options"] |= {text: text for text in strings}
    manifest["versions"] = {text: text for text in strings}
    # Escaped, halves of surrogate pairs are valid JSON.
    path.write_bytes(manifest_bytes(manifest))
