"""The annotations of images: where they are looked for, and what happens if they are missing."""

import dataclasses
import functools
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.cli.images import ImageFlags
from beam_jobs.errors import DataError, RejectError, UsageError
from beam_jobs.jobs.images.annotation_files import Statuses
from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.boxes import MissingError
from beam_jobs.jobs.images.voc_yolo import MAX_BYTES, voc_boxes
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source, pack_reference, unpack_reference
from tests.support.archives import tarred, zipped
from tests.support.images import encoded

VOC = """<annotation><size><width>20</width><height>10</height><depth>3</depth></size>
<object><name>dog</name><bndbox><xmin>2</xmin><ymin>1</ymin><xmax>6</xmax><ymax>5</ymax></bndbox>
</object></annotation>"""
IMAGES = [{"id": n, "file_name": f"{'_ab'[n]}.jpg", "height": 10, "width": 20} for n in (1, 2)]
COCO = {
    "images": IMAGES,
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 9, "bbox": [2, 1, 4, 5]},
        {"id": 2, "image_id": 1, "category_id": 4, "bbox": [0, 0, 20, 10]},
    ],
    "categories": [{"id": 9, "name": "dog"}, {"id": 4, "name": "cat"}],
}
CAPTIONS = {
    "images": IMAGES,
    "annotations": [{"id": n, "image_id": 1, "caption": text} for n, text in enumerate("xy")],
}


def write(path: Path, data: object = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, dict):
        data = json.dumps(data)
    path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
    return path


def parse(boxes="", class_names="", captions="", masks="") -> ImageAnnotations:
    return ImageFlags(
        boxes=str(boxes), class_names=str(class_names), captions=str(captions), masks=str(masks)
    ).annotations()


def annotated(annotations: ImageAnnotations, source: Source | str, path: Path | str) -> Source:
    """A source with its annotations, as a worker unpacks it from a reference."""
    source = Source(source) if isinstance(source, str) else source
    found = annotations.with_annotations(source, str(path), Statuses())
    return unpack_reference(pack_reference(found))


# Flags.


def test_paths_are_absolute_because_workers_run_in_other_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c.json", COCO)
    write(tmp_path / "t.json", CAPTIONS)
    write(tmp_path / "names.txt", "person\ncar\n")
    assert parse("coco:c.json", "", "coco:t.json", "m") == ImageAnnotations(
        "coco", f"{tmp_path}/c.json", ("cat", "dog"), "coco", f"{tmp_path}/t.json", f"{tmp_path}/m"
    )
    assert parse("yolo:l", "names.txt", "txt:t") == ImageAnnotations(
        "yolo", f"{tmp_path}/l", ("person", "car"), "txt", f"{tmp_path}/t"
    )
    assert parse("voc") == ImageAnnotations("voc")
    assert parse() == ImageAnnotations()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"boxes": "pascal"},
            "--boxes pascal: expected coco:FILE, csv:FILE, voc, voc:DIR, yolo or yolo:DIR",
        ),
        ({"boxes": "coco:"}, "--boxes coco:: expected coco:FILE"),
        ({"boxes": "coco:nothing.json"}, "nothing.json: cannot be read: no such file$"),
        ({"class_names": "n.txt"}, "--class_names names the classes in YOLO .* add --boxes yolo"),
        ({"boxes": "yolo", "class_names": "no.txt"}, "--class_names no.txt: cannot be read: "),
        ({"boxes": "yolo", "class_names": "empty.txt"}, "empty.txt: it has no class names"),
        ({"captions": "csv"}, "--captions csv: expected coco:FILE, txt or txt:DIR"),
        ({"captions": "coco:broken.json"}, "broken.json: not JSON"),
        ({"boxes": "coco:captions.json"}, "the file has no categories: are these captions"),
    ],
)
def test_flags_without_a_valid_form_or_file_are_refused(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "empty.txt")
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
        ("voc", "/d/images/1.jpg", "/d/images/1.xml"),
        ("yolo", "/d/images/train/1.jpg", "/d/labels/train/1.txt"),
        ("yolo", "/images/d/images/val/1.png", "/images/d/labels/val/1.txt"),
        ("yolo", "/d/1.jpg", "/d/1.txt"),
        ("yolo", "gs://b/images/1.jpg", "gs://b/labels/1.txt"),
        ("yolo:/l", "/d/images/train/1.jpg", "/l/1.txt"),
        ("voc:/l/", "/d/JPEGImages/1.jpg", "/l/1.xml"),
    ],
)
def test_boxes_are_where_the_usual_layouts_have_them(boxes, path, expected):
    (files,) = parse(boxes)._files
    assert files.candidates(Source(path.rpartition("/")[2]), path) == [expected]


