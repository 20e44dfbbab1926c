"""`readers.load`: the `tf.data` pipeline over a dataset."""

from __future__ import annotations

from collections.abc import Sequence

try:
    import tensorflow as tf
except ModuleNotFoundError:
    raise ImportError(
        "readers.load needs TensorFlow: pip install 'beam-shards[tensorflow]'"
    ) from None

from readers.batching import batch_of
from readers.dataset import Part, Paths, Plan, resolve
from readers.decode import decode_batch
from readers.format.schema import Schema
from readers.options import BatchOptions

# Shards read at once under shuffle, and records taken from one before the next: more shards mix
# better, longer runs cost less.
_CYCLE, _BLOCK = 16, 16

# Of the default shuffle buffer: what fits a laptop, and fills in well under a second.
_BUFFER_BYTES, _BUFFER_RECORDS = 256 << 20, 65_536
_BUFFER_RECORDS_UNKNOWN = 4_096


def load(
    path_or_files: Paths,
    *,
    batch_size: int,
    split: str | None = None,
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: str = "dense",
    mask: bool = False,
    shuffle: bool = False,
    shuffle_buffer: int | None = None,
    seed: int | None = 0,
    repeat: int | None = 1,
    drop_remainder: bool = False,
) -> tf.data.Dataset:
    """A `tf.data.Dataset` of batches: dicts of tensors by feature name, or tuples of them.

    Shapes are static wherever the schema knows them, and the cardinality is known wherever the
    number of records is. An epoch ends with a shorter batch, unless it is dropped.

    Args:
        path_or_files: A dataset's directory; or, with `schema`, TFRecord files from anywhere: a
            file, a list of them, a glob, or a directory. Not GZIP.
        batch_size: Records of a batch.
        split: `"train"`, `"train[:10%]"`, `"train[1000:2000]"`, ... None means the only split, or
            `train`. Files without a manifest have the one split `all`; slices of it need `.idx`
            files.
        schema: What is in files without a manifest; of a dataset, the features to read.
        columns: The features to read; others cost nothing.
        as_supervised: Names of the features of a tuple to give instead of a dict, for `model.fit`.
        batching: What becomes of features of unknown shape: `dense` refuses them, `padded` fills
            them up to the longest of the batch, `ragged` gives `tf.RaggedTensor`s.
        mask: With `padded`, adds bool `<name>_mask`, true where there is a value.
        shuffle: Mixes shards and records, in another order each time the dataset is iterated or
            repeated. The order follows from `seed` (and `tf.random.set_seed`, if it is used).
        shuffle_buffer: Records from which each next one is drawn; all are held in memory. None
            means what fits 256 MiB.
        seed: At least 0; None for another order in every process.
        repeat: Epochs; None or True for no end.
        drop_remainder: Leaves out the shorter last batch, so that the batch size is static too.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected.
        DatasetError: (a ValueError) There is no manifest, or a shard is not as it says.
        FileNotFoundError: A file is missing.

    Example:
        >>> ds = readers.load("shards/photos", split="train", batch_size=64, shuffle=True)
    """
    options = BatchOptions(
        batch_size=batch_size,
        batching=batching,
        mask=mask,
        shuffle=shuffle,
        seed=seed,
        repeat=repeat,
        as_supervised=as_supervised,
        drop_remainder=drop_remainder,
    )
    if shuffle_buffer is not None and (type(shuffle_buffer) is not int or shuffle_buffer < 1):
        raise ValueError(f"shuffle_buffer={shuffle_buffer!r}: expected a number of at least 1")
    plan = resolve(path_or_files, split, schema, options.columns(columns))
    options.check(plan.schema)
    if options.shuffle:
        records = shuffled(plan, options.seed, shuffle_buffer or default_buffer(plan))
    else:
        records = in_order(plan)

    def decode(serialized: tf.Tensor) -> object:
        batch = batch_of(
            decode_batch(serialized, plan.schema), plan.schema, options.batching, options.mask
        )
        if options.as_supervised is None:
            return batch
        return tuple(batch[name] for name in options.as_supervised)

    return (
        records.batch(options.batch_size, drop_remainder=options.drop_remainder)
        .repeat(options.repeat)
        .map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def in_order(plan: Plan) -> tf.data.Dataset:
    """The serialized records of a plan, file after file."""
    # Whole files in a row are one dataset: only those at the ends of a slice need skip and take.
    runs: list[list[Part]] = []
    for part in plan.parts:
        if runs and part.is_whole and runs[-1][0].is_whole:
            runs[-1].append(part)
        else:
            runs.append([part])
    dataset = None
    for run in runs:
        records = _file_records(tf.constant([part.path for part in run]))
        if not run[0].is_whole:
            records = records.skip(run[0].skip).take(run[0].take)
        dataset = records if dataset is None else dataset.concatenate(records)
    return _counted(dataset or _file_records(tf.constant([], tf.string)), plan)


def shuffled(plan: Plan, seed: int | None, buffer: int) -> tf.data.Dataset:
    """The serialized records of a plan in a random order, another one in each iteration."""
    if not plan.parts:
        return in_order(plan)
    files = tf.data.Dataset.from_tensor_slices(
        (
            [part.path for part in plan.parts],
            tf.constant([part.skip for part in plan.parts], tf.int64),
            tf.constant([-1 if part.take is None else part.take for part in plan.parts], tf.int64),
        )
    ).shuffle(len(plan.parts), seed=seed, reshuffle_each_iteration=True)
    sliced = not all(part.is_whole for part in plan.parts)

    def records_of(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset:
        records = _file_records(path)
        return records.skip(skip).take(take) if sliced else records

    records = files.interleave(
        records_of,
        cycle_length=min(_CYCLE, len(plan.parts)),
        block_length=_BLOCK,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return _counted(records, plan).shuffle(buffer, seed=seed, reshuffle_each_iteration=True)


def default_buffer(plan: Plan) -> int:
    """The records of the shuffle buffer, by their number and mean size."""
    if plan.records is None or plan.record_bytes is None:
        return _BUFFER_RECORDS_UNKNOWN
    fitting = int(_BUFFER_BYTES / plan.record_bytes)
    return max(1, min(plan.records, fitting, _BUFFER_RECORDS))


def _file_records(paths: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(paths)


def _counted(records: tf.data.Dataset, plan: Plan) -> tf.data.Dataset:
    """The same records, with the cardinality of the plan; fewer or more are an error when read."""
    if plan.records is None:
        return records
    return records.apply(tf.data.experimental.assert_cardinality(plan.records))
