"""The compiled kernel, compared with `Decoder`, which defines the result."""

from __future__ import annotations

import itertools
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.batches import collate
from readers.batches.batch_format import Padded
from readers.format.compiled import library
from readers.format.compiled.columns import CompiledDecoder
from readers.format.compiled.library import RefusedRecords
from readers.format.decode.column import column_of
from readers.format.decode.records import Decoder
from readers.format.dtypes import numpy_dtype
from readers.format.protobuf.wire import varint
from readers.format.schema import Schema
from readers.format.tfrecord import frame, intact
from tests.readers.format.mutations import mutated
from tests.readers.format.random_examples import FEATURES, examples_of
from tests.support.plain import example, tensor

schemas = st.lists(st.sampled_from(list(FEATURES)), min_size=1, max_size=5, unique=True).map(
    lambda names: Schema({name: FEATURES[name] for name in names})
)


class Memory:
    """Framed records, each in memory of its own, so that a sanitizer sees a read before or after it."""

    def __init__(self, framed):
        self._held = [np.frombuffer(data, np.uint8).copy() for data in framed]
        self.records = np.array([library.address(octets) for octets in self._held], np.int64)
        self.sizes = np.array([len(data) for data in framed], np.int64)


def decoded(decoder, framed):
    """The columns of records; None if the kernel refuses any, or leaves out a feature."""
    memory = Memory(framed)
    try:
        (columns,) = decoder.batches(memory.records, memory.sizes, (0, len(framed)), {})
    except RefusedRecords:
        return None
    return columns if columns.keys() == decoder._schema.keys() else None


def refused(decoder, framed):
    """The rows that the kernel refuses."""
    memory = Memory(framed)
    try:
        decoder.batches(memory.records, memory.sizes, (0, len(framed)), {})
    except RefusedRecords as error:
        return np.flatnonzero(~error.good).tolist()
    return []


def assert_same(schema, columns, examples):
    """Asserts that columns hold what `Decoder` finds one by one."""
    expected = [Decoder(schema).decode(data) for data in examples]
    for name, feature in schema.items():
        if feature.is_image:
            found = [bytes(view) for view in columns[name].arrays()]
            assert found == [record[name] for record in expected]
            continue
        assert columns[name].flat().dtype == numpy_dtype(feature.dtype)
        assert (columns[name].shapes is None) == feature.is_fixed
        for found, record in zip(columns[name].arrays(), expected, strict=True):
            if feature.dtype == "string":
                assert found == record[name].item()
                continue
            assert (found.shape, found.tobytes()) == (record[name].shape, record[name].tobytes())


@settings(max_examples=40, deadline=None)
@given(schemas, st.integers(1, 40), st.integers(0, 2**32), st.booleans())
def test_columns_are_those_of_the_decoder(schema, rows, seed, large):
    sizes = (1, 700) if large else (1, 2, 7, 150)
    examples = examples_of(schema, min(rows, 6) if large else rows, seed, sizes)
    columns = decoded(CompiledDecoder(schema), [frame(data) for data in examples])
    assert columns is not None
    assert_same(schema, columns, examples)


@settings(max_examples=20, deadline=None)
@given(schemas, st.integers(0, 2**32))
def test_empty_arrays_and_texts_are_decoded(schema, seed):
    examples = examples_of(schema, 5, seed, (0, 1, 3))
    columns = decoded(CompiledDecoder(schema), [frame(data) for data in examples])
    # Only a shape with several unknown sizes does not follow from a number of values.
    if columns is not None or not {"plane", "cube"} & {*schema}:
        assert columns is not None
        assert_same(schema, columns, examples)


