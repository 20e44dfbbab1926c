"""All flags of the sensors job: what a recording is, and how it becomes records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, cast

from beam_jobs.cli.flags import flag, names_in
from beam_jobs.cli.sensors.recordings import RecordingFlags
from beam_jobs.errors import UsageError
from beam_jobs.jobs.encodings import parse_encodings
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.jobs.sensors.arrays import NanPolicy
from beam_jobs.jobs.sensors.conditioning import Conditioning, Span, parse_rate
from beam_jobs.jobs.sensors.formats.registry import suffixes_with
from beam_jobs.jobs.sensors.read_options import ReadOptions, TimeUnit
from beam_jobs.jobs.sensors.recording import TimesPolicy
from beam_jobs.jobs.sensors.sensor_job import SensorJob
from beam_jobs.jobs.sensors.windows import check_window_label
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.rows import DEFAULT
from beam_jobs.sources.source import COLUMN

# Flags that do nothing to rows, which have no time.
_NOT_OF_ROWS = (
    "join",
    "recording_column",
    "rate",
    "time_column",
    "resample",
    "window",
    "sequence",
)


@dataclass(frozen=True)
class SensorFlags(RecordingFlags):
    """The flags of the sensors job."""

    title = "records"

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
    last_window: Literal["drop", "pad"] = flag(
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
    sequence: bool = flag(
        False,
        "a recording is one record with a list of arrays of different lengths: its arrays, its "
        "windows, or its parts between gaps",
        unset="no",
    )

    def validate(self) -> None:
        super().validate()
        if self.rate == COLUMN:
            raise UsageError(f"--rate {self.rate}: expected a name, such as column:rate_hz")
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
        if self.window_label != SensorFlags.window_label:
            self._check_window_label()
        if self.record == "row":
            for name in _NOT_OF_ROWS:
                if value := getattr(self, name):
                    given = "" if value is True else f" {value}"
                    raise UsageError(
                        f"--{name}{given}: this is about recordings, not --record row: drop one"
                    )
        self.conditioning()

    def _check_window_label(self) -> None:
        check_window_label(self.window_label)
        if not self.window or self.sequence:
            cure = "drop --sequence" if self.sequence else "add --window"
            raise UsageError(
                f"--window_label {self.window_label}: only windows have such labels: {cure}"
            )
        if not self.labels_samples:
            raise UsageError(
                f"--window_label {self.window_label}: --label {self.label} labels whole files; "
                "name the labels of samples, such as --label column:activity"
            )

    def conditioning(self) -> Conditioning:
        """The steps from a recording to its records.

        Raises:
            UsageError: A flag is malformed, or needs another one.
        """
        pad = self.last_window == "pad"
        if self.stride and not self.window:
            raise UsageError(f"--stride {self.stride} sets where windows begin: add --window")
        if pad and not self.window:
            raise UsageError("--last_window pad completes windows with zeros: add --window")
        if pad and self.sequence:
            raise UsageError("--last_window pad: a --sequence has no padded windows: drop one")
        if self.max_gap and not self.resample:
            raise UsageError(f"--max_gap {self.max_gap} limits interpolation: add --resample")
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
            pad=pad,
        )

    def make_job(self, columns: tuple[str, ...], output: str, max_bytes: int) -> SensorJob:
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
            encoding=dialect.encoding,
            float_audio=self.dtype.startswith("float"),
            mono=self.channels == 1,
            own_columns=inside,
            recording_column=self.recording_column,
            max_bytes=max_bytes,
        )
        return SensorJob(
            inputs=replace(inputs, max_bytes=max_bytes),
            labels=labels,
            read_options=read_options,
            dtype=self.dtype,
            encoding=self.encoding,
            extras=extras,
            conditioning=replace(self.conditioning(), max_bytes=max_bytes),
            rows=self.record == "row",
            window_label=self.window_label,
            rate_column=rate_column,
            encodings=parse_encodings(self.encodings),
        ).with_schema()

    def warnings(self, job: RecordJob) -> Iterable[str]:
        return cast(SensorJob, job).warnings
