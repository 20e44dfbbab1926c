"""A JobManager on this machine: it answers like Flink's REST interface, and runs nothing."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FlinkService:
    """The answers of a JobManager, by path.

    Attributes:
        address: The address of the service.
        answers: Path -> the answer, which must be JSON; all others are 404.
        cancelled: The ids of jobs that it was asked to cancel; they have ended at once.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"/jobs/overview": {"jobs": []}}
        self.cancelled: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path in service.answers
                self.send_response(200 if known else 404)
                self.end_headers()
                self.wfile.write(json.dumps(service.answers.get(self.path)).encode())

            def do_PATCH(self) -> None:
                id_ = self.path.removeprefix("/jobs/").removesuffix("?mode=cancel")
                service.cancelled.append(id_)
                service.answers[f"/jobs/{id_}"]["state"] = "CANCELED"
                self.send_response(202)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("localhost", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.address = f"http://localhost:{self._server.server_port}"

    def add(self, name: str, id_: str, state: str = "RUNNING") -> None:
        """Lists a job."""
        self.answers["/jobs/overview"]["jobs"].append({"jid": id_, "name": name, "state": state})
        self.answers[f"/jobs/{id_}"] = {"state": state}

    def close(self) -> None:
        """Ends the service."""
        self._server.shutdown()
        self._server.server_close()
