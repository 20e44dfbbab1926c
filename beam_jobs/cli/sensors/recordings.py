"""The flags that say what a recording is: its files, its arrays and columns, and its label."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from beam_jobs.cli.flags import flag, names_in
from beam_jobs.cli.inputs import PARENT_OR_NONE, InputFlags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.formats.registry import FLAGS, flags_of, suffixes_with
from beam_jobs.jobs.sensors.spec import SensorEncoding
from beam_jobs.sources.columns import known_columns
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import COLUMN
from readers.format.dtypes import TENSORFLOW_DTYPES

# Precedes the name of an array in --label.
_ARRAY = "array:"

# Files that are looked at for one that a flag applies to.
_TRIED = 100

_TABLES = suffixes_with("columns")


@dataclass(frozen=True)
class RecordingFlags(InputFlags):
    """The flags that say what a recording is."""

    title = "records"

    # Without a --table, the others apply to recordings.
    of_rows = ("path_column", "key")

    label: str = flag(
        "",
        "the name of the file's folder; no label; a .csv file with the columns path and label; a "
        "column: of --table, of the .json next to an archive member, `cls` for the .cls next to it, "
        "or else of the recordings themselves, such as column:activity; or an array of the recordings "
        "with a label for each row or sample, such as array:y. See --window_label",
        unset=PARENT_OR_NONE,
        metavar="parent|none|csv:FILE|column:NAME|array:NAME",
    )
    record: Literal["recording", "row"] = flag(
        "recording",
        "a record is a recording, or a window of one; or a row: arrays are cut along their first "
        "axis, such as X [n, 28, 28] and, with --label array:y, y [n]",
    )
    recording_column: str = flag(
        "",
        "the column whose values tell the recordings of a file apart, such as subject; their rows "
        "may be mixed",
        unset="a file is a recording",
        metavar="NAME",
    )
    arrays: str = flag(
        "",
        f"arrays of {suffixes_with('arrays')} files; a single one is called `signal`, several keep their names",
        unset="all",
        metavar="NAME,…",
    )
    columns: str = flag(
        "",
        f"columns of {_TABLES} files that are channels",
        unset="all (of files with dtypes, all that hold numbers) but --drop_columns, columns of --label and "
        "other metadata, those called like times, such as `timestamp`, and pandas' row numbers",
        metavar="NAME,…",
    )
    drop_columns: str = flag(
        "",
        f"columns of {_TABLES} files that are no channels, such as is_anomaly,comment",
        unset="none",
        metavar="NAME,…",
    )
    channels: Literal[0, 1] = flag(
        0, "1 mixes the channels of audio to one, their mean; 0 keeps the channels of the files"
    )
    join: str = flag(
        "",
        "names of the files of one recording, such as {recording}_{array}.csv: {array} names their "
        "arrays, {recording} is their key",
        unset="each file is a recording",
        metavar="PATTERN",
    )
    encoding: SensorEncoding = flag(
        "tensor",
        "tensor: with dtype and shape; raw: the bytes of the values; list: an Example's own list "
        "of int64 or float32",
    )
    dtype: str = flag(
        "",
        "convert to this dtype, such as float32, which scales audio to -1..1",
        unset="the input's own; float32 for text, which states none",
        choices=sorted(set(TENSORFLOW_DTYPES) - {"string", "bfloat16"}),
        metavar="NAME",
    )

    def validate(self) -> None:
        super().validate()
        if self.label == _ARRAY:
            raise UsageError(f"--label {self.label}: expected a name, such as array:y")
        for name in ("table", "recording_column"):
            if self.join and getattr(self, name):
                raise UsageError(f"--join and --{name} both say what a recording is: drop one")
        if self.columns and self.drop_columns:
            raise UsageError(
                f"--drop_columns {self.drop_columns}: --columns names all channels: drop one of them"
            )
        for name in ("arrays", "columns", "drop_columns"):
            value = getattr(self, name)
            names = names_in(value)
            if len(set(names)) < len(names):
                raise UsageError(f"--{name} {value}: a name is repeated")
            if value and not names:
                raise UsageError(f"--{name} {value}: expected names, such as x,y")

    @property
    def label_array(self) -> str:
        """The array that holds the labels; empty if they are elsewhere."""
        return self.label.removeprefix(_ARRAY) if self.label.startswith(_ARRAY) else ""

    @property
    def labels_samples(self) -> bool:
        """Whether the samples of a recording may have labels of their own."""
        return self.label.startswith((COLUMN, _ARRAY))

    def check_formats(self, inputs: Inputs) -> None:
        """Checks that flags about formats apply to some of the files.

        Raises:
            UsageError: one applies to none.
        """
        # With a --table, these are about the table.
        others = ("delimiter", "text_encoding") if self.table else ()
        for name in FLAGS:
            value = getattr(self, name)
            given = name not in others and value != getattr(type(self), name)
            if given and not _applies(name, inputs):
                raise UsageError(
                    f"--{name} {value}: none of the first files is a {suffixes_with(name)}: drop it"
                )

    def inside(self, inputs: Inputs, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The columns and arrays to read from the recordings: those that their metadata lacks.

        Args:
            wanted: The columns that the job needs.

        Raises:
            UsageError: the recordings are joined, and their columns are not read.
        """
        array = self.label_array
        if self.join and (names := [*filter(None, (array, *wanted))]):
            raise UsageError(
                f"column {names[0]!r}: columns in the files of a --join are not read: name a --label "
                "csv:FILE, or join the arrays in one .npz file for each recording"
            )
        known = known_columns(inputs) if wanted else set()
        named = filter(None, (array, self.recording_column))
        return tuple(dict.fromkeys([*(n for n in wanted if n not in known), *named]))


def _applies(flag: str, inputs: Inputs) -> bool:
    first = itertools.chain.from_iterable(inputs.first(p, _TRIED) for p in inputs.patterns)
    return any(
        flag in flags_of(name)
        for source, _ in first
        for name in (source.file, *(path for _, path, _, _ in source.joined))
    )
