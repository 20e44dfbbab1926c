"""Jobs on engines: what their answers say, the lines about them, and what finds them again."""

import base64
import io
import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from beam_jobs.engines.flags import job_name
from beam_jobs.engines.remote import dataflow, flink, job_service, spark, watch
from beam_jobs.engines.remote.counters import COUNTER, counters_in
from beam_jobs.engines.remote.job import NoAnswer, RemoteJob, Seen
from beam_jobs.engines.remote.lines import Lines, Phase, Shards, phase_of
from beam_jobs.engines.remote.look import addresses, cancel, engine_of, located, look, page_of
from beam_jobs.engines.remote.rest import ask
from tests.engines.services import free_ports

JOB = RemoteJob("flink", "beam-shards-text-out", "host:8099", "beam-1", "http://host:8081", "12ab")


def info(name, value, step="s1", urn=COUNTER):
    namespace, _, short = name.partition("/")
    digits = []
    while value >= 128:
        digits.append(value % 128 + 128)
        value //= 128
    payload = base64.b64encode(bytes([*digits, value])).decode()
    labels = {"NAMESPACE": namespace, "NAME": short, "PTRANSFORM": step}
    return {"urn": urn, "type": "beam:metrics:sum_int64:v1", "payload": payload, "labels": labels}


def metrics(*infos):
    return json.dumps({"metrics": {"attempted": list(infos)}})


def test_counters_are_summed_over_steps_and_other_metrics_are_left_out():
    text = metrics(
        info("parts/found", 4_700_000),
        info("parts/found", 300, "s2"),
        info("parts/encoded", 0),
        info("parts/found", 9, urn="beam:metric:element_count:v1"),
    )
    assert counters_in(text) == {"parts/found": 4_700_300, "parts/encoded": 0}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"metrics": {"attempted": [{}]}}', "Metrics()"])
def test_a_text_of_another_form_holds_no_counters(text):
    assert counters_in(text) == {}


def vertices(*states):
    return [{"name": f"v{number}", "status": state} for number, state in enumerate(states)]


def test_what_flink_says():
    found = flink.seen_in(
        {"state": "RUNNING", "vertices": vertices("FINISHED", "RUNNING", "CREATED")},
        {
            "user-task-accumulators": [
                {"name": "other", "value": "1"},
                {"name": "__metricscontainers", "value": metrics(info("files/found", 7))},
            ]
        },
        {"taskmanagers": [{"id": "a"}, {"id": "b"}]},
        {},
    )
    assert found == Seen("running", 1, 3, {"files/found": 7}, workers=2)


def test_what_flink_says_about_a_job_that_failed():
    exceptions = {
        "root-exception": "older",
        "exceptionHistory": {"entries": [{"stacktrace": "a.B: c"}, {"stacktrace": "older"}]},
    }
    job = {"state": "FAILED", "vertices": []}
    assert flink.seen_in(job, {}, {"taskmanagers": []}, exceptions) == Seen(
        "failed", workers=0, trace="a.B: c"
    )
    assert flink.seen_in(job, {}, {}, {"root-exception": "older"}).trace == "older"
    assert flink.seen_in(job, {}, {}, {"root-exception": None}).trace == ""


@pytest.mark.parametrize(
    ("state", "expected"),
    [("CREATED", "starting"), ("RESTARTING", "running"), ("CANCELED", "cancelled")],
)
def test_the_states_of_flink(state, expected):
    assert flink.seen_in({"state": state}, {}, {}, {}).state == expected


def test_what_spark_says():
    stages = [{"status": status} for status in ("ACTIVE", "COMPLETE", "COMPLETE", "PENDING")]
    executors = [("driver", True), ("0", False), ("1", True)]
    found = spark.seen_in(stages, [{"id": id_, "isActive": active} for id_, active in executors])
    assert found == Seen("running", 2, workers=1)


