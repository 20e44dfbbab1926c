"""The words, scripts and control characters of many texts."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

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
