"""Reports of other projects about pictures, annotations, labels and texts, made again as small inputs.

What was right and is tested nowhere else is a case below; the others are tested where they belong.

| report | input | result |
|---|---|---|
| HumanSignal/label-studio#5014, #5481; SkalskiP/make-sense#171 | YOLO fractions of 1.0004 and -0.001 | right |
| obss/sahi#231, segments-ai/segments-ai#207 | YOLO classes from 1 | right: numbers are kept |
| WongKinYiu/yolor#93, CVHub520/X-AnyLabeling#545 | YOLO fractions of 1.04, pixels | error |
| Peterande/D-FINE#89, NVIDIA/DALI#943, facebookresearch/detectron2#1731 | COCO ids 5, 1, 3 | right |
| HumanSignal/label-studio#6608, fcakyon/labelme2coco#9 | sizes before and after EXIF | right |
| HumanSignal/label-studio-converter#139 | `images\\1/a.png` | right |
| HumanSignal/label-studio#7294, #4903 | `..\\..\\media\\a.png`, `?d=a.png` | right, error |
| cvat-ai/cvat#8470 | run lengths of objects that are no crowds | right |
| cvat-ai/cvat#6785, HumanSignal/label-studio-converter#136 | the angle of a box | ignored, as by pycocotools |
| neuroinformatics-unit/ethology#38, ox-vgg/via#17 | VIA: category null, negative sides | error |
| roboflow/rf-detr#1303 | a category that only groups others | a class without boxes |
| HumanSignal/labelImg#59, #160 | VOC of size 0 | error |
| HumanSignal/labelImg#278, HCIILAB/SCUT-HEAD-Dataset-Release#4 | boxes outside, or of no area | left out, with a remark |
| PaddleCV-SIG/PaddleLabel#81 | VOC corners with fractions | right |
| wkentaro/labelme#552, PaddlePaddle/PaddleDetection#1296 | xmax below xmin | error |
| microsoft/VoTT#244, SkalskiP/make-sense#252, #80 | tables of boxes, with and without a header | right, error |
| InsightSoftwareConsortium/ITK#6636, image-rs/image-tiff#129 | 16-bit TIFF whose 0 is white | error |
| junyanz/pytorch-CycleGAN-and-pix2pix#321, pytorch/vision#2218 | 12 bits in a PNG of 16 | nearly black, with a remark |
| nothings/stb#128, #427; josch/img2pdf#25 | JPEG of CMYK and YCCK | right |
| hellock/icrawler#30, HumanSignal/labelImg#309 | a JPEG called .png | right |
| hellock/icrawler#21, piotrantosz/google-arts-crawler#22 | HTML called .jpg | error |
| microsoft/markitdown#1535, libarchive/libarchive#2798 | zips of Japanese Windows | right folders, with a remark |
| rubyzip/rubyzip#84, r-lib/zip#138 | zips in UTF-8 or CP437 without the flag | right |
| fastai/fastai#1008, javascriptdata/danfojs#642 | `001` as path and as label | right: text |
| huggingface/lerobot#258, vaexio/vaex#398 | Arrow's stream format | right as texts and tables |
| wbolster/jsonlines#53, datalad/datalad#3523, huggingface/tau#354 | U+2028 in JSON lines | right |
| vahidk/tfrecord#10, #93; pytorch/xla#1619 | raw bytes, negative numbers, an empty list | right, error |
| tensorflow/tensorflow#11986, #2867 | lists of no numbers, a missing list | right |
| roboflow/supervision#150, #176 | datasets of other classes read as one | error (test_resolve.py) |
| vahidk/tfrecord#78, #90; webdataset/webdataset#47 | a record for each of several workers | right |
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image

import readers
from beam_jobs.cli.images import ImageFlags
from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.annotation_files import Statuses
from beam_jobs.jobs.images.boxes import Geometry, move_boxes
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.jobs.images.voc_yolo import voc_boxes, yolo_boxes
from beam_jobs.jobs.text.text_job import TextJob
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source
from tests.support.images import encoded
from tests.support.passes import find

UPRIGHT = Geometry((50, 100), 1)


def test_yolo_fractions_that_tools_round_end_at_the_edge():
    lines = b"""4 0.3040172304425921 0.5002812148481438 0.6080344608851842 1.0004374453193348