def test_counters_of_dataflow_are_those_that_include_unfinished_work():
    def metric(name, value, tentative, origin="user"):
        context = {
            "namespace": "shards",
            "step": "s",
            **({"tentative": "true"} if tentative else {}),
        }
        named = SimpleNamespace(origin=origin, name=name, context=context)
        return SimpleNamespace(name=named, scalar=value)

    found = dataflow.counters_of(
        [
            metric("records", 9.0, True),
            metric("records", 4.0, False),
            metric("records", 5.0, True),
            metric("written", 2.0, False),
            metric("ElementCount", 100.0, False, "dataflow/v1b3"),
            metric("sizes", None, False),
        ]
    )
    assert found == {"shards/records": 14, "shards/written": 2}


FOUND = {"parts/found": 1000, "files/bytes": 3 << 20}


@pytest.mark.parametrize(
    ("counters", "shards", "phase"),
    [
        ({}, Shards(), Phase()),
        ({"files/found": 7}, Shards(), Phase("listing", 7, 0, "files")),
        ({"files/found": 7, "files/planned": 5}, Shards(), Phase("planning", 5, 7, "files")),
        ({"files/chunks": 3}, Shards(), Phase("listing", 3, 0, "pieces of files")),
        (FOUND, Shards(), Phase("reading", 1000)),
        (FOUND | {"parts/encoded": 400}, Shards(), Phase("encoding", 400, 1000)),
        (FOUND | {"parts/encoded": 990}, Shards(1, 8), Phase("writing", 1, 8, "shards")),
        (
            FOUND | {"shards/records": 30, "shards/rejected": 2},
            Shards(1, 8),
            Phase("writing", 32, 1000),
        ),
    ],
)
def test_the_phase_of_a_job_is_the_last_one_that_has_counted_something(counters, shards, phase):
    assert phase_of(counters, shards) == phase


def test_lines_show_what_is_done_how_fast_and_how_long_it_takes():
    lines = Lines("flink")
    seen = Seen("running", 0, 14, workers=2)
    assert lines.line(0, seen, Shards()) == "running; 0 of 14 stages"
    seen = replace(seen, stages_done=4, counters=FOUND | {"parts/encoded": 100})
    lines.line(10, seen, Shards())
    seen = replace(seen, stages_done=5, counters=FOUND | {"parts/encoded": 400})
    assert lines.line(20, seen, Shards()) == (
        "encoding: 400 of 1,000 records, 30/s, 00:20 left; 5 of 14 stages; 3.0 MiB of inputs"
    )
    lines.line(30, seen, Shards(1, 8))
    seen = replace(seen, stages_done=9)
    # For a moment, a shard that is changed has no note.
    for seconds, done in ((50, 3), (60, 2)):
        text = lines.line(seconds, seen, Shards(done, 8))
    assert text == "writing: 01:15 left; 9 of 14 stages; 3 of 8 shards; 3.0 MiB of inputs"
    seen = replace(seen, counters=seen.counters | {"shards/records": 500, "shards/bytes": 2 << 20})
    assert lines.line(70, seen, Shards(8, 8)) == (
        "writing: 500 of 1,000 records; 9 of 14 stages; 8 of 8 shards; 2.0 MiB written"
    )


def test_a_line_says_how_long_nothing_has_moved():
    lines = Lines("flink")
    seen = Seen("running", 3, 14, FOUND)
    texts = {seconds: lines.line(seconds, seen, Shards(1, 2)) for seconds in (0, 299, 300, 700)}
    assert ["no counter moved" in text for text in texts.values()] == [False, False, True, True]
    assert texts[700].endswith(
        "; no counter moved for 11 minutes (docs/engines.md#what-is-going-on)"
    )
    assert "no counter" not in lines.line(710, replace(seen, stages_done=4), Shards(1, 2))


@pytest.mark.parametrize(
    ("engine", "named"), [("flink", "TaskManager"), ("spark", "executor"), ("", "worker")]
)
def test_a_line_says_that_nothing_answers_and_why_a_job_starts_again(engine, named):
    seen = Seen("running", 3, 14, workers=0, trace="a.B: c\nCaused by: d.E: lost the machine")
    assert Lines(engine).line(0, seen, Shards()) == (
        f"running; 3 of 14 stages; no {named} answers; it starts again after: d.E: lost the machine"
    )


