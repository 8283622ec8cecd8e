"""EMR and EMR Serverless as their clients find them over HTTP: each runs a submitted job at once, by a script in place of Spark."""

from __future__ import annotations

import json
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

APPLICATION, JOB_RUN, STEP = "00f1example", "00f1run", "s-1EXAMPLE"


class AwsServer:
    """The server, and what its jobs were given.

    :param spark_submit: the script that is run with a job's arguments.
    """

    def __init__(self, spark_submit: Path) -> None:
        self.spark_submit = spark_submit
        self.requests: list[dict[str, Any]] = []
        """Bodies of the requests that submit a job."""
        self.exit_codes: list[int] = []
        self.answers_submissions = True
        """Whether the client is answered once the job has ended."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def run(self, arguments: list[str]) -> None:
        """Run a job to its end."""
        ended = subprocess.run([str(self.spark_submit), *arguments], check=False, timeout=60, capture_output=True)
        self.exit_codes.append(ended.returncode)

    def answer(self, method: str, path: str, action: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request; None for an internal error."""
        state = "FAILED" if self.exit_codes and self.exit_codes[-1] else "SUCCESS"
        if method == "POST" and path == f"/applications/{APPLICATION}/jobruns":
            self.requests.append(body)
            self.run(body["jobDriver"]["sparkSubmit"]["entryPointArguments"])
            return {"applicationId": APPLICATION, "jobRunId": JOB_RUN, "arn": "arn"} if self.answers_submissions else None
        if action == "ElasticMapReduce.AddJobFlowSteps":
            self.requests.append(body)
            arguments = body["Steps"][0]["HadoopJarStep"]["Args"]
            self.run(arguments[arguments.index("--archive") :])
            return {"StepIds": [STEP]}
        return {
            f"/applications/{APPLICATION}": {"application": {"applicationId": APPLICATION, "state": "STARTED"}},
            f"/applications/{APPLICATION}/jobruns/{JOB_RUN}": {"jobRun": {"jobRunId": JOB_RUN, "state": state, "stateDetails": "ended"}},
            "/ElasticMapReduce.DescribeStep": {"Step": {"Status": {"State": "COMPLETED" if state == "SUCCESS" else "FAILED"}}},
            "/ElasticMapReduce.DescribeCluster": {"Cluster": {"Id": "j-1EXAMPLE"}},
        }.get(path if method == "GET" else f"/{action}", {})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._respond("GET")

            def do_POST(self) -> None:
                self._respond("POST")

            def _respond(self, method: str) -> None:
                given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                action = self.headers.get("X-Amz-Target", "")
                answer = server.answer(method, self.path, action, json.loads(given) if given else {})
                data = json.dumps(answer if answer is not None else {"message": "out of order"}).encode()
                self.send_response(200 if answer is not None else 400)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
