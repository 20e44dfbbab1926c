"""Boxes from tables with a row for each box, in the dialects that people have."""

import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from beam_jobs.cli.images import ImageFlags
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.annotation_files import Statuses
from beam_jobs.jobs.images.annotations import ImageAnnotations
from beam_jobs.jobs.images.coco_file import BoxUnit, CocoFile, read_coco
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from tests.support.images import encoded

TUTORIAL = """filename,width,height,class,xmin,ymin,xmax,ymax
b.jpg,20,10,dog,2,1,6,6
a.jpg,50,100,cat,0,0,50,100
b.jpg,20,10,cat,4.5,5,20,10
"""
OPEN_IMAGES = """ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf
0a1b,xclick,/m/02,1,0.1,0.3,0.25,1,0,0
0a1b,xclick,/m/01,1,0,1,0,1,0,1
0a1b,xclick,/m/01,1,0,0.5,0.5,1,1,0
"""


def write(tmp_path: Path, text: str, name: str = "t.csv") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def read_table(path: str, unit: BoxUnit = "auto") -> CocoFile:
    return read_coco("--boxes csv", path, unit=unit)


def boxes(annotations: ImageAnnotations, name: str):
    source = annotations.with_annotations(Source(name), f"/d/{name}", Statuses())
    if source.error:
        raise RejectError(source.error)
    return annotations.boxes_of(source)


def parse(path: str) -> ImageAnnotations:
    return ImageFlags(boxes=f"csv:{path}").annotations()


def test_pixels_are_divided_by_the_size_that_a_row_states(tmp_path):
    annotations = parse(write(tmp_path, TUTORIAL))
    found = boxes(annotations, "b.jpg")
    np.testing.assert_allclose(found.corners, [[0.1, 0.1, 0.6, 0.3], [0.5, 0.225, 1, 1]])
    assert (found.names, found.size) == (("dog", "cat"), (10, 20))
    assert boxes(annotations, "deep/a.jpg").size == (100, 50)
    assert annotations.class_names_by_feature == {"box_labels": ("cat", "dog")}


def test_open_images_has_fractions_and_names_without_an_ending(tmp_path):
    annotations = parse(write(tmp_path, OPEN_IMAGES))
    found = boxes(annotations, "train/0a1b.jpg")
    np.testing.assert_allclose(found.corners, [[0.25, 0.1, 1, 0.3], [0.5, 0, 1, 0.5]])
    assert (found.names, found.size) == (("/m/02", "/m/01"), None)  # Groups are left out.
    assert not annotations.in_pixels


@pytest.mark.parametrize(
    "text",
    [
        "image_path,x1,y1,x2,y2,label\na.jpg,2,1,6,6,dog\n",
        "Image-Name,Label,X,Y,Width,Height\na.jpg,dog,2,1,4,5\n",
        "image_id,image_width,image_height,bbox_x,bbox_y,bbox_width,bbox_height,category\na,9,9,2,1,4,5,dog\n",
        '\ufefffile name,class name,left,top,right,bottom\n"a.jpg","dog",2,1,6,6\n',
    ],
)
def test_other_names_of_columns_are_known(tmp_path, text):
    table = read_table(write(tmp_path, text))
    scale = 9 if "image_width" in text else 1
    np.testing.assert_allclose(table.boxes("a.jpg").corners * scale, [[1, 2, 6, 6]])
    assert table.boxes("a.jpg").names == ("dog",)


def test_tables_of_other_formats_are_read(tmp_path):
    columns = {
        "filename": ["a.jpg"],
        "xmin": [2],
        "ymin": [1],
        "xmax": [6.0],
        "ymax": [6],
        "class": [7],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    lines = json.dumps({name: values[0] for name, values in columns.items()})
    for path in (str(tmp_path / "t.parquet"), write(tmp_path, lines, "t.jsonl")):
        annotations = parse(path)
        np.testing.assert_allclose(boxes(annotations, "a.jpg").corners, [[1, 2, 6, 6]])
        # Classes that are numbers keep them.
        assert annotations.class_names_by_feature == {"box_labels": ()}
        assert annotations.in_pixels


def test_a_row_without_a_class_is_an_image_without_objects(tmp_path):
    table = read_table(write(tmp_path, TUTORIAL + "c.jpg,20,10,,,,,\n"))
    assert table.boxes("c.jpg").names == ()
    with pytest.raises(RejectError, match="the table has no image of this name"):
        table.boxes("d.jpg")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("b.jpg,20,10,dog,9,1,6,6", "class 'dog', xmin '9', ymin '1', xmax '6', ymax '6', width"),
        ("b.jpg,20,10,dog,0_1,1,6,6", "class 'dog', xmin '0_1', ymin"),
        ("b.jpg,20,10,dog,\u0661,1,6,6", "class 'dog', xmin '\u0661', ymin"),
        ("b.jpg,20,10,,2,1,6,6", "class (''|None), xmin '2', ymin '1'"),
        ("b.jpg,40,20,dog,2,1,6,6", "class 'dog', .*, width '40', height '20', expected .* size"),
    ],
)
def test_an_invalid_box_rejects_only_its_image(tmp_path, row, message):
    table = read_table(write(tmp_path, f"{TUTORIAL}{row}\n"))
    with pytest.raises(RejectError, match=f"^its row 4 has filename 'b.jpg', {message}"):
        table.boxes("b.jpg")
    assert len(table.boxes("a.jpg").names) == 1


