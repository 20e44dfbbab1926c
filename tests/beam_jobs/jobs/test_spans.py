"""Rates and lengths of time, and what is neither."""

import pytest

from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.conditioning import Span, parse_rate

RATES = {"50Hz": 50, "16kHz": 16e3, "0.5Hz": 0.5, "50": 50, "44.1 KHZ": 44_100, "0.1": 0.1}


@pytest.mark.parametrize(("text", "rate"), RATES.items())
def test_a_rate_is_a_number_of_samples_a_second(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "Hz", "0", "0Hz", "-5Hz", "1e3", "50k", "5MHz", "\u0665", "9" * 400]
)
def test_a_malformed_rate_is_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_rate(text, "--resample")
    expected = f"--resample {text}: expected a rate such as 50Hz, 16kHz or 0.5Hz"
    assert caught.value.message == expected


@pytest.mark.parametrize(
    ("text", "rate", "samples"),
    [
        ("128", None, 128),
        ("128", 50.0, 128),
        ("2s", 50.0, 100),
        ("500ms", 50.0, 25),
        ("10us", 2e6, 20),
        ("0.5 s", 3.0, 1.5),
        ("1s", 44.1, 44.1),
        ("10ms", 22_050.0, 220.5),
        ("1us", 1.0, 1),
    ],
)
def test_a_span_is_a_number_of_samples_or_of_seconds_at_a_rate(text, rate, samples):
    assert Span.parse(text).samples(rate) == samples


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "1.5", "-1", "s", "2m", "2S", "1e3", "9" * 400, "\u0665"]
)
def test_a_malformed_span_is_refused(text):
    with pytest.raises(UsageError) as caught:
        Span.parse(text, "--stride")
    assert caught.value.message.startswith(f"--stride {text}: expected a number of samples such as")


def test_a_span_in_seconds_needs_a_rate():
    with pytest.raises(
        UsageError, match="--window 2s: the recordings do not state their sampling rate"
    ):
        Span.parse("2s").samples(None)
