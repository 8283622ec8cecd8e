"""What delta-rs asks of an S3 store by our options: the URL, the signature and the condition, as a server of this machine sees them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable

from airflow_cdc.model.delta_rs_options import delta_rs_options
from tests.support.natively import new_table

KEYS = {"key": "AK", "secret": "s3cr3t"}


class Request(NamedTuple):
    """One request."""

    method: str
    target: str
    headers: Message


class Listener(NamedTuple):
    """A server that has nothing, takes everything, and heeds no condition."""

    endpoint: str
    requests: list[Request]
    objects: dict[str, bytes]


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    for name in (name for name in os.environ if name.startswith("AWS_")):
        monkeypatch.delenv(name)
    requests: list[Request] = []
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            requests.append(Request(self.command, self.path, self.headers))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            if self.command == "PUT":
                objects[path] = body
                self.reply(200)
            elif "list-type=2" in query:
                self.reply(200, b"<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>")
            else:
                self.reply(404)

        do_GET = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815 - http.server's names.

        def reply(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name.
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Listener(f"http://127.0.0.1:{server.server_port}", requests, objects)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(listener: Listener, options: dict[str, Any], **more: str) -> Request:
    """Open a table that is not there, and return the first request."""
    with pytest.raises(Exception, match="No files in log segment"):
        DeltaTable("s3://b/t", storage_options={**delta_rs_options("s3://b", options, os.environ), **more})
    return listener.requests[0]


def test_keys_region_and_path_style_are_used(listener: Listener) -> None:
    options = {**KEYS, "endpoint_url": listener.endpoint, "client_kwargs": {"region_name": "eu-west-3"}}
    found = asked(listener, options)
    assert found.target.startswith("/b/t/_delta_log/")
    assert "Credential=AK/" in found.headers["Authorization"]
    assert "/eu-west-3/s3/aws4_request" in found.headers["Authorization"]
    assert found.headers["x-amz-security-token"] is None


def test_a_session_token_is_sent(listener: Listener) -> None:
    found = asked(listener, {**KEYS, "token": "T", "endpoint_url": listener.endpoint})
    assert found.headers["x-amz-security-token"] == "T"


def test_an_anonymous_request_is_not_signed(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    found = asked(listener, {"anon": True, "endpoint_url": listener.endpoint})
    assert found.headers["Authorization"] is None


def test_a_bucket_may_be_a_part_of_the_hosts_name(listener: Listener) -> None:
    options = {**KEYS, "endpoint_url": "http://store.example", "config_kwargs": {"s3": {"addressing_style": "virtual"}}}
    # The name exists nowhere: the request goes to the listener as to a proxy.
    found = asked(listener, options, proxy_url=listener.endpoint)
    assert found.target.startswith("http://b.store.example/t/_delta_log/")


def test_a_version_is_written_under_a_condition(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with pytest.raises(Exception, match="No files in log segment"):
        # The listener lists nothing, so the table is not found once it is written.
        new_table("s3://b/t", delta_rs_options("s3://b", {**KEYS, "endpoint_url": listener.endpoint}, os.environ))
    (written,) = [request for request in listener.requests if request.method == "PUT"]
    assert written.target == "/b/t/_delta_log/00000000000000000000.json"
    assert written.headers["If-None-Match"] == "*"
    assert listener.objects
