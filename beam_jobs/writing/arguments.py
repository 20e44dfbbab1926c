"""The arguments that `write` and `WriteShards` share, and errors in their words."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beam_jobs.dataset.output import Output, parse_num_shards, parse_size, resolve
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import JobError, UsageError
from beam_jobs.plan.placement import Placement, Splits, check_seed
from readers.format.encode.records import Encoder
from readers.format.manifest import Manifest, join
from readers.format.schema import Feature, Schema

_logger = logging.getLogger("beam_jobs")

# An option in a message that the command line and Python share.
_FLAG = re.compile(r"(?<!\S)--(\w+)")

# Flag -> argument in Python; other flags belong to Beam, and keep their names.
_ARGUMENTS = {
    "output": "directory",
    "overwrite": "overwrite=True",
    "split_column": "splits",
    "direct_num_workers": "processes",
    **{name: name for name in ("max_rejects", "num_shards", "seed", "shard_size", "splits")},
}


@contextlib.contextmanager
def named_as_arguments() -> Iterator[None]:
    """Replaces flags of the command line in an error by the arguments of `write` and `WriteShards`."""
    try:
        yield
    except JobError as error:
        message = _FLAG.sub(lambda flag: _ARGUMENTS.get(flag[1], flag[0]), error.message)
        raise type(error)(message) from None


def output_of(
    directory: str | os.PathLike[str],
    schema: Schema,
    num_shards: int | None,
    shard_size: int | str,
    splits: Mapping[str, float] | None,
    seed: int,
    overwrite: bool,
    options: Mapping[str, Any] | None,
) -> Output:
    """The dataset that arguments describe; UsageError if one of them is wrong."""
    splits = splits or {"train": 1}
    _check(schema, splits, options)
    stated = dict(options or {})
    if seed or "seed" in stated:
        stated["seed"] = seed  # Readers look keys up with it.
    with named_as_arguments():
        check_seed(seed)
        shares = Splits.parse(",".join(f"{name}={share}" for name, share in splits.items()))
        return Output(
            directory=resolve(os.fspath(directory)),
            schema=schema,
            placement=Placement(seed, shares),
            num_shards=parse_num_shards(num_shards, shares.names),
            shard_size=parse_size(str(shard_size)),
            overwrite=overwrite,
            options=stated,
        )


def checked_names(label_names: Iterable[str]) -> tuple[str, ...]:
    """The names of labels by id; UsageError if they are not texts."""
    names = tuple(label_names)
    if isinstance(label_names, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"label_names {label_names!r:.80}: expected texts, such as ['cat', 'dog']")
    return names


def _check(schema: Any, splits: Any, options: Mapping[str, Any] | None) -> None:
    """Checks the arguments that no other function checks."""
    if not isinstance(schema, Schema):
        raise UsageError(
            f"schema {schema!r:.80}: expected a Schema, such as "
            "Schema({'x': Feature('float32', (8,))})"
        )
    if not isinstance(splits, Mapping):
        raise UsageError(
            f"splits {splits!r:.80}: expected a dict such as {{'train': 0.8, 'val': 0.2}}"
        )
    try:
        json.dumps(dict(options or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"options: expected JSON values ({error})") from None
    try:
        Encoder(schema)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if "key" in schema and schema["key"] != Feature("string"):
        raise UsageError(f"feature 'key' is {schema['key']}: expected string [], text")


def warn_of_rejects(directory: str, manifest: Manifest, results: Iterable[ShardResult]) -> None:
    """Logs how many records were rejected, given a complete dataset and the results of its shards."""
    if rejected := manifest.rejected:
        found = rejected + sum(split.records for split in manifest.splits.values())
        _logger.warning(
            "%s of %s records do not fit the schema and were not written; the first: %s; "
            "all are listed in %s/",
            f"{rejected:,}",
            f"{found:,}",
            min(result.first_reject for result in results if result.first_reject),
            join(directory, os.path.dirname(manifest.rejects[0])),
        )
