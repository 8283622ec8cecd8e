"""What delta-rs asks of an S3 store by our options: the URL, the signature and the condition, as a server of this machine sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cdc.model.delta_rs_options import delta_rs_options
from tests.support.careless_store import CarelessStore, Request, careless_store
from tests.support.natively import new_table

KEYS = {"key": "AK", "secret": "s3cr3t"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[CarelessStore]:
    for name in (name for name in os.environ if name.startswith("AWS_")):
        monkeypatch.delenv(name)
    with careless_store() as running:
        yield running


def asked(store: CarelessStore, options: dict[str, Any], **more: str) -> Request:
    """Open a table that is not there, and return the first request."""
    with pytest.raises(Exception, match="No files in log segment"):
        DeltaTable("s3://b/t", storage_options={**delta_rs_options("s3://b", options, os.environ), **more})
    return store.requests[0]


def test_keys_region_and_path_style_are_used(store: CarelessStore) -> None:
    options = {**KEYS, "endpoint_url": store.endpoint, "client_kwargs": {"region_name": "eu-west-3"}}
    found = asked(store, options)
    assert found.target.startswith("/b/t/_delta_log/")
    assert "Credential=AK/" in found.headers["Authorization"]
    assert "/eu-west-3/s3/aws4_request" in found.headers["Authorization"]
    assert found.headers["x-amz-security-token"] is None


def test_a_session_token_is_sent(store: CarelessStore) -> None:
    found = asked(store, {**KEYS, "token": "T", "endpoint_url": store.endpoint})
    assert found.headers["x-amz-security-token"] == "T"


def test_an_anonymous_request_is_not_signed(store: CarelessStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    found = asked(store, {"anon": True, "endpoint_url": store.endpoint})
    assert found.headers["Authorization"] is None


def test_a_bucket_may_be_a_part_of_the_hosts_name(store: CarelessStore) -> None:
    options = {**KEYS, "endpoint_url": "http://store.example", "config_kwargs": {"s3": {"addressing_style": "virtual"}}}
    # The name exists nowhere: the request goes to the store as to a proxy.
    found = asked(store, options, proxy_url=store.endpoint)
    assert found.target.startswith("http://b.store.example/t/_delta_log/")


def test_a_version_is_written_under_a_condition(store: CarelessStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    new_table("s3://b/t", delta_rs_options("s3://b", {**KEYS, "endpoint_url": store.endpoint}, os.environ))
    (written,) = [request for request in store.requests if request.method == "PUT"]
    assert written.target == "/b/t/_delta_log/00000000000000000000.json"
    assert written.headers["If-None-Match"] == "*"
