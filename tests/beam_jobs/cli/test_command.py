import json
import re
import shlex
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from beam_jobs.cli import run as running
from beam_jobs.errors import UsageError
from beam_jobs.jobs.images.image_job import ImageJob
from beam_jobs.jobs.reshard.reshard_job import ReshardJob
from beam_jobs.plan.placement import Splits
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.table_inputs import TableInputs
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import frame
from tests.support.archives import tarred
from tests.support.commands import IN_MEMORY, parse_command, refused, run
from tests.support.datasets import NUMBERS, numbers, write_dataset, write_numbers


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with one small input of each kind."""
    root = tmp_path_factory.mktemp("data")
    rows = [
        {"path": "cat/1.png", "kind": "cat", "split": "train", "age": 3, "tags": ["a", "b"]},
        {"path": "dog/2.png", "kind": "dog", "split": "val", "age": 4, "tags": []},
    ]
    for row in rows:
        path = root / "pics" / row["path"]
        path.parent.mkdir(parents=True)
        Image.fromarray(np.zeros((4, 5), np.uint8)).save(path)
    (root / "pics" / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), root / "pics" / "t.parquet")
    with zipfile.ZipFile(root / "pics.zip", "w") as archive:
        for row in rows:
            archive.write(root / "pics" / row["path"], row["path"])
    (root / "empty").mkdir()
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "b.jsonl").write_text('{"text": "one", "kind": "x", "n": 1}\n')
    (root / "tags.jsonl").write_text('{"text": "one", "tags": ["x", "y"]}\n')
    (root / "files.csv").write_text("path,kind\na.txt,x\n")
    np.save(root / "r.npy", np.zeros((9, 2), np.float32))
    (root / "old.tfrecord").write_bytes(frame(b""))
    (root / "old.tar.gz").write_bytes(tarred([("old.tfrecord", frame(b""))], "w:gz"))
    (root / "old.tar").write_bytes(tarred([("a", frame(b"")), ("manifest.json", b"{}")]))
    complete = Manifest(Schema({"x": ("int64", ())}), {}).to_bytes()
    for name, data in (
        ("full/manifest.json", complete),
        ("full/generations/1.json", complete),
        ("mine/thesis.txt", b"{}"),
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    (root / "rec.csv").write_text("path,kind\nr.npy,x\n")
    return root


def split(data, command):
    return shlex.split(command.replace("{data}", str(data)))


def parsed(data, command):
    return parse_command(split(data, command))


def note_of(command):
    return command.flags.dataset.note(command.job)


IMAGES = "images --input '{data}/pics/*/*.png' --output {data}/out "
TABLE = "images --table {data}/pics/t.jsonl --label none --output {data}/out "
TEXT = "text --input {data}/b.jsonl --output {data}/out "
SENSORS = "sensors --input {data}/r.npy --label none --output {data}/out "
PACKED = "reshard --input {data}/old.tar.gz --output {data}/out "
RESHARD = "reshard --input {data}/old.tfrecord --output {data}/out "

REFUSALS = [
    # The form of a command line.
    ("pictures", "unknown command pictures: expected plan, images, text, sensors or reshard"),
    ("image --input x", "sensors or reshard; did you mean images?"),
    ("--input x", "expected plan, images, text, sensors or reshard before --input"),
    (IMAGES + "--channels 2", "--channels 2: expected 1, 3 or 4"),
    (IMAGES + "--encoding jpg", "zlib_shuffled, jpeg, png or source; did you mean jpeg?"),
    (IMAGES + "--label colum:kind", "csv:FILE or column:NAME; did you mean column:kind?"),
    (TEXT + "--tokens word", "or a tokenizer's FILE.json; did you mean words?"),
    (IMAGES + "--splits", "--splits: expected a value, NAME=SHARE,…; one that begins with - is"),
    (IMAGES + "--stratify=yes", "--stratify=yes: --stratify takes no value: type only --stratify"),
    (IMAGES + "--seed one", "--seed one: expected a whole number"),
    (IMAGES + "--direct_num_workers two", "argument --direct_num_workers: invalid int value: 'tw"),
    # Unknown flags, and flags of other jobs.
    (IMAGES + "--split train=1", "unknown argument --split; did you mean --splits?"),
    (IMAGES + "--shards-size=3", "unknown argument --shards-size=3; did you mean --shard_size?"),
    (IMAGES + "--direct_num_worker 3", "did you mean --direct_num_workers?"),
    (
        IMAGES + "--qqq",
        "unknown argument --qqq; beam-shards images --help-all lists all flags",
    ),
    ("images -i photos", "unknown argument -i; did you mean --input?"),
    ("images more x", "unknown argument more: a value follows its flag, as in --input more"),
    (IMAGES + "more", "--output takes one value: any other follows its flag, as in --input more"),
    (IMAGES + "--stratify yes", "unknown argument yes: --stratify takes no value: any other foll"),
    (RESHARD + "--table x.csv", "--table is for images and text and sensors, not for reshard"),
    (SENSORS + "--image_size=3x3", "--image_size is for images, not for sensors"),
    # Flags of every job: output, seed, splits, shards.
    ("images --input '{data}/pics/*/*.png'", "--output is missing: name a new or empty directory"),
    ("images --input {data}/pics --output ''", "--output is empty: name a directory"),
    ("images --input {data}/pics --output 'x*'", "x*: expected a path without * ? and ["),
    ("images --input {data}/pics --output {data}/full", "--output {data}/full: a dataset is here"),
    ("images --input {data}/pics --output {data}/mine --overwrite", "it contains 'thesis.txt',"),
    ("images --input {data}/pics --output {data}/a.txt", "{data}/a.txt: this is a file; name a"),
    (IMAGES + "--dry_run --runner FlinkRunner", "a dry run always runs on this machine: drop"),
    (IMAGES + f"--seed {2**63}", f"--seed {2**63}: expected a number from -2**63 to 2**63 - 1"),
    (IMAGES + "--splits a=0.5", "--splits a=0.5: the shares add up to 0.5, not 1"),
    (IMAGES + "--num_shards val=3", "--num_shards val=3: no split 'val', the splits are train"),
    (IMAGES + "--num_shards tran=3", "the splits are train; did you mean train?"),
    (IMAGES + "--names imag=x", "got 'imag=x'; did you mean image?"),
    (IMAGES + "--encodings imag=png", "image, key, label; did you mean image?"),
    (TABLE + "--extra_features agee:int64", "split, age, tags; did you mean age?"),
    (IMAGES + "--shard_size much", "--shard_size much: expected a size such as 128MiB or 500MB"),
    (IMAGES + "--config {data}/no.yaml", "--config {data}/no.yaml: {data}/no.yaml is missing;"),
    # Inputs.
    (PACKED, "--input old.tar.gz: an archive that can only be read from its front: unpack it, or"),
    ("reshard --input {data}/old.tar --output {data}/out", "old.tar/manifest.json: format"),
    ("images --output {data}/out", "--input is missing: name files or a folder, or add a --table"),
    ("images --input '' --output {data}/out", "--input is empty: name files or a folder"),
    ("images --input {data}/no.png --output {data}/out", "--input {data}/no.png: no such file or"),
    ("images --input {data}/pic/ --output {data}/out", "folder; did you mean {data}/pics?"),
    ("images --input '{data}/*.pn' --output {data}/out", "--input {data}/*.pn: no file matches"),
    (
        "images --input {data}/empty --output {data}/out",
        "--input {data}/empty: the folder has no",
    ),
    (IMAGES + "--path_column path", "--path_column path: it applies only to the rows of a --table"),
    (IMAGES + "--key row", "--key row: it applies only to the rows of a --table: add one"),
    (TEXT + "--text_encoding ansi", "--text_encoding ansi: expected the name of a text encoding"),
    (TABLE + "--delimiter ';'", "--delimiter ;: none of the first files is a .csv or a .tsv: drop"),
    (TEXT + "--delimiter ';;'", "--delimiter ;;: expected one character other than a quote, such"),
    (TEXT + "--record file --delimiter ';'", "--delimiter ;: --record file reads no columns: drop"),
    (TEXT + "--record file --label_field kind", "field 'kind': --record file reads no fields; dr"),
    (TABLE + "--input a --input b", "--input a b: with --table, expected one folder, which"),
    (TABLE + "--input {data}/no", "--input {data}/no: no such file or folder"),
    (TABLE + "--key id", "--key id: expected path, row or column:NAME"),
    (TABLE + "--path_column file", "--table {data}/pics/t.jsonl: no column 'file', it has path,"),
    (IMAGES + "--target column:price", "column 'price': expected a --table, or archives"),
    (TABLE + "--target age", "--target age: expected column:NAME; give a .csv file as --table"),
    (TABLE + "--extra_features size:int64", "{data}/pics/t.jsonl: no column 'size', it has path"),
    (TABLE + "--extra_features age", "--extra_features age: got 'age', expected NAME:DTYPE"),
    (TABLE + "--table {data}/no.csv", "--table {data}/no.csv: no such file or folder"),
    (TABLE + "--table {data}/a.txt", "--table {data}/a.txt: expected .csv, .tsv, .jsonl"),
    (IMAGES + "--group_by column:age", "column 'age': expected a --table, or archives"),
    # Labels and groups.
    (IMAGES + "--label folder", "--label folder: expected parent, none, csv:FILE or column:NAME"),
    (
        IMAGES + "--label csv:{data}/no.csv",
        "--label csv:{data}/no.csv: cannot be read (no such file)",
    ),
    (TABLE.replace("none", "column:x"), "{data}/pics/t.jsonl: no column 'x', it has path, kind"),
    # Splits by column.
    (TABLE + "--split_column x", "--table {data}/pics/t.jsonl: no column 'x', it has path, kind"),
    (
        TABLE + "--split_column split --group_by column:age",
        "it cannot be combined with --group_by column:age: drop",
    ),
    (TABLE + "--split_column split --splits a=0.5,b=0.5", "give only names, such as train,val"),
    (TABLE + "--split_column tags", "--split_column tags: no row has a name in it; is it the"),
    (TABLE + "--split_column split --num_shards test=2", "no split 'test', the splits are train,"),
    (
        "images --input {data}/pics.zip --split_column split --output {data}/out",
        "--split_column split: {data}/pics.zip is not a table, so its names are not known: add "
        "--splits train,val",
    ),
    (TEXT + "--split_column s", "--split_column s: no row has a name in it; is it the right"),
    (RESHARD + "--split_column s", "--split_column s: list the names in it, such as --splits"),
    (RESHARD + "--split_column s --splits a=1", "--split_column determines the shares"),
    (
        RESHARD + "--split_column s --splits a,b --group_by x",
        "it cannot be combined with --group_by x: drop one",
    ),
    # Stratified splits.
    (IMAGES + "--stratify", "--stratify: there is one split: add --splits train=0.8,val=0.2"),
    (TABLE + "--stratify --splits a=0.5,b=0.5", "--stratify: the records have no label: add"),
    (
        TABLE.replace("none", "column:tags") + "--stratify --splits a=0.5,b=0.5",
        "--stratify: expected one label per record, these have several",
    ),
    # Exact splits and folds.
    (IMAGES + "--exact_splits", "--exact_splits: there is one split: add --splits"),
    (
        TABLE + "--split_column split --folds 3",
        "--split_column split: it cannot be combined with --folds 3: drop one",
    ),
    (
        IMAGES + "--folds 3 --splits a=0.5,b=0.5",
        "--folds 3: it cannot be combined with --splits a=0.5,b=0.5",
    ),
    # Images.
    (IMAGES + "--image_size 5", "--image_size 5: expected HEIGHTxWIDTH such as 224x224, or none"),
    (IMAGES + "--encoding source --image_size 4x4", "stores the files unchanged: drop --im"),
    (IMAGES + "--image_size 99999x99999", "--image_size 99999x99999: too large to store"),
    (IMAGES + "--boxes coco", "--boxes coco: expected coco:FILE, csv:FILE, voc, voc:DIR, yolo or"),
    (IMAGES + "--class_names x", "--class_names x: it has no effect without --boxes: add"),
    (IMAGES + "--captions column", "--captions column: expected coco:FILE, txt or txt:DIR"),
    (IMAGES + "--masks {data}/no", "none of the first 2 images has such a file; that of"),
    # Texts.
    (TEXT + "--table {data}/b.jsonl", "--table holds the texts, so there is nothing to read from"),
    ("text --table {data}/b.jsonl --key row --output {data}/out", "--key row: texts in a table"),
    (TEXT.replace("b.jsonl", "a.txt") + "--key column:id", "field 'id': .txt files have no fields"),
    (
        "text --table {data}/files.csv --path_column x --output {data}/out",
        "--table {data}/files.csv: no column 'x', it has path, kind",
    ),
    (
        TEXT + "--label_field kind --label parent",
        "--label_field kind: it cannot be combined with --label parent",
    ),
    (TEXT + "--text_field ,", "--text_field: expected the name of a field or column"),
    (TEXT + "--text_field a,b,a", "--text_field a,b,a: two features would be called 'a': drop or"),
    (TEXT + "--text_field a,b --tokens words --window 3", "--window 3: windows are cut from one"),
    (TEXT + "--max_length 3", "--max_length 3: it has no effect without --tokens: add it"),
    (TEXT + "--tokens words --max_length -1", "--max_length -1: expected at least 0"),
    (TEXT + "--tokens subwords", "--tokens subwords: expected none, words, bytes, bpe or a"),
    (TEXT + "--tokens {data}/no.json", "{data}/no.json"),
    (TEXT + "--tokens words --vocabulary_size 2", "--vocabulary_size 2: expected at least 3"),
    (TEXT + "--tokens bpe --vocabulary_size 9", "--vocabulary_size 9"),
    (
        TEXT + "--vocabulary_size 100",
        "--vocabulary_size 100: it has no effect without --tokens",
    ),
    (
        IMAGES + "--resize fit",
        "--resize fit: it has no effect without --image_size: add it, or",
    ),
    (SENSORS + "--times sort", "--times sort: it has no effect without --time_column: add it"),
    (SENSORS + "--delimiter |", "--delimiter |: none of the first files is a .csv, .tsv or .txt:"),
    (SENSORS + "--arrays x", "--arrays x: none of the first files is a .npz, .h5, .hdf5, .mat or"),
    (SENSORS + "--resample 5Hz --time_column t", "--time_column t: none of the first files is a"),
    (SENSORS + "--channels 1", "--channels 1: none of the first files is a .wav, .flac, .ogg"),
    (
        SENSORS + "--columns a --drop_columns b",
        "--drop_columns b: it cannot be combined with --columns a: drop",
    ),
    (SENSORS + "--drop_columns a,a", "--drop_columns a,a: a name is repeated"),
    (
        "sensors --input '{data}/r*' --output {data}/out --label column:a",
        "r.npy: neither its metadata nor the file has 'a': expected a column of a --table, or a",
    ),
    (SENSORS + "--extra_features a:int8", "r.npy: neither its metadata nor the file has 'a'"),
    (SENSORS + "--label array:", "--label array:: expected a name, such as array:y"),
    (
        SENSORS + "--window_label last",
        "--window_label last: it has no effect without --window: add",
    ),
    (
        SENSORS + "--window 2 --sequence --window_label last",
        "--sequence: it cannot be combined with --window_label last",
    ),
    (SENSORS + "--window 2 --window_label last", "--window_label last: --label none labels whole"),
    (SENSORS + "--window 2 --window_label any:", "--window_label any:: expected majority, last,"),
    (
        SENSORS + "--record row --window 4",
        "--record row: it cannot be combined with --window 4: drop one",
    ),
    (
        SENSORS + "--join '{recording}_{array}.npy' --recording_column a",
        "it cannot be combined with --recording_column a: drop one",
    ),
    (
        SENSORS + "--join '{recording}_{array}.npy' --label array:a",
        "column 'a': columns in the files of a --join are not read: add --label csv:FILE, or",
    ),
    (
        IMAGES + "--frames all --masks x",
        "--frames all: it cannot be combined with --masks x: drop one",
    ),
    (IMAGES + "--frames all --encoding source", "source stores all frames in one record; use png"),
    (IMAGES + "--channels 4 --encoding jpeg", "--channels 4: JPEG has no alpha; use"),
    (IMAGES + "--dtype uint16 --encoding jpeg", "cannot store such pixels; use tensor or raw or"),
    (IMAGES + "--max_pixels 0", "--max_pixels 0: expected at least 1"),
    (IMAGES + "--max_pixels 178956971 --encoding png", "--max_pixels 178956971: readers decode"),
    (IMAGES + "--segmentation instances", "--segmentation instances: these are in COCO files:"),
    (IMAGES + "--box_unit pixels", "--box_unit pixels: it has no effect without --boxes: add"),
    (IMAGES + "--encodings image", "--encodings image: expected FEATURE=ENCODING,… such as boxes="),
    (IMAGES + "--encodings image=text", "--encodings image=text cannot store such pixels; use"),
    (IMAGES + "--encodings boxes=list", "no feature 'boxes': the records have image, key, label"),
    (SENSORS + "--encodings signal=text", "float32 [None, 2] can be tensor, raw, list"),
    (SENSORS + "--sequence --window 3 --encodings signal=raw", "can be only sequence"),
    (IMAGES + "--jpeg_exact", "--jpeg_exact: it has no effect without --image_size: add"),
    (SENSORS + "--columns a", "--columns a: none of the first files is a .csv, .tsv,"),
    (IMAGES + "--masks {data}/pics", "--input: all files belong to --boxes, --captions and"),
    (TEXT + "--window 4", "--window 4: it has no effect without --tokens: add it, or drop"),
    (
        TEXT + "--tokens bytes --stride 4",
        "--stride 4: it has no effect without --window: add it",
    ),
    (TEXT + "--tokens bytes --window 4 --stride 5", "--stride 5: expected a number of tokens, at"),
    (
        TEXT + "--tokens bytes --window 4 --max_length 9",
        "--window 4: it cannot be combined with --max_length 9",
    ),
    (TEXT + "--extra_features text:string", "the records have a feature of this name; rename the"),
    # Recordings.
    (SENSORS + "--time_column t", "--time_column t: it has no effect without --resample: add"),
    (SENSORS + "--time_unit ms", "--time_unit ms: it has no effect without --time_column"),
    (
        SENSORS + "--sequence --encoding raw",
        "--sequence: it cannot be combined with --encoding raw: drop one",
    ),
    (SENSORS + "--stride 4", "--stride 4: it has no effect without --window: add it"),
    (SENSORS + "--max_gap 1s", "--max_gap 1s: it has no effect without --resample: add it"),
    (SENSORS + "--window 2s", "--window 2s: the recordings do not state their sampling rate"),
    (SENSORS + "--resample 5Hz", "--resample needs the times of the samples of 'signal'"),
    (SENSORS + "--join '{recording}.csv'", "expected {recording} and {array} once each, such as"),
    (
        "sensors --table {data}/rec.csv --join '{recording}_{array}.csv' --output {data}/out",
        "it cannot be combined with --table {data}/rec.csv: drop one",
    ),
    # TFRecord files.
    ("reshard --output {data}/out", "--input is missing: name TFRecord files or a folder"),
    ("reshard --input {data}/a.txt --output {data}/out", "no TFRecord files among these: index"),
    (RESHARD + "--keep a --drop b", "--drop b: it cannot be combined with --keep a: drop one"),
    (RESHARD + "--schema {data}/no.json", "--schema {data}/no.json: "),
]


def test_a_file_without_a_folder_is_a_reject(data, tmp_path, capsys):
    (tmp_path / "in" / "2").mkdir(parents=True)
    for name in ("1.png", "2/3.png"):
        (tmp_path / "in" / name).write_bytes((data / "pics/cat/1.png").read_bytes())
    given = "images", "--input", tmp_path / "in", "--output", tmp_path / "out", *IN_MEMORY
    assert run(*given) == 0
    lines = capsys.readouterr().err
    assert "1: it is in no folder, so it has no label" in lines


@pytest.fixture
def nothing_runs(monkeypatch):
    monkeypatch.setattr(running, "main_job", pytest.fail)


@pytest.mark.parametrize(("command", "message"), REFUSALS, ids=[c for c, _ in REFUSALS])
def test_a_mistake_is_reported_in_one_line_and_nothing_is_written(
    data, capsys, nothing_runs, command, message
):
    before = sorted(data.rglob("*"))
    refused(capsys, 2, re.escape(message).replace(r"\{data\}", str(data)), *split(data, command))
    assert sorted(data.rglob("*")) == before


def test_a_flag_that_the_manifest_could_not_state_is_refused(data):
    with pytest.raises(UsageError, match="expected UTF-8, because the manifest"):
        parsed(data, TEXT + "--input \udcff")


def test_a_table_with_its_flags_becomes_inputs(data):
    command = parsed(
        data,
        "images --table {data}/pics/t.parquet --input {data}/pics --label column:kind --key row "
        "--extra_features age:int8,tags:string[],kind:string --split_column split "
        "--output {data}/out --num_shards val=2 --dry_run",
    )
    job = command.job
    assert isinstance(job, ImageJob)
    assert isinstance(job.inputs, TableInputs)
    assert job.inputs.root == str(data / "pics")
    assert job.inputs.columns == ("kind", "split", "age", "tags")
    assert (job.inputs.key, job.inputs.path_column) == ("row", "path")
    assert job.labels == Labels("column", "kind")
    placement = command.output.placement
    assert placement.splits.names == ("train", "val")
    assert placement.split_column == "split"
    assert command.output.num_shards == (0, 2)
    assert command.flags.run.dry_run
    assert command.job.whole_files
    assert dict(command.output.schema) == {
        "image": Feature("uint8", (None, None, 3), "source"),
        "kind": Feature("string"),
        "key": Feature("string"),
        "label": Feature("int64"),
        "age": Feature("int8"),
        "tags": Feature("string", (None,), "list"),
    }


def test_a_column_of_lists_gives_records_several_labels(data):
    several = Feature("int64", (None,), "list")
    for command in (
        "images --table {data}/pics/t.parquet --label column:tags --dry_run",
        "text --input {data}/tags.jsonl --label_field tags --dry_run",
        "text --table {data}/tags.jsonl --label column:tags --dry_run",
    ):
        assert parsed(data, command).output.schema["label"] == several, command


def test_a_table_holds_texts_or_names_their_files(data):
    inside = parsed(data, "text --table {data}/b.jsonl --label column:n --dry_run").job
    assert not isinstance(inside.inputs, TableInputs)
    assert (inside.label_field, inside.labels) == ("n", Labels())
    named = parsed(
        data, "text --table {data}/files.csv --path_column path --label column:kind --dry_run"
    ).job
    assert isinstance(named.inputs, TableInputs)
    assert (named.label_field, named.labels) == ("", Labels("column", "kind"))


def test_only_jobs_whose_records_are_whole_files_shuffle_references(data):
    assert not parsed(data, SENSORS + "--window 4").job.whole_files
    assert parsed(data, SENSORS + "--window 4 --sequence").job.whole_files
    assert parsed(data, SENSORS).job.whole_files
    assert not parsed(data, SENSORS + "--record row").job.whole_files
    assert not parsed(data, TEXT).job.whole_files
    assert not parsed(data, RESHARD).job.whole_files
    assert parsed(data, "images --input {data}/pics.zip --output {data}/out").job.whole_files


def test_a_note_names_the_splits_that_names_of_shards_suggest(data, tmp_path):
    for name in ("val", "train"):
        (tmp_path / f"{name}-00000-of-00001").write_bytes(frame(b""))
    command = f"reshard --input {tmp_path} --dry_run "
    note = note_of(parsed(data, command))
    assert note.startswith("the names of the shards begin with train, val, but no manifest.json")
    assert note_of(parsed(data, command + "--splits train=1")) == ""


def test_records_of_datasets_keep_their_splits_unless_splits_are_given(data, tmp_path):
    write_numbers(tmp_path / "a")
    splits = {"test": [numbers(0, 2)], "val": [numbers(2, 2)]}
    write_dataset(tmp_path / "b", NUMBERS, splits, label_names=("cat", "dog"))
    plain, both = f"reshard --input {data}/old.tfrecord ", f"reshard --input {tmp_path} --dry_run "
    beside = f"--input {data}/old.tfrecord --schema {tmp_path}/a/manifest.json"
    for command, kept, option in (
        (plain + "--dry_run", Splits(), "train=1"),
        (both, Splits.of_shards(["train", "val", "test"]), "keep"),
        (both + f"{beside} --splits a=0.5,b=0.5", None, "a=0.5,b=0.5"),
        (both + "--split_column name --splits a,b", Splits.named(["a", "b"], "name"), "a,b"),
    ):
        found = parsed(data, command)
        expected = kept or Splits.parse(option)
        assert found.output.placement.splits == expected, command
        assert found.output.options.get("splits", "keep") == option
        assert bool(note_of(found)) == (option not in ("keep", "train=1"))
    assert parsed(data, both + "--num_shards train=8,val=2").output.num_shards == (8, 2, 0)


def test_inputs_of_which_only_some_have_splits_need_splits(data, tmp_path, capsys):
    message = "{data} has no manifest.json, so its records have no split to keep: leave this file"
    write_numbers(tmp_path / "a")
    inputs = f"reshard --input {tmp_path}/a --input {{data}}/old.tfrecord --schema {tmp_path}/s "
    (tmp_path / "s").write_text(json.dumps(NUMBERS.to_json()))
    pattern = re.escape(message.replace("{data}", str(data)))
    refused(capsys, 2, pattern, *split(data, inputs + f"--output {tmp_path}/out"))
    assert not (tmp_path / "out").exists()


def test_groups_cannot_change_the_splits_that_records_keep(data, tmp_path, capsys):
    write_numbers(tmp_path / "a")
    command = f"reshard --input {tmp_path}/a --dry_run --group_by '[0-9]' "
    pattern = (
        r"--group_by \[0-9\]: the records keep their splits, train, val: drop it, or add --spl"
    )
    refused(capsys, 2, pattern, *split(data, command))
    assert parsed(data, command + "--splits a=0.5,b=0.5").output.placement.groups


def test_the_options_are_the_flags_that_decide_a_dataset(data):
    one = parsed(data, IMAGES + "--overwrite --direct_num_workers 1")
    other = parsed(data, IMAGES.replace("/out", "/other") + "--direct_num_workers 2")
    assert one.output.options == other.output.options
    assert (one.processes, other.processes) == (1, 2)
    changed = parsed(data, IMAGES + "--group_by cat|dog")
    assert changed.output.options == {**one.output.options, "group_by": "cat|dog"}


def test_the_options_are_the_flags_that_differ_from_their_defaults(data):
    command = parsed(data, TEXT + "--text_encoding cp1252 --seed 0 --json --num_shards 2")
    assert list(command.output.options) == ["job", "input", "num_shards", "text_encoding"]


def test_a_reshard_job_has_splits_by_feature_and_by_key(data):
    command = parsed(data, RESHARD + "--split_column s --splits 'a, b' --keep x,y")
    assert isinstance(command.job, ReshardJob)
    assert command.job.keep == ("x", "y")
    assert command.output.placement.splits.names == ("a", "b")
    drawn = parsed(data, RESHARD + "--splits a=0.5,b=0.5 --group_by x")
    assert drawn.output.placement.groups.pattern == "x"


def test_flags_of_beam_pass_through(data):
    from apache_beam.options.pipeline_options import DirectOptions

    command = parsed(data, IMAGES + "--direct_running_mode multi_processing --direct_num_workers 3")
    options = command.beam.view_as(DirectOptions)
    assert (options.direct_running_mode, options.direct_num_workers) == ("multi_processing", 3)
    assert command.processes == 1


def test_a_dry_run_needs_no_output_and_plan_is_its_short_name(data, monkeypatch):
    commands = []
    monkeypatch.setattr(running, "main_job", lambda command, report: commands.append(command))
    flags = ["--input", f"{data}/pics/*/*.png"]
    assert run("plan", "images", *flags) == 0
    assert run("images", *flags, "--dry_run") == 0
    first, second = commands
    assert first.flags.run.dry_run
    assert second.flags.run.dry_run
    assert first.output == second.output
    assert first.output.directory == ""


def test_folds_are_splits_of_equal_exact_shares(data):
    command = parsed(data, IMAGES + "--folds 3")
    assert command.output.placement.splits == Splits(("fold0", "fold1", "fold2"), (1 / 3,) * 3)
    assert command.output.placement.exact == "records"
    assert command.output.options["folds"] == "3"
    assert not {"folds", "exact_splits"} & parsed(data, IMAGES).output.options.keys()


def test_folds_replace_the_splits_of_a_dataset(data, tmp_path, capsys):
    write_numbers(tmp_path / "a")
    command = f"reshard --input {tmp_path}/a --output {tmp_path}/out --exact_splits "
    refused(
        capsys, 2, "--exact_splits: the records keep their splits: add --sp", *split(data, command)
    )
    command = parsed(data, command + "--folds 2")
    assert command.output.placement.splits.names == ("fold0", "fold1")
    assert note_of(command).startswith(
        "--folds 2 makes new splits of all records; the splits of the"
    )
