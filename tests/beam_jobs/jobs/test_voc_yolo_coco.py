"""Boxes of Pascal VOC, YOLO and COCO, class names of YOLO, and captions of COCO."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.cli.images import ImageFlags
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import Boxes
from beam_jobs.jobs.images.coco_file import CocoFile, read_coco
from beam_jobs.jobs.images.voc_yolo import (
    MAX_BYTES,
    read_class_names,
    voc_boxes,
    yolo_boxes,
    yolo_lines_of,
)

# A file of VOC2012, shortened.
VOC = b"""<annotation>
<folder>VOC2012</folder><filename>2007_000027.jpg</filename>
<size><width>486</width><height>500</height><depth>3</depth></size>
<segmented>0</segmented>
<object>
	<name>person</name><pose>Unspecified</pose>
	<bndbox><xmin>174</xmin><ymin>101</ymin><xmax>349</xmax><ymax>351</ymax></bndbox>
	<part>
		<name>head</name>
		<bndbox><xmin>169</xmin><ymin>104</ymin><xmax>209</xmax><ymax>146</ymax></bndbox>
	</part>
</object>
<object>
	<bndbox><ymax>500.0</ymax><xmax>486</xmax><ymin>1</ymin><xmin> 1.5 </xmin></bndbox>
	<name> Dog &amp; cat </name>
