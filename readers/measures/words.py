"""The words, scripts and control characters of many texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

# Characters of a longer text that are looked at, and characters of a longer word that are kept.
CHARACTERS, _WORD = 10_000, 40

# Different words of a run of texts, and of all: of more, the rarest are dropped.
_MOST_WORDS = 50_000

# The first code point of each block, and the script of its letters. Blocks of one script in a row are one; what
# has no script of its own, such as digits and punctuation, is in none.
_BLOCKS = (
    (0x0000, ""),
    (0x0041, "Latin"),
    (0x005B, ""),
    (0x0061, "Latin"),
    (0x007B, ""),
    (0x00C0, "Latin"),
    (0x02B0, ""),
    (0x0370, "Greek"),
    (0x0400, "Cyrillic"),
    (0x0530, "Armenian"),
    (0x0590, "Hebrew"),
    (0x0600, "Arabic"),
    (0x0700, "Syriac"),
    (0x0750, "Arabic"),
    (0x0780, "Thaana"),
    (0x07C0, "N'Ko"),
    (0x0800, ""),
    (0x0870, "Arabic"),
    (0x0900, "Devanagari"),
    (0x0980, "Bengali"),
    (0x0A00, "Gurmukhi"),
    (0x0A80, "Gujarati"),
    (0x0B00, "Odia"),
    (0x0B80, "Tamil"),
    (0x0C00, "Telugu"),
    (0x0C80, "Kannada"),
    (0x0D00, "Malayalam"),
    (0x0D80, "Sinhala"),
    (0x0E00, "Thai"),
    (0x0E80, "Lao"),
    (0x0F00, "Tibetan"),
    (0x1000, "Myanmar"),
    (0x10A0, "Georgian"),
    (0x1100, "Hangul"),
    (0x1200, "Ethiopic"),
    (0x13A0, "Cherokee"),
    (0x1400, "Canadian syllabics"),
    (0x1680, ""),
    (0x1780, "Khmer"),
    (0x1800, "Mongolian"),
    (0x18B0, ""),
    (0x1E00, "Latin"),
    (0x1F00, "Greek"),
    (0x2000, ""),
    (0x2C60, "Latin"),
    (0x2C80, ""),
    (0x2DE0, "Cyrillic"),
    (0x2E00, ""),
    (0x2E80, "Han"),
    (0x2FF0, ""),
    (0x3041, "Hiragana"),
    (0x30A0, "Katakana"),
    (0x3100, "Bopomofo"),
    (0x3130, "Hangul"),
    (0x3190, ""),
    (0x31F0, "Katakana"),
    (0x3200, ""),
    (0x3400, "Han"),
    (0x4DC0, ""),
    (0x4E00, "Han"),
    (0xA000, "Yi"),
    (0xA4D0, ""),
    (0xA640, "Cyrillic"),
    (0xA6A0, ""),
    (0xA720, "Latin"),
    (0xA800, ""),
    (0xAC00, "Hangul"),
    (0xD800, ""),
    (0xF900, "Han"),
    (0xFB00, "Latin"),
    (0xFB13, "Armenian"),
    (0xFB1D, "Hebrew"),
    (0xFB50, "Arabic"),
    (0xFE00, ""),
    (0xFE70, "Arabic"),
    (0xFEFF, ""),
    (0xFF21, "Latin"),
    (0xFF3B, ""),
    (0xFF41, "Latin"),
    (0xFF5B, ""),
    (0xFF66, "Katakana"),
    (0xFFA0, "Hangul"),
    (0xFFE0, ""),
    (0x1F000, "emoji"),
    (0x1FB00, ""),
    (0x20000, "Han"),
    (0x32000, ""),
)
_STARTS = np.array([start for start, _ in _BLOCKS], np.uint32)


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
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        blocks = np.bincount(
            np.searchsorted(_STARTS, codes, side="right") - 1, minlength=len(_BLOCKS)
        )
        for block in np.flatnonzero(blocks):
            self.scripts[_BLOCKS[block][1]] += int(blocks[block])
        is_control = ((codes < 0x20) & ~np.isin(codes, (9, 10, 13))) | (codes == 0xFFFD)
        for code in codes[is_control | ((codes >= 0x7F) & (codes < 0xA0))]:
            self.control[int(code)] += 1

    def pruned(self) -> Words:
        """The same, without the rarest of very many words."""
        if len(self.words) > _MOST_WORDS:
            self.words = Counter(dict(self.words.most_common(_MOST_WORDS)))
        return self


def merged(several: Iterable[Words]) -> Words:
    """What was found in all of several lots of texts."""
    found = Words()
    for each in several:
        found.words.update(each.words)
        found.scripts.update(each.scripts)
        found.control.update(each.control)
        found.pruned()
    return found
