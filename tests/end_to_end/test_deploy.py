"""The manifests of docs/deploy: their schemas, their settings, and the flags of their jobs."""

import json
import os
import re
import subprocess
import sys

import boto3
import jsonschema
import pytest
import yaml

from beam_jobs.__main__ import main
from tests.end_to_end.test_readme import unknown_flags
from tests.engines.flink import Flink
from tests.engines.java import OPENS
from tests.engines.packages import kubernetes_validate
from tests.engines.pool import Pool
from tests.engines.running import engine_of_module
from tests.support.checkout import ROOT
from tests.support.datasets import files_of, write_recordings

DEPLOY = ROOT / "docs/deploy"
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))
KUBERNETES = "1.37"

flink = engine_of_module(Flink)
pool = engine_of_module(Pool)


def manifest(name):
    return yaml.safe_load((DEPLOY / name).read_text())


CLUSTER, JOB = manifest("flink/cluster.yaml"), manifest("flink/job.yaml")
EXECUTOR = manifest("spark/executor.yaml")


def containers(pod):
    """Name -> container of the spec of a pod."""
    return {found["name"]: found for found in [*pod.get("initContainers", []), *pod["containers"]]}


DRIVER = containers(JOB["spec"]["template"]["spec"])["driver"]
TASK_MANAGER = CLUSTER["spec"]["taskManager"]
POOLS = {
    "flink": containers(TASK_MANAGER["podTemplate"]["spec"])["beam-worker-pool"],
    "spark": containers(EXECUTOR["spec"])["beam-worker-pool"],
}


def core_kinds():
    """What Kubernetes itself knows of the manifests; a pod for each template of one."""
    for path in MANIFESTS:
        found = yaml.safe_load(path.read_text())
        if found["apiVersion"].startswith("flink.apache.org/"):
            for part in ("jobManager", "taskManager"):
                if template := found["spec"][part].get("podTemplate"):
                    yield {"apiVersion": "v1", "kind": "Pod", **template}
        else:
            yield found


def validated(kind, file):
    """What the validator says of one of Kubernetes' own kinds."""
    file.write_text(yaml.safe_dump({**kind, "metadata": {"name": "any"}}))
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", KUBERNETES, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(kubernetes_validate())}
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


@pytest.mark.environments
def test_the_manifests_fit_the_schemas_of_kubernetes(tmp_path):
    found = list(core_kinds())
    assert [kind["kind"] for kind in found] == ["Pod", "Job", "Pod"]
    for kind in found:
        assert " passed for resource " in validated(kind, tmp_path / "right.yaml")
        wrong = {**kind, "spec": {**kind["spec"], "unknown": 1}}
        assert "did not validate" in validated(wrong, tmp_path / "wrong.yaml")


def test_the_cluster_fits_the_schema_of_flinks_operator():
    schema = json.loads((ROOT / "tests/end_to_end/flink_deployment.json").read_text())
    jsonschema.validate(CLUSTER["spec"], schema)
    (snippet,) = re.findall(r"```yaml\n(.*?)```", (DEPLOY / "flink.md").read_text(), re.S)
    application = {**CLUSTER["spec"], **yaml.safe_load(snippet)}
    jsonschema.validate(application, schema)
    for field in ("podTemplates", "flinkConfig"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**CLUSTER["spec"], field: {}}, schema)


def test_the_settings_of_the_cluster_are_those_that_the_tests_run():
    ours = CLUSTER["spec"]["flinkConfiguration"]
    tested = {name: str(value) for name, value in Flink(ROOT)._configuration().items()}
    sizes = {name for name in ours if ".memory." in name or name.endswith("Slots")}
    own = {"env.java.opts.all", "restart-strategy.fixed-delay.attempts"}
    for name in ours.keys() - sizes - own:
        assert ours[name] == tested[name], name
    assert sizes <= tested.keys()
    assert ours["env.java.opts.all"].split() == [*OPENS]
    assert all(isinstance(value, str) for value in ours.values())


