"""The flags of the sensors job."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from beam_jobs.cli.flags import flag, names_in
from beam_jobs.cli.inputs import InputFlags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.jobs.sensors.conditioning import Conditioning, LastWindow
from beam_jobs.jobs.sensors.formats.registry import FLAGS, flags_of, suffixes_with
from beam_jobs.jobs.sensors.inside.labels import WindowLabel
from beam_jobs.jobs.sensors.job import SensorEncoding, SensorJob
from beam_jobs.jobs.sensors.recording import ReadOptions, TimesPolicy, TimeUnit
from beam_jobs.jobs.sensors.signals import NanPolicy
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.rows import DEFAULT
from beam_jobs.sources.source import COLUMN
from beam_jobs.sources.table_inputs import known_columns
from readers.format.dtypes import TENSORFLOW_DTYPES

# Precedes the name of an array in --label.
_ARRAY = "array:"

# Flags that do nothing to rows, which have no time.
_NOT_OF_ROWS = (
    "join",
    "recording_column",
    "rate",
    "time_column",
    "gain",
    "resample",
    "window",
    "spectrogram",
    "sequence",
)

# Files that are looked at for one that a flag applies to.
_TRIED = 100

_TABLES = suffixes_with("columns")


@dataclass(frozen=True)
class SensorFlags(InputFlags):
    """The flags of the sensors job."""

    title = "records"

    # Without a --table, the others apply to recordings.
    of_rows = ("path_column", "key")

    label: str = flag(
        "parent",
        "the name of the file's folder; no label; a .csv file with the columns path and label; a "
        "column: of --table, of the .json next to an archive member, `cls` for the .cls next to it, "
        "or else of the recordings themselves, such as column:activity; or an array of the recordings "
        "with a label for each row or sample, such as array:y. See --window_label",
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
    rate: str = flag(
        "",
        "sampling rate of files that do not state it, such as 50Hz or 16kHz, or the column of their "
        "metadata that has it, such as column:rate_hz",
        unset="unknown",
        metavar="HZ|column:NAME",
    )
    time_column: str = flag(
        "",
        f"the column of {suffixes_with('time_column')} files with the times of the samples, for --resample",
        unset="none, samples follow each other at the file's rate or --rate",
        metavar="NAME",
    )
    time_unit: TimeUnit = flag("s", "unit of times that are numbers; dates need none")
    times: TimesPolicy = flag(
        "strict",
        "rows whose times do not increase: strict rejects the recording; drop_duplicates drops rows "
        "that repeat the time of the row before; sort sorts rows by time, then drops repeated times",
    )
    resample: str = flag(
        "",
        "sampling rate of all records, such as 50Hz: audio and files with --rate are filtered if "
        "it is lower than theirs, anything else is interpolated linearly; adds `filled`, the share "
        "of samples without a measurement within half a step of theirs or of the file's",
        unset="samples are kept as they are",
        metavar="HZ",
    )
    max_gap: str = flag(
        "",
        "longest time between measurements that --resample bridges, such as 500ms, or a number of "
        "samples; recordings with a longer one are rejected, or cut there with --window or "
        "--sequence",
        unset="1s",
        metavar="TIME",
    )
    nan: NanPolicy = flag(
        "keep",
        "NaN and infinite values: keep them, reject the recording, or interpolate within the "
        "channel",
    )
    gain: str = flag(
        "",
        "amplify recordings: by decibels such as -6dB, or peak, which makes the largest magnitude of "
        "each recording 1; the result is float32, integers of audio become -1..1 first",
        unset="none",
        metavar="DB|peak",
    )
    window: str = flag(
        "",
        "cut recordings into records of N samples, or of a time such as 2s",
        unset="a recording is a record",
        metavar="N|TIME",
    )
    stride: str = flag(
        "",
        "samples or time from the start of one window to the next",
        unset="--window",
        metavar="N|TIME",
    )
    last_window: LastWindow = flag(
        "drop",
        "samples after the last whole window: drop them, or pad them with zeros to a window and "
        "add `length`, the number of samples before the zeros, to each record",
    )
    window_label: str = flag(
        "majority",
        "the label of a window whose samples have labels: the most frequent one (of equally frequent "
        "ones the smallest), the last one, or VALUE if any sample has it, else the most frequent one",
        metavar="majority|last|any:VALUE",
    )
    spectrogram: str = flag(
        "",
        "store magnitudes of the short-time Fourier transform, float32 [frames, FRAME/2+1, channels]; "
        "in samples such as 256:128 or times such as 25ms:10ms",
        unset="the signal itself",
        metavar="FRAME:STEP",
    )
    mel: int = flag(
        0,
        "mel bands of the power spectrum instead of the magnitude of each frequency, such as 80: "
        "float32 [frames, N, channels], those of librosa.feature.melspectrogram (Slaney's scale and "
        "norm, from 0 Hz to half of the sampling rate) with center=False",
        unset="magnitudes",
        metavar="N",
    )
    log: bool = flag(
        False,
        "spectrograms in decibels, those of librosa.power_to_db with top_db=None: "
        "10 log10(max(power, 1e-10))",
        unset="no",
    )
    sequence: bool = flag(
        False,
        "a recording is one record with a list of arrays of different lengths: its arrays, its "
        "windows, or its parts between gaps",
        unset="no",
    )

    def check(self) -> None:
        super().check()
        if self.join and self.table:
            raise UsageError("--join and --table both say which files are a recording: drop one")
        if self.time_column and not self.resample:
            raise UsageError(
                f"--time_column {self.time_column}: only --resample uses times: add it, or leave "
                f"the times out with --drop_columns {self.time_column}"
            )
        if self.time_unit != "s" and not self.time_column:
            raise UsageError(f"--time_unit {self.time_unit}: add the --time_column in this unit")
        if self.times != "strict" and not self.time_column:
            raise UsageError(f"--times {self.times}: add the --time_column that has the times")
        if self.sequence and self.encoding != "tensor":
            raise UsageError(
                f"--encoding {self.encoding}: --sequence stores arrays as tensors: drop one"
            )
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
        self._check_inside()
        self._conditioning()

    def _check_inside(self) -> None:
        WindowLabel.parse(self.window_label)
        if self.label == _ARRAY or self.rate == COLUMN:
            name, value = ("label", self.label) if self.label == _ARRAY else ("rate", self.rate)
            raise UsageError(f"--{name} {value}: expected a name, such as {value}y")
        if self.window_label != SensorFlags.window_label:
            if not self.window or self.sequence:
                cure = "drop --sequence" if self.sequence else "add --window"
                raise UsageError(
                    f"--window_label {self.window_label}: only windows have such labels: {cure}"
                )
            if not self.label.startswith((COLUMN, _ARRAY)):
                raise UsageError(
                    f"--window_label {self.window_label}: --label {self.label} labels whole files; "
                    "name the labels of samples, such as --label column:activity"
                )
        if self.join and self.recording_column:
            raise UsageError("--join and --recording_column both say what a recording is: drop one")
        if self.record == "row":
            for name in _NOT_OF_ROWS:
                if value := getattr(self, name):
                    given = "" if value is True else f" {value}"
                    raise UsageError(
                        f"--{name}{given}: this is about recordings, not --record row: drop one"
                    )

    def _conditioning(self) -> Conditioning:
        return Conditioning.parse(
            nan=self.nan,
            rate="" if self.rate.startswith(COLUMN) else self.rate,
            resample=self.resample,
            max_gap=self.max_gap,
            window=self.window,
            stride=self.stride,
            spectrogram=self.spectrogram,
            sequence=self.sequence,
            last_window=self.last_window,
            mel=self.mel,
            log=self.log,
            gain=self.gain,
        )

    def _check_formats(self, inputs: Inputs) -> None:
        """Checks that flags about formats apply to some of the files."""
        # With a --table, these are about the table.
        others = ("delimiter", "text_encoding") if self.table else ()
        for name in FLAGS:
            value = getattr(self, name)
            given = name not in others and value != getattr(SensorFlags, name)
            if given and not _applies(name, inputs):
                raise UsageError(
                    f"--{name} {value}: none of the first files is a {suffixes_with(name)}: drop it"
                )

    def _inside(self, inputs: Inputs, wanted: tuple[str, ...], array: str) -> tuple[str, ...]:
        """The columns and arrays to read from the recordings: those that their metadata lacks."""
        if self.join and (names := [*filter(None, (array, *wanted))]):
            raise UsageError(
                f"column {names[0]!r}: columns in the files of a --join are not read: name a --label "
                "csv:FILE, or join the arrays in one .npz file for each recording"
            )
        known = known_columns(inputs) if wanted else set()
        named = filter(None, (array, self.recording_column))
        return tuple(dict.fromkeys([*(n for n in wanted if n not in known), *named]))

    def make_job(self, columns: tuple[str, ...], output: str) -> SensorJob:
        extras = self.extras
        rate_column = self.rate.removeprefix(COLUMN) if self.rate.startswith(COLUMN) else ""
        names = [*columns, *(extra.column for extra in extras), rate_column]
        array = self.label.removeprefix(_ARRAY) if self.label.startswith(_ARRAY) else ""
        inputs, labels = self.find_inputs(
            "none" if array else self.label, names, output, self.join, in_files=True
        )
        wanted = tuple(dict.fromkeys(filter(None, [*labels.columns, *names])))
        inside = self._inside(inputs, wanted, array)
        if array:
            labels = Labels("column", array)
        self._check_formats(inputs)
        dialect = DEFAULT if self.table else self.dialect
        read_options = ReadOptions(
            arrays=tuple(name for name in names_in(self.arrays) if name not in inside),
            columns=names_in(self.columns),
            drop_columns=names_in(self.drop_columns),
            metadata_columns=(*wanted, *inside),
            time_column=self.time_column,
            time_unit=self.time_unit,
            times=self.times,
            delimiter=dialect.delimiter,
            encoding=dialect.encoding,
            float_audio=self.dtype.startswith("float") or bool(self.gain),
            mono=self.channels == 1,
            inside=inside,
            recording_column=self.recording_column,
        )
        return SensorJob(
            inputs=inputs,
            labels=labels,
            read_options=read_options,
            dtype=self.dtype,
            encoding=self.encoding,
            extras=extras,
            conditioning=self._conditioning(),
            rows=self.record == "row",
            window_label=WindowLabel.parse(self.window_label),
            rate_column=rate_column,
        ).with_schema()

    def warnings(self, job: RecordJob) -> Iterable[str]:
        return cast(SensorJob, job).warnings


def _applies(flag: str, inputs: Inputs) -> bool:
    first = itertools.chain.from_iterable(inputs.first(p, _TRIED) for p in inputs.patterns)
    return any(
        flag in flags_of(name)
        for source, _ in first
        for name in (source.file, *(path for _, path, _, _ in source.joined))
    )
