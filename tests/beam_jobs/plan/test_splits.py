import numpy as np
import pytest

from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.placement import Splits


def test_without_splits_everything_is_for_training():
    assert Splits() == Splits(("train",), (1.0,), kept=False)


@pytest.mark.parametrize(
    ("names", "number"), [(("train",), 0), (("val", "train"), 1), (("a", "b"), 0)]
)
def test_vocabularies_are_learned_from_train_or_the_first_split(names, number):
    assert Splits(names, (1 / len(names),) * len(names)).training == number


@pytest.mark.parametrize(("text", "folds"), [("2", 2), ("3", 3), ("256", 256)])
def test_folds_have_numbers_and_equal_shares(text, folds):
    splits = Splits.folds(text)
    assert splits.names == tuple(f"fold{n}" for n in range(folds))
    assert splits.fractions == (1 / folds,) * folds


@pytest.mark.parametrize("text", ["", "1", "257", "-2", " 2", "x", "²", "٣", "9" * 5000])
def test_wrong_folds_are_refused(text):
    with pytest.raises(UsageError) as caught:
        Splits.folds(text)
    assert caught.value.message == f"--folds {text}: expected a number from 2 to 256"


def test_there_are_up_to_256_splits():
    def shares(count: int) -> str:
        return ",".join(f"s{n}={1 / count}" for n in range(count))

    assert len(Splits.parse(shares(256)).names) == 256
    with pytest.raises(UsageError) as caught:
        Splits.parse(shares(257))
    assert caught.value.message.endswith(": found 257 splits, expected at most 256")
    assert len(Splits.named([f"s{n}" for n in range(256)], "c").names) == 256
    with pytest.raises(UsageError, match="found 257 splits, expected at most 256"):
        Splits.named([f"s{n}" for n in range(257)], "c")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Splits.parse("train=.5,val=.2,Train=.3"),
        lambda: Splits.named(["train", "val", "Train"], "c"),
        lambda: Splits.of_shards(["train", "val", "Train"]),
    ],
)
def test_splits_whose_files_differ_only_in_case_are_refused(make):
    with pytest.raises(UsageError, match="the splits 'train' and 'Train' differ only in case"):
        make()


def test_splits_of_columns_and_shards_have_equal_shares():
    assert Splits.named(["x", "y"], "c") == Splits(("x", "y"), (0.5, 0.5))
    assert Splits.of_shards(["x", "y"]) == Splits(("x", "y"), (0.5, 0.5), kept=True)


def test_a_split_with_almost_no_share_gets_the_last_hash_alone():
    splits = Splits.parse("a=1,b=1e-30")
    assert splits.edges == [2**64 - 1]
    assert splits.of(np.array([0, 2**64 - 2, 2**64 - 1], np.uint64)).tolist() == [0, 0, 1]


def test_a_key_of_no_shard_is_named_even_if_it_is_not_utf_8():
    splits = Splits.of_shards(["train", "val"])
    keys = [b"a/val-00000-of-00002.tfrecord#1", b"b-1/train-00001-of-00002.tfrecord#0"]
    assert splits.of_keys(keys).tolist() == [1, 0]
    with pytest.raises(DataError) as caught:
        splits.of_keys([*keys, b"a/\xff-0"])
    assert caught.value.message == (
        r"a/\xff-0: expected a shard of train, val; the inputs have changed since the job began: "
        "run the same command again"
    )