def test_a_pod_has_room_for_what_runs_in_it():
    slots = int(CLUSTER["spec"]["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
    flags = dict(flag.split("=", 1) for flag in DRIVER["args"] if "=" in flag)
    assert int(flags["--sdk_worker_parallelism"]) == slots
    for name, found in POOLS.items():
        assert found["resources"]["limits"]["memory"] == f"{slots}Gi", name
        assert found["resources"]["requests"]["cpu"] == str(slots), name
    assert int(flags["--parallelism"]) % slots == 0


def test_images_and_versions_agree():
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    (beam,) = re.findall(r"^ARG BEAM=(.*)$", dockerfile, re.M)
    flinks = (DEPLOY / "flink/Dockerfile").read_text()
    assert re.findall(r"^ARG (\w+)=(.*)$", flinks, re.M) == [("FLINK", "1.20"), ("BEAM", beam)]
    server = containers(JOB["spec"]["template"]["spec"])["jobserver"]
    assert server["image"] == f"apache/beam_flink1.20_job_server:{beam}"
    assert DRIVER["image"] == POOLS["flink"]["image"] == POOLS["spark"]["image"]
    text = (DEPLOY / "flink.md").read_text()
    for image in (DRIVER["image"], CLUSTER["spec"]["image"]):
        assert f"-t {image} " in text and f"push {image}" in text
    name, port = CLUSTER["metadata"]["name"], 8081
    assert f"--flink-master={name}-rest:{port}" in server["args"]
    assert f"--engine_page=http://{name}-rest:{port}" in DRIVER["args"]


def test_the_job_has_flags_that_exist():
    assert DRIVER["command"] == ["python", "-m", "beam_jobs"]
    assert unknown_flags([*DRIVER["command"], *DRIVER["args"]]) == []


@pytest.mark.engines
def test_the_flags_of_the_job_run_on_flink_with_a_worker_pool(flink, pool, tmp_path):
    write_recordings(tmp_path / "in", [3 + n % 40 for n in range(60)], range(0, 60, 7))
    flags = {name: value for name, _, value in (f.partition("=") for f in DRIVER["args"][1:])}
    port = next(a for a in POOLS["flink"]["args"] if a.startswith("--service_port")).split("=")[1]
    assert flags["--environment_config"] == f"localhost:{port}"
    for name in ("--input", "--output", "--image_size", "--engine_page"):
        del flags[name]
    flags |= {"--job_endpoint": f"localhost:{flink.ports[2]}", "--parallelism": "4"}
    flags["--environment_config"] = f"localhost:{pool.ports[0]}"
    job = ["sensors", "--input", f"{tmp_path}/in", "--num_shards", "4", "--window", "3"]
    job += ["--max_rejects", "all"]  # 9 of the 60 recordings are broken.
    assert main([*job, "--output", f"{tmp_path}/here"]) == 0
    sent = [f"{name}={value}" for name, value in flags.items()]
    assert main([*job, "--output", f"{tmp_path}/there", *sent]) == 0
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")


def test_the_pools_are_started_as_the_tests_start_theirs():
    (workers, _) = Pool(ROOT).services()
    tested = [re.sub("=.*/", "=", re.sub(r"=\d+", "", word)) for word in workers.command[1:]]
    for found in POOLS.values():
        words = [*found["command"][1:], *found["args"]]
        assert [re.sub("=.*/", "=", re.sub(r"=\d+", "", word)) for word in words] == tested


def test_the_lifecycle_rules_are_accepted(s3):
    client = boto3.client("s3")
    rules = json.loads((DEPLOY / "lifecycle/s3.json").read_text())
    bucket = s3.url.removeprefix("s3://")
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=rules)
    found = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [rule["ID"] for rule in found] == [rule["ID"] for rule in rules["Rules"]]
    for name in ("gcs", "azure"):
        text = (DEPLOY / f"lifecycle/{name}.json").read_text()
        assert json.loads(text) and "shards/photos/.staging/" in text


# Messages of others in the table of symptoms.
OTHERS = {
    *["Record too large", "Insufficient number of network buffers", "call already cancelled"],
    *["Timeout has occurred: 300000 ms", "Java heap space", "OOMKilled", "InvalidClassException"],
    *["No space left on device", "Too many open files", "Only one SparkContext should be running"],
}


def test_the_messages_of_the_symptoms_exist():
    _, table = (DEPLOY / "clusters.md").read_text().split("## Symptoms and cures")
    named = {*re.findall(r"^\| `([^`]+)` \|", table, re.M)}
    assert named >= OTHERS and len(named - OTHERS) > 6
    files = [*(ROOT / "beam_jobs").rglob("*.py"), *(ROOT / "readers/files").rglob("*.py")]
    code = "".join(path.read_text() for path in files)
    code = re.sub(r'"\s+f?"', "", code)  # Texts that continue on the next line.
    assert [text for text in named - OTHERS if text not in code] == []