def test_a_folder_of_masks_repeats_the_folders_of_the_images_or_is_flat(tmp_path):
    annotations = parse(masks=tmp_path / "m")
    for name in ("cat/1.jpg", "dog/1.jpg", "dog/2.jpg"):
        write(tmp_path / name)
    for name in ("m/cat/1.png", "m/1.png", "m/2.png"):
        write(tmp_path / name, name)
    for source, expected in (
        (Source("cat/1.jpg"), b"m/cat/1.png"),
        (Source("dog/1.jpg"), b"m/1.png"),
        (Source("dog/2.jpg"), b"m/2.png"),
        (Source("cat/1.jpg", path="dog/1.jpg"), b"m/1.png"),  # the path counts, not the key
    ):
        found = annotated(annotations, source, tmp_path / source.key)
        assert annotations.mask_of(found) == expected


def test_files_in_a_store_are_found_by_one_listing_of_their_folder(s3):
    for name in ("cat/1.png", "1.png", "2.png"):
        s3.put(f"{s3.url}/m/{name}", name.encode())
    annotations, statuses = parse(masks=f"{s3.url}/m"), Statuses()
    s3.proxy.forget()

    def joined(name: str) -> tuple:
        return annotations.with_annotations(Source(name), f"{s3.url}/{name}", statuses).joined

    found = [joined(name) for name in ("cat/1.jpg", "dog/1.jpg", "2.jpg", "dog/3.jpg")]
    assert len(s3.proxy.seen()) == 3  # m/cat, m/dog and m
    assert [[path.removeprefix(s3.url) for _, path, *_ in entries] for entries in found] == [
        ["/m/cat/1.png"],
        ["/m/1.png"],
        ["/m/2.png"],
        [],
    ]
    ((_, _, size, modified),) = found[0]
    assert size == len("cat/1.png") and modified > 0
    assert annotations.mask_of(Source("x", joined=found[2])) == b"2.png"
    with pytest.raises(MissingError, match="no mask found"):
        annotations.mask_of(Source("x", joined=found[3]))


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_annotations_that_were_mended_in_a_store_change_the_reference_of_their_image(s3, kind):
    def reference(boxes: str) -> bytes:
        if kind == "folder":
            s3.put(f"{s3.url}/boxes/1.xml", boxes.encode())
        else:
            s3.put(f"{s3.url}/boxes.zip", zipped([("1.xml", boxes.encode())], method=0))
        annotations = parse(f"voc:{s3.url}/boxes{'.zip/' if kind == 'zip' else ''}")
        return pack_reference(annotated(annotations, "1.jpg", f"{s3.url}/1.jpg"))

    first = reference(VOC)
    time.sleep(1.1)  # Stores note seconds.
    assert reference(VOC.replace("<ymax>5<", "<ymax>6<")) != first


