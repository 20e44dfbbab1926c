"""A small page of the kind of a report: one file without scripts, whose policy lets nothing in."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'\">"
)

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --link: #0645ad; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --paper: #181818; --link: #9cc2ff; } }
body { color: var(--ink); background: var(--paper); font: 16px sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: 1rem; list-style: none; padding: 0; }
section { min-height: 60vh; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
td, th { padding: 0.2rem 1rem; text-align: left; }
.tabs input { position: absolute; opacity: 0; }
.tabs label { padding: 0.3rem 1rem; border: 1px solid; display: inline-block; }
.tabs input:focus-visible + label { outline: 3px solid var(--link); }
.tabs input:checked + label { font-weight: bold; }
.panel { display: none; }
#tab-a:checked ~ #panel-a, #tab-b:checked ~ #panel-b { display: block; }
@media print { nav, .tabs label { display: none; } .panel { display: block; } }
"""


def picture() -> str:
    """A small picture as an address of data."""
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def sample_page(body: str = "", style: str = "", policy: str = POLICY) -> str:
    """The page.

    Args:
        body: More of the last section.
        style: More rules of style.
        policy: What stands for the policy.
    """
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8">{policy}<meta name="viewport" content="width=device-width">
<title>A sample</title><style>{_STYLE}{style}</style></head>
<body>
<header><h1>A sample</h1>
<nav aria-label="Sections"><ul><li><a href="#numbers">Numbers</a></li><li><a href="#records">Records</a></li>
<li><a href="#more">More</a></li></ul></nav></header>
<main>
<section id="numbers"><h2>Numbers</h2>
<div class="wide" tabindex="0" role="region" aria-label="Counts"><table><thead><tr><th scope="col">split</th><th scope="col">records</th></tr></thead>
<tbody><tr><td>train</td><td>1,024</td></tr><tr><td>test</td><td>256</td></tr></tbody></table></div>
<svg role="img" aria-label="Bars" viewBox="0 0 100 40" width="200" height="80">
<rect x="5" y="10" width="20" height="30" fill="#4477aa"/><path d="M0 40L100 40" stroke="currentColor"/></svg>
</section>
<section id="records"><h2>Records</h2>
<div class="tabs">
<input type="radio" name="split" id="tab-a" checked><label for="tab-a">train</label>
<input type="radio" name="split" id="tab-b"><label for="tab-b">test</label>
<div class="panel" id="panel-a"><p>Records of training</p><img src="{picture()}" alt="32 x 48 pixels" width="96" height="64"></div>
<div class="panel" id="panel-b"><p>Records of testing</p></div>
</div>
<details><summary>How they were drawn</summary><p>By a fixed seed.</p></details>
</section>
<section id="more"><h2>More</h2><p>Farewell</p>{body}</section>
</main>
</body></html>"""