class _Batched:
    """A decoder of batches of three, four and one record, or of one batch of all."""

    def __init__(self, schema, batch_format):
        self._schema, self._format = schema, batch_format
        self._rows = batch_format.rows(schema)

    def arrays(self, examples, bounds):
        memory = Memory([frame(data) for data in examples])
        decoder = CompiledDecoder(self._schema)
        batches = decoder.batches(memory.records, memory.sizes, bounds, self._rows)
        assert batches is not None
        return [collate.collate(batch, self._schema, self._format) for batch in batches]

    def expected(self, examples, bounds):
        records = [Decoder(self._schema).decode(data) for data in examples]
        for start, stop in itertools.pairwise(bounds):
            columns = {
                name: column_of(feature, [record[name] for record in records[start:stop]])
                for name, feature in self._schema.items()
            }
            columns = collate.truncate(columns, self._schema, self._format)
            yield collate.collate(columns, self._schema, self._format)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["signal", "tokens", "shorts", "floats", "flags", "rawer", "half", "narrow", "label", "text"]),
             min_size=1, max_size=5, unique=True),
    st.integers(0, 2**32),
    st.sampled_from([{}, {"max_length": 2}, {"max_length": 5, "to": "max_length"}, {"values": 1}]),
    st.sampled_from([[0, 3, 7, 8], [0, 8]]),
)  # fmt: skip
def test_batches_are_cut_and_padded_as_by_collate(names, seed, options, bounds):
    schema = Schema({name: FEATURES[name] for name in names})
    batch_format = Padded(mask=True, lengths=True, **options)
    examples = examples_of(schema, 8, seed, (0, 1, 2, 3, 9))
    batched = _Batched(schema, batch_format)
    for found, expected in zip(
        batched.arrays(examples, bounds), batched.expected(examples, bounds), strict=True
    ):
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            found_bytes, expected_bytes = (
                each.tolist() if array.dtype == object else each.tobytes()
                for each in (found[name], array)
            )
            assert found_bytes == expected_bytes, name