@pytest.mark.parametrize(
    ("flags", "path", "expected"),
    [
        ({}, "/d/1.txt", False),
        ({"boxes": "voc"}, "/d/Annotations/1.xml", True),
        ({"boxes": "voc"}, "/d/1.XML", False),
        ({"boxes": "yolo"}, "/d/labels/train/1.txt", True),
        ({"boxes": "yolo"}, "/d/data.yaml", False),
        ({"boxes": "yolo:/l"}, "/d/1.txt", False),
        ({"boxes": "yolo", "captions": "txt"}, "/d/images/1.txt", True),
        ({"captions": "txt"}, "/d/1.txt", True),
        ({"masks": "/d/m"}, "/d/m/1.jpg", False),
        ({"masks": "/d/m"}, "/d/m/cat/1.png", True),
        ({"masks": "/d/m"}, "/d/1.png", False),
        ({"masks": "/d/m"}, "/d/me/1.png", False),
        ({"masks": "/d"}, "/d/1.png", True),
        ({"masks": "/"}, "/d/1.png", False),  # a folder above all images holds them too
    ],
)
def test_annotations_among_the_images_are_not_images(flags, path, expected):
    assert parse(**flags).is_annotation(path, "/d") == expected


def test_files_are_joined_to_an_image_with_size_and_modification_time(tmp_path):
    image, boxes = write(tmp_path / "p/1.jpg"), write(tmp_path / "p/1.xml", VOC)
    mask = write(tmp_path / "m/1.png", "mask")
    annotations = parse("voc", captions=f"txt:{tmp_path}/t", masks=tmp_path / "m")
    source = annotated(annotations, Source("1.jpg", 5, 6), image)
    assert source[:3] == ("1.jpg", 5, 6)
    assert source.joined == (
        ("boxes", str(boxes), len(VOC), os.stat(boxes).st_mtime_ns),
        ("mask", str(mask), 4, os.stat(mask).st_mtime_ns),
    )
    write(tmp_path / "t/1.txt", "A dog.")
    names = [name for name, *_ in annotated(annotations, "1.jpg", image).joined]
    assert names == ["boxes", "captions", "mask"]


# COCO files.


def test_annotations_of_a_coco_file_travel_with_the_source(tmp_path):
    boxes, captions = write(tmp_path / "c.json", COCO), write(tmp_path / "t.json", CAPTIONS)
    annotations = parse(f"coco:{boxes}", captions=f"coco:{captions}")
    a = annotated(annotations, Source("train/a.jpg", row={"age": 3}), "/d/train/a.jpg")
    b = annotated(annotations, "b.jpg", "/d/b.jpg")
    unknown = annotated(annotations, "c.jpg", "/d/c.jpg")
    boxes.unlink(), captions.unlink()
    assert a.row["age"] == 3
    found = annotations.boxes_of(a)
    assert (found.names, found.size) == (("dog", "cat"), (10, 20))
    np.testing.assert_array_equal(found.corners, [[0.1, 0.1, 0.6, 0.3], [0, 0, 1, 1]])
    assert annotations.captions_of(a) == ["x", "y"]
    # An image without annotations is one without objects.
    assert annotations.boxes_of(b).corners.shape == (0, 4)
    assert annotations.captions_of(b) == []
    assert unknown.error == "the COCO file has no image of this name; it has 'a.jpg'"


@pytest.mark.parametrize("source", [Source("7", path="a.jpg"), Source("a.jpg#7", path="a.jpg")])
def test_an_image_is_looked_up_by_its_path_and_not_by_its_key(tmp_path, source):
    annotations = parse(f"coco:{write(tmp_path / 'c.json', COCO)}")
    assert annotations.boxes_of(annotated(annotations, source, "/d/a.jpg")).names == ("dog", "cat")


# Archives.


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"boxes": "voc"}, "--boxes voc"),
        ({"boxes": "yolo:/l", "masks": "/m"}, "--boxes yolo and --masks"),
        ({"captions": "txt"}, "--captions txt"),
        ({"boxes": "coco:c.json", "masks": "/m"}, "--masks"),
    ],
)
@pytest.mark.parametrize("source", [Source("x.tar/1.jpg", archive="x.tar"), Source("X.TGZ")])
def test_annotation_files_of_archive_members_are_refused_with_the_alternatives(
    tmp_path, flags, named, source
):
    if flags.get("boxes") == "coco:c.json":
        flags = flags | {"boxes": f"coco:{write(tmp_path / 'c.json', COCO)}"}
    message = (
        f": {named} cannot be read with archives that are read from front to back: unpack it, or "
        "make it a .zip or .tar; --boxes coco:FILE"
    )
    with pytest.raises(UsageError, match=message):
        parse(**flags).with_annotations(source, "/d/x", Statuses())