0 0.254728 0.961913 0.046957 0.076175
1 0.009318 0.004597 1.0001915 0.014942 1.0 1.0 0.0 1.0 0.001553 -0.001125
"""
    corners, rows = move_boxes(yolo_boxes(lines, ()), UPRIGHT)
    expected = [
        [0.0000624924, 0, 1, 0.6080344608],
        [0.9238255, 0.2312495, 1, 0.2782065],
        [0, 0, 1, 1],
    ]
    np.testing.assert_allclose(corners, expected, atol=1e-7)
    assert rows.tolist() == [0, 1, 2]


VOC = """<annotation><size><width>100</width><height>50</height></size><object><name>
 cat </name>
<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>
<bndbox><xmax>30</xmax><ymax>30</ymax><xmin>10.5</xmin><ymin>10.25</ymin></bndbox></object></annotation>"""


def test_voc_corners_have_fractions_and_any_order():
    """PaddleCV-SIG/PaddleLabel#81, and a part of an object that has a box as well."""
    found = voc_boxes(VOC.encode())
    np.testing.assert_allclose(found.corners, [[0.205, 0.105, 0.6, 0.3]])
    assert found.names == ("cat",)


IMAGE = {"id": 1, "file_name": "a.png", "width": 100, "height": 50}
BOX = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]}
CATEGORIES = [{"id": 5, "name": "x"}, {"id": 1, "name": "y"}, {"id": 3, "name": "z"}]


def coco(image: dict = {}, box: dict = {}) -> bytes:  # noqa: B006
    entries = {"images": [IMAGE | image], "annotations": [BOX | box], "categories": CATEGORIES}
    return json.dumps(entries).encode()


VOTT = b'"image","xmin","ymin","xmax","ymax","label"\n"a.png",10.0,10.0,30.0,30.0,"y"\n'
MAKE_SENSE = b"""label_name,bbox_x,bbox_y,bbox_width,bbox_height,image_name,image_width,image_height
y,10,10,20,20,a.png,100,50
"""


def boxes_of(tmp_path: Path, kind: str, data: bytes) -> tuple[list, list]:
    """The corners and the class ids of a.png, 100x50 pixels, as a record has them."""
    (path := tmp_path / f"file.{kind}").write_bytes(data)
    annotations = ImageFlags(boxes=f"{kind}:{path}").annotations()
    source = annotations.with_annotations(Source("a.png"), "/d/a.png", Statuses())
    if source.error:
        raise RejectError(source.error)
    found = annotations.boxes_of(source)
    scale = (50, 100, 50, 100) if annotations.in_pixels else 1
    corners, _ = move_boxes(found._replace(corners=found.corners / scale), UPRIGHT)
    return corners.tolist(), [annotations.class_names.index(name) for name in found.names]


@pytest.mark.parametrize(
    ("kind", "data", "label"),
    [
        pytest.param("coco", coco(), 0, id="NVIDIA/DALI#943: ids 1, 3, 5 are 0, 1, 2"),
        pytest.param("coco", coco(box={"category_id": 5}), 2, id="Peterande/D-FINE#89"),
        pytest.param("coco", coco({"file_name": "x\\1/a.png"}), 0, id="label-studio-converter#139"),
        pytest.param("coco", coco({"file_name": "https://x/y/a.png"}), 0, id="an address"),
        pytest.param("csv", VOTT, 0, id="microsoft/VoTT#244"),
        pytest.param("csv", MAKE_SENSE, 0, id="SkalskiP/make-sense#252"),
    ],
)
def test_boxes_of_labelling_tools(tmp_path, kind, data, label):
    corners, labels = boxes_of(tmp_path, kind, data)
    np.testing.assert_allclose(corners, [[0.2, 0.1, 0.6, 0.3]], rtol=1e-6)
    assert labels == [label]


def test_negative_sides_reject_an_image(tmp_path):
    """ox-vgg/via#17."""
    with pytest.raises(RejectError, match=r"its bbox \[30, 30, -20, -20\], expected x, y, width"):
        boxes_of(tmp_path, "coco", coco(box={"bbox": [30, 30, -20, -20]}))


COLOR = (100, 30, 60, 20)


def cmyk_jpeg(color: tuple[int, ...] = COLOR) -> bytes:
    return encoded(Image.new("CMYK", (16, 16), color), "JPEG", quality=100)


