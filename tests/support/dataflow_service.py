"""A Dataflow service on this machine: it accepts jobs like Google's and runs the staged pipelines.

It gives the responses that Beam's client needs, as JSON over HTTP
(https://cloud.google.com/dataflow/docs/reference/rest), and access tokens.
"""

from __future__ import annotations

import json
import threading
import traceback
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from google.protobuf import json_format

TOKEN = "a-token-of-nobody"

# The end of messages about workers' exceptions.
PASSED_THROUGH = (
    "\n\npassed through:\n==>\n    dist_proc/dax/workflow/worker/fnapi_service_impl.cc:1334"
)


class Answer(NamedTuple):
    """The response to a job that the service does not run.

    Attributes:
        code: The HTTP status; any other than 200 refuses the job.
        text: The reason, or the message of the failed job.
        state: The final state of the job.
    """

    code: int = 200
    text: str = ""
    state: str = "JOB_STATE_FAILED"


class Job:
    """A submitted job."""

    def __init__(self, number: int, posted: dict[str, Any], headers: Any, path: str) -> None:
        self.id = f"2026-01-01_00_00_00-{number}"
        self.posted, self.headers, self.path = posted, headers, path
        self.state, self.messages, self.counters = "JOB_STATE_RUNNING", [], []
        self.report(1, "Worker configuration: n1-standard-1 in us-central1-b.")

    def report(self, importance: int, text: str) -> None:
        names = ["", "BASIC", "WARNING", "ERROR"]
        self.messages.append(
            {
                "id": str(len(self.messages)),
                "time": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z"),
                "messageText": text,
                "messageImportance": f"JOB_MESSAGE_{names[importance]}",
            }
        )

    @property
    def options(self) -> dict[str, Any]:
        return self.posted["environment"]["sdkPipelineOptions"]["options"]

    def as_json(self) -> dict[str, Any]:
        _, _, _, project, _, region, *_ = self.path.split("/")
        found = {"id": self.id, "name": self.posted["name"], "projectId": project}
        return {**found, "location": region, "currentState": self.state}


class DataflowService:
    """A context manager that runs the service.

    Args:
        store: The URL of an emulator of Google Cloud Storage.
        workers: host:port of a worker pool of Beam, which stands for all images.
    """

    def __init__(self, store: str, workers: str = "") -> None:
        self.jobs: list[Job] = []
        self.answers: dict[str, Answer] = {}
        self.posts = 0
        self._store, self._workers = store, workers
        self._one_at_a_time = threading.Lock()
        self._server = ThreadingHTTPServer(("localhost", 0), _handler(self))
        self.url = f"http://localhost:{self._server.server_port}"

    def __enter__(self) -> DataflowService:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> Job:
        """The latest job with a name."""
        return [job for job in self.jobs if job.posted["name"] == name][-1]

    def staged(self, path: str) -> bytes:
        """The bytes of gs://bucket/name."""
        bucket, _, name = path.removeprefix("gs://").partition("/")
        quoted = urllib.parse.quote(name, safe="")
        url = f"{self._store}/download/storage/v1/b/{bucket}/o/{quoted}?alt=media"
        with urllib.request.urlopen(url) as answer:
            return answer.read()

    def post(self, path: str, posted: dict[str, Any], headers: Any) -> tuple[int, Any]:
        self.posts += 1
        answer = self.answers.get(posted["name"])
        if answer and answer.code != 200:
            return answer.code, {"error": {"code": answer.code, "message": answer.text}}
        job = Job(len(self.jobs), posted, headers, path)
        self.jobs.append(job)
        described = job.as_json()
        if answer:
            job.state = answer.state
            if answer.text:
                job.report(3, answer.text)
        else:
            threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return 200, described

    def get(self, path: str) -> tuple[int, Any]:
        jobs, _, rest = path.partition("/jobs/")
        number, _, part = rest.partition("/")
        for job in self.jobs:
            if job.id == number and job.path == f"{jobs}/jobs":
                break
        else:
            return 404, {"error": {"code": 404, "message": f"no job {number}"}}
        if part == "messages":
            return 200, {"jobMessages": list(job.messages)}
        if part == "metrics":
            return 200, {"metrics": job.counters}
        return 200, job.as_json()

    def _run(self, job: Job) -> None:
        try:
            with self._one_at_a_time:
                result = self._execute(job)
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            job.report(3, f"Error message from worker: generic::unknown: {text}{PASSED_THROUGH}")
            job.state = "JOB_STATE_FAILED"
        else:
            for counter in result.metrics().query()["counters"]:
                for tentative in ("true", "false"):
                    context = {"step": counter.key.step, "tentative": tentative}
                    context["namespace"] = counter.key.metric.namespace
                    name = {"origin": "user", "name": counter.key.metric.name, "context": context}
                    job.counters.append({"name": name, "scalar": counter.result})
            job.state = "JOB_STATE_DONE"

    def _execute(self, job: Job) -> Any:
        staged = self.staged(job.options["pipelineUrl"])
        pipeline = beam_runner_api_pb2.Pipeline.FromString(staged)
        service = endpoints_pb2.ApiServiceDescriptor(url=self._workers)
        for environment in pipeline.components.environments.values():
            assert environment.urn == common_urns.environments.DOCKER.urn
            environment.urn = common_urns.environments.EXTERNAL.urn
            external = beam_runner_api_pb2.ExternalPayload(endpoint=service)
            environment.payload = external.SerializeToString()
            del environment.dependencies[:]
        options = json_format.ParseDict(
            {f"beam:option:{name}:v1": _whole(value) for name, value in job.options.items()},
            beam_provision_api_pb2.ProvisionInfo().pipeline_options,
        )
        info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=options)
        runner = fn_runner.FnApiRunner(
            provision_info=fn_runner.ExtendedProvisionInfo(info, job_name=job.posted["name"])
        )
        # Otherwise this runner loses elements that are written while it flushes.
        worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
        return runner.run_via_runner_api(pipeline, PipelineOptions([]))


def _whole(value: Any) -> Any:
    """A whole number as text without the fraction that the JSON of protocol buffers adds."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else value


def _handler(service: DataflowService) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self, code: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._answer(*service.get(urllib.parse.urlparse(self.path).path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = urllib.parse.urlparse(self.path).path
            if path == "/token":
                token = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
                self._answer(200, token)
            else:
                self._answer(*service.post(path, json.loads(body), self.headers))

        def log_message(self, *_: object) -> None:
            pass

    return Handler
