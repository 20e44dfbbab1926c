"""Files beside pictures: where they are looked for, and what becomes of those that are not there."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

import beam_jobs.jobs.images.annotations as beside_module
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.annotations import Beside
from beam_jobs.jobs.images.voc_yolo import MAX_BYTES
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source, pack_reference, unpack_reference

VOC = """<annotation><size><width>20</width><height>10</height><depth>3</depth></size>
<object><name>dog</name><bndbox><xmin>2</xmin><ymin>1</ymin><xmax>6</xmax><ymax>5</ymax></bndbox>
</object></annotation>"""
COCO = {
    "images": [
        {"id": 1, "file_name": "a.jpg", "height": 10, "width": 20},
        {"id": 2, "file_name": "b.jpg", "height": 10, "width": 20},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 9, "bbox": [2, 1, 4, 5]},
        {"id": 2, "image_id": 1, "category_id": 4, "bbox": [0, 0, 20, 10]},
    ],
    "categories": [{"id": 9, "name": "dog"}, {"id": 4, "name": "cat"}],
}
CAPTIONS = {
    "images": COCO["images"],
    "annotations": [{"id": n, "image_id": 1, "caption": text} for n, text in enumerate("xy")],
}


def write(path: Path, data: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, dict):
        data = json.dumps(data)
    path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
    return path


def parse(boxes: str = "", class_names: str = "", captions: str = "", masks: str = "") -> Beside:
    return Beside.parse(boxes, class_names, captions, masks)


# What flags mean.


def test_no_flags_ask_for_nothing():
    beside = parse()
    assert beside == Beside()
    assert (beside.columns, beside.known_classes) == ((), {})
    assert not beside.says("/d/1.txt")


def test_paths_are_those_that_a_worker_in_another_directory_sees(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c.json", COCO)
    write(tmp_path / "t.json", CAPTIONS)
    write(tmp_path / "names.txt", "person\ncar\n")
    assert parse("coco:c.json", "", "coco:t.json", "m") == Beside(
        "coco", f"{tmp_path}/c.json", ("cat", "dog"), "coco", f"{tmp_path}/t.json", f"{tmp_path}/m"
    )
    assert parse("yolo:l", "names.txt", "txt:t") == Beside(
        "yolo", f"{tmp_path}/l", ("person", "car"), "txt", f"{tmp_path}/t"
    )
    assert parse("voc") == Beside("voc")
    assert parse(captions="column:a b").columns == ("a b",)


def test_classes_that_are_known_beforehand_are_those_of_coco_and_yolo(tmp_path):
    coco = write(tmp_path / "c.json", COCO)
    names = write(tmp_path / "data.yaml", "names: [person, car]\n")
    assert parse(f"coco:{coco}").known_classes == {"box_labels": ("cat", "dog")}
    assert parse("yolo", str(names)).known_classes == {"box_labels": ("person", "car")}
    # Numbers are numbers, though no picture has a box.
    assert parse("yolo").known_classes == {"box_labels": ()}
    assert parse("voc").known_classes == {}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"boxes": "pascal"}, "--boxes pascal: expected coco:FILE, voc, voc:DIR, yolo or yolo:DIR"),
        ({"boxes": "coco"}, "--boxes coco: expected coco:FILE"),
        ({"boxes": "coco:"}, "--boxes coco:: expected coco:FILE"),
        ({"boxes": "coco:nothing.json"}, "nothing.json: cannot be read: .*No such file"),
        ({"class_names": "n.txt"}, "--class_names says what the numbers .* add --boxes yolo"),
        ({"boxes": "voc", "class_names": "n.txt"}, "add --boxes yolo"),
        ({"boxes": "yolo", "class_names": "no.txt"}, "--class_names no.txt: cannot be read: "),
        ({"boxes": "yolo", "class_names": "empty.txt"}, "empty.txt: it names no class"),
        ({"captions": "csv"}, "--captions csv: expected coco:FILE, txt, txt:DIR or column:NAME"),
        ({"captions": "column"}, "--captions column: expected coco:FILE"),
        ({"captions": "coco:"}, "--captions coco:: expected coco:FILE"),
        ({"captions": "coco:broken.json"}, "broken.json: not JSON to its end"),
        ({"boxes": "coco:captions.json"}, "the file has no categories: are these captions"),
    ],
)
def test_flags_that_cannot_be_meant_so_are_refused(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "empty.txt", "")
    write(tmp_path / "broken.json", "{")
    write(tmp_path / "captions.json", CAPTIONS)
    with pytest.raises(UsageError, match=message):
        parse(**flags)


# Where files are looked for.


@pytest.mark.parametrize(
    ("boxes", "path", "expected"),
    [
        ("voc", "/d/VOC2007/JPEGImages/1.jpg", "/d/VOC2007/Annotations/1.xml"),
        ("voc", "/d/JPEGImages/deep/1.2.jpg", "/d/Annotations/deep/1.2.xml"),
        ("voc", "/JPEGImages/JPEGImages/1.jpg", "/JPEGImages/Annotations/1.xml"),
        ("voc", "/d/images/1.jpg", "/d/images/1.xml"),
        ("yolo", "/d/images/train/1.jpg", "/d/labels/train/1.txt"),
        ("yolo", "/images/d/images/val/1.png", "/images/d/labels/val/1.txt"),
        ("yolo", "/d/my images/1.jpg", "/d/my images/1.txt"),
        ("yolo", "/d/1.jpg", "/d/1.txt"),
        ("yolo", "gs://b/images/1.jpg", "gs://b/labels/1.txt"),
        ("yolo:/l", "/d/images/train/1.jpg", "/l/1.txt"),
        ("voc:/l/", "/d/JPEGImages/1.jpg", "/l/1.xml"),
        ("voc:gs://b/l/", "/d/1.jpg", "gs://b/l/1.xml"),
    ],
)
def test_boxes_lie_where_the_usual_layouts_have_them(boxes, path, expected):
    (kind,) = parse(boxes)._kinds
    assert kind.files(Source(path.rpartition("/")[2]), path) == [expected]


def test_in_a_folder_of_their_own_files_lie_as_the_pictures_do_or_side_by_side(tmp_path):
    beside = parse(masks=f"{tmp_path}/m")
    for name in ("cat/1.jpg", "dog/1.jpg", "dog/2.jpg"):
        write(tmp_path / name, "")
    for name in ("m/cat/1.png", "m/1.png", "m/2.png"):
        write(tmp_path / name, name)

    def mask(name: str, **source) -> bytes:
        with beside.open_mask(attached(beside, Source(name, **source), tmp_path / name)) as file:
            return file.read()

    assert mask("cat/1.jpg") == b"m/cat/1.png"
    assert mask("dog/1.jpg") == b"m/1.png"
    assert mask("dog/2.jpg") == b"m/2.png"
    # The path counts, whatever the key is.
    assert mask("cat/1.jpg", path="dog/1.jpg") == b"m/1.png"


def checked(beside: Beside, *patterns: object) -> None:
    patterns = [str(pattern) for pattern in patterns]
    inputs = Inputs.of(patterns)
    skips = functools.partial(beside.says, root=inputs.root)
    beside.check(dataclasses.replace(inputs, skips=skips))


def test_files_that_two_pictures_would_share_are_refused(tmp_path):
    for name in ("p/cat/1.jpg", "p/dog/1.jpg", "p/dog/2.jpg", "m/cat/1.png", "m/2.png"):
        write(tmp_path / name, "")
    checked(parse(masks=f"{tmp_path}/m"), tmp_path / "p")
    write(tmp_path / "m/1.png", "")
    checked(parse(masks=f"{tmp_path}/m"), tmp_path / "p")
    (tmp_path / "m/cat/1.png").unlink()
    with pytest.raises(UsageError, match=r"m/1\.png: cat/1\.jpg and dog/1\.jpg would share it"):
        checked(parse(masks=f"{tmp_path}/m"), tmp_path / "p")


def test_a_file_that_would_be_boxes_and_captions_is_refused(tmp_path):
    for name in ("images/1.jpg", "images/1.txt", "labels/1.txt"):
        write(tmp_path / name, "")
    checked(parse("yolo", captions="txt"), tmp_path / "images")
    with pytest.raises(UsageError, match=r"1\.txt: it cannot be boxes and captions at once"):
        checked(parse(f"yolo:{tmp_path}/images", captions="txt"), tmp_path / "images")


def test_many_annotations_in_front_of_the_pictures_hide_nothing(tmp_path):
    for number in range(120):
        write(tmp_path / f"boxes/{number}.txt", "")
    write(tmp_path / "pics/x.jpg", "")
    with pytest.raises(UsageError, match="none of the first 1 pictures has such a file"):
        checked(parse(f"yolo:{tmp_path}/boxes"), tmp_path)
    write(tmp_path / "pics/7.jpg", "")
    checked(parse(f"yolo:{tmp_path}/boxes"), tmp_path)


def test_captions_beside_pictures_whose_boxes_lie_elsewhere_are_no_pictures():
    beside = parse("yolo", captions="txt")
    assert beside.says("/d/images/1.txt", "/d/images")
    assert beside.says("/d/labels/1.txt", "/d")
    assert not beside.says("/d/images/1.jpg", "/d")


def test_of_remote_files_the_first_that_is_there_is_taken(monkeypatch):
    held = {"gs://b/m/cat/1.png": b"deep", "gs://b/m/1.png": b"flat", "gs://b/m/2.png": b"two"}

    def opened(path):
        if path not in held:
            raise OSError("gone")
        return io.BytesIO(held[path])

    monkeypatch.setattr(beside_module, "open_seekable", opened)
    beside = parse(masks="gs://b/m")
    for name, data in (("cat/1.jpg", b"deep"), ("dog/1.jpg", b"flat"), ("2.jpg", b"two")):
        assert beside.open_mask(attached(beside, Source(name), f"gs://b/{name}")).read() == data
    with pytest.raises(RejectError, match=r"^gs://b/m/3\.png: cannot be read: gone$"):
        beside.open_mask(attached(beside, Source("dog/3.jpg"), "gs://b/dog/3.jpg"))


@pytest.mark.parametrize(
    ("flags", "path", "expected"),
    [
        ({"boxes": "voc"}, "/d/Annotations/1.xml", True),
        ({"boxes": "voc"}, "/d/1.xml", True),
        ({"boxes": "voc"}, "/d/1.XML", False),
        ({"boxes": "voc"}, "/d/JPEGImages/1.jpg", False),
        ({"boxes": "yolo"}, "/d/labels/train/1.txt", True),
        ({"boxes": "yolo"}, "/d/data.yaml", False),
        ({"boxes": "yolo:/l"}, "/l/1.txt", True),
        ({"boxes": "yolo:/l"}, "/d/1.txt", False),
        ({"captions": "txt"}, "/d/1.txt", True),
        ({"captions": "column:txt"}, "/d/1.txt", False),
        ({"masks": "/d/m"}, "/d/m/1.png", True),
        ({"masks": "/d/m"}, "/d/m/1.jpg", False),
        ({"masks": "/d/m"}, "/d/m/cat/1.png", True),
        ({"masks": "/d/m"}, "/d/1.png", False),
        ({"masks": "/d/m"}, "/d/me/1.png", False),
        ({"masks": "/d"}, "/d/1.png", True),
        # A folder above all pictures holds them as well.
        ({"masks": "/"}, "/d/1.png", False),
    ],
)
def test_annotations_among_pictures_are_told_from_them(flags, path, expected):
    assert parse(**flags).says(path, "/d") == expected


def attached(beside: Beside, source: Source, path: Path | str) -> Source:
    """What a worker gets of a source: a reference has been made of it."""
    return unpack_reference(pack_reference(beside.attach(source, str(path))))


def test_files_beside_a_picture_are_joined_to_it_with_size_and_time(tmp_path):
    picture = write(tmp_path / "p/1.jpg", "")
    boxes = write(tmp_path / "p/1.xml", VOC)
    mask = write(tmp_path / "m/1.png", "mask")
    beside = parse("voc", captions=f"txt:{tmp_path}/t", masks=f"{tmp_path}/m")
    source = attached(beside, Source("1.jpg", 5, 6), picture)
    assert source[:3] == ("1.jpg", 5, 6)
    assert source.joined == (
        ("boxes", str(boxes), len(VOC), os.stat(boxes).st_mtime_ns),
        ("mask", str(mask), 4, os.stat(mask).st_mtime_ns),
    )
    write(tmp_path / "t/1.txt", "A dog.")
    names = [name for name, *_ in attached(beside, Source("1.jpg"), picture).joined]
    assert names == ["boxes", "captions", "mask"]


def test_what_a_coco_file_says_travels_with_the_source(tmp_path):
    boxes, captions = write(tmp_path / "c.json", COCO), write(tmp_path / "t.json", CAPTIONS)
    beside = parse(f"coco:{boxes}", captions=f"coco:{captions}")
    source = attached(beside, Source("train/a.jpg", row={"age": 3}), "/d/train/a.jpg")
    boxes.unlink(), captions.unlink()
    assert source.row["age"] == 3
    found = beside.boxes_of(source)
    assert (found.names, found.size) == (("dog", "cat"), (10, 20))
    np.testing.assert_array_equal(found.corners, [[0.1, 0.1, 0.6, 0.3], [0, 0, 1, 1]])
    assert beside.captions_of(source) == ["x", "y"]


def test_a_picture_without_an_annotation_in_the_coco_file_shows_nothing(tmp_path):
    boxes, captions = write(tmp_path / "c.json", COCO), write(tmp_path / "t.json", CAPTIONS)
    beside = parse(f"coco:{boxes}", captions=f"coco:{captions}")
    source = attached(beside, Source("b.jpg"), "/d/b.jpg")
    assert beside.boxes_of(source).corners.shape == (0, 4)
    assert beside.captions_of(source) == []
    unknown = attached(beside, Source("c.jpg"), "/d/c.jpg")
    assert unknown.error == "the COCO file has no picture of this name"
    elsewhere = {"id": 3, "file_name": "x/c.jpg", "height": 1, "width": 1}
    moved = parse(
        f"coco:{write(tmp_path / 'm.json', COCO | {'images': [*COCO['images'], elsewhere]})}"
    )
    error = attached(moved, Source("y/c.jpg"), "/d/y/c.jpg").error
    assert error.endswith("name; it has 'x/c.jpg', name the folder above with --input")
    write(boxes, COCO | {"images": [{"id": 1, "file_name": "x/c.jpg", "height": 1, "width": 1}]})
    elsewhere = attached(parse(f"coco:{boxes}"), Source("y/c.jpg"), "/d/y/c.jpg")
    assert elsewhere.error.endswith("name; it has 'x/c.jpg', name the folder above with --input")


@pytest.mark.parametrize("source", [Source("7", path="a.jpg"), Source("a.jpg#7", path="a.jpg")])
def test_the_coco_file_knows_a_picture_by_its_path_whatever_its_key_is(tmp_path, source):
    beside = parse(f"coco:{write(tmp_path / 'c.json', COCO)}")
    assert beside.boxes_of(attached(beside, source, "/d/a.jpg")).names == ("dog", "cat")


def test_a_coco_file_that_has_changed_is_read_again(tmp_path):
    path = write(tmp_path / "c.json", COCO)
    beside = parse(f"coco:{path}")
    assert beside.attach(Source("c.jpg"), "/d/c.jpg").error
    images = [*COCO["images"], {"id": 3, "file_name": "c.jpg", "height": 1, "width": 1}]
    write(path, COCO | {"images": images})
    assert not beside.attach(Source("c.jpg"), "/d/c.jpg").error


def test_a_source_with_an_error_keeps_it():
    source = Source("x.tar", error="damaged")
    assert parse("voc", masks="/m").attach(source, "/d/x.tar") is source


@pytest.mark.parametrize(
    "flags",
    [{"boxes": "voc"}, {"boxes": "yolo:/l"}, {"captions": "txt"}, {"masks": "/m"}],
)
@pytest.mark.parametrize(
    "source", [Source("x.tar/1.jpg", archive="x.tar"), Source("x.tar.gz"), Source("X.TGZ")]
)
def test_files_beside_members_of_archives_are_refused_with_what_works(flags, source):
    with pytest.raises(UsageError, match="only found in folders: unpack the archive, or use"):
        parse(**flags).attach(source, "/d/x")


def test_columns_and_coco_files_work_in_archives(tmp_path):
    beside = parse(f"coco:{write(tmp_path / 'c.json', COCO)}", captions="column:txt")
    member = Source("x.tar/deep/a.jpg", archive="x.tar", row={"txt": "A dog."})
    source = attached(beside, member, "")
    assert beside.boxes_of(source).names == ("dog", "cat")
    assert beside.captions_of(source) == ["A dog."]
    # Nobody knows the members of a packed archive before it is read.
    assert beside.attach(Source("x.tar.gz"), "/d/x.tar.gz") == Source("x.tar.gz")


# What the files say.


def test_boxes_of_voc_and_yolo_are_read_from_the_file_beside(tmp_path):
    picture = write(tmp_path / "1.jpg", "")
    write(tmp_path / "1.xml", VOC)
    write(tmp_path / "1.txt", "1 0.5 0.5 0.2 0.4\n")
    found = parse("voc").boxes_of(attached(parse("voc"), Source("1.jpg"), picture))
    np.testing.assert_allclose(found.corners, [[0.1, 0.1, 0.5, 0.3]])
    assert (found.names, found.size) == (("dog",), (10, 20))
    yolo = Beside("yolo", class_names=("cat", "dog"))
    found = yolo.boxes_of(attached(yolo, Source("1.jpg"), picture))
    np.testing.assert_allclose(found.corners, [[0.3, 0.4, 0.7, 0.6]])
    assert (found.names, found.size) == (("dog",), None)


def test_a_picture_without_a_file_is_one_of_nothing_in_yolo_and_a_reject_elsewhere(tmp_path):
    picture = write(tmp_path / "1.jpg", "")
    found = parse("yolo").boxes_of(attached(parse("yolo"), Source("1.jpg"), picture))
    assert (found.corners.shape, found.names) == ((0, 4), ())
    for beside, ask, message in (
        (parse("voc"), Beside.boxes_of, "it has no annotation"),
        (parse(captions="txt"), Beside.captions_of, "it has no file of captions"),
        (parse(masks=str(tmp_path / "m")), Beside.open_mask, "it has no mask"),
    ):
        with pytest.raises(RejectError, match=f"^{message}$"):
            ask(beside, attached(beside, Source("1.jpg"), picture))


def test_a_file_that_goes_or_breaks_while_the_job_runs_is_a_reject(tmp_path):
    picture = write(tmp_path / "1.jpg", "")
    beside = parse("yolo", captions=f"txt:{tmp_path}/t")
    files = [write(tmp_path / "1.txt", "0 .5 .5 1 1"), write(tmp_path / "t/1.txt", "x")]
    source = attached(beside, Source("1.jpg"), picture)
    for file in files:
        file.unlink()
    for ask in (beside.boxes_of, beside.captions_of):
        with pytest.raises(RejectError, match=r"1\.txt: cannot be read: .*No such file"):
            ask(source)
    write(files[0], b" " * (MAX_BYTES + 1))
    write(files[1], b" " * (MAX_BYTES + 1))
    with pytest.raises(RejectError, match="an annotation of 4194305 bytes, expected at most"):
        beside.boxes_of(source)
    with pytest.raises(RejectError, match=r"^its captions are longer than 4 MiB$"):
        beside.captions_of(source)
    write(files[1], b"\xff")
    with pytest.raises(RejectError, match=r"^its captions are not UTF-8: "):
        beside.captions_of(source)


def test_lines_of_a_text_file_are_captions(tmp_path):
    beside = parse(captions="txt")
    picture = write(tmp_path / "1.jpg", "")
    write(tmp_path / "1.txt", "\ufeffA dog.\r\n\n  Ein Hündchen. \n")
    captions = beside.captions_of(attached(beside, Source("1.jpg"), picture))
    assert captions == ["A dog.", "Ein Hündchen."]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"txt": "A dog.\nTwo."}, ["A dog.\nTwo."]),
        ({"txt": ["a", "b"]}, ["a", "b"]),
        ({"txt": []}, []),
        ({"txt": 5}, "captions 5: expected text, or a list of texts"),
        ({"txt": ["a", None]}, r"captions \['a', None\]: expected text"),
        ({"cls": "1"}, "no column 'txt'; it has cls"),
    ],
)
def test_captions_of_a_column_are_text_or_lists_of_texts(row, expected):
    beside = parse(captions="column:txt")
    source = attached(beside, Source("x.tar/1.jpg", archive="x.tar", row=row), "")
    if isinstance(expected, str):
        with pytest.raises(RejectError, match=expected):
            beside.captions_of(source)
    else:
        assert beside.captions_of(source) == expected


# Whether the folder is the right one.


def test_a_folder_in_which_some_of_the_first_pictures_have_a_file_is_the_right_one(tmp_path):
    for n in range(5):
        write(tmp_path / f"p/{n}.jpg", "")
    write(tmp_path / "m/3.png", "")
    write(tmp_path / "p/4.txt", "")
    inputs = Inputs.of([f"{tmp_path}/p/*.jpg"])
    parse("yolo", masks=f"{tmp_path}/m").check(inputs)
    Beside().check(inputs)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"boxes": "voc"}, r"--boxes voc: none of the first 3 pictures has such a file; that of "),
        (
            {"boxes": "yolo"},
            r"--boxes yolo: none of the first 3 .* that of 0.jpg would be .*/0.txt",
        ),
        ({"captions": "txt"}, r"--captions txt: none of the first 3 pictures"),
        ({"masks": "m"}, r"--masks: none of the first 3 .* that of 0.jpg would be .*/m/0.png"),
        ({"boxes": "yolo:l", "masks": "m"}, r"--masks: none of the first 3 pictures"),
    ],
)
def test_a_folder_in_which_no_picture_has_a_file_is_the_users_mistake(
    tmp_path, monkeypatch, flags, message
):
    monkeypatch.chdir(tmp_path)
    for n in range(3):
        write(tmp_path / f"p/{n}.jpg", "")
    write(tmp_path / "l/1.txt", "")
    write(tmp_path / "m/7.png", "")
    with pytest.raises(UsageError, match=message):
        parse(**flags).check(Inputs.of([f"{tmp_path}/p/*.jpg"]))


def test_the_right_folder_is_looked_for_in_few_pictures(tmp_path):
    for n in range(150):
        write(tmp_path / f"p/{n:03}.jpg", "")
    write(tmp_path / "m/149.png", "")
    with pytest.raises(UsageError, match="none of the first 100 pictures"):
        parse(masks=f"{tmp_path}/m").check(Inputs.of([f"{tmp_path}/p"]))


def test_archives_are_refused_before_the_job_starts(tmp_path):
    for name, mode in (("x.tar", "w"), ("x.tar.gz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.addfile(tarfile.TarInfo("1.jpg"), io.BytesIO())
        with pytest.raises(UsageError, match="only found in folders"):
            parse("voc").check(Inputs.of([f"{tmp_path}/{name}"]))


def test_damaged_inputs_say_nothing_about_the_folder(tmp_path):
    write(tmp_path / "x.tar", "damaged")
    parse("voc").check(Inputs.of([f"{tmp_path}/x.tar"]))
