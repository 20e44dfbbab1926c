"""The records that a command is given, by a condition, keys or numbers, and the lists of what is left of a split."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from beam_jobs.errors import UsageError
from readers.files.of_path import read_file
from readers.format.lookup.keys import ORDER, hashes64, order_seed
from readers.format.lookup.stored import StoredSplit
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.lookup.where import Where
from readers.format.manifest import Generation, Manifest, join

UTF8 = "utf-8", "surrogateescape"

# Missing keys that are named.
_NAMED = 5


def given(parsed: argparse.Namespace) -> dict[str, str]:
    """The choice as the manifest states it. Keys are stated as a digest, so that a purge need not look here."""
    found = {"split": parsed.split} if parsed.split else {}
    if parsed.where is not None:
        return {**found, "where": parsed.where}
    keys = "\n".join(parsed.key or ()).encode(*UTF8)
    content = keys if parsed.key else _content(parsed.rows or parsed.keys)
    kind = "rows" if parsed.rows else "keys"
    return {**found, kind: hashlib.blake2b(content, digest_size=8).hexdigest()}


def chosen_rows(
    directory: str, manifest: Manifest, parsed: argparse.Namespace
) -> dict[str, np.ndarray]:
    """Split -> the rows that are chosen of those that readers see, int64 [n], ascending.

    Raises:
        UsageError: A number is wrong, or a key is missing.
        ValueError: The split or the condition is wrong, or a file is damaged.
    """
    names = [parsed.split] if parsed.split else list(manifest.splits)
    splits = {name: StoredSplit(directory, manifest, manifest.split(name)) for name in names}
    if parsed.where is not None:
        where = Where(parsed.where, manifest.schema, manifest.classes)
        return {name: stored.rows_where(where) for name, stored in splits.items()}
    if parsed.rows is None:
        return _rows_of_keys(directory, manifest, names, parsed)
    if len(names) > 1:
        raise UsageError(f"--rows: add --split, because there are {', '.join(names)}")
    (stored,) = splits.values()
    try:
        numbers = np.unique(np.array(_content(parsed.rows).split(), np.int64))
    except (ValueError, OverflowError) as error:
        message = f"--rows {parsed.rows}: expected a number on each line ({error})"
        raise UsageError(message) from None
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < stored.split.records:
        found = f"numbers from {numbers[0]} to {numbers[-1]}"
        raise UsageError(
            f"--rows {parsed.rows}: {found}, but there are {stored.split.records} records"
        )
    return {names[0]: np.flatnonzero(stored.flags())[numbers]}


def _rows_of_keys(
    directory: str, manifest: Manifest, names: list[str], parsed: argparse.Namespace
) -> dict[str, np.ndarray]:
    keys = parsed.key or list(keys_in(parsed.keys))
    places = places_of(directory, manifest, keys)
    numbers = [number for number, name in enumerate(manifest.splits) if name in names]
    is_there = np.isin(places[:, 0], numbers)
    missing = sorted({keys[at] for at in np.flatnonzero(~is_there)})
    if missing and parsed.missing == "error":
        named = ", ".join(missing[:_NAMED]) + ", ..." * (len(missing) > _NAMED)
        raise UsageError(
            f"{directory}: {len(missing):,} of the keys not found: {named}; nothing was changed; --missing ok takes the "
            "others"
        )
    of_split = {name: places[places[:, 0] == n, 1] for n, name in enumerate(manifest.splits)}
    return {name: np.unique(of_split[name]) for name in names}


def places_of(directory: str, manifest: Manifest, keys: Sequence[str]) -> np.ndarray:
    """As `StoredKeys.find`, for some keys."""
    hashes = hashes64(order_seed(manifest), ORDER, [key.encode(*UTF8) for key in keys])
    return StoredKeys.of(directory, manifest).find(hashes)


def keys_in(path: str) -> Iterator[str]:
    """Yields the keys in a file; UsageError if it cannot be read."""
    for line in filter(str.strip, _content(path).decode(*UTF8).split("\n")):
        key = None
        with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
            key = json.loads(line)["key"]
        yield key if isinstance(key, str) else line.removesuffix("\r")


def _content(path: str) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None


def moved(output: str, generation: Generation) -> Manifest:
    """The manifest of a generation with the paths that lead to its files from another directory."""
    directory, manifest, _ = generation
    parent = output.rpartition("/")[0] + "/"

    def changed(value: Any, name: str = "path") -> Any:
        if isinstance(value, dict):
            return {name: changed(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [changed(each, name) for each in value]
        if name not in ("path", "rejects"):
            return value
        whole = join(directory, value).rstrip("/")
        return f"../{whole.removeprefix(parent)}" if whole.startswith(parent) else whole

    values = manifest.to_json()
    paths = {name: changed(values[name], name) for name in ("splits", "files", "rejects")}
    base = [*map(changed, ("", *manifest.base))]
    requires = ["base", *values["requires"]]
    return Manifest.from_json({**values, **paths, "base": base, "requires": requires})
