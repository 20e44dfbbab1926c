"""Makes the planted data: `python benchmarks/planted/make.py FOLDER pictures=5000 texts=20000 ...`"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from planted.pictures import make_pictures
from planted.recordings import make_recordings
from planted.table import make_table
from planted.texts import make_texts
from planted.truth import Truth

MAKERS: dict[str, Callable[[Path, int], Truth]] = {
    "pictures": make_pictures,
    "texts": make_texts,
    "table": make_table,
    "recordings": make_recordings,
}


def main() -> None:
    """Makes each dataset in a folder of its name."""
    for dataset in sys.argv[2:]:
        name, _, count = dataset.partition("=")
        folder = Path(sys.argv[1], name)
        MAKERS[name](folder, int(count)).write(folder)


if __name__ == "__main__":
    main()
