"""Numbers that describe a text, and the words, scripts and control characters of many."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

# UTF-8 that was read as Latin-1 or Windows-1252 and encoded again: a lead byte as a letter, and then a
# continuation byte as whatever that encoding has there.
_MOJIBAKE = re.compile(
    "[ÂÃÐÑÎÏâ][\x80-\xbf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178]"
)
_MARKUP = re.compile(
    r"</?(?:a|b|br|div|em|h[1-6]|i|img|li|ol|p|script|span|strong|style|table|td|tr|ul)(?:\s[^<>]{0,500})?/?>"
    r"|&(?:amp|lt|gt|quot|nbsp|#\d{1,6});",
    re.IGNORECASE,
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")

# Characters of a longer text that are looked at.
_LOOKED_AT = 100_000


def measure_text(data: bytes) -> dict[str, float]:
    """Numbers that describe a text in UTF-8.

    `characters` and `words` are its lengths. `letters` is the share of letters. `mojibake`, `markup` and
    `control` are the numbers of character pairs of a wrong encoding, of tags and entities of HTML, and
    of control characters and replaced ones, in the first 100,000 characters.
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


# Characters of a longer text that are looked at, and characters of a longer word that are kept.
CHARACTERS, _WORD = 10_000, 40

# Different words of a run of texts, and of all: of more, the rarest are dropped.
_MOST_WORDS = 50_000

# The first words of the names of characters that stand before their script, and a script that is named otherwise.
_WIDTHS = ("FULLWIDTH", "HALFWIDTH")
_NAMED = {"CJK": "Han"}


@dataclass
class Words:
    """What was found in texts.

    Attributes:
        words: How often each word occurs, in lower case; the rarest of very many are left out.
        scripts: How many letters each script has.
        control: How often each control character and replaced one occurs, by its number.
    """

    words: Counter[str] = field(default_factory=Counter)
    scripts: Counter[str] = field(default_factory=Counter)
    control: Counter[int] = field(default_factory=Counter)

    def add(self, data: bytes) -> None:
        """Adds a text in UTF-8."""
        # Four bytes a character at most.
        text = data[: 4 * CHARACTERS].decode("utf-8", "replace")[:CHARACTERS]
        self.words.update(word[:_WORD] for word in text.lower().split())
        for character, count in Counter(text).items():
            if character.isalpha() and (script := _script(character)):
                self.scripts[script] += count
            elif character not in "\t\n\r" and _is_control(character):
                self.control[ord(character)] += count

    def pruned(self) -> Words:
        """The same, without the rarest of very many words."""
        if len(self.words) > _MOST_WORDS:
            self.words = Counter(dict(self.words.most_common(_MOST_WORDS)))
        return self


@functools.lru_cache(1 << 14)
def _script(letter: str) -> str:
    """The script of a letter, by its Unicode name; empty without a name."""
    words = unicodedata.name(letter, "").split()
    script = next((word for word in words if word not in _WIDTHS), "")
    return _NAMED.get(script, script.capitalize())


def _is_control(character: str) -> bool:
    """Whether a character is a control character, or stands for bytes that were no text."""
    return unicodedata.category(character) == "Cc" or character == "\ufffd"


def merged(several: Iterable[Words]) -> Words:
    """What was found in all of several lots of texts."""
    found = Words()
    for each in several:
        found.words.update(each.words)
        found.scripts.update(each.scripts)
        found.control.update(each.control)
        found.pruned()
    return found
