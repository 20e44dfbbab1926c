"""The licence of a dataset, as the user has stated it."""

from __future__ import annotations

import re

from readers.format.manifest import Manifest

# The option of a manifest, and the flag of all jobs.
LICENSE = "license"

_MOST_CHARACTERS = 1000

_URL = re.compile(r"https?://[!#-&(-;=?-\[\]_a-z~]+")

# What Hugging Face calls an identifier is SPDX's in small letters, if it is one of these.
_ON_THE_HUB = {
    *("afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause"),
    *("bsd-3-clause-clear", "bsl-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0"),
    *("cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0"),
    *("cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0"),
    *("cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0"),
    *("cdla-permissive-2.0", "cdla-sharing-1.0", "ecl-2.0", "epl-1.0", "epl-2.0"),
    *("etalab-2.0", "eupl-1.1", "eupl-1.2", "gpl-2.0", "gpl-3.0", "isc", "lgpl-2.1"),
    *("lgpl-3.0", "lppl-1.3c", "mit", "mpl-2.0", "ms-pl", "ncsa", "ofl-1.1", "osl-3.0"),
    *("postgresql", "unlicense", "wtfpl", "zlib"),
}


def licence_of(manifest: Manifest) -> str:
    """The licence in one line of at most 1,000 characters; empty if none is stated."""
    stated = manifest.options.get(LICENSE)
    return " ".join(stated.split())[:_MOST_CHARACTERS] if isinstance(stated, str) else ""


def is_url(licence: str) -> bool:
    """Whether a licence is stated as nothing but a URL."""
    return bool(_URL.fullmatch(licence))


def hub_licence(licence: str) -> dict[str, str]:
    """The keys of a Hugging Face card that state a licence; none for an empty one."""
    if not licence:
        return {}
    known = licence.lower()
    if known in _ON_THE_HUB:
        return {"license": known}
    return {"license": "other", **({"license_link": licence} if is_url(licence) else {})}
