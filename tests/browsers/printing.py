"""A page on paper: every word of it is printed, and no sheet is empty."""

from __future__ import annotations

import io
import logging
import re
import unicodedata

from pypdf import PdfReader

from tests.browsers.page import Page

# It reports what it mends in files of Firefox.
logging.getLogger("pypdf").setLevel(logging.ERROR)

_WORD = re.compile(r"[A-Za-z0-9]{3,}")


def lost_in_print(page: Page, pdf: bytes) -> list[str]:
    """Words of a page that its print lacks, because they are cut, and sheets without text and picture.

    Args:
        page: The page.
        pdf: What `page.pdf` returned.
    """
    sheets = PdfReader(io.BytesIO(pdf)).pages
    texts = [sheet.extract_text() for sheet in sheets]
    # A line may break inside a word, letters of one word may be placed one by one, and others be one ligature.
    printed = re.sub(r"\s", "", unicodedata.normalize("NFKC", "".join(texts)))
    wanted = dict.fromkeys(_WORD.findall(page.printed_text()))
    found = [f"printed without {word!r}" for word in wanted if word not in printed]
    for number, (sheet, text) in enumerate(zip(sheets, texts, strict=True), 1):
        if not text.strip() and not sheet.images:
            found.append(f"sheet {number} of {len(sheets)} is empty")
    return found
