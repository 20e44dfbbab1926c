"""Each function finds a fault that is planted in a sound page, and none in the page itself."""

from __future__ import annotations

import pytest

from tests.browsers import faults

pytestmark = pytest.mark.browsers

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>A sample</title><style>
section {{ min-height: 90vh }} .tabs input {{ position: absolute; opacity: 0 }} .panel {{ display: none }}
input:focus-visible + label {{ outline: 3px solid }} a:focus {{ outline: 3px solid }}
#a:checked ~ #of-a, #b:checked ~ #of-b {{ display: block }} @media print {{ .panel {{ display: block }} }} {style}
</style><main><h1>A sample</h1><a href="#more">More</a>
<section class="tabs"><input type="radio" name="split" id="a" checked><label for="a">train</label>
<input type="radio" name="split" id="b"><label for="b">test</label>
<p class="panel" id="of-a">Training</p><p class="panel" id="of-b">Testing</p></section>
<details><summary>How</summary><p>By a fixed seed.</p></details>
<section id="more"><h2>More</h2>{body}</section></main></html>"""


@pytest.mark.parametrize(
    ("look", "body", "style", "fault"),
    [
        (faults.disquiet, "<script>window.__ran = 7</script>", "", "script-src"),
        (faults.disquiet, "<img src='http://127.0.0.1:9/a.png' alt='7'>", "", "img-src"),
        (faults.disquiet, "<iframe title='7' srcdoc='x'></iframe>", "", "frame"),
        (faults.active_parts, "<a href='java&#9;script:x()'>x</a>", "", "a href="),
        (faults.inaccessible, "<p>x</p>", "p { color: #ddd }", "color-contrast"),
        (faults.overflow, "<p id='broad' style='width: 1700px'>x</p>", "", 'p#broad "x"'),
        (faults.broken_links, "<a href='#nowhere'>7</a>", "", "#nowhere leads nowhere"),
        (faults.broken_links, "<a href='#x'>7</a><div hidden id='x'>x</div>", "", 'a "7" does not show'),
        (faults.broken_tabs, "", ".panel { display: block !important }", "shows nothing else"),
        (faults.broken_tabs, "", ".tabs { pointer-events: none }", "does not choose the tab"),
        (faults.broken_tabs, "", ".tabs input { display: none }", "the right arrow does not choose"),
        (faults.broken_folds, "", "details { pointer-events: none }", "neither opens nor closes it"),
        (faults.broken_pictures, "<img src='data:image/png;base64,iVBORw0KGgo=' alt='7'>", "", 'picture "7"'),
        (faults.unreached, "", "a:focus { outline: none !important }", "the same with and without the focus"),
        (faults.unreached, "<a href='#more' tabindex='-1'>7</a>", "", 'Tab does not reach a "7"'),
        (faults.lost_in_print, "<p style='width: 4000px; text-align: right'>Schluss</p>", "", "without 'Schluss'"),
        (faults.lost_in_print, "", "#more { break-before: page; height: 250vh }", "is empty"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found_and_none_without_it(page, tmp_path, look, body, style, fault):
    path = tmp_path / "page.html"
    path.write_text(_PAGE.format(body="", style=""), "utf-8")
    assert look(page.open(path)) == []
    path.write_text(_PAGE.format(body=body, style=style), "utf-8")
    assert fault in "\n".join(look(page.open(path)))
