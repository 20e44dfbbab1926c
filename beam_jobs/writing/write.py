"""`write`: records, or a function over inputs, to a dataset of exactly balanced shards, without Beam."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from beam_jobs.dataset.generations import begun
from beam_jobs.dataset.lease import leased
from beam_jobs.dataset.output import DEFAULT_SHARD_SIZE, checked_names, output_of
from beam_jobs.engines.pool import Pool
from beam_jobs.errors import CompleteError, UsageError, named_as_arguments
from beam_jobs.packages import check_crc32c
from beam_jobs.plan.placement import Existing
from beam_jobs.writing.complete import complete
from beam_jobs.writing.encode import Encoded, Rule, RunEncoder
from beam_jobs.writing.inputs import InputEncoder, identity_of
from beam_jobs.writing.rows import rows_of, splits_in
from readers.files.processors import processors
from readers.format.manifest import Manifest
from readers.format.schema import Schema

# The processes of a pool have imported these when they start.
_PRELOAD = ("beam_jobs.dataset.encoded_records", "beam_jobs.writing.inputs")


def write(
    records: Any,
    directory: str | os.PathLike[str],
    schema: Schema,
    *,
    inputs: Iterable[Any] | None = None,
    key: Rule | None = None,
    splits: Mapping[str, float] | None = None,
    group_by: Rule | None = None,
    num_shards: int | None = None,
    shard_size: int | str = DEFAULT_SHARD_SIZE,
    seed: int = 0,
    max_rejects: int | float | str = 0,
    overwrite: bool = False,
    append: bool = False,
    existing: Existing = "error",
    label_names: Iterable[str] = (),
    options: Mapping[str, Any] | None = None,
    processes: int | None = None,
) -> Manifest:
    """Writes records to a dataset of exactly balanced shards, without Beam; returns its manifest.

    Args:
        records: Dicts of arrays, or pairs of a key and such a dict, in one of these forms:

            - an iterable, such as a list, a generator or a `datasets.Dataset` of Hugging Face;
            - a `tf.data.Dataset`, or a DataFrame of pandas;
            - a dict of split -> one of these, a `datasets.DatasetDict`, or a builder of TensorFlow Datasets;
            - a function of one of `inputs`, which returns a record, or yields any number of them.
        directory: The path or URL of the dataset; new or empty.
        schema: The features of every record, with their dtypes and shapes. A `key` feature is filled from the key.
        inputs: What the function is called with: anything that can be pickled. A call that was killed continues
            when it is repeated: it keeps the records of all inputs but the last ones, unless an input, its file, the
            source file of the function or its `functools.partial` has changed. Results must depend on nothing else.
        key: A feature, or a function of a record, that gives a unique text or integer. By default the number of the
            record, such as `00000017`, after the name of its split if `records` is a dict; or the path or the number
            of its input and its number in that, such as `scans/a.npy#0`.
        splits: Split -> share, which add up to 1; None for only "train".
        group_by: As `key`, for a group: all its records are in one split, which its hash chooses.
        num_shards: The number of shards of every split; None to derive it from `shard_size`.
        shard_size: The approximate size of a shard: a number of bytes, or text such as "128MiB".
        seed: Determines the splits and the order of records.
        max_rejects: How many records that do not fit the schema, and inputs for which the function raises an
            exception, are listed in `rejects/`: a number, a share such as 0.01, or "all". With 0, one is an error.
        overwrite: Whether a dataset in `directory` may be replaced.
        append: Whether the records are added to the dataset in `directory`, which has the same schema, splits and seed.
        existing: With `append`, what to do with a record whose key the dataset has: "error", "skip", or "replace".
        label_names: Names of the labels by id, for the manifest.
        options: Anything else to record in the manifest, as JSON values.
        processes: How many call the function and write shards; by default one for each processor with a function
            that a file defines, else 1. With more, a program must begin its work below
            `if __name__ == "__main__":`.

    The feature of `key` or `group_by` need not be in the schema. All files have the same bytes as those of
    `WriteShards` with the same records and arguments.

    Raises:
        UsageError: An argument is wrong, the directory is not free or cannot be written, another job writes there,
            or two records have the same key.
        DataError: A record does not fit, the function fails, or the disk is full. No manifest is written.

    Example:
        >>> schema = Schema({"x": Feature("float32", (8,)), "label": Feature("int64")})
        >>> rows = ({"x": np.full(8, n, np.float32), "label": n % 2} for n in range(1000))
        >>> manifest = write(rows, "shards/made", schema, splits={"train": 0.9, "val": 0.1})
        >>> sum(split.records for split in manifest.splits.values())
        1000
    """
    check_crc32c()
    by_split = None if callable(records) else splits_in(records)
    if callable(records) != (inputs is not None):
        raise UsageError("inputs: expected with a function of an input, and only with one")
    if by_split is not None and (splits or group_by):
        raise UsageError("splits, group_by: expected None, because the records are given by split")
    with named_as_arguments():
        shares = tuple(by_split) if by_split else splits
        how = num_shards, shard_size, shares, seed, max_rejects
        more = overwrite, options, append, existing
        output = begun(output_of(directory, schema, *how, *more))
        names = output.with_names(checked_names(label_names))
        identity = identity_of(output, records, key, group_by) if inputs is not None else ""
        output = replace(output, run=identity or output.run)
        count = processes or (processors() if identity else 1)
        if inputs is not None and count > 1 and not identity:
            raise UsageError(
                "processes: the function must be one of a module, or of a program in a file"
            )
        with (
            leased(output, "beam_jobs.write", keeps=bool(identity)),
            contextlib.closing(Pool(count, _PRELOAD)) as pool,
        ):
            if inputs is None:
                with contextlib.closing(RunEncoder(output, key, group_by)) as encoder:
                    encoded = _encoded(encoder, records, by_split)
            else:
                calls = InputEncoder(output, records, key, group_by, notes=bool(identity))
                encoded = calls.encode(list(inputs), pool)
            try:
                return complete(output, encoded, pool, names)
            except CompleteError:  # The same append, or one without a new key.
                return Manifest.read(output.directory)


def _encoded(encoder: RunEncoder, records: Any, by_split: Mapping[str, Any] | None) -> Encoded:
    """Encodes the records of an object; `by_split` has them by split, if they are given so."""
    for split, (name, part) in enumerate((by_split or {"": records}).items()):
        for n, row in enumerate(rows_of(part)):
            if by_split:
                encoder.add_row(row, f"{name}-{n:08d}", split)
            else:
                encoder.add_row(row, f"{n:08d}")
    return encoder.finish()
