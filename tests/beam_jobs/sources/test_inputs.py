"""Files and archives as inputs, against what zipfile and tarfile read of the same archives."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.sidecars import NO_MATCH
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source, pack_reference, unpack_reference
from beam_jobs.storage.listing import ALL
from readers.files.files import FileInfo
from tests.support.archives import tarred, zipped
from tests.support.memory import peak_below

KINDS = ("zip", "tar", "tar.gz")
Files = list[tuple[str, bytes]]


def packed(kind: str, files: Files) -> bytes:
    return zipped(files) if kind == "zip" else tarred(files, "w" if kind == "tar" else "w:gz")


def inputs_of(root: Path, *patterns: str, **more: object) -> Inputs:
    return Inputs.of([f"{root}/{pattern}" for pattern in patterns], **more)


def found_in(inputs: Inputs) -> Iterator[tuple[Source, bytes]]:
    """Every source with its bytes, read as jobs read it."""
    for pattern in inputs.patterns:
        for source in inputs.sources(pattern):
            if source.packed and not source.error:
                yield from inputs.unpacked(source)
            else:
                # Workers receive sources as references.
                sent = unpack_reference(pack_reference(source))
                yield sent, b"" if source.error else inputs.read(sent)


def contents(inputs: Inputs) -> dict[str, bytes]:
    found = list(found_in(inputs))
    assert not [source for source, _ in found if source.error]
    result = {source.key: data for source, data in found}
    assert len(result) == len(found)
    return result


def errors_of(inputs: Inputs) -> dict[str, str]:
    return {source.key: source.error for source, _ in found_in(inputs) if source.error}


def rows_of(inputs: Inputs) -> dict[str, object]:
    return {source.key: source.error or dict(source.row) for source, _ in found_in(inputs)}


FILES: Files = [
    ("a/1.jpg", b"one"),
    ("a/2.jpg", b""),
    ("b/dög/3.png", bytes(range(256)) * 300),
    ("4.jpg", random.Random(0).randbytes(5000)),
]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_members_begin_with_that_of_their_archive(tmp_path, kind):
    (tmp_path / f"x.{kind}").write_bytes(packed(kind, FILES))
    inputs = inputs_of(tmp_path, f"x.{kind}")
    assert contents(inputs) == {f"x.{kind}/{name}": data for name, data in FILES}
    for source, data in found_in(inputs):
        assert (source.archive, source.size) == (f"x.{kind}", len(data))
        # So a reference shows whether an archive was rewritten.
        assert source.modified == (tmp_path / f"x.{kind}").stat().st_mtime_ns
        assert inputs.path_of(source) == f"{tmp_path}/x.{kind}"


def test_a_member_of_a_zip_or_tar_is_opened_streamed_and_read_alike(tmp_path):
    for kind in ("zip", "tar"):
        (tmp_path / f"x.{kind}").write_bytes(packed(kind, FILES))
    (tmp_path / "plain.jpg").write_bytes(b"plain")
    inputs = inputs_of(tmp_path, "*")
    expected = {f"x.{kind}/{name}": data for kind in ("zip", "tar") for name, data in FILES}
    expected["plain.jpg"] = b"plain"
    (pattern,) = inputs.patterns
    for source in inputs.sources(pattern):
        with inputs.open(source) as file:
            assert file.read() == expected[source.key]
            file.seek(1)
            assert file.read() == expected[source.key][1:]
        with inputs.stream(source) as file:
            assert file.read() == expected.pop(source.key)
    assert not expected


def test_patterns_of_packed_archives_are_recognised():
    for patterns in ("x.tar.gz", "*.TGZ", "*.gz", "*.jpg *.tar.gz"):
        assert Inputs(tuple(patterns.split()), "/d").packed
    for patterns in ("x.tar", "*", "x.zip *.jpg"):
        assert not Inputs(tuple(patterns.split()), "/d").packed


def is_text(path: str) -> bool:
    return path.lower().endswith(".txt")


def test_files_of_the_output_and_skipped_files_are_not_inputs(tmp_path):
    for name in [
        "in/1.jpg",
        "in/2.TXT",
        "in/x.zip",
        "in/out/3.jpg",
        "in/out/y.zip",
        "in/out2/4.jpg",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        data = zipped([("5.jpg", b""), ("6.txt", b"")]) if name.endswith("zip") else b""
        (tmp_path / name).write_bytes(data)
    inputs = Inputs.of([f"{tmp_path}/in"], output=f"{tmp_path}/in/out")
    expected = {"1.jpg", "2.TXT", "x.zip/5.jpg", "x.zip/6.txt", "out2/4.jpg"}
    assert contents(inputs).keys() == expected
    without = dataclasses.replace(inputs, skips=is_text)
    assert contents(without).keys() == expected - {"2.TXT", "x.zip/6.txt"}


def test_files_of_the_output_are_not_inputs_through_a_link(tmp_path):
    for name in ("in/1.jpg", "in/out/2.jpg", "in/out-old/3.jpg", "elsewhere/deep/4.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "same").symlink_to(tmp_path / "in")
    for output, skipped in (
        ("elsewhere", "link/deep/4.jpg"),
        ("in/link/deep", "link/deep/4.jpg"),
        ("same/out", "out/2.jpg"),
    ):
        inputs = Inputs.of([f"{tmp_path}/in"], output=f"{tmp_path}/{output}")
        every = {"1.jpg", "out/2.jpg", "out-old/3.jpg", "link/deep/4.jpg"}
        assert contents(inputs).keys() == every - {skipped}


# Sidecars.

SAMPLES: Files = [
    ("1.cls", b"7"),
    ("1.jpg", b"one"),
    ("1.json", b'{"age": 3, "site": "x", "cls_of_json": 1}'),
    ("1.txt", b"A dog.\n"),
    ("deep/2.png", b"two"),
    ("deep/2.cls", b"8"),
    ("3.jpg", b"three"),
    ("4.left.jpg", b"left"),
    ("4.right.jpg", b"right"),
    ("4.json", b'{"age": 4}'),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_an_object_in_a_sidecar_is_a_column(tmp_path, kind):
    fields = {"meta": {"cls": "dog", "age": 3}, "id": 1}
    files = [("1.jpg", b"1"), ("1.json", json.dumps(fields).encode())]
    (tmp_path / f"x.{kind}").write_bytes(packed(kind, files))
    columns = ("meta.cls", "id")
    inputs = inputs_of(tmp_path, f"x.{kind}", samples=True, columns=columns)
    assert rows_of(inputs) == {f"x.{kind}/1.jpg": {"meta.cls": "dog", "id": 1}}
    inputs = inputs_of(tmp_path, f"x.{kind}", samples=True, columns=("meta.sex",))
    assert list(rows_of(inputs)[f"x.{kind}/1.jpg"]) == ["meta", "meta.cls", "meta.age", "id"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_sidecar_rejects_only_its_member(tmp_path, kind):
    files = [
        ("1.jpg", b"1"),
        ("1.json", b"{"),
        ("2.jpg", b"2"),
        ("2.json", b'{"age": 2}'),
        ("3.jpg", b"3"),
        ("3.txt", b"\xff"),
        ("4.jpg", b"4"),
        ("4.json", b'"' + b" " * (1 << 20) + b'"'),
    ]
    (tmp_path / f"x.{kind}").write_bytes(packed(kind, files))
    found = rows_of(inputs_of(tmp_path, f"x.{kind}", samples=True, columns=("age",)))
    assert found.pop(f"x.{kind}/2.jpg") == {"age": 2}
    assert re.match(r"1\.json: unexpected end", found.pop(f"x.{kind}/1.jpg"))
    assert re.match(r"3\.txt: 'utf-8' codec", found.pop(f"x.{kind}/3.jpg"))
    too_many = "4.json: it has 1048578 bytes, more than 1048576"
    assert found == {f"x.{kind}/4.jpg": too_many}
    # Without columns, sidecars are not read.
    assert not errors_of(inputs_of(tmp_path, f"x.{kind}", samples=True))


def test_sidecars_of_a_packed_archive_must_be_next_to_their_member(tmp_path):
    files = [("1.jpg", b"1"), ("2.jpg", b"2"), ("1.cls", b"7"), ("2.cls", b"8")]
    for kind in KINDS:
        (tmp_path / f"x.{kind}").write_bytes(packed(kind, files))
    flags = {"samples": True, "columns": ("cls",)}
    for kind in ("zip", "tar"):
        assert rows_of(inputs_of(tmp_path, f"x.{kind}", **flags)) == {
            f"x.{kind}/1.jpg": {"cls": "7"},
            f"x.{kind}/2.jpg": {"cls": "8"},
        }
    assert rows_of(inputs_of(tmp_path, "x.tar.gz", **flags)) == {
        "x.tar.gz/1.jpg": {},
        "x.tar.gz/2.jpg": {},
        "x.tar.gz/1.cls": NO_MATCH,
        "x.tar.gz/2.cls": NO_MATCH,
    }


STEMS = st.sampled_from(["1", "2", "a/1", "a.b/2", "dög", "2.0 mix", "2.0 mix.3"])
PLAIN = ["jpg", "left.jpg", "cls", "txt", "json", "CLS", "npy"]
EXTENSIONS = st.sampled_from([*PLAIN, "seg.png", "DEPTH.jpg", "mask.npy", "left.txt"])
SAMPLED = st.lists(
    st.tuples(
        st.builds("{}.{}".format, STEMS, EXTENSIONS),
        st.binary(max_size=5) | st.sampled_from([b'{"cls": "j"}', b'{"age": 1}']),
    ),
    max_size=12,
    unique_by=lambda file: file[0],
)


def expected_rows(kind: str, files: Files, columns: tuple[str, ...]) -> dict[str, object]:
    """The columns of sidecars, found by comparing all pairs of members."""
    names = [name for name, _ in files]

    def without_ending(name: str) -> str:
        return name.rpartition(".")[0]

    def has_kind(name: str) -> bool:
        return name.lower().endswith((".cls", ".txt", ".json"))

    def is_mask(name: str) -> bool:
        return name.lower().endswith((".seg.png", ".depth.jpg"))

    def begins(stem: str, others: list[str]) -> bool:
        return any(other.startswith(f"{stem}.") and other != f"{stem}." for other in others)

    def describes(name: str) -> bool:
        stem = without_ending(name)
        others = [o for o in names if not has_kind(o) or without_ending(o) != stem]
        return begins(stem, others)

    def is_sidecar(name: str) -> bool:
        dots = without_ending(name).rpartition("/")[2].count(".")
        return has_kind(name) and (dots == 0 or describes(name))

    rows: dict[str, object] = {}
    for name in names:
        images = [o for o in names if not (has_kind(o) or is_mask(o))]
        if is_mask(name) and begins(without_ending(without_ending(name)), images):
            continue
        key = f"x.{kind}/{name}"
        if is_sidecar(name):
            if not describes(name):
                rows[key] = NO_MATCH
            continue
        stems = {without_ending(o) for o in names if is_sidecar(o)}
        stem = max((s for s in stems if name.startswith(f"{s}.")), key=len, default=None)
        row: dict[str, object] = {}
        try:
            for other, data in files if columns else ():
                if is_sidecar(other) and without_ending(other) == stem:
                    text, ending = data.decode("utf-8-sig"), other.rpartition(".")[2].lower()
                    row |= json.loads(text) if ending == "json" else {ending: text.strip()}
            rows[key] = {column: row[column] for column in columns if column in row}
        except (ValueError, TypeError):
            rows[key] = "broken"
    return rows


@given(SAMPLED, st.sampled_from([(), ("cls",), ("age", "txt")]), st.sampled_from(KINDS))
@settings(max_examples=60)
def test_samples_are_found_as_by_comparing_all_names(files, columns, kind):
    if kind == "tar.gz":  # Sidecars must be next to their member.
        files = sorted(files, key=lambda file: file[0].rpartition("/")[::2])
        files.sort(key=lambda f: (f[0].rpartition("/")[0], f[0].rpartition("/")[2].split(".")[0]))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"x.{kind}").write_bytes(packed(kind, files))
        inputs = inputs_of(Path(folder), f"x.{kind}", samples=True, columns=columns)
        found = rows_of(inputs)
    for key, row in found.items():
        if isinstance(row, dict):  # Without the names of other columns, which only a reject lists.
            found[key] = {name: value for name, value in row.items() if name in columns}
    broken = {
        key: "broken" for key, row in found.items() if isinstance(row, str) and row != NO_MATCH
    }
    assert found | broken == expected_rows(kind, files, columns)


# Damage.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"", b"no archive at all" * 100])
def test_a_file_that_is_not_an_archive_is_one_source_with_an_error(tmp_path, kind, data):
    (tmp_path / f"x.{kind}").write_bytes(data)
    found = list(found_in(inputs_of(tmp_path, f"x.{kind}")))
    assert [source.key for source, _ in found] == [f"x.{kind}"]
    assert re.match("the archive is damaged or cut off before its first", found[0][0].error)


# Sizes.


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.jpg"])
def test_a_source_that_is_too_large_for_a_record_is_rejected_unread(tmp_path, name):
    large = b"x" * 1001
    data = large if name == "x.jpg" else packed(name[2:], [("1.jpg", large)])
    (tmp_path / name).write_bytes(data)
    inputs = replace(inputs_of(tmp_path, name), max_bytes=1000)
    (source,) = inputs.sources(inputs.patterns[0])
    cure = "raise --max_record_bytes to keep it"
    with pytest.raises(RejectError, match=rf"^it has 1001 bytes, more than 1000: {cure}$"):
        inputs.read(source)
    if not source.archive:
        assert inputs.read(source._replace(size=1000))


def test_members_of_a_packed_archive_are_limited_singly_and_while_they_wait(tmp_path):
    files = [
        ("1.jpg", b"x" * 1001),
        ("2.a.jpg", b"a" * 600),
        ("2.b.jpg", b"b" * 401),
        ("3.jpg", b""),
    ]
    (tmp_path / "x.tar.gz").write_bytes(packed("tar.gz", files))
    cure = "more than 1000: raise --max_record_bytes to keep it"
    alone = f"it has 1001 bytes, {cure}"
    inputs = replace(inputs_of(tmp_path, "x.tar.gz", samples=True), max_bytes=1000)
    assert errors_of(inputs) == {"x.tar.gz/1.jpg": alone}
    waiting = replace(inputs, columns=("cls",))
    assert errors_of(waiting) == {
        "x.tar.gz/1.jpg": alone,
        "x.tar.gz/2.b.jpg": f"with those of its name before it, it has 1001 bytes, {cure}",
    }
    assert [data for _, data in found_in(waiting)] == [b"", b"a" * 600, b"", b""]


@pytest.mark.parametrize("samples", [True, False])
def test_members_of_a_packed_archive_are_held_one_by_one_though_they_share_a_stem(
    tmp_path, samples
):
    frames = [(f"frame.{n:04}.png", bytes(1 << 20)) for n in range(40)]
    (tmp_path / "x.tar.gz").write_bytes(packed("tar.gz", frames))
    inputs = inputs_of(tmp_path, "x.tar.gz", samples=samples)
    (archive,) = inputs.sources(inputs.patterns[0])
    with peak_below(8 << 20):
        assert sum(1 for _ in inputs.unpacked(archive)) == 40


# The first ones.


def test_the_first_sources_are_those_of_every_kind_and_no_more(tmp_path):
    for number, kind in enumerate(KINDS):
        files = [(f"{n}.jpg", f"{kind} {n}".encode()) for n in range(5)]
        (tmp_path / f"{number}.{kind}").write_bytes(packed(kind, files))
    (tmp_path / "9.jpg").write_bytes(b"plain")
    inputs = inputs_of(tmp_path, "*")
    found = list(inputs.first(100))
    assert [source.key for source, _ in found] == [
        *(f"{number}.{kind}/{n}.jpg" for number, kind in enumerate(KINDS) for n in range(5)),
        "9.jpg",
    ]
    bytes_of = {source.key: data for source, data in found if data is not None}
    assert bytes_of == {f"2.tar.gz/{n}.jpg": f"tar.gz {n}".encode() for n in range(5)}
    for limit in (0, 1, 7, 12):
        assert [s.key for s, _ in inputs.first(limit)] == [s.key for s, _ in found[:limit]]


def test_no_archive_keeps_a_file_open(tmp_path):
    for kind in KINDS:
        (tmp_path / f"x.{kind}").write_bytes(packed(kind, SAMPLES))
    inputs = inputs_of(tmp_path, "*", samples=True, columns=("cls",))
    before = set(os.listdir("/proc/self/fd"))
    list(found_in(inputs))
    list(inputs.first(2))
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("pattern", "skips", "listed"),
    [("/d/*", False, None), ("gs://b/*", False, 3), ("gs://b/*", True, None)],
)
def test_the_first_files_do_not_include_skipped_ones(monkeypatch, pattern, skips, listed):
    asked = []

    def match(pattern, limit=None, in_order=False, span=ALL):
        asked.append((limit, in_order))
        names = [f"{pattern[:-1]}{n}.{'png' if n % 2 else 'txt'}" for n in range(20)]
        return iter([FileInfo(name, 1, 1) for name in names[:limit]])

    monkeypatch.setattr("beam_jobs.sources.inputs.match", match)
    inputs = Inputs((pattern,), pattern[:-2])
    if skips:
        inputs = dataclasses.replace(inputs, skips=is_text)
    found = [file.key for file in inputs.files(pattern, 3)]
    assert found == (["1.png", "3.png", "5.png"] if skips else ["0.txt", "1.png", "2.txt"])
    assert asked == [(listed, True)]