# Members of archives.


def in_archive(folder: Path, kind: str, members: dict[str, bytes]) -> Path:
    pack = zipped if kind == "zip" else tarred
    return write(folder / f"x.{kind}", pack(members.items()))


def sources(annotations: ImageAnnotations, archive: Path) -> dict[str, Source]:
    """The images in an archive with their annotations, as references carry them."""
    inputs = Inputs.of([str(archive)], samples=True)
    skips = functools.partial(annotations.is_annotation, root=inputs.root)
    inputs = dataclasses.replace(inputs, skips=skips)
    annotations.check_files(inputs)
    statuses = Statuses()
    found = [
        annotations.with_annotations(source, inputs.path_of(source), statuses)
        for source in inputs.sources(inputs.patterns[0])
    ]
    return {source.key: unpack_reference(pack_reference(source)) for source in found}


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_masks_captions_and_coco_files_are_read_in_archives(tmp_path, kind):
    mask = encoded(np.eye(4, dtype=np.uint8), "PNG")
    archive = in_archive(
        tmp_path,
        kind,
        {
            "images/a/1.jpg": b"picture",
            "images/a/1.txt": b"One.\n",
            "masks/a/1.png": mask,
            "c.json": json.dumps(COCO).replace("a.jpg", "1.jpg").encode(),
        },
    )
    annotations = parse(f"coco:{archive}/c.json", captions="txt", masks=f"{archive}/masks")
    found = sources(annotations, archive)
    assert [*found] == [f"x.{kind}/images/a/1.jpg"]
    (source,) = found.values()
    assert annotations.captions_of(source) == ["One."]
    assert annotations.mask_of(source) == mask
    assert annotations.boxes_of(source).names == ("dog", "cat")


def test_an_archive_of_annotations_serves_a_folder_of_images(tmp_path):
    archive = in_archive(tmp_path, "zip", {"1.xml": VOC.encode()})
    image = write(tmp_path / "p" / "a" / "1.jpg")
    annotations = parse(f"voc:{archive}")
    source = annotated(annotations, "a/1.jpg", image)
    assert annotations.boxes_of(source).names == voc_boxes(VOC.encode()).names
    other = annotated(annotations, "a/2.jpg", image.with_name("2.jpg"))
    with pytest.raises(RejectError, match="no boxes found"):
        annotations.boxes_of(other)


def test_damaged_and_missing_members_are_named(tmp_path):
    archive = in_archive(tmp_path, "zip", {"1.jpg": b"picture", "1.xml": VOC.encode() * 3})
    (source,) = sources(parse("voc"), archive).values()
    data = bytearray(archive.read_bytes())
    data[data.index(b"1.xml") + 20] ^= 255
    archive.write_bytes(data)
    with pytest.raises(RejectError, match=r"x.zip/1.xml: cannot be read: "):
        parse("voc").boxes_of(source)
    with pytest.raises(
        UsageError, match=r"x.zip/c.json: cannot be read: the archive has no member"
    ):
        parse(f"coco:{archive}/c.json")
    large = write(tmp_path / "y.zip", zipped([("1.jpg", b""), ("1.xml", bytes(MAX_BYTES + 1))]))
    (source,) = sources(parse("voc"), large).values()
    with pytest.raises(RejectError, match=f"it has {MAX_BYTES + 1} bytes, more than {MAX_BYTES}"):
        parse("voc").boxes_of(source)


