"""Recordings that other programs were reported to read wrongly, made again from the reports.

A report is named by its repository and number. The values are those of the report, or what its
fields' reference programs read.
"""

import io
import struct
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
import scipy.io

from tests.support.recordings import edf, parquet, read, rejected

NAN = np.nan


def report(name: str, kind: str, data: bytes | str, expected, **options):
    """A case: the report's name, a file, and its signal as `read_recording` gives it."""
    data = data.encode() if isinstance(data, str) else data
    return pytest.param(kind, data, options, expected, id=name)


def wav(
    samples: np.ndarray,
    form: bytes = struct.pack("<HHIIHH", 1, 1, 8000, 16_000, 2, 16),
    size: int | None = None,
    whole_size: int | None = None,
    end: bytes = b"",
) -> bytes:
    audio = samples.tobytes()
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", len(audio) if size is None else size) + audio + end
    whole = len(body) if whole_size is None else whole_size
    return b"RIFF" + struct.pack("<I", whole) + body


def extensible(valid_bits: int, bits: int) -> bytes:
    """The format of PCM of which only the upper bits are used."""
    frame = bits // 8
    head = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 8000, 8000 * frame, frame, bits, 22, valid_bits, 4)
    return head + bytes.fromhex("0100000000001000800000aa00389b71")


def netcdf(values: np.ndarray, **attributes) -> bytes:
    buffer = io.BytesIO()
    file = scipy.io.netcdf_file(buffer, "w")
    file.createDimension("time", len(values))
    variable = file.createVariable("v", values.dtype.str[1:], ("time",))
    variable[:] = values
    for name, value in attributes.items():
        setattr(variable, name, value)
    file.flush()
    return buffer.getvalue()


def feather(**columns) -> bytes:
    buffer = io.BytesIO()
    pyarrow.feather.write_feather(pa.table(columns), buffer)
    return buffer.getvalue()


def changed(*pairs: tuple[bytes, bytes]) -> bytes:
    """The EDF file of the other tests with other fields in its header."""
    data, _ = EDF
    for old, new in pairs:
        assert data.count(old) == 1
        data = data.replace(old, new)
    return data


def annotated() -> bytes:
    """The same file with annotations in place of the second signal."""
    data = changed((b"EEG 1           ", b"EDF Annotations "))
    times = b"+0\x14\x14".ljust(8, b"\0")
    blocks = (data[at : at + 8] + times for at in range(768, len(data), 16))
    return data[:768] + b"".join(blocks)


EDF = edf()
SIGNALS = np.stack(EDF[1], 1)
RANGE = b"-100    -100    100     100     "
SWAPPED = b"100     100     -100    -100    "
RATES = (b"3       1       2   ", b"3       0.3     2   ")

SHORTS = np.array([1, -2, 3], "<i2")
WIDE = np.array([1, -1, 8_388_607, -8_388_608], "<i4") << 8
LOUD = np.array([0.5, -5, 7.25], "<f4")
FLOATS = struct.pack("<HHIIHH", 3, 1, 8000, 32_000, 4, 32)
BYTES = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
LIST = b"LIST\x04\0\0\0INFO"

OPENBCI = """%OpenBCI Raw EEG Data
%Number of channels = 1
%Sample Rate = 250 Hz
Sample Index, EXG Channel 0, Other, Other, Timestamp, Timestamp (Formatted)
0.0, -187500.02235174447, 192.0, 0.0, 1.671576040953868E9, 2022-12-20 16:40:40.953
1.0, -187500.02235174447, 193.0, 0.5, 1.671576040957868E9, 2022-12-20 16:40:40.957
"""
OPENBCI_ROWS = [[0, -187500.02235174447, 192, 0], [1, -187500.02235174447, 193, 0.5]]
GENEACTIV = '"time","x"\n"2018-07-05 09:24:51.00",0.25\n"2018-07-05 09:24:51.049",0.5\n'
UNITS = (
    "Datetime;M1;M2\n;[°C];[K]\n2020-08-14 22:00:00;256.698;0.3722\n2020-08-14 22:10:00;-1.5;2\n"
)
KEYSIGHT = "\r\nx-axis,TX1\r\nsecond,Volt\r\n-113.431850E-03,+4.938284392E+00\r\n"
FLUKE = "v\tn\n9.99999999e+37\t0\n0.0488\t10\n"
MALI = "Current,v\n2023-06-19 14:57:48.088373,0.583\n"


