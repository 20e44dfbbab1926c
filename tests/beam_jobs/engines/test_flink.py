"""What Flink's REST interface says about a job."""

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.engines.remote import flink
from beam_jobs.engines.remote.flink import FlinkJob, NoAnswer, Seen, counters_in, find, jobs_at
from tests.support.flink_service import accumulators, counter


def test_counters_are_summed_over_steps_and_other_metrics_are_left_out():
    text = accumulators(
        counter("parts/found", b"\xe0\xee\x9e\x02"),  # 4,700,000
        counter("parts/found", b"\xac\x02"),  # 300
        counter("parts/encoded", b"\0"),
        counter("parts/found", b"\x09", urn="beam:metric:element_count:v1"),
    )
    assert counters_in(text) == {"parts/found": 4_700_300, "parts/encoded": 0}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"metrics": {"attempted": [{}]}}', "Metrics()"])
def test_an_answer_of_another_form_holds_no_counters(text):
    own = [{"name": "__metricscontainers", "value": text}]
    assert counters_in({"user-task-accumulators": own}) == {}
    assert counters_in({}) == {}


def test_what_flink_says(service):
    service.add("mine", "12ab", files__found=7)
    job = FlinkJob(service.address, "12ab")
    assert job.look() == Seen(1, 3, {"files/found": 7})
    assert job.page == f"{service.address}/#/job/running/12ab/overview"
    assert job.ends_within(0) == ""
    job.cancel()
    assert service.cancelled == ["12ab"] and job.ends_within(0) == "CANCELED"
    job.cancel()  # It has ended.
    assert service.cancelled == ["12ab"]
    with pytest.raises(NoAnswer, match=rf"^{service.address} does not answer \(Not Found\)"):
        FlinkJob(service.address, "none").look()


def test_where_flink_may_be(service, monkeypatch):
    service.add("mine", "12ab")
    port = service.address.rpartition(":")[2]
    found = {service.address: {"12ab"}}
    assert jobs_at(PipelineOptions([]), f" localhost:{port}/ ") == found
    assert jobs_at(PipelineOptions([f"--flink_master=localhost:{port}"]), "") == found
    assert jobs_at(PipelineOptions(["--flink_master=[local]"]), "") == {}
    monkeypatch.setattr(flink, "_PORT", port)
    assert jobs_at(PipelineOptions(["--job_endpoint=localhost:8099"]), "") == found
    assert jobs_at(PipelineOptions([]), "http://localhost:1") == {}
    service.answers["/jobs/overview"] = []
    assert jobs_at(PipelineOptions([]), service.address) == {}


def test_a_job_is_found_by_its_name_unless_there_are_two(service):
    service.add("mine", "a")
    service.add("other", "b")
    mine = FlinkJob(service.address, "a")
    assert find("mine", {service.address: set()}) == mine
    assert find("mine", {service.address: {"a"}}) is None
    service.add("mine", "c")
    assert find("mine", {service.address: set()}) is None
    assert find("mine", {service.address: {"c"}}) == mine
