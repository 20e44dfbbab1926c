import io

from beam_jobs.engines.launch import _WithoutTracebacks


def test_only_tracebacks_are_left_out():
    shown = io.StringIO()
    stream = _WithoutTracebacks(shown)
    for text in (
        "warning: one",
        "\n",
        "Traceback (most recent call last):\n  File ...",
        "\n",
        "two",
        "\n",
    ):
        assert stream.write(text) == len(text)
    assert shown.getvalue() == "warning: one\ntwo\n"