def ycck_jpeg() -> bytes:
    """The same pixels, with Adobe's mark for YCCK in the place of that for CMYK."""
    data = cmyk_jpeg()
    at = data.index(b"Adobe") + 11
    return data[:at] + b"\x02" + data[at + 1 :]


@pytest.mark.parametrize(
    "make", [cmyk_jpeg, ycck_jpeg], ids=["nothings/stb#128", "nothings/stb#427, josch/img2pdf#25"]
)
def test_jpegs_of_four_colors_have_the_pixels_of_opencv(make: Callable[[], bytes]):
    found = ImageJob(Inputs((), ""), Labels("none")).decode(Source("a.png"), io.BytesIO(make()))
    expected = cv2.imdecode(np.frombuffer(make(), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    np.testing.assert_allclose(np.asarray(found["image"]), expected, atol=3)


def labels_of(**flags) -> dict[str, Any]:
    """Key -> label of the records that a command would write."""
    records = find(ImageFlags(**flags).make_job((), "", 1 << 20)).records
    return {key: label for key, (_, label, _) in records.items()}


def test_numbers_with_zeros_in_front_are_text(tmp_path):
    """fastai/fastai#1008, javascriptdata/danfojs#642."""
    for name in ("001.png", "1.png"):
        (tmp_path / name).write_bytes(encoded(np.zeros((2, 2), np.uint8), "PNG"))
    (table := tmp_path / "t.csv").write_text("path,label\n001.png,01\n1.png,1\n")
    expected = {"001.png": "01", "1.png": "1"}
    assert labels_of(input=(f"{tmp_path}/*.png",), label=f"csv:{table}") == expected
    assert labels_of(table=(str(table),), label="column:label") == expected


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_json_lines_end_only_at_newlines(tmp_path, end):
    """wbolster/jsonlines#53, datalad/datalad#3523, huggingface/tau#354."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": f"a{end}b"}, ensure_ascii=False) + "\n")
    job = TextJob(Inputs((f"{tmp_path}/*.jsonl",), str(tmp_path)), Labels())
    (chunk,) = job.chunks(Source("a.jsonl", 20))
    assert [texts.texts for texts in job.each(chunk)] == [[[f"a{end}b".encode()]]]


def test_structs_of_files_may_have_any_order_and_width(tmp_path):
    """Hugging Face's struct as Polars and newer versions of Arrow write it."""
    png = encoded(np.full((2, 2, 3), 7, np.uint8), "PNG")
    kinds = [("path", pa.large_string()), ("bytes", pa.large_binary())]
    rows = pa.array([{"bytes": png, "path": "a.png"}], pa.struct(kinds))
    pq.write_table(pa.table({"image": rows, "y": [3]}), path := str(tmp_path / "t.parquet"))
    assert labels_of(table=(path,), label="column:y") == {"t.parquet/a.png": "3"}


def example(**lists: list) -> bytes:
    """An Example as TensorFlow writes it."""
    kinds = {int: ("int64_list", tf.train.Int64List), float: ("float_list", tf.train.FloatList)}
    kinds[bytes] = ("bytes_list", tf.train.BytesList)
    features = {}
    for name, values in lists.items():
        field, kind = kinds[type(values[0]) if values else int]
        features[name] = tf.train.Feature(**{field: kind(value=values)})
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


RAW = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("records", "feature", "expected"),
    [
        ([[-1], [-(2**63)]], "int64", [-1, -(2**63)]),
        ([[RAW.tobytes()], [RAW.tobytes()]], ("float32", [2, 3], "raw"), [RAW, RAW]),
        ([[], [1, 2]], ("int64", [None], "list"), [[0, 0], [1, 2]]),
        ([[], []], ("int64", [0], "list"), [[], []]),
    ],
    ids=["pytorch/xla#1619", "vahidk/tfrecord#10", "tensorflow#11986", "tensorflow#2867"],
)
def test_examples_of_tensorflow(tmp_path, records, feature, expected):
    with tf.io.TFRecordWriter(path := str(tmp_path / "a.tfrecord")) as file:
        for values in records:
            file.write(example(a=values))
    for read in (readers.as_numpy, readers.load):
        (batch,) = read(path, 2, schema={"a": feature}, batching="padded")
        np.testing.assert_array_equal(batch["a"], np.array(expected))