def test_a_line_names_the_error_of_a_job_that_starts_again_in_its_own_words():
    trace = (
        "java.lang.RuntimeException: Error received from SDK harness: Traceback (most recent call last):\n"
        '  File "passes.py", line 165, in read\n'
        "beam_jobs.errors.DataError: walk/broken.npy: not a whole .npy file [while running 'Job/Read']\n"
        "\n\tat org.apache.flink.Task.run(Task.java:12)"
    )
    assert Lines("flink").line(0, Seen("running", trace=trace), Shards()) == (
        "running; it starts again after: walk/broken.npy: not a whole .npy file"
    )


def test_a_job_is_found_again_from_its_note():
    assert RemoteJob.parse(JOB.to_bytes()) == JOB


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[]", b'{"engine": "flink"}', b'{"engine": 3, "name": "x"}', b"\xff"]
)
def test_anything_else_is_no_note(note):
    assert RemoteJob.parse(note) is None


@pytest.mark.parametrize(
    ("engine", "flags", "given", "expected"),
    [
        ("flink", ["--job_endpoint=jobs:8099"], "", ["http://jobs:8081"]),
        ("flink", ["--job_endpoint=jobs:8099"], "host:80/flink/", ["http://host:80/flink"]),
        (
            "flink",
            ["--flink_master=master:8081"],
            "",
            ["http://master:8081", "http://localhost:8081"],
        ),
        ("flink", ["--flink_master=https://m"], "https://n", ["https://n"]),
        ("flink", ["--flink_master=[local]"], "", ["http://localhost:8081"]),
        ("spark", ["--job_endpoint=[::1]:8099"], "", ["http://[::1]:4040"]),
        ("prism", ["--job_endpoint=jobs:8073"], "http://x", []),
        ("dataflow", [], "", []),
        ("", ["--job_endpoint=jobs:8099"], "", []),
    ],
)
def test_where_the_page_of_an_engine_may_be(engine, flags, given, expected):
    assert addresses(engine, PipelineOptions(flags), given) == expected


@pytest.mark.parametrize(
    ("flags", "asked", "engine"),
    [
        (["--runner=PortableRunner"], "flink", "flink"),
        (["--runner=PortableRunner"], "direct", ""),
        (["--runner=SparkRunner"], "direct", "spark"),
        (["--runner=DataflowRunner"], "dataflow", "dataflow"),
        (["--runner=apache_beam.runners.portability.flink_runner.FlinkRunner"], "direct", "flink"),
    ],
)
def test_the_engine_of_a_job(flags, asked, engine):
    assert engine_of(PipelineOptions(flags), asked) == engine


def test_pages_of_jobs():
    assert page_of(JOB) == "http://host:8081/#/job/running/12ab/overview"
    assert page_of(replace(JOB, id="")) == ""
    assert page_of(RemoteJob("prism", "n", "host:1", "i")) == ""
    page = page_of(RemoteJob("dataflow", "n", service_id="i", project="p", region="r"))
    assert page == "https://console.cloud.google.com/dataflow/jobs/r/i?project=p"


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("/data/Shards_1", "beam-shards-text-data-shards-1"),
        ("gs://bucket/a.b/", "beam-shards-text-gs-bucket-a-b"),
        ("/日本", "beam-shards-text"),
    ],
)
def test_the_name_of_a_job_has_the_characters_that_dataflow_allows(output, name):
    assert job_name("text", output) == name


def test_names_of_jobs_of_long_outputs_are_short_and_differ():
    outputs = [f"s3://a-bucket/{'x' * 50}/{place}/the/same/end/of/all/of/these" for place in "ab"]
    names = {job_name("sensors", output) for output in outputs}
    assert len(names) == 2 and all(len(name) <= 63 for name in names)
    assert all("-the-same-end-of-all-of-these-" in name for name in names)


