"""The graphs that runners get: small, readable, and without anything that grows with the inputs."""

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from examples.samples import make_samples
from tests.support.commands import parse_command

FLAGS = {
    "images": ["--image_size", "16x16", "--num_shards", "2"],
    "text": ["--label_field", "label", "--tokens", "words", "--splits", "train=0.8,val=0.2"],
}

# The steps whose outputs every worker of another step holds: plans, names, words, counts, figures of
# shards, and a summary of each bundle of listed inputs, but never records or references to them.
SMALL = (
    *("Read/Plan/Summarise", "Read/Plan/Draft", "Read/Plan/PickBoundaries", "Read/Plan/Finish"),
    *("Read/Plan/CheckPasses", "Read/List", "Read/LabelNames", "Read/Marks", "Read/Smallest"),
    *("Read/Frequent", "Read/Schema"),
    *("Read/Cut", "Read/ListTasks/Cut", "Read/ListTasks/List", "Read/Plan/CutDraft"),
    *("Read/Plan/CutPlan", "Written", "WriteRuns/Count", "CommitDataset"),
)


@pytest.fixture(scope="module", params=FLAGS)
def graph(tmp_path_factory, request):
    """(job, the names of its inputs, its graph)."""
    folder, job = tmp_path_factory.mktemp("in"), request.param
    make_samples(folder, per_class=2)
    command = [job, "--input", f"{folder}/{job}", "--output", f"{folder}/out", *FLAGS[job]]
    pipeline = beam.Pipeline()
    pipeline | job.capitalize() >> parse_command(command).transform
    inputs = [path.name for path in folder.rglob("*.*")]
    return job, inputs, pipeline.to_runner_api()


def test_steps_have_readable_names_and_nothing_large(graph):
    job, inputs, found = graph
    steps = found.components.transforms.values()
    names = [step.unique_name for step in steps if step.unique_name.startswith(job.capitalize())]
    write = "Write" if job == "images" else "WriteRuns/Write"
    assert {write, "CommitDataset/Commit", "CommitDataset/PlanMoves"} <= {
        name.partition("/")[2] for name in names
    }
    beams = ("FlatMap(<lambda at core.py", "Map(decode)")
    own = [name for name in names if not name.rpartition("/")[2].startswith(beams)]
    assert not [name for name in own if "lambda" in name or "object at" in name]
    assert max(len(step.spec.payload) for step in steps) < 16 << 10
    data = found.SerializeToString()
    assert len(data) < 256 << 10 and not [name for name in inputs if name.encode() in data]


def test_side_inputs_are_plans_names_and_figures(graph):
    steps = graph[2].components.transforms.values()
    makers = {
        pcollection: step.unique_name.partition("/")[2]
        for step in steps
        if not step.subtransforms
        for pcollection in step.outputs.values()
    }
    sides = 0
    for step in steps:
        if step.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
            for tag in payload.side_inputs:
                maker = makers[step.inputs[tag]]
                small = any(f"{maker}/".startswith(f"{name}/") for name in SMALL)
                last = maker.rpartition("/")[2]
                assert small or last.startswith("Cut"), maker  # Or something small in pieces.
                sides += 1
    assert sides > 5