def test_padded_columns_have_the_same_values_as_flat_ones():
    schema = Schema({"signal": FEATURES["signal"]})
    memory = Memory([frame(data) for data in examples_of(schema, 5, 0, (0, 1, 4))])
    rows = Padded().rows(schema)
    (flat,), (padded,) = (
        CompiledDecoder(schema).batches(memory.records, memory.sizes, (0, 5), how)
        for how in ({}, rows)
    )
    assert padded["signal"].padded is not None and flat["signal"].padded is None
    for found, expected in zip(padded["signal"].arrays(), flat["signal"].arrays(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("length", [2**40, 2**61, 2**70])
def test_padding_for_which_there_is_no_memory_is_left_to_its_batch(length):
    schema = Schema({"signal": FEATURES["signal"]})
    memory = Memory([frame(data) for data in examples_of(schema, 5)])
    rows = Padded(length, to="max_length").rows(schema)
    (found,) = CompiledDecoder(schema).batches(memory.records, memory.sizes, (0, 5), rows)
    assert found["signal"].padded is None and len(found["signal"].arrays()) == 5


def test_much_padding_is_left_to_its_batch(monkeypatch):
    monkeypatch.setattr("readers.format.compiled.columns._MOST_PADDED_BYTES", 1000)
    schema = Schema({"signal": FEATURES["signal"]})
    batched = _Batched(schema, Padded())
    examples = examples_of(schema, 8, 3, (1, 150))
    for found, expected in zip(
        batched.arrays(examples, [0, 4, 8]), batched.expected(examples, [0, 4, 8]), strict=True
    ):
        np.testing.assert_array_equal(found["signal"], expected["signal"])


def test_damage_is_not_looked_for_if_nobody_asked():
    schema = Schema({"text": FEATURES["text"], "three": FEATURES["three"]})
    (example,) = examples_of(schema, 1)
    framed = frame(example)
    damaged = framed[:-1] + bytes([framed[-1] ^ 1])
    assert decoded(CompiledDecoder(schema), [damaged]) is None
    columns = decoded(CompiledDecoder(schema, checks=False), [damaged])
    assert_same(schema, columns, [example])


def test_some_of_the_features_of_a_record_are_decoded():
    schema = Schema(FEATURES)
    examples = examples_of(schema, 9)
    for name in FEATURES:
        columns = decoded(CompiledDecoder(schema.select([name])), [frame(e) for e in examples])
        assert columns is not None
        assert_same(schema.select([name]), columns, examples)


def test_threads_share_large_batches(monkeypatch):
    monkeypatch.setattr("readers.format.compiled.columns.processors", lambda: 5)
    schema = Schema({"x": ("uint8", (300_000,)), "y": ("int64", (), "list")})
    examples = examples_of(schema, 23)
    framed = [frame(data) for data in examples]
    assert_same(schema, decoded(CompiledDecoder(schema), framed), examples)
    for row in range(23):
        broken = list(framed)
        broken[row] = broken[row][:-100] + bytes([broken[row][-100] ^ 1]) + broken[row][-99:]
        assert refused(CompiledDecoder(schema), broken) == [row]


@pytest.mark.parametrize("names", [["label", "image"], ["signal", "tokens"]])
def test_damage_of_any_byte_is_noticed(names):
    schema = Schema({name: FEATURES[name] for name in names})
    framed = [frame(data) for data in examples_of(schema, 3, 1, (2, 5))]
    decoder = CompiledDecoder(schema)
    for place in range(len(framed[1])):
        for bit in range(8):
            octets = bytearray(framed[1])
            octets[place] ^= 1 << bit
            assert refused(decoder, [framed[0], bytes(octets), framed[2]]) == [1]
    assert decoded(decoder, framed) is not None


def test_records_that_are_cut_off_are_noticed():
    schema = Schema({name: FEATURES[name] for name in ("label", "signal", "tokens")})
    framed = [frame(data) for data in examples_of(schema, 2)]
    decoder = CompiledDecoder(schema)
    for size in range(len(framed[1])):
        assert refused(decoder, [framed[0], framed[1][:size], framed[0]]) == [1]
        assert decoded(CompiledDecoder(schema), [framed[1][:size]]) is None


@settings(max_examples=60, deadline=None)
@given(schemas, st.integers(0, 2**32))
def test_hostile_examples_are_decoded_right_or_refused(schema, seed):
    """Their checksums are right: nothing but the kernel's own comparisons protects memory."""
    randoms = random.Random(seed)
    examples = examples_of(schema, 3, seed, (1, 3, 20))
    decoder = CompiledDecoder(schema)
    assert decoded(decoder, [frame(data) for data in examples]) is not None
    for _ in range(5):
        changed = [examples[0], mutated(randoms, examples[1]), examples[2]]
        columns = decoded(decoder, [frame(data) for data in changed])
        if columns is not None:
            assert_same(schema, columns, changed)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"])
def test_an_integer_that_does_not_fit_is_refused(dtype):
    schema = Schema({"x": (dtype, (), "list")})
    last = 1 if dtype == "bool" else int(np.iinfo(dtype).max)
    first = 0 if dtype == "bool" else int(np.iinfo(dtype).min)
    for value in (first, last, 0):
        columns = decoded(CompiledDecoder(schema), [frame(example(x=value))] * 2)
        assert columns is not None and columns["x"].flat().tolist() == [value] * 2
    for value in (first - 1, last + 1, -(2**63), 2**63 - 1):
        assert decoded(CompiledDecoder(schema), [frame(example(x=value))]) is None


def test_varints_have_at_most_ten_bytes():
    schema = Schema({"x": ("int64", (), "list")})

    def record(number):
        lists = b"\x0a" + varint(len(number)) + number
        value = b"\x1a" + varint(len(lists)) + lists
        entry = b"\x0a\x01x\x12" + varint(len(value)) + value
        entry = b"\x0a" + varint(len(entry)) + entry
        return b"\x0a" + varint(len(entry)) + entry

    for number in (b"\x80" * 9 + b"\x7f", b"\xff" * 9 + b"\x01", b"\x85\x00"):
        columns = decoded(CompiledDecoder(schema), [frame(record(number))])
        assert columns is not None
        assert_same(schema, columns, [record(number)])
    assert decoded(CompiledDecoder(schema), [frame(record(b"\x80" * 10 + b"\x01"))]) is None


def test_the_order_of_the_features_is_learned_again_when_it_changes():
    schema = Schema({"x": ("float32", (None,)), "n": ("int64", (), "list")})
    decoder = CompiledDecoder(schema)
    ours = examples_of(schema, 4)
    others = [example(n=n, x=tensor(np.ones(n + 1, np.float32)), extra=b"e") for n in range(4)]
    for examples in (ours, others, ours):
        columns = decoded(decoder, [frame(data) for data in examples])
        assert columns is not None
        assert_same(schema, columns, examples)
    assert refused(decoder, [frame(data) for data in [*ours, *others, *ours]]) == [4, 5, 6, 7]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernel here, and as on a processor without an instruction for CRC32C."""
    folder, source = tmp_path_factory.mktemp("kernel"), Path(library.__file__)
    how = ["-O1", "-shared", "-fPIC", "-DCRC_BY_TABLE", source.with_name("kernel.c")]
    subprocess.run(["cc", *how, "-o", folder / "kernel.so", "-lpthread"], check=True)
    return {"instruction": library.load(source.parent)[0], "table": library.load(folder)[0]}


@pytest.mark.parametrize("how", ["instruction", "table"])
def test_checksums_are_those_of_another_library(kernels, monkeypatch, how):
    monkeypatch.setattr(library, "LIBRARY", kernels[how])
    rng = np.random.default_rng(4)
    # Around the lengths at which the loops of the checksum change, at any address.
    sizes = [*range(40), 503, 504, 505, 1007, 1008, 4079, 4080, 4081, 9000]
    framed = [frame(rng.bytes(size)) for size in sizes]  # By google-crc32c.
    lengths = np.array([len(data) for data in framed])
    assert intact(b"".join(framed), lengths).all()
    damaged = [data[:-5] + bytes([data[-5] ^ 1]) + data[-4:] for data in framed]
    assert not intact(b"".join(damaged), lengths).any()
    schema = Schema({"image": FEATURES["image"], "tokens": FEATURES["tokens"]})
    examples = examples_of(schema, 5)
    assert_same(schema, decoded(CompiledDecoder(schema), list(map(frame, examples))), examples)


def test_images_are_views_of_memory_that_nobody_changes():
    schema = Schema({name: FEATURES[name] for name in ("photo", "text")})
    examples = examples_of(schema, 4)
    framed = [frame(data) for data in examples]
    data = np.frombuffer(b"".join(framed), np.uint8)
    sizes = np.array([len(each) for each in framed])
    records = library.address(data) + np.cumsum(sizes) - sizes
    first, second = CompiledDecoder(schema).batches(records, sizes, (0, 1, 4), {}, data)
    assert_same(schema, first, examples[:1])
    assert_same(schema, second, examples[1:])
    assert all(np.shares_memory(np.asarray(view), data) for view in second["photo"].arrays())
    damaged = data.copy()
    damaged[-1] ^= 1
    records += library.address(damaged) - library.address(data)
    with pytest.raises(RefusedRecords) as caught:
        CompiledDecoder(schema).batches(records, sizes, (0, 4), {}, damaged)
    assert caught.value.good.tolist() == [True, True, True, False]


def test_a_library_that_is_not_the_one_of_this_version_is_an_error_that_says_what_to_type(
    tmp_path, monkeypatch
):
    def error(folder):
        with pytest.raises(ImportError, match=r"python setup.py build_ext --inplace$") as caught:
            library.load(folder)
        assert caught.value.name == "readers.format.compiled.kernel"
        return str(caught.value)

    assert f"in {tmp_path} is missing: pip install" in error(tmp_path)
    (tmp_path / "kernel.so").write_bytes(b"no library")
    assert "cannot be loaded (" in error(tmp_path)
    version = library._VERSION
    monkeypatch.setattr(library, "_VERSION", version + 1)
    assert f"is of version {version}, expected {version + 1}" in error(
        Path(library.__file__).parent
    )