def test_a_damaged_archive_of_annotations_ends_the_job(tmp_path):
    labels = tarred((f"{n}.txt", b"0 .5 .5 1 1") for n in range(8))
    images = [write(tmp_path / f"p/{n}.jpg") for n in range(8)]
    archive = write(tmp_path / "labels.tar", labels[:2200])
    annotations = parse(f"yolo:{archive}")
    message = r"labels\.tar: the archive is damaged or cut off after '1\.txt': .* archive again$"
    with pytest.raises(DataError, match=message):
        check(annotations, tmp_path / "p")
    with pytest.raises(DataError, match=message):
        annotated(annotations, "0.jpg", images[0])


def test_a_member_that_cannot_be_read_rejects_its_image(tmp_path):
    data = bytearray(zipped([("1.txt", b"0 .5 .5 1 1")]))
    data[data.index(b"PK\1\2") + 8] |= 1
    archive = write(tmp_path / "x.zip", bytes(data))
    source = annotated(parse(f"yolo:{archive}"), "1.jpg", tmp_path / "1.jpg")
    assert source.error == f"{archive}/1.txt: the member is encrypted"


# The contents of the files.


def test_a_file_that_disappears_or_changes_while_the_job_runs_is_a_reject(tmp_path):
    annotations = parse("yolo", captions=f"txt:{tmp_path}/t")
    files = [write(tmp_path / "1.txt", "0 .5 .5 1 1"), write(tmp_path / "t/1.txt", "x")]
    source = annotated(annotations, "1.jpg", write(tmp_path / "1.jpg"))
    readers = annotations.boxes_of, annotations.captions_of
    for file, read in zip(files, readers, strict=True):
        file.unlink()
        with pytest.raises(RejectError, match=r"1\.txt: cannot be read: .*No such file"):
            read(source)
    for file, read, data, message in (
        (files[0], readers[0], b" " * (MAX_BYTES + 1), "it has more than 4194304 bytes$"),
        (files[1], readers[1], b" " * (MAX_BYTES + 1), "it has more than 4194304 bytes$"),
        (files[1], readers[1], b"\xff", "not UTF-8: "),
    ):
        write(file, data)
        with pytest.raises(RejectError, match=message):
            read(source)


def test_each_line_of_a_text_file_is_a_caption(tmp_path):
    annotations = parse(captions="txt")
    write(tmp_path / "1.txt", "\ufeffA dog.\r\n\n  Ein Hündchen. \n")
    source = annotated(annotations, "1.jpg", write(tmp_path / "1.jpg"))
    assert annotations.captions_of(source) == ["A dog.", "Ein Hündchen."]


# The check of the first images.


def check(annotations: ImageAnnotations, folder: object) -> None:
    inputs = Inputs.of([str(folder)])
    skips = functools.partial(annotations.is_annotation, root=inputs.root)
    annotations.check_files(dataclasses.replace(inputs, skips=skips))