</object>
</annotation>
"""


def voc(**changes: str) -> bytes:
    """A VOC file of one object; a side that is changed to "" is left out."""
    values = {"width": "40", "height": "20", "name": "dog"}
    values |= {"ymin": "2", "xmin": "4", "ymax": "10", "xmax": "30"} | changes
    text = {name: f"<{name}>{value}</{name}>" for name, value in values.items() if value}
    box = "".join(text.get(side, "") for side in ("ymin", "xmin", "ymax", "xmax"))
    return (
        f"<annotation><size>{text.get('width', '')}{text.get('height', '')}</size>"
        f"<object>{text.get('name', '')}<bndbox>{box}</bndbox></object></annotation>"
    ).encode()


def assert_boxes(found: Boxes, corners, names, size) -> None:
    assert found.corners.dtype == np.float64
    np.testing.assert_allclose(found.corners, np.array(corners, float).reshape(-1, 4), atol=1e-12)
    assert (found.names, found.size) == (tuple(names), size)


def test_voc_corners_are_divided_by_the_sides_as_tensorflow_datasets_does():
    h, w = 500, 486
    corners = [[101 / h, 174 / w, 351 / h, 349 / w], [1 / h, 1.5 / w, 1, 1]]
    assert_boxes(voc_boxes(VOC), corners, ["person", "Dog & cat"], (h, w))


def test_a_voc_file_without_objects_has_no_boxes():
    root = ElementTree.fromstring(VOC)
    for object_ in root.findall("object"):
        root.remove(object_)
    assert_boxes(voc_boxes(ElementTree.tostring(root)), [], [], (500, 486))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_voc_files_may_have_any_encoding_that_they_name(encoding):
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + voc(name="Bär").decode()
    assert voc_boxes(text.encode(encoding)).names == ("Bär",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not XML: no element found"),
        (b"<a>\xff</a>", "not XML: "),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "not XML: "),
        (b"<a>&undefined;</a>", "not XML: undefined entity"),
        (voc(height=""), "its size has height None, expected a number of pixels"),
        (voc(width=""), "its size has width None, expected a number of pixels"),
        (voc(width="0"), "its size has width '0', expected a number of pixels"),
        (voc(height="nan"), "its size has height 'nan', expected a number of pixels"),
        (voc(name="  "), "object 1 has no name"),
        (voc(ymax=""), "object 1 'dog' has ymin '2', xmin '4', ymax None, xmax '30', expected"),
        (voc(xmin="left"), "object 1 'dog' has ymin '2', xmin 'left', ymax '10', xmax"),
        (voc(xmin="1_0"), "object 1 'dog' has ymin '2', xmin '1_0', ymax '10', xmax"),
        (voc(xmax="inf"), "object 1 'dog' has ymin '2', xmin '4', ymax '10', xmax 'inf', expected"),
        (voc(ymax="1.5"), "object 1 'dog' has ymin '2', xmin '4', ymax '1.5', xmax '30', expected"),
        (voc(name="n" * 1000, xmin="x" * 1000), "object 1 'nnnn"),
    ],
)
def test_an_invalid_voc_file_is_rejected(data, message):
    with pytest.raises(RejectError) as caught:
        voc_boxes(data)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def with_doctype(declaration: str, encoding: str) -> bytes:
    text = voc(name="&e;").decode()
    return f'<?xml version="1.0" encoding="{encoding}"?>{declaration}{text}'.encode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_of_xml_are_never_expanded(tmp_path, encoding):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    laughs = "".join(f'<!ENTITY e{i} "{f"&e{i + 1};" * 10}">' for i in range(9))
    for declaration in (
        '<!DOCTYPE annotation [<!ENTITY e "dog">]>',
        f'<!DOCTYPE annotation [<!ENTITY e "&e0;">{laughs}<!ENTITY e9 "ha">]>',
        f'<!DOCTYPE annotation [<!ENTITY e SYSTEM "file://{secret}">]>',
        f'<!DOCTYPE annotation SYSTEM "file://{secret}">',
    ):
        with pytest.raises(RejectError, match=r"it has a document type \(DOCTYPE\)"):
            voc_boxes(with_doctype(declaration, encoding))
    # The first would work: the parser alone expands it.
    assert b"dog" in ElementTree.tostring(
        ElementTree.fromstring(with_doctype('<!DOCTYPE a [<!ENTITY e "dog">]>', encoding))
    )


FRACTIONS = st.floats(0, 1).map(lambda value: round(value, 6))


@given(st.lists(st.tuples(st.integers(0, 2), FRACTIONS, FRACTIONS, FRACTIONS, FRACTIONS)))
def test_yolo_lines_are_centers_and_sides(rows):
    data = "\n".join(" ".join(map(str, row)) for row in rows).encode()
    names = ("cat", "dog", "hen")
    corners = [
        [y - height / 2, x - width / 2, y + height / 2, x + width / 2]
        for _, x, y, width, height in rows
    ]
    assert_boxes(yolo_boxes(data, names), corners, [names[row[0]] for row in rows], None)
    assert yolo_boxes(data, ()).names == tuple(str(row[0]) for row in rows)


@given(st.lists(st.tuples(FRACTIONS, FRACTIONS), min_size=3, max_size=9))
def test_a_yolo_polygon_gives_the_box_around_it(points):
    line = "1 " + " ".join(f"{x} {y}" for x, y in points)
    low, high = np.min(points, axis=0), np.max(points, axis=0)
    assert_boxes(yolo_boxes(line.encode(), ()), [[low[1], low[0], high[1], high[0]]], ["1"], None)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_yolo_files_of_every_editor_are_read(end, bom):
    text = f"{bom}0 .5 0.5 1e-1 0.2{end}{end}  1\t0.25 0.5 0.5 1.00  "
    corners = [[0.4, 0.45, 0.6, 0.55], [0, 0, 1, 0.5]]
    assert_boxes(yolo_boxes(text.encode(), ()), corners, ["0", "1"], None)


def poses(step: int, lines: int) -> bytes:
    """Lines of a box in the image and three keypoints of `step` numbers in it, one not labelled."""
    random = np.random.default_rng(0)
    size = random.uniform(0.1, 0.4, (lines, 2))
    center = random.uniform(size / 2, 1 - size / 2)
    points = center[:, None] + (random.random((lines, 3, 2)) - 0.5) * size[:, None]
    points[:, 1] = 0
    if step == 3:
        points = np.concatenate((points, (points.any(-1, keepdims=True) * 2)), -1)
    rows = np.concatenate((center, size, points.reshape(lines, -1)), 1)
    return "".join(f"0 {' '.join(map(str, row))}\n" for row in rows).encode()


def polygons(lines: int, corners: int) -> bytes:
    rows = np.random.default_rng(0).random((lines, 2 * corners))
    return "".join(f"0 {' '.join(map(str, row))}\n" for row in rows).encode()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([b"0 0.5 0.5 0.2 0.4 0.45 0.40 0.55 0.60"], "poses"),
        ([poses(2, 30), b"", poses(2, 30)], "poses"),
        ([poses(3, 30)], "poses"),
        ([polygons(30, 4)], "polygons"),
        ([polygons(30, 3)], "polygons"),
        ([b"0 .1 .1 .9 .1 .9 .9 .1 .9"], "polygons"),
        ([b"0 .9 .9 .95 .9 .95 .95 .9 .95"], "polygons"),
        ([poses(2, 30), polygons(1, 9)], "polygons"),
        ([b"0 .5 .5 .1 .1", b""], "polygons"),
    ],
)
def test_lines_of_boxes_and_keypoints_are_told_from_polygons(files, expected):
    assert yolo_lines_of(files) == expected


def test_a_pose_gives_its_box_and_both_say_what_lines_were_taken_for():
    line = b"0 0.5 0.5 0.2 0.4 0.45 0.40 0.55 0.60"
    pose, polygon = yolo_boxes(line, (), "poses"), yolo_boxes(line, (), "polygons")
    np.testing.assert_allclose(pose.corners, [[0.3, 0.4, 0.7, 0.6]])
    np.testing.assert_allclose(polygon.corners, [[0.4, 0.2, 0.6, 0.55]])
    assert "taken for poses; --yolo_lines says" in pose.remarks[0]
    assert "taken for polygons; --yolo_lines says" in polygon.remarks[0]
    assert not yolo_boxes(b"0 .5 .5 .1 .1", ()).remarks


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_an_empty_yolo_file_has_no_boxes(data):
    assert_boxes(yolo_boxes(data, ("cat",)), [], [], None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"0 .5 .5 .1", "line 2: 4 values, expected a class and 4 numbers, or a class and the x "),
        (b"0 .1 .1 .2 .2 .3 .3 .4", "line 2: 8 values, expected"),
        (b"2 .5 .5 .1 .1", "line 2: class '2', expected 0 to 1"),
        (b"-1 .5 .5 .1 .1", "line 2: class '-1', expected 0 to 1"),
        (b"0_1 .5 .5 .1 .1", "line 2: class '0_1', expected 0 to 1"),
        ("0 .5 .5 .1 \u0661".encode(), "line 2: '\u0661', expected a fraction of the image"),
        (b"9" * 5000 + b" .5 .5 .1 .1", "line 2: class '9999"),
        (b"0 320 240 64 48", "line 2: '320', expected a fraction of the image from 0 to 1"),
        (b"0 .5 .5 .1 1.011", "line 2: '1.011', expected a fraction of the image from 0 to 1"),
        (b"0 .5 .5 nan .1", "line 2: 'nan', expected a fraction of the image from 0 to 1"),
        (b"0 .5 .5 .1 x", "line 2: 'x', expected a fraction of the image from 0 to 1"),
        (b"\xff", "not UTF-8: "),
    ],
)
def test_an_invalid_yolo_file_is_rejected(line, message):
    with pytest.raises(RejectError) as caught:
        yolo_boxes(b"0 .5 .5 .1 .1\n" + line + b"\n", ("cat", "dog"))
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def test_without_names_a_class_is_any_number_that_fits_a_label():
    assert yolo_boxes(b"2147483647 .5 .5 .1 .1", ()).names == ("2147483647",)
    with pytest.raises(RejectError, match="class '2147483648', expected a whole number"):
        yolo_boxes(b"2147483648 .5 .5 .1 .1", ())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_text_file_names_a_class_per_line(end, bom):
    text = f"{bom}traffic light{end}no # 1{end} names: {end}{end}{end}"
    found = read_class_names(text.encode(), "classes.txt")
    assert found == ("traffic light", "no # 1", "names:")


def listed(text: str) -> tuple[str, ...]:
    """The names that a YAML parser finds."""
    names = yaml.safe_load(text)["names"]
    return tuple(names[i] for i in range(len(names)))


STYLES = st.sampled_from([None, False])  # inline, and an item per line


@given(st.lists(st.text(max_size=9), min_size=1), st.booleans(), STYLES, st.booleans())
def test_odd_names_in_yaml_are_read_as_they_are_or_refused(names, mapping, style, unicode):
    document = {"names": dict(enumerate(names)) if mapping else names, "nc": 1}
    text = yaml.dump(document, default_flow_style=style, allow_unicode=unicode, width=20)
    try:
        found = read_class_names(text.encode(), "data.yml")
    except UsageError:
        return
    assert found == listed(text)  # PyYAML itself writes some names so that it reads others


@pytest.mark.parametrize(
    "text",
    [
        "names:\n  0: person\n  1: traffic light # of any colour\n",
        "# made by hand\npath: ../x\n\nnames: # two\n\n  # first\n- person\n-  cat \nnc: 2\n",
        "names:\n    - 'it''s'\n    - \"a, b: [c] # d\"\n    - x#y:z\n...\n",
        "train: a\nnames: ['person', \"cat\",  # pets\n        dog tag,\n        it's ]  # all\nnc: 4",
        "names: {1: b, 0: 'a'}\n",
        "names:\n  [a, b,]\n",
        "names : [a]\nnested:\n  names: [b]\n",
        "names:\n  1: b\n  0: a\n",
        "---\nnames: [a]\n---\n" + "x: 1\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_names_in_yaml_that_people_write_are_read(text, end):
    text = text.replace("\n", end)
    first = text.removeprefix("---" + end).split(end + "---")[0]
    assert read_class_names(text.encode(), "DATA.YAML") == listed(first)


def test_names_in_yaml_are_always_text():
    assert read_class_names(b"names: [no, 7, null, 1.50]", "a.yml") == ("no", "7", "null", "1.50")
    assert read_class_names(b"names:\n- no\n- 0x7\n", "a.yaml") == ("no", "0x7")


@pytest.mark.parametrize(
    "text",
    [
        "nc: 2\n",
        "",
        "names:\n",
        "names: []\n",
        "names: classes.txt\n",
        "names: [a, *x]\n",
        "names: [a, b\n",
        "names:\n- a: b\n",
        "names:\n  0: {name: a}\n",
        "names:\n  0: a\n  2: b\n",
        "names:\n  cat: 0\n",
        "names: [" + "#" * 10**6,
    ],
)
def test_other_yaml_is_refused_with_the_cure(text):
    with pytest.raises(UsageError) as caught:
        read_class_names(text.encode(), "data.yaml")
    message = caught.value.message
    assert message.startswith("data.yaml: ") and "\n" not in message and len(message) < 500
    assert (
        message.endswith("name the classes in a text file, a name per line") or "class 0" in message
    )


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("a.txt", b" \n", "a.txt: it has no class names, expected one per line"),
        ("a.txt", b"a\n\nb", "a.txt: class 1 has no name, expected a name for each number"),
        ("a.txt", b"a\nb\na", "a.txt: classes 0 and 2 are both 'a'"),
        ("a.txt", b"\xff", "a.txt: not UTF-8: "),
        (
            "a.txt",
            b" " * (MAX_BYTES + 1),
            f"a.txt: {MAX_BYTES + 1} bytes, expected a list of class",
        ),
    ],
)
def test_missing_and_repeated_class_names_are_refused(path, data, message):
    with pytest.raises(UsageError) as caught:
        read_class_names(data, path)
    assert caught.value.message.startswith(message)


def image(id_=1, name="a.jpg", height=10, width=20, **more) -> dict:
    return {"id": id_, "file_name": name, "height": height, "width": width, **more}


def box(image_id=1, category_id=1, bbox=(2, 1, 4, 5), **more) -> dict:
    return {"image_id": image_id, "category_id": category_id, "bbox": list(bbox), **more}


def caption(image_id=1, text="A dog.", **more) -> dict:
    return {"image_id": image_id, "caption": text, **more}


def category(id_=1, name="dog", **more) -> dict:
    return {"id": id_, "name": name, **more}


def coco(images=(), annotations=(), categories=(), **more) -> dict:
    lists = {"images": images, "annotations": annotations, "categories": categories}
    return {name: list(entries) for name, entries in lists.items()} | more


def read(tmp_path: Path, document) -> CocoFile:
    path = tmp_path / "instances.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return read_coco("--boxes coco", str(path))


def test_coco_boxes_and_captions_are_found_by_image(tmp_path):
    document = coco(
        [image(7, "b.jpg", 10, 20, license=3), image(3, "a.jpg", 100, 50), image(5, "c.jpg")],
        [
            box(7, 2, [2, 1, 4.5, 5], id=1, area=20, segmentation=[[1, 2, 3, 4, 5, 6, 7], [8]]),
            box(3, 1, [0, 0, 50, 100], id=2, segmentation={"counts": [1, 2], "size": [9, 9]}),
            box(7, 5, [-1, 0, 30, 10], id=3, iscrowd=0),
            caption(7, "Two\u2028dogs."),
            caption(3, ""),
            caption(7, "A dog. "),
        ],
        [category(5, "cat", supercategory="animal"), category(1, "hen"), category(2, "dog")],
        info={"year": 2017, "images": [1, {"id": 2}], "annotations": None},
        licenses=[{"id": 1, "name": "x"}],
    )
    found = read(tmp_path, document)
    assert found.category_names == ("hen", "dog", "cat")
    corners = [[0.1, 0.1, 0.6, 0.325], [0, -0.05, 1, 1.45]]
    assert_boxes(found.boxes("b.jpg"), corners, ["dog", "cat"], (10, 20))
    assert_boxes(found.boxes("a.jpg"), [[0, 0, 1, 1]], ["hen"], (100, 50))
    assert_boxes(found.boxes("c.jpg"), [], [], (10, 20))
    assert found.captions("b.jpg") == ("Two\u2028dogs.", "A dog. ")
    assert found.captions("a.jpg") == ("",)
    assert found.captions("c.jpg") == ()


@pytest.mark.parametrize(
    "order", [("annotations", "categories", "images"), ("categories", "images", "annotations")]
)
def test_the_lists_of_a_coco_file_may_come_in_any_order(tmp_path, order):
    document = coco([image()], [box()], [category()])
    found = read(tmp_path, {name: document[name] for name in order})
    assert_boxes(found.boxes("a.jpg"), [[0.1, 0.1, 0.6, 0.3]], ["dog"], (10, 20))


@pytest.mark.parametrize("iscrowd", [1, True, "1"])
def test_boxes_of_crowds_are_left_out(tmp_path, iscrowd):
    crowd = box(iscrowd=iscrowd, segmentation={"counts": [3, 4], "size": [10, 20]})
    alone = [box(bbox=[0, 0, 20, 10], iscrowd=no) for no in (0, False, "0")]
    found = read(tmp_path, coco([image()], [crowd, *alone], [category()]))
    assert_boxes(found.boxes("a.jpg"), [[0, 0, 1, 1]] * 3, ["dog"] * 3, (10, 20))


def test_names_match_whatever_the_separator_and_the_form_of_letters(tmp_path):
    names = ["x\\a.jpg", "Mu\u0308ller.jpg", "..\\media\\b.jpg"]
    document = coco([image(n, name) for n, name in enumerate(names)], [caption(1)])
    found = read(tmp_path, document)
    assert [found.row(name) for name in ("x/a.jpg", "M\xfcller.jpg", "Mu\u0308ller.jpg")] == [
        1,
        0,
        0,
    ]
    assert found.row("b.jpg") == 2


def test_crowds_that_are_left_out_are_said(tmp_path):
    crowd = coco([image()], [box(1, 4, iscrowd=1)], [category(4)])
    found = read(tmp_path, crowd).boxes("a.jpg")
    assert (found.names, found.remarks) == ((), ("its crowds were left out of the boxes",))


def test_an_annotation_is_named_by_its_id(tmp_path):
    document = coco([image()], [box(1, 4, [1, 1, -1, 1], id=77)], [category(4)])
    with pytest.raises(RejectError, match=r"^annotation 77: its bbox \[1, 1, -1, 1\], expected x"):
        read(tmp_path, document).boxes("a.jpg")


def test_files_that_are_not_plain_utf8_are_read_or_named(tmp_path):
    text = json.dumps(coco([image()], [caption(1)]))
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8-sig"))
    assert len(read_coco("--boxes coco", str(path)).names) == 1
    path.write_text(text.replace('"id": 1', '"id": NaN', 1))
    with pytest.raises(UsageError, match=r"not JSON: .*\bNaN"):
        read_coco("--boxes coco", str(path))


def test_categories_of_one_name_are_an_error(tmp_path):
    document = coco([image()], [box(1, 4), box(1, 9)], [category(9), category(4), category(6, "a")])
    with pytest.raises(UsageError, match="categories 9 and 4 are both 'dog': rename one"):
        read(tmp_path, document)


def test_an_image_is_found_by_its_path_or_by_an_end_that_only_one_path_has(tmp_path):
    names = ["x/a.jpg", "y/a.jpg", "a.jpg", "x/b.jpg", "y/b.jpg", "x/c.jpg", "ä/d.jpg", "/e.jpg"]
    found = read(
        tmp_path,
        coco(
            [image(-i, name) for i, name in enumerate(names)],
            [caption(-i, n) for i, n in enumerate(names)],
        ),
    )
    for name in names:
        assert found.captions(name) == (name,)
    for name, meant in {
        "c.jpg": "x/c.jpg",
        "p/q/x/c.jpg": "x/c.jpg",
        "d.jpg": "ä/d.jpg",
        "e.jpg": "/e.jpg",
        "z/a.jpg": "a.jpg",
        "p/y/b.jpg": "y/b.jpg",
    }.items():
        assert found.captions(name) == (meant,)
    for name in ("b.jpg", "z/b.jpg", "z/c.jpg", "", "/", "jpg", "f.jpg", "\udcff", "C.jpg"):
        for find in (found.captions, found.boxes):
            with pytest.raises(RejectError, match="the COCO file has no image of this name"):
                find(name)
    # An image in another folder is another image, but a hint.
    with pytest.raises(RejectError, match=r"it has 'x/c\.jpg': give --input the folder above$"):
        found.captions("z/c.jpg")


PIXELS = st.one_of(st.integers(0, 50), st.floats(0, 50))
ANNOTATIONS = st.one_of(
    st.builds(
        box,
        st.integers(0, 3),
        st.integers(0, 2),
        st.tuples(PIXELS, PIXELS, PIXELS, PIXELS),
        iscrowd=st.integers(0, 1),
        segmentation=st.lists(st.lists(PIXELS, max_size=9), max_size=3),
    ),
    st.builds(caption, st.integers(0, 3), st.text()),
)


@given(st.lists(ANNOTATIONS), st.permutations(range(4)), st.permutations(["hen", "cat", "dog"]))
@settings(suppress_health_check=list(HealthCheck))
def test_the_stream_gives_the_same_as_the_whole_document(tmp_path, annotations, ids, names):
    images = [image(id_, f"{i}.jpg", 7 + i, 9 + i) for i, id_ in enumerate(ids)]
    document = coco(images, annotations, [category(i, name) for i, name in enumerate(names)])
    found = read(tmp_path, document)
    assert found.category_names == tuple(names)
    for i, entry in enumerate(json.loads(json.dumps(document))["images"]):
        of_image = [a for a in annotations if a["image_id"] == entry["id"]]
        boxes = [a for a in of_image if "bbox" in a and not a["iscrowd"]]
        corners = []
        for x, y, width, height in (a["bbox"] for a in boxes):
            ends = (y, x, y + height, x + width)
            corners.append([e / s for e, s in zip(ends, [7 + i, 9 + i] * 2, strict=True)])
        expected = [names[a["category_id"]] for a in boxes]
        assert_boxes(found.boxes(f"{i}.jpg"), corners, expected, (7 + i, 9 + i))
        texts = [a["caption"] for a in of_image if "caption" in a]
        assert found.captions(f"{i}.jpg") == tuple(texts)


@pytest.mark.parametrize(
    "bbox",
    [
        [],
        [1, 2, 3, 4, 5],
        [1, 2, -1, 4],
        ["1", 2, 3, 4],
        [1, True, 3, 4],
        [[1, 2, 3, 4]],
        {"x": 1, "y": 2},
        7,
    ],
)
def test_an_invalid_bbox_rejects_only_its_image(tmp_path, bbox):
    images = [image(1), image(2, "b.jpg")]
    broken = {**box(), "bbox": bbox}
    found = read(tmp_path, coco(images, [box(), broken, box(2), caption()], [category()]))
    with pytest.raises(RejectError, match=r"its bbox .*, expected x, y, width, height in pixels"):
        found.boxes("a.jpg")
    assert len(found.boxes("b.jpg").names) == 1
    assert found.captions("a.jpg") == ("A dog.",)


@pytest.mark.parametrize("side", ["height", "width"])
@pytest.mark.parametrize("pixels", [None, 0, 1.5, "20", True, 2**31])
def test_an_image_without_a_size_has_captions_but_no_boxes(tmp_path, side, pixels):
    document = coco([image(**{side: pixels})], [caption(), box()], [category()])
    found = read(tmp_path, document)
    assert found.captions("a.jpg") == ("A dog.",)
    with pytest.raises(RejectError, match=f"its annotations give it {side} .*, expected a number"):
        found.boxes("a.jpg")


WHOLE = json.dumps(
    coco(
        [image(), image(2, "b.jpg")],
        [box(), box(2, 3, [1.5, 2, 3, 4], segmentation=[[1, 2, 3]]), caption(text="é😀")],
        [category(), category(3, "cat")],
    )
).encode()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (WHOLE[:-1], "not JSON: "),
        (WHOLE + b"x", "not JSON: "),
        (WHOLE.replace(b"1.5", b"NaN"), "not JSON: "),
        (WHOLE.replace(b"cat", b"\xff"), "not JSON: "),
        ([], "not a COCO file: it has no images"),
        ({"images": {"a": image()}}, "not a COCO file: it has no images"),
        (coco([7]), "an image has id None, expected an integer"),
        (coco([image("1")]), "an image has id '1', expected an integer"),
        (coco([image(1.5)]), "an image has id 1.5, expected an integer"),
        (coco([image(name=None)]), "image 1 has file_name None, expected text"),
        (coco([image(4), image(2, "b"), image(4, "c")]), "two images have the id 4"),
        (coco([image(4, "x"), image(2), image(1)]), "two images have the file_name 'a.jpg'"),
        (coco([image()], [], [category(None)]), "a category has id None, expected an integer"),
        (coco([image()], [], [category(name=3)]), "category 1 has name 3, expected text"),
        (coco([image()], [], [category(), category()]), "two categories have the id 1"),
        (coco([image()], [{"id": 3}]), "an annotation has image_id None, expected an integer"),
        (
            coco([image()], [{"image_id": 1, "segments_info": []}]),
            "an annotation of image 1 has neither a bbox nor a caption: expected a file of inst",
        ),
        (coco([image()], [caption(text=["x"])]), "an annotation of image 1 has neither a bbox nor"),
        (
            coco([image()], [box(category_id="dog")], [category()]),
            "an annotation has category_id 'dog', expected an integer",
        ),
        (
            coco([image()], [box(), box(9), box(8)], [category()]),
            "an annotation has image_id 9, which no image has",
        ),
        (
            coco([image()], [box(), box(1, 6), box(1, 5)], [category()]),
            "an annotation has category_id 6, which no category has",
        ),
        (coco([image()], [box()]), "an annotation has category_id 1, which no category has"),
    ],
)
def test_an_invalid_coco_file_is_refused(tmp_path, document, message):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, document)
    assert caught.value.message.startswith(f"--boxes coco:{tmp_path}/instances.json: {message}")
    assert "\n" not in caught.value.message


def test_a_missing_coco_file_is_refused(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match="cannot be read: ") as caught:
            read_coco("--boxes coco", str(path))
        assert caught.value.message.startswith(f"--boxes coco:{path}: ")


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deeply_nested_json_takes_little_memory(tmp_path, opening, closing):
    nested = opening * 300_000 + b"0" + closing * 300_000
    document = b'{"x": %s, "images": [{"id": 1, "file_name": "a", "bbox": %s}]}' % (nested, nested)
    assert read(tmp_path, document).captions("a") == ()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux states memory there")
def test_a_box_takes_less_memory_than_its_text(tmp_path):
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    path = tmp_path / "c.json"
    path.write_text(
        json.dumps(coco([image()], [box(bbox=[n, 2.5, 3, 4]) for n in range(20_000)], [category()]))
    )
    before = resident()
    found = read_coco("--boxes coco", str(path))
    assert resident() - before < 24 << 20  # Small texts of orjson would keep a page each, 80 MB.
    assert len(found.boxes("a.jpg").names) == 20_000


def test_fractions_in_place_of_pixels_are_named(tmp_path):
    corners = "".join(f"<{side}>0.5</{side}>" for side in ("xmin", "ymin", "xmax", "ymax"))
    size = "<size><width>9</width><height>9</height></size>"
    text = (
        f"<annotation>{size}<object><name>x</name><bndbox>{corners}</bndbox></object></annotation>"
    )
    with pytest.raises(RejectError, match="all boxes lie in one pixel: are they fractions"):
        voc_boxes(text.encode())
    path = tmp_path / "c.json"
    path.write_text(json.dumps(coco([image()], [box(1, 4, [0.1, 0.1, 0.5, 0.5])], [category(4)])))
    with pytest.raises(UsageError, match=r"^--boxes coco:.*all boxes lie in one pixel"):
        ImageFlags(boxes=f"coco:{path}").annotations()
