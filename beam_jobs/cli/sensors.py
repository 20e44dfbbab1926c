"""The flags of the sensors job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from beam_jobs.cli.flags import flag, names_in
from beam_jobs.cli.inputs import COLUMN, FILES_TRIED, InputFlags, label_flag
from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.formats.registry import FLAGS, flags_of, suffixes_with

if TYPE_CHECKING:
    from beam_jobs.jobs.job import FileJob, Job
    from beam_jobs.jobs.sensors.conditioning import Conditioning
    from beam_jobs.jobs.sensors.sensor_job import SensorJob
    from beam_jobs.sources.inputs import Inputs

# Precedes the name of an array in a value.
_ARRAY = "array:"

# A test compares them with those of the format.
_DTYPES = """
    bool complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
"""
DTYPES = tuple(_DTYPES.split())

_TABLES = suffixes_with("columns")


def _check_label(label: str) -> None:
    from beam_jobs.sources.labels import Labels

    if label == _ARRAY:
        raise UsageError(f"--label {label}: expected a name, such as array:y")
    if not label.startswith(_ARRAY):
        Labels.parse(label)


def _check_rate(rate: str) -> None:
    from beam_jobs.jobs.sensors.conditioning import parse_rate

    if rate == COLUMN:
        raise UsageError(f"--rate {rate}: expected a name, such as column:rate_hz")
    if not rate.startswith(COLUMN):
        parse_rate(rate)


def check_names(value: str, flag: str) -> None:
    """Raises UsageError for a list of names that is empty or repeats one."""
    names = names_in(value)
    if len(set(names)) < len(names):
        raise UsageError(f"{flag} {value}: a name is repeated")
    if not names:
        raise UsageError(f"{flag} {value}: expected names, such as x,y")


@dataclass(frozen=True)
class SensorFlags(InputFlags):
    """The flags of the sensors job."""

    title = "records"

    # Without a --table, the others apply to recordings.
    of_rows = ("path_column", "key")

    label: str = label_flag(
        "",
        ". A column of the recordings, such as column:activity, labels each row; array:y is an array with a label for "
        "each row or sample. See --window_label",
        "|array:NAME",
        _check_label,
    )
    record: Literal["recording", "row"] = flag(
        "recording",
        "recording: a record is a recording, or a window of one; row: arrays are split along their first "
        "axis, such as X [n, 28, 28] and, with --label array:y, y [n]",
        excludes="join recording_column rate time_column resample window sequence",
    )
    recording_column: str = flag(
        "",
        "the column that tells the recordings of a file apart, such as subject; their rows may be mixed",
        unset="a file is a recording",
    )
    arrays: str = flag(
        "",
        f"arrays of {suffixes_with('arrays')} files; a single one is called `signal`, several keep their names",
        unset="all",
        metavar="NAME,…",
        check="cli.sensors:check_names --arrays",
    )
    columns: str = flag(
        "",
        f"columns of {_TABLES} files that are channels",
        unset="all columns (of files with dtypes, all columns of numbers) except --drop_columns, --label and "
        "other metadata, names of times such as `timestamp`, and pandas' row numbers",
        metavar="NAME,…",
        check="cli.sensors:check_names --columns",
    )
    drop_columns: str = flag(
        "",
        f"columns of {_TABLES} files that are not channels, such as is_anomaly,comment",
        metavar="NAME,…",
        check="cli.sensors:check_names --drop_columns",
        excludes="columns",
    )
    channels: Literal[0, 1] = flag(
        0, "1 mixes the channels of audio into their mean; 0 keeps the channels of the files"
    )
    join: str = flag(
        "",
        "how the files of one recording are named, such as {recording}_{array}.csv: {array} is the name of an "
        "array, {recording} becomes the key",
        unset="each file is a recording",
        metavar="PATTERN",
        excludes="table recording_column",
    )
    encoding: Literal["tensor", "raw", "list", "zlib", "zlib_shuffled"] = flag(
        "tensor",
        "tensor: values with dtype and shape; raw: only their bytes; list: int64 or float32 numbers of the Example; zlib: "
        "the bytes of raw, compressed; zlib_shuffled: after sorting them by their place in a number, usually smaller",
    )
    dtype: str = flag(
        "",
        "convert to this dtype, such as float32, which scales audio to -1..1",
        unset="the dtype of the input; float32 for text",
        choices=DTYPES,
    )
    rate: str = flag(
        "",
        "sampling rate of files that state none, such as 16kHz, or the metadata column with it: column:rate_hz",
        unset="unknown",
        metavar="HZ|column:NAME",
        check=_check_rate,
        everyday=True,
    )
    time_column: str = flag(
        "",
        f"the column of {suffixes_with('time_column')} files with the times of the samples, for --resample",
        unset="none: samples are evenly spaced, at the file's rate or --rate",
        needs="resample",
    )
    time_unit: Literal["auto", "s", "ms", "us", "ns"] = flag(
        "auto",
        "unit of numeric times; dates need none. auto: that in the name of the column, such as time_ms, or in a "
        "line of units, else s",
        needs="time_column",
    )
    header: Literal["auto", "yes", "no"] = flag(
        "auto",
        f"whether the first line of {suffixes_with('header')} files names the columns. auto: unless it has only "
        "numbers that do not count up; without names, columns are called 0, 1, 2",
    )
    skip_lines: int = flag(
        0, f"lines above the table in {suffixes_with('skip_lines')} files", least=0
    )
    times: Literal["strict", "drop_duplicates", "sort"] = flag(
        "strict",
        "rows whose times do not increase: strict rejects the recording; drop_duplicates drops rows "
        "that repeat the previous time; sort sorts rows by time, then drops repeated times",
        needs="time_column",
    )
    resample: str = flag(
        "",
        "sampling rate of all records, such as 50Hz: audio and files with --rate are low-pass filtered "
        "before their rate is reduced, anything else is interpolated linearly; adds `filled`, the share "
        "of samples with no measurement within half a step, theirs or the file's",
        unset="samples are kept as they are",
        metavar="HZ",
        check="jobs.sensors.conditioning:parse_rate --resample",
        everyday=True,
    )
    max_gap: str = flag(
        "",
        "longest gap between measurements that --resample bridges, such as 500ms, or a number of samples; recordings "
        "with a longer gap are rejected, or cut there with --window or --sequence",
        unset="1s",
        metavar="TIME",
        check="jobs.sensors.conditioning:Span.parse --max_gap",
        needs="resample",
    )
    nan: Literal["keep", "reject", "interpolate"] = flag(
        "keep",
        "NaN and infinite values: keep them, reject the recording, or interpolate within the channel",
    )
    window: str = flag(
        "",
        "cut recordings into records of N samples, or of a time such as 2s",
        unset="a recording is a record",
        metavar="N|TIME",
        check="jobs.sensors.conditioning:Span.parse --window",
        everyday=True,
    )
    stride: str = flag(
        "",
        "samples or time from the start of one window to the start of the next",
        unset="--window",
        metavar="N|TIME",
        check="jobs.sensors.conditioning:Span.parse --stride",
        needs="window",
    )
    last_window: Literal["drop", "pad"] = flag(
        "drop",
        "samples after the last whole window: drop them, or pad them with zeros to a window, and "
        "add `length`, the number of samples before the zeros, to each record",
        needs="window",
    )
    window_label: str = flag(
        "majority",
        "the label of a window whose samples have labels: majority, the most frequent one (of equally frequent "
        "ones the smallest); last, that of the last sample; any, VALUE if a sample has it, else the majority",
        metavar="majority|last|any:VALUE",
        check="jobs.sensors.windows:check_window_label",
        needs="window",
    )
    sequence: bool = flag(
        False,
        "one record per recording, a list of arrays of different lengths: its arrays, windows, or parts between gaps",
        excludes="encoding last_window window_label",
    )

    def validate(self) -> None:
        super().validate()
        if self.given("window_label") and not self.label.startswith((COLUMN, _ARRAY)):
            raise UsageError(
                f"--window_label {self.window_label}: --label {self.label or 'parent'} labels whole files; "
                "name the labels of samples, such as --label column:activity"
            )

    @property
    def label_array(self) -> str:
        """The array that holds the labels; empty if they are elsewhere."""
        return self.label.removeprefix(_ARRAY) if self.label.startswith(_ARRAY) else ""

    def conditioning(self) -> Conditioning:
        """The steps from a recording to its records."""
        from beam_jobs.jobs.sensors.conditioning import Conditioning, Span, parse_rate

        stated = self.rate and not self.rate.startswith(COLUMN)
        resample = parse_rate(self.resample, "--resample") if self.resample else 0.0
        gap = Span.parse(self.max_gap, "--max_gap") if self.max_gap else Span(1.0, True, "")
        window = Span.parse(self.window, "--window") if self.window else None
        return Conditioning(
            nan=self.nan,
            rate=parse_rate(self.rate, "--rate") if stated else 0.0,
            resample=resample,
            max_gap=gap.amount if gap.in_seconds else gap.amount / resample,
            window=window,
            stride=Span.parse(self.stride, "--stride") if self.stride else window,
            sequence=self.sequence,
            pad=self.last_window == "pad",
        )

    def make_job(self, columns: tuple[str, ...], output: str, max_bytes: int) -> SensorJob:
        from beam_jobs.jobs.sensors.read_options import ReadOptions
        from beam_jobs.jobs.sensors.sensor_job import SensorJob
        from beam_jobs.sources.labels import Labels
        from beam_jobs.sources.rows import DEFAULT

        extras = self.extras
        rate_column = self.rate.removeprefix(COLUMN) if self.rate.startswith(COLUMN) else ""
        names = [*columns, *(extra.column for extra in extras), rate_column]
        array = self.label_array
        inputs, labels = self.find_inputs(
            "none" if array else self.label, names, output, self.join, in_files=True
        )
        wanted = tuple(dict.fromkeys(filter(None, [*labels.columns, *names])))
        inside = self.inside(inputs, wanted)
        if array:
            labels = Labels("column", array)
        self.check_formats(inputs)
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
            header=self.header,
            skip_lines=self.skip_lines,
            encoding=dialect.encoding,
            float_audio=self.dtype.startswith("float"),
            mono=self.channels == 1,
            own_columns=inside,
            recording_column=self.recording_column,
            max_bytes=max_bytes,
        )
        return SensorJob(
            inputs=replace(inputs, max_bytes=max_bytes),
            labels=self.effective_labels(labels, inputs),
            read_options=read_options,
            dtype=self.dtype,
            encoding=self.encoding,
            extras=extras,
            conditioning=replace(self.conditioning(), max_bytes=max_bytes),
            rows=self.record == "row",
            window_label=self.window_label,
            rate_column=rate_column,
            encodings=self.feature_encodings,
        ).with_schema()

    def encoded_job(self, job: Job, encoding: str) -> FileJob:
        sensor_job, given = cast("SensorJob", job), self.feature_encodings
        arrays = [name for name, f in sensor_job.features.items() if f.shape and not f.is_sequence]
        if not set(arrays) - set(given):
            raise UsageError(f"--encoding {encoding}: the encodings of all arrays are fixed")
        return replace(sensor_job, encodings={**dict.fromkeys(arrays, encoding), **given})

    def warnings(self, job: Job) -> Iterable[str]:
        yield from super().warnings(job)
        yield from cast("SensorJob", job).warnings

    def check_formats(self, inputs: Inputs) -> None:
        """Checks that flags about formats apply to some of the files.

        Raises:
            UsageError: one applies to none.
        """
        # With a --table, these are about the table.
        others = ("delimiter", "text_encoding") if self.table else ()
        for name in FLAGS:
            if name not in others and self.given(name) and not _applies(name, inputs):
                raise UsageError(
                    f"{self.typed(name)}: none of the first files is a {suffixes_with(name)}: drop it"
                )

    def inside(self, inputs: Inputs, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The columns and arrays to read from the recordings, because their metadata lacks them.

        Args:
            wanted: The columns that the job needs.

        Raises:
            UsageError: the recordings are joined, and their columns are not read.
        """
        array = self.label_array
        if self.join and (names := [*filter(None, (array, *wanted))]):
            raise UsageError(
                f"column {names[0]!r}: columns in the files of a --join are not read: add --label "
                "csv:FILE, or put the arrays of each recording into one .npz file"
            )
        known = inputs.first_columns() if wanted else set()
        named = filter(None, (array, self.recording_column))
        return tuple(dict.fromkeys([*(n for n in wanted if n not in known), *named]))


def _applies(flag: str, inputs: Inputs) -> bool:
    return any(
        flag in flags_of(name)
        for source, _ in inputs.first(FILES_TRIED)
        for name in (source.file, *(path for _, path, _, _ in source.joined))
    )
