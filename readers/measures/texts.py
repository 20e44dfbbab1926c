"""Measures of a text."""

from __future__ import annotations

import re

# UTF-8 that was read as Latin-1 or Windows-1252 and encoded again: a lead byte as a letter, then a
# continuation byte as that encoding's character for it.
_MOJIBAKE = re.compile(
    "[ÂÃÐÑÎÏâ][\x80-\xbf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178]"
)
_MARKUP = re.compile(
    r"</?(?:a|b|br|div|em|h[1-6]|i|img|li|ol|p|script|span|strong|style|table|td|tr|ul)(?:\s[^<>]{0,500})?/?>"
    r"|&(?:amp|lt|gt|quot|nbsp|#\d{1,6});",
    re.IGNORECASE,
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")

# The most characters of a text that are measured.
_LOOKED_AT = 100_000


def measure_text(data: bytes) -> dict[str, float]:
    """Measures a text in UTF-8.

    `characters` and `words` are its lengths, and `letters` is the share of letters. `mojibake`, `markup` and
    `control` count character pairs of a wrong encoding, HTML tags and entities, and control or
    replacement characters, in the first 100,000 characters.
    """
    text = data.decode("utf-8", "replace")
    start = text[:_LOOKED_AT]
    return {
        "characters": len(text),
        "words": len(text.split()),
        "letters": sum(map(str.isalpha, start)) / len(start) if start else 0.0,
        "mojibake": len(_MOJIBAKE.findall(start)),
        "markup": len(_MARKUP.findall(start)),
        "control": len(_CONTROL.findall(start)),
    }
