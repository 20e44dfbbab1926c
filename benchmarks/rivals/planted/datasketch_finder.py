"""datasketch with our runs of characters and our similarity: MinHash and an LSH. It has no page."""

from __future__ import annotations

from pathlib import Path

from planted.calls import Found
from planted.truth import Truth, copies

_RUN, _SIMILARITY, _NUMBERS = 5, 0.8, 128


def find(dataset: str, folder: Path, pages: Path) -> Found:
    """Looks at the texts of all splits."""
    import pyarrow.parquet
    from datasketch import MinHash, MinHashLSH

    rows = pyarrow.parquet.read_table(folder / "records.parquet").to_pylist()
    lsh, groups = MinHashLSH(threshold=_SIMILARITY, num_perm=_NUMBERS), []
    for row in rows:
        text = " ".join(row["text"].lower().split())
        if not text:
            continue
        runs = {text[place : place + _RUN].encode() for place in range(len(text) - _RUN + 1)}
        signature = MinHash(num_perm=_NUMBERS)
        signature.update_batch(list(runs))
        groups += [[row["id"], other] for other in lsh.query(signature)]
        lsh.insert(row["id"], signature)
    found = copies(Truth.read(folder), [], groups)
    return {kind: found[kind] for kind in ("near duplicates", "near leaks")}, None