def test_silent_engines_are_named():
    (port,) = free_ports(1)
    address = f"http://localhost:{port}"
    with pytest.raises(NoAnswer, match=rf"^{address} does not answer \(.*refused"):
        ask(address, "/jobs/overview")
    options = PipelineOptions([])
    job = replace(JOB, service=f"localhost:{port}", address=address)
    with pytest.raises(NoAnswer, match=f"the job service localhost:{port} does not answer"):
        look(job, options)
    state, line = cancel(job, options)
    assert state == "running"
    assert line.startswith(f"the job {JOB.name} (12ab) may continue: {address} does not answer")
    assert line.endswith(f"; cancel it with `curl -X PATCH '{address}/jobs/12ab?mode=cancel'`")
    unknown = replace(job, id="", address="")
    assert located(unknown, {address: set()}) == unknown
    with pytest.raises(NoAnswer, match="the job service that Beam started ended with its command"):
        job_service.look("", "beam-1")


def test_an_address_of_something_else_is_named(tmp_path):
    address = tmp_path.as_uri()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/overview").write_text("[]")
    with pytest.raises(NoAnswer, match="is not the address of Flink's JobManager"):
        flink.job_ids(address)
    (tmp_path / "jobs/overview").write_text("<html>")
    with pytest.raises(NoAnswer, match="does not answer"):
        flink.job_ids(address)


def test_the_latest_job_of_a_name_is_found(tmp_path):
    jobs = [
        {"jid": jid, "name": name, "start-time": 1000 * seconds}
        for jid, name, seconds in (
            *(("a", "mine", 1000), ("b", "mine", 1010), ("c", "other", 1020)),
            *(("d", "mine", 1030), ("e", "mine", 500)),
        )
    ]
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/overview").write_text(json.dumps({"jobs": jobs}))
    address = tmp_path.as_uri()
    assert flink.find(address, "mine", 1000, set()) == "d"
    assert flink.find(address, "mine", 1000, {"d"}) == "b"
    assert flink.find(address, "mine", 1000, {"a", "b", "d"}) == ""
    found = located(replace(JOB, name="mine", id="", submitted=1000), {address: {"d"}})
    assert (found.id, found.address) == ("b", address)


@pytest.mark.parametrize("late", [0, 2])
def test_the_note_of_a_job_that_failed_is_deleted_though_the_page_is_old(monkeypatch, late):
    states = itertools.chain(["RUNNING"] * late, itertools.repeat("FAILED"))

    def answer(address, path, method="GET"):
        return {
            "/jobs/overview": {"jobs": []},
            "/taskmanagers": {"taskmanagers": [{}]},
            "/jobs/12ab/exceptions": {"root-exception": "java.lang.Exception: full"},
            "/jobs/12ab": {"state": next(states)} if path == "/jobs/12ab" else {},
        }.get(path, {})

    monkeypatch.setattr(flink, "ask", answer)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    notes = []
    follow = watch.Follow("flink", JOB.address, False, "status", Shards, notes.append)
    followed = watch.Watch(
        follow, PipelineOptions([f"--job_endpoint={JOB.service}"]), io.StringIO()
    )
    monkeypatch.setattr(followed._thread, "run", lambda: None)
    followed.begin(JOB)
    trace, cause = followed.failure()
    assert (trace, cause) == ("java.lang.Exception: full",) * 2
    assert notes == [JOB, None]


@pytest.fixture
def job_server():
    servicer = LocalJobServicer()
    port = servicer.start_grpc_server()
    yield f"localhost:{port}"
    servicer.stop()


def test_a_job_service_that_was_restarted_does_not_know_a_job(job_server):
    with pytest.raises(NoAnswer, match=f"the job service {job_server} does not"):
        job_service.look(job_server, "beam-1")


def test_ids_of_all_engines_are_shown():
    for engine, id_ in itertools.product(("flink", "prism", ""), ("", "12ab")):
        job = RemoteJob(engine, "n", "host:1", "beam-1", id=id_)
        assert job.shown_id == (id_ or "beam-1")
        assert job.title in ("Flink", "Prism", "the job service host:1")