HEADER = "a table without a header needs a first line such as filename,xmin,ymin,xmax,ymax,class"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a.jpg,2,1,6,8,dog\n",
            f"its columns a.jpg, 2, 1, 6, 8, dog are not those of boxes; {HEADER}",
        ),
        ("a.jpg,2,1,2,8,dog\n", f"two columns are called '2': .*; {HEADER}"),
        ("filename,class\na,b\n", "its columns filename, class are not those of boxes"),
        ("", "its columns  are not those of boxes"),
        (TUTORIAL.partition("\n")[0], "the table has no rows"),
        (TUTORIAL + "a.jpg,1\n", "row 4: 2 columns, the first line has 8"),
    ],
)
def test_other_tables_are_refused_with_what_to_type(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=f"^--boxes csv:{path}: {message}"):
        parse(path)


def test_whole_numbers_of_a_table_are_one_class_however_they_are_written(tmp_path):
    text = "filename,xmin,ymin,xmax,ymax,class\na,1,2,3,4,1\na,1,2,3,4,1.0\n"
    assert read_table(write(tmp_path, text)).category_names == ("1",)


@pytest.mark.parametrize(
    ("size", "unit", "largest", "found"),
    [
        ("", "auto", 1.0002, "fractions"),
        ("", "auto", 1.2, "pixels"),
        ("", "pixels", 1, "pixels"),
        ("", "fractions", 1.2, "fractions"),
        ("9,9,", "auto", 1, "fractions"),
        ("9,9,", "auto", 7, ""),
    ],
)
def test_the_unit_of_corners_is_guessed_unless_it_is_given(tmp_path, size, unit, largest, found):
    names = f"filename,{'width,height,' if size else ''}xmin,ymin,xmax,ymax,class"
    text = f"{names}\na,{size}.1,.2,.3,.4,x\na,{size}.5,.5,{largest},1,x\n"
    table = read_table(write(tmp_path, text), unit)
    assert table.unsized == found
    corners = table.boxes("a").corners[0] * (1 if found else 9)
    np.testing.assert_allclose(corners, [0.2, 0.1, 0.4, 0.3])
    remarks = table.boxes("a").remarks
    assert len(remarks) == (unit == "auto" and found != "")
    assert all(f"taken for {found}" in remark for remark in remarks)


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"--boxes csv:.*t.xml: expected .csv"):
        parse(write(tmp_path, "", "t.xml"))
    with pytest.raises(UsageError, match=r"cannot be read: no such file$"):
        parse(str(tmp_path / "missing.csv"))


@pytest.mark.parametrize(("about", "expected"), [("auto", (40, 20)), ("stored", (20, 40))])
def test_pixels_without_a_size_are_about_the_upright_image(tmp_path, about, expected):
    (tmp_path / "p").mkdir()
    data = encoded(np.zeros((20, 40, 3), np.uint8), "PNG", orientation=6)
    (tmp_path / "p" / "a.png").write_bytes(data)
    path = write(tmp_path, "file,x1,y1,x2,y2,class\na.png,0,0,10,5,dog\n")
    inputs = Inputs.of([str(tmp_path / "p")])
    annotations = ImageFlags(boxes=f"csv:{path}", annotations_of=about).annotations()
    job = ImageJob(inputs, Labels.parse("none"), annotations=annotations)
    (source,) = job.sources(inputs.patterns[0])
    y0, x0, y1, x1 = job.load(source)["boxes"][0]
    if about == "auto":
        np.testing.assert_allclose((y0, x0, y1, x1), (0, 0, 5 / 40, 10 / 20))
    else:  # The upper left corner becomes the upper right one.
        np.testing.assert_allclose((y0, x0, y1, x1), (0, 1 - 5 / 20, 10 / 40, 1), rtol=1e-6)