RIGHT = [
    report("OpenBCI/OpenBCI_GUI#1108", "txt", OPENBCI, OPENBCI_ROWS),
    report("BurntSushi/xsv#245", "csv", UNITS, [[256.698, 0.3722], [-1.5, 2]]),
    report("carlos-jenkins/csv2vcd#3", "csv", KEYSIGHT, [[-0.113431850, 4.938284392]]),
    report("StingraySoftware/HENDRICS#109", "csv", 'x,of\n1,"fpma,fpmb"\n', [[1]], drop_columns=("of",)),
    report("apache/iotdb#11308", "csv", b"\xef\xbb\xbft,x\r\n0,1\r\n1,2", [[1], [2]]),
    report("N0ury/dmm_util#26", "tsv", FLUKE, [[9.99999999e37, 0], [0.0488, 10]]),
    report("myokit/myokit#1090", "csv", "I,I\n1,2\n3,4\n", [[1, 2], [3, 4]]),
    report("iver56/audiomentations#90", "wav", wav(WIDE, extensible(24, 32)), WIDE[:, None]),
    report("librosa/librosa#696", "wav", wav(LOUD, FLOATS), LOUD[:, None], float_audio=True),
    report("libsndfile/libsndfile#887", "wav", wav(np.uint8([1, 2, 3]), BYTES, end=b"\0" + LIST),
           [[1], [2], [3]]),
    report("afarhan/sbitx#16", "wav", wav(SHORTS, size=2**32 - 1, whole_size=35), SHORTS[:, None]),
    report("mne-tools/mne-python#4305", "edf", changed((b"EEG 1", b"EEG 0")), SIGNALS),
    report("mne-tools/mne-python#9187", "edf", changed((b"uV      uV", b"\xb5V      \xb5V")), SIGNALS),
    report("mne-tools/mne-python#3790", "edf", annotated(), SIGNALS[:, :1]),
    report("fieldtrip/fieldtrip#685", "edf", changed((RANGE, SWAPPED)), -SIGNALS),
    report("pydata/xarray#997", "nc", netcdf(np.float32([1, NAN]), _FillValue=np.float32(NAN),
           missing_value=np.float32(NAN)), [1, NAN]),
    report("pydata/xarray#1601", "nc", netcdf(np.float32([1, -999.99]),
           _FillValue=np.float32(-999.99), missing_value=-999.99), [1, NAN]),
    report("Unidata/netcdf4-python#784", "nc", netcdf(np.int32([4, 5, 6]), _FillValue=np.int32(5)),
           [4, NAN, 6]),
    report("ORAC-CC/orac#66", "nc", netcdf(np.int16([-999, -1998, 5]), _FillValue=np.int16(-999),
           scale_factor=0.5), [NAN, -999, 2.5]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "options", "expected"), RIGHT)
def test_values_that_were_reported_wrong(kind, data, options, expected):
    (found,) = read(kind, data, **options).arrays.values()
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-9, atol=1e-9)


# Times, in seconds since 1970.

SECOND = timedelta(seconds=1)
START = datetime(2021, 3, 28, 1, 59, 59)
SUMMER = "t,x\n2021-03-28T01:59:59+01:00,1\n2021-03-28T03:00:00+02:00,2\n"
STAMPS = [START, START + SECOND]
UTC = 1_616_896_799.0  # of `START`

TIMES = [
    report("robmarkcole/HASS-data-detective#26", "csv", SUMMER, [UTC - 3600, UTC - 3599]),
    report("OxWearables/stepcount#120", "csv", GENEACTIV.replace("time", "t"),
           [1_530_782_691.0, 1_530_782_691.049]),
    report("apache/datafusion#9981", "parquet", parquet({"t": STAMPS, "x": [1.0, 2.0]},
           use_deprecated_int96_timestamps=True), [UTC, UTC + 1]),
    report("CMBSciPol/furax#145", "jsonl", '{"t": 1616896799.25, "x": 1}\n', [UTC + 0.25]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "options", "expected"), TIMES)
def test_times_that_were_reported_wrong(kind, data, options, expected):
    np.testing.assert_array_equal(read(kind, data, time_column="t").times, expected)


def test_the_rate_of_edf_whose_blocks_are_not_a_second_long():
    """holgern/pyedflib#179."""
    assert read("edf", changed(RATES)).rate == pytest.approx(4 / 0.3)


def test_text_and_categories_of_other_engines():
    """apache/arrow#45523 (views of strings, as Polars writes them) and duckdb/duckdb#4130 (uint8 codes)."""
    labels = pa.array(["walk", "run", "walk"], pa.string_view())
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], "uint8"), ["b", "a"])
    found = read(
        "feather", feather(x=[1.0, 2.0, 3.0], s=labels, c=codes), own_columns=("s", "c")
    ).columns
    assert found["s"].of_rows() == ["walk", "run", "walk"]
    assert found["c"].of_rows() == ["b", "a", "b"]


# Files that no program can read rightly: a part of the reason that is given.

RAGGED = "Timestamp,X,Y,Z\n0.002\n0.023\n"
AIR = "Time;P1\n2017/10/15 00:02:04;19.23;10.80\n"
TWICE = "t,x\n0,1\nt,x\n1,2\n"

REJECTED = [
    report("KalebKE/AccelerationExplorer#11", "csv", RAGGED, "row 1 has 1 values, not 4"),
    report("opendata-stuttgart/madavi-api#8", "csv", AIR, "row 1 has 3 values, not 2", delimiter=";"),
    report("smarr/ReBench#223", "csv", TWICE, "column 'x' is not numeric: 'x' in row 2"),
    report("Rello/analytics#357", "csv", MALI, "column 'Current' is not numeric"),
    report("webspiderteam/Bluetooth-DMM-For-Windows#13", "csv", "v\n12.5 mV\n", "'12.5 mV' in row 1"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "options", "expected"), REJECTED)
def test_files_that_nobody_can_read_rightly_are_rejected(kind, data, options, expected):
    assert expected in rejected(kind, data, **options)