def test_a_folder_is_accepted_if_one_of_the_first_images_has_a_file_in_it(tmp_path):
    for name in (*(f"p/{n}.jpg" for n in range(5)), "m/3.png", "p/4.txt"):
        write(tmp_path / name)
    check(parse("yolo", masks=tmp_path / "m"), tmp_path / "p")
    check(ImageAnnotations(), tmp_path / "p")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"boxes": "voc"}, r"--boxes voc: none of the first 3 images has such a file; that of "),
        ({"boxes": "yolo"}, r"--boxes yolo: none of the first 3 .* of 0.jpg would be .*/0.txt"),
        ({"captions": "txt"}, r"--captions txt: none of the first 3 images"),
        ({"masks": "m"}, r"--masks: none of the first 3 .* that of 0.jpg would be .*/m/0.png"),
        ({"boxes": "yolo:l", "masks": "m"}, r"--masks: none of the first 3 images"),
    ],
)
def test_a_folder_without_a_file_for_any_image_is_refused(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    for name in (*(f"p/{n}.jpg" for n in range(3)), "l/1.txt", "m/7.png"):
        write(tmp_path / name)
    with pytest.raises(UsageError, match=message):
        check(parse(**flags), tmp_path / "p/*.jpg")


def test_two_images_that_would_share_a_file_are_refused(tmp_path):
    annotations = parse(masks=tmp_path / "m")
    for name in ("p/cat/1.jpg", "p/dog/1.jpg", "p/dog/2.jpg", "m/cat/1.png", "m/2.png", "m/1.png"):
        write(tmp_path / name)
    check(annotations, tmp_path / "p")
    (tmp_path / "m/cat/1.png").unlink()
    with pytest.raises(UsageError, match=r"m/1\.png: cat/1\.jpg and dog/1\.jpg would share it"):
        check(annotations, tmp_path / "p")


def test_a_file_that_would_be_boxes_and_captions_is_refused(tmp_path):
    for name in ("images/1.jpg", "images/1.txt", "labels/1.txt"):
        write(tmp_path / name)
    check(parse("yolo", captions="txt"), tmp_path / "images")
    with pytest.raises(UsageError, match=r"1\.txt: it cannot be both boxes and captions"):
        check(parse(f"yolo:{tmp_path}/images", captions="txt"), tmp_path / "images")


@pytest.mark.parametrize("kind", ["coco", "csv"])
def test_an_entry_without_a_folder_that_fits_two_images_is_refused(tmp_path, kind):
    def boxes(*names: str) -> ImageAnnotations:
        if kind == "csv":
            rows = [f"{name},20,10,2,1,6,5,dog" for name in names]
            text = "\n".join(["filename,width,height,xmin,ymin,xmax,ymax,class", *rows])
            return parse(f"csv:{write(tmp_path / 'c.csv', text)}")
        images = [IMAGES[0] | {"id": n, "file_name": name} for n, name in enumerate(names, 1)]
        return parse(f"coco:{write(tmp_path / 'c.json', COCO | {'images': images})}")

    for name in ("cats/1.jpg", "dogs/1.jpg", "dogs/2.jpg"):
        write(tmp_path / "p" / name)
    check(boxes("cats/1.jpg", "dogs/1.jpg", "2.jpg"), tmp_path / "p")
    check(boxes("1.jpg", "2.jpg"), tmp_path / "p/dogs")
    message = r"its entry '1\.jpg' would annotate both (cats|dogs)/1\.jpg and (cats|dogs)/1\.jpg: add the folders"
    with pytest.raises(UsageError, match=f"--boxes {kind}:.*: {message}"):
        check(boxes("1.jpg", "2.jpg"), tmp_path / "p")


@pytest.mark.parametrize("written", ["sub\\M\u00fc.jpg", " ./sub/Mu\u0308.jpg", "M\u00fc.jpg"])
@pytest.mark.parametrize("image", ["sub/Mu\u0308.jpg", "sub/M\u00fc.jpg"])
def test_annotations_are_found_however_names_are_written(tmp_path, written, image):
    images = [{"id": 1, "file_name": written, "height": 10, "width": 20}]
    coco = write(tmp_path / "coco.json", COCO | {"images": images})
    rows = f"filename,xmin,ymin,xmax,ymax,class\n{written},0,0,1,1,dog\n"
    write(tmp_path / "x.zip", zipped([(f"voc/{written.strip()}".replace(".jpg", ".xml"), VOC)]))
    (tmp_path / "voc").mkdir()
    write(tmp_path / "voc" / f"{Path(written.strip()).stem.rpartition(chr(92))[2]}.xml", VOC)
    csv = write(tmp_path / "boxes.csv", rows)
    for boxes in (f"coco:{coco}", f"csv:{csv}", f"voc:{tmp_path}/voc", f"voc:{tmp_path}/x.zip/voc"):
        found = parse(boxes)
        source = annotated(found, image, tmp_path / "in" / image)
        assert "dog" in found.boxes_of(source).names
