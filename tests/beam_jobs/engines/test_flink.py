"""What Flink's REST interface says about jobs."""

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.engines.flink import FlinkJob, NoAnswer, addresses, jobs_at


def test_what_flink_says(service):
    service.add("mine", "12ab")
    job = FlinkJob(service.address, "12ab")
    assert job.page == f"{service.address}/#/job/running/12ab/overview"
    assert job.ends_within(0) == ""
    job.cancel()
    assert service.cancelled == ["12ab"] and job.ends_within(0) == "CANCELED"
    job.cancel()  # It has ended.
    assert service.cancelled == ["12ab"]
    with pytest.raises(NoAnswer, match=rf"^Flink at {service.address} answers 404 \(Not Found\)"):
        FlinkJob(service.address, "none").ends_within(0)
    with pytest.raises(NoAnswer, match=r"^Flink does not answer at http://localhost:1 \("):
        jobs_at("http://localhost:1", "mine")


@pytest.mark.parametrize(
    ("flags", "page", "found"),
    [
        ([], " localhost:1/ ", ["http://localhost:1"]),
        (["--flink_master=a:1"], "", ["http://localhost:8081", "http://a:1"]),
        (["--flink_master=[local]"], "", ["http://localhost:8081"]),
        (["--job_endpoint=b:8099"], "", ["http://b:8081"]),
        ([], "https://c", ["https://c"]),
    ],
)
def test_where_flink_may_be(flags, page, found):
    assert addresses(PipelineOptions(flags), page) == found


def test_the_jobs_of_a_name_are_listed(service):
    service.add("mine", "a", "FINISHED")
    service.add("other", "b")
    service.add("mine", "c")
    mine = {FlinkJob(service.address, "a"): False, FlinkJob(service.address, "c"): True}
    assert jobs_at(service.address, "mine") == mine
    service.answers["/jobs/overview"] = []
    with pytest.raises(NoAnswer, match="is not the address of Flink's JobManager"):
        jobs_at(service.address, "mine")
