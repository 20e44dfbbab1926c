"""What a failed check is called: two inputs with one signature are taken for one fault."""

from __future__ import annotations

import hashlib
import re
import traceback
from pathlib import Path

_HERE = Path(__file__).parent
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9]+(\.[0-9]+)?|'[^']*'|\"[^\"]*\"|b'.*|\[.*|\(.*")


def signature(error: BaseException) -> str:
    """The kind of a fault: the error, the innermost line of the project, and the message without numbers."""
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    own = [
        f for f in frames if "site-packages" not in f.filename and "/lib/python" not in f.filename
    ]
    place = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else ""
    message = _VARYING.sub("_", str(error).splitlines()[0] if str(error) else "")[:120]
    return f"{type(cause).__name__} in {place}: {message}"


def name_of(data: bytes) -> str:
    """The name of the file of an input."""
    return hashlib.sha256(data).hexdigest()[:16]
