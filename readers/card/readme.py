"""The card of a dataset: `README.md` with the header of a Hugging Face card, and the files for other tools."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from readers.card.tfds import tfds_files, tfds_folder, tfds_problem
from readers.files.local import is_local, path_text
from readers.format.display import counted, features_table, shortened, splits_table
from readers.format.manifest import MANIFEST, Manifest, join

# Rows of a table: people should be able to read the card of a dataset with 10,000 classes.
_MOST_ROWS = 100

_MOST_CHARACTERS = 300

# Starts markup inside a line, a table cell, an HTML tag, an entity, or a link that GitHub makes automatically.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|~&:@$!^]|(?<=www)\.", re.IGNORECASE)

_READING = """\
## How to read it

With beam-shards, where DIR is this directory:

```python
import readers

batches = readers.as_numpy("DIR", batch_size=32, split="{split}")  # dicts of NumPy arrays
dataset = readers.load("DIR", batch_size=32, split="{split}")  # a tf.data.Dataset
```
"""

_READING_WITH_TFDS = """\
With TensorFlow Datasets (`tf.io.parse_tensor` decodes features that are stored as tensor or sequence):

```python
import tensorflow_datasets as tfds

dataset = tfds.builder_from_directory({folder}).as_dataset(split="{split}")
```
"""


def readme(manifest: Manifest, licence: str) -> bytes:
    """The content of `README.md`; an empty licence states none."""
    return ("\n".join(_lines(manifest, licence)).rstrip() + "\n").encode()


def _lines(manifest: Manifest, licence: str) -> Iterator[str]:
    yield "---"
    if licence:
        # An SPDX identifier in lower case; every scalar is JSON, a subset of YAML.
        known = re.fullmatch(r"[A-Za-z0-9.+-]+", licence)
        yield f"license: {json.dumps(licence.lower() if known else 'other')}"
    # Hugging Face's viewer cannot read TFRecord files, and would take the JSON files for the data.
    yield from ('tags: ["tfrecord"]', "viewer: false", "---", "")
    records = sum(split.records for split in manifest.splits.values())
    yield from (f"# A dataset of {counted(records, 'record')}", "")
    job = manifest.options.get("job")
    by = f"the {escaped(job)} job of beam-shards" if isinstance(job, str) else "beam-shards"
    yield f"Written by {by}. `{MANIFEST}` holds the checksums and the statistics of every split."
    yield from ("", "## Splits", "", *_table(splits_table(manifest.splits)))
    yield from ("", "## Features", "", *_table(features_table(manifest.schema)))
    yield from ("", "None is a size that varies between records.")
    for feature, names in list(manifest.classes.items())[:_MOST_ROWS]:
        yield from ("", f"## Classes of {escaped(feature)}", "")
        yield from _table([("id", "name"), *((str(n), name) for n, name in enumerate(names))])
    split = next((name for name, split in manifest.splits.items() if split.shards), "train")
    yield from ("", _READING.format(split=split))
    if problem := tfds_problem(manifest):
        yield f"TensorFlow Datasets cannot open it: {escaped(problem)}.\n"
    else:
        # As JSON, because a folder name may contain quotes.
        folder = json.dumps(join("DIR", tfds_folder(manifest)))
        yield _READING_WITH_TFDS.format(folder=folder, split=split)
    yield from ("## How it was made", "", *_table([("option", "value"), *_rows(manifest.options)]))
    yield from ("", *_table([("package", "version"), *_rows(manifest.versions)]))
    if licence:
        yield from ("", "## Licence", "", escaped(licence))


def escaped(text: str) -> str:
    """The beginning of a text as one line of Markdown without markup."""
    # Other characters could end the line, or change the direction of the text around them.
    shown = "".join(
        c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}"
        for c in shortened(text, _MOST_CHARACTERS)
    )
    return _MARKUP.sub(r"\\\g<0>", shown.strip())


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table; its first row is the header."""
    header, *body = ([escaped(cell) for cell in row] for row in rows)
    for cells in (header, ["---"] * len(header), *body[:_MOST_ROWS]):
        yield f"| {' | '.join(cells)} |"
    if len(body) > _MOST_ROWS:
        yield from ("", f"And {len(body) - _MOST_ROWS:,} more, all in `{MANIFEST}`.")


def _rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values as text; values that are not text are JSON."""
    return [
        (str(name), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in values.items()
    ]


def write_card(directory: str, output: str | None, licence: str) -> list[Path]:
    """Writes the card of a dataset to a local folder, by default the dataset's; returns the paths of its files.

    A licence is an SPDX identifier, a URL or any other text; an empty one states none. Raises ValueError if the manifest is
    missing or damaged, a file exists already, or the folder is not local; OSError if files cannot be read or written.
    """
    directory, licence = path_text(directory), " ".join(licence.split())
    folder = directory if output is None else path_text(output)
    if not is_local(folder):
        raise ValueError(f"{folder}: the card is written to a local folder; add --output FOLDER")
    manifest = Manifest.read(directory)
    files = {"README.md": readme(manifest, licence), **tfds_files(manifest, licence)}
    paths = [Path(folder, name) for name in files]
    for path in filter(os.path.lexists, paths):
        raise ValueError(f"{path} exists already: move it away, or choose another --output")
    for path, data in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return paths
