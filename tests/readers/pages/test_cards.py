"""What a card shows of a record: marks in the coordinates of the jobs, tokens, and recordings."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from readers.format.manifest import File, Manifest
from readers.format.schema import Schema
from readers.pages.cards.card import card_of
from readers.pages.cards.look import Look
from readers.pages.cards.overlays import Marks, marked
from readers.pages.cards.thumbnails import thumbnail
from readers.pages.markup import bright
from tests.support.images import encoded

GRAY = np.full((100, 200, 3), 128, np.uint8)


def look_of(tmp_path, features, **manifest) -> Look:
    return Look.of(str(tmp_path), Manifest(Schema(features), {}, **manifest))


def bytes_of(uri: str) -> bytes:
    return base64.b64decode(uri.partition(",")[2])


def text_of(card) -> str:
    return "".join(card.figure().itertext())


PICTURE = {
    "image": ("uint8", (None, None, 3)),
    "boxes": ("float32", (None, 4)),
    "box_labels": ("int64", (None,)),
    "mask": ("uint8", (None, None, 1)),
}


@pytest.mark.parametrize("order", ["yxyx", "xyxy"])
def test_boxes_are_where_the_job_puts_them(tmp_path, order):
    options = {"job": "images", "box_order": order}
    names = {"box_labels": ("cat", "dog")}
    look = look_of(tmp_path, PICTURE, options=options, class_names=names)
    y0, x0, y1, x1 = 0.1, 0.25, 0.6, 1.5
    box = [y0, x0, y1, x1] if order == "yxyx" else [x0, y0, x1, y1]
    record = {"image": GRAY, "boxes": np.array([box], np.float32), "box_labels": np.array([1])}
    card = card_of(record, look)
    svg = card.drawings[0]
    assert svg.get("viewBox") == "0 0 160 80"
    paths = {path.get("d") for path in svg.findall("path")}
    assert paths == {"M40.0 8.0H160.0V48.0H40.0z"}
    assert {path.get("stroke") for path in svg.findall("path")} == {"#000", bright(1)}
    assert "dog \N{MULTIPLICATION SIGN}1" in text_of(card)


def test_a_mask_has_the_colours_of_its_classes_and_none_where_there_is_none():
    mask = np.zeros((100, 200), np.uint8)
    mask[:50], mask[50:60] = 2, 255
    svg = marked(thumbnail(GRAY), Marks(mask=mask))
    _, over = svg.findall("image")
    found = np.asarray(Image.open(io.BytesIO(bytes_of(over.get("href")))).convert("RGBA"))
    assert found.shape == (100, 200, 4)
    assert (found[:50, :, :3] == tuple(bytes.fromhex(bright(1)[1:]))).all() and (
        found[:50, :, 3] > 0
    ).all()
    assert (found[50:60, :, :3] == 255).all() and (found[60:, :, 3] == 0).all()


def test_numbers_and_empty_values_are_lines(tmp_path):
    schema = {"amount": ("float32", ()), "rows": ("float32", (None,)), "words": ("string", (None,))}
    record = {"amount": np.float32(2.5), "rows": np.empty(0, np.float32), "words": []}
    card = card_of(record, look_of(tmp_path, schema))
    assert not card.drawings and "amount 2.5" in text_of(card)
    assert "cannot be drawn" not in text_of(card)


def test_a_large_jpeg_is_decoded_at_a_fraction_and_says_its_size(tmp_path):
    schema = {"image": ("uint8", (None, None, 3), "jpeg")}
    pixels = np.zeros((1200, 1600, 3), np.uint8)
    pixels[:, 800:] = 200
    card = card_of({"image": encoded(pixels, "JPEG")}, look_of(tmp_path, schema))
    found = np.asarray(Image.open(io.BytesIO(bytes_of(card.drawings[0].get("src")))))
    assert found.shape == (120, 160, 3) and found[:, :70].max() < 10 < 190 < found[:, 90:].min()
    assert "1,600 x 1,200 pixels" in text_of(card)


def test_a_picture_that_cannot_be_decoded_is_a_line_that_says_why(tmp_path):
    schema = {"image": ("uint8", (None, None, 3), "png"), "key": ("string", ())}
    card = card_of({"image": b"no picture", "key": b"a.png"}, look_of(tmp_path, schema))
    assert not card.drawings and card.key == "a.png"
    assert "cannot identify its format" in text_of(card)


def test_the_first_the_middle_and_the_last_frame_of_a_video_are_shown(tmp_path):
    schema = {"frames": ("uint8", (None, None, None, 3), "png steps")}
    frames = [encoded(np.full((4, 4, 3), 10 * n, np.uint8), "PNG") for n in range(9)]
    card = card_of({"frames": frames}, look_of(tmp_path, schema))
    shown = [np.asarray(Image.open(io.BytesIO(bytes_of(d.get("src"))))) for d in card.drawings]
    assert [pixels[0, 0, 0] for pixels in shown] == [0, 40, 80]
    assert card.drawings[1].get("alt") == "frame 5 of 9, 4 x 4 pixels"


TEXT = {"text": ("string", ()), "tokens": ("int64", (None,))}


def test_tokens_are_the_words_of_the_vocabulary_below_their_text(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words/vocabulary.txt").write_bytes(b"the\ncat\n")
    files = {"vocabulary.txt": File("words/vocabulary.txt", 0)}
    look = look_of(tmp_path, TEXT, vocabulary=4, files=files, options={"tokens": "words"})
    card = card_of({"tokens": np.array([2, 3, 1, 2]), "text": b"The CAT, -- mieows. The"}, look)
    text, tokens = card.drawings
    assert (text.text, tokens.text) == ("The CAT, -- mieows. The", "the cat [UNK] the")
    assert "tokens 4, 1 unknown" in text_of(card)


def test_a_recording_of_a_known_rate_has_seconds(tmp_path):
    schema = {"signal": ("int16", (None, 2))}
    record = {"signal": np.ones((800, 2), np.int16)}
    for options, words in (({}, ""), ({"rate": "16kHz"}, "0.05 s at 16,000 Hz")):
        card = card_of(record, look_of(tmp_path, schema, options=options))
        # The lines, and the names of their colours.
        assert len(card.drawings) == 2 and words in text_of(card)
    stored = look_of(tmp_path, {**schema, "sample_rate": ("int64", ())})
    for rate, is_known in ((44_100, True), (-1, False)):
        card = card_of({**record, "sample_rate": np.int64(rate)}, stored)
        assert ("Hz" in text_of(card)) == is_known


def test_time_goes_from_left_to_right_and_low_bands_are_below(tmp_path):
    values = np.zeros((100, 20), np.float32)
    values[80:, :5] = 1
    look = look_of(tmp_path, {"log_mel": ("float32", (None, 20))})
    (drawn,) = card_of({"log_mel": values}, look).drawings
    found = np.asarray(Image.open(io.BytesIO(bytes_of(drawn.get("src")))))[::-1]
    assert found.shape == (20, 100)
    assert (found[:5, 80:] > 200).all() and (found[6:] < 50).all() and (found[:, :78] < 50).all()
